"""Arrays in the memory of the host: not in HBM, and copied over PCIe next to the kernels.

Arguments, results and temporaries are those of libtpu 0.0.42 (jax 0.10.2), compiled for v5e.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax.ad_checkpoint import checkpoint_name
from jax.sharding import AbstractMesh, AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

from podyard import engine
from podyard.engine.step.host_memory import HostCopy, waited_seconds
from podyard.engine.timing.estimate import Estimate
from podyard.hardware.accelerator_types import parse

MIB = 2**20
ON_DEVICE = NamedSharding(AbstractMesh((4,), ("x",), axis_types=(AxisType.Auto,)), P("x"))
Shape = jax.ShapeDtypeStruct


def both_ways(function: Any, *arguments: Any, on: str) -> Iterator[Estimate]:
    yield engine.analyze(function, *arguments, accelerator_type=on)
    jitted = function if hasattr(function, "trace") else jax.jit(function)
    lowered = jitted.trace(*arguments).lower(lowering_platforms=("tpu",))
    yield engine.analyze_stablehlo(lowered.as_text(), on)


def _update(p: Any, moment: Any, x: Any) -> Any:
    gradient = jax.grad(lambda p: jnp.sum(jnp.tanh(x @ p)))(p)
    new = 0.9 * jax.device_put(moment, jax.memory.Space.Device) + gradient
    return p - 0.1 * new, jax.device_put(new, jax.memory.Space.Host)


@pytest.mark.parametrize("kind", ["pinned_host", "unpinned_host"])
def test_the_state_of_an_optimizer_on_the_host_takes_no_hbm(kind: str) -> None:
    host = ON_DEVICE.with_memory_kind(kind)
    shapes = [Shape((8192, 8192), jnp.float32, sharding=one) for one in (ON_DEVICE, host)]
    shapes.append(Shape((512, 8192), jnp.float32, sharding=ON_DEVICE))
    step = jax.jit(_update, out_shardings=(ON_DEVICE, host))
    one_way = 64 * MIB / 1.5e10
    for found in both_ways(step, *shapes, on="v5litepod-4"):
        assert (found.argument_bytes, found.result_bytes // MIB) == (68 * MIB, 64)
        assert found.temporary_bytes <= 1.3 * 256.2 * MIB
        assert not found.doubts
        # The old moment can come from the start, the new one goes when it is made; neither is
        # hidden as a whole.
        assert one_way < found.modelled_seconds < 2 * one_way + 6e-3


def test_a_result_can_lie_on_the_host() -> None:
    host = ON_DEVICE.with_memory_kind("pinned_host")
    x = Shape((4096, 4096), jnp.float32, sharding=ON_DEVICE)
    for found in both_ways(
        jax.jit(lambda x: (x + 1, x * 2), out_shardings=(ON_DEVICE, host)), x, on="v5litepod-4"
    ):
        assert found.result_bytes // MIB == 16
        assert found.modelled_seconds >= 16 * MIB / 1.5e10


def _loss(is_offloaded: bool) -> Any:
    names = {"names_which_can_be_saved": [], "names_which_can_be_offloaded": ["x"]}
    if not is_offloaded:
        names = {"names_which_can_be_saved": ["x"], "names_which_can_be_offloaded": []}
    policy = jax.checkpoint_policies.save_and_offload_only_these_names(
        offload_src="device", offload_dst="pinned_host", **names
    )

    def layer(x: Any, w: Any) -> Any:
        return jnp.tanh(jnp.tanh(checkpoint_name(x, "x") @ w) @ w.T), None

    def loss(w: Any, x: Any) -> Any:
        return jax.lax.scan(jax.checkpoint(layer, policy=policy), x, w)[0].astype("float32").sum()

    return jax.grad(loss)


def test_the_stack_of_a_scan_stays_on_the_host() -> None:
    shapes = (Shape((16, 2048, 4096), jnp.bfloat16), Shape((16384, 2048), jnp.bfloat16))
    for kept, found in zip(
        both_ways(_loss(False), *shapes, on="v5litepod-1"),
        both_ways(_loss(True), *shapes, on="v5litepod-1"),
        strict=True,
    ):
        assert found.temporary_bytes == pytest.approx(416.5 * MIB, rel=0.1)
        assert kept.temporary_bytes - found.temporary_bytes == 1024 * MIB
        assert found.argument_bytes == kept.argument_bytes == 320 * MIB
        assert not found.doubts
        # 64 MiB there and back for each of 16 layers is more than the layers' kernels hide.
        assert (
            kept.modelled_seconds
            < found.modelled_seconds
            < kept.modelled_seconds + 2 * 1024 * MIB / 1.5e10
        )


def test_an_array_of_the_host_that_is_read_is_copied() -> None:
    text = """module @m {
  func.func public @main(%arg0: tensor<2048x2048xf32> {mhlo.memory_kind = "pinned_host"}, %arg1: tensor<2048x2048xf32>) -> tensor<2048x2048xf32> {
    %0 = stablehlo.add %arg0, %arg1 : tensor<2048x2048xf32>
    return %0 : tensor<2048x2048xf32>
  }
}
"""  # noqa: E501
    found = engine.analyze_stablehlo(text, "v5litepod-1")
    assert found.argument_bytes == 16 * MIB
    assert found.modelled_seconds >= 16 * MIB / 1.5e10


@pytest.mark.parametrize(
    ("copies", "waits"),
    [
        ([], 0.0),
        ([HostCopy(True, 15_000_000, 1e-3)], 0.0),  # read when it is there
        ([HostCopy(True, 15_000_000, 0.0)], 1e-3),  # read from the start
        # one after the other
        ([HostCopy(True, 15_000_000, 1e-3), HostCopy(True, 30_000_000, 1e-3)], 2e-3),
        ([HostCopy(False, 15_000_000, 8e-3)], 0.0),
        ([HostCopy(False, 15_000_000, 10e-3)], 1e-3),  # made last
        # both directions at once
        ([HostCopy(True, 15_000_000, 0.0), HostCopy(False, 15_000_000, 9e-3)], 1e-3),
        ([HostCopy(True, 30_000_000, 0.0), HostCopy(False, 45_000_000, 9e-3)], 4e-3),
    ],
)
def test_a_copy_is_waited_for_as_far_as_kernels_do_not_hide_it(
    copies: list[HostCopy], waits: float
) -> None:
    assert waited_seconds(copies, 10e-3, parse("v5litepod-1")) == pytest.approx(waits)
    if copies:
        assert waited_seconds(copies, 10e-3, parse("v6e-1")) <= waits / 2


def test_copies_of_a_loop_run_next_to_the_turns_before_and_after() -> None:
    kind = parse("v5litepod-1")
    early = [HostCopy(is_load=True, nbytes=150_000_000, at=0.0)]  # 10 ms, and its reader is first
    assert waited_seconds(early, 0.02, kind) == pytest.approx(0.01)
    assert waited_seconds(early, 0.02, kind, turns=50) == pytest.approx(0.01)
    # a turn of 4 ms cannot hide 10 ms of copies
    assert waited_seconds(early, 0.004, kind, turns=50) == pytest.approx(0.01 + 49 * 0.006)


def test_what_a_manual_computation_offloads_lies_on_the_host() -> None:
    """As the results of an attention kernel, which is called inside of `shard_map`."""

    def manual(x: Any) -> Any:
        return jax.device_put(jnp.tanh(x), jax.memory.Space.Host)

    mesh = AbstractMesh((4,), ("x",), axis_types=(AxisType.Auto,))
    split = jax.shard_map(manual, mesh=mesh, in_specs=P("x"), out_specs=P("x"), check_vma=False)

    def step(x: Any, w: Any) -> Any:
        away = split(x)
        y = jnp.sum(x @ w)
        return y + jnp.sum(jax.device_put(away, jax.memory.Space.Device))

    shapes = [Shape((8192, 8192), jnp.float32, sharding=ON_DEVICE)]
    shapes.append(Shape((8192, 8192), jnp.float32))
    lowered = jax.jit(step).trace(*shapes).lower(lowering_platforms=("tpu",))
    estimate = engine.analyze_stablehlo(lowered.as_text(), "v5litepod-4")
    assert "host copies" in " ".join(op.name for op in estimate.ops)
