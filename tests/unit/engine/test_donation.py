"""Donated arguments: whose place a result takes, and when it cannot."""

from __future__ import annotations

from typing import Any

import pytest

from podyard.engine.exact.client import lower_for_tpu
from podyard.engine.program.from_stablehlo import parse_stablehlo
from podyard.engine.program.partition import partition
from podyard.engine.timing.analysis import estimate_program
from podyard.engine.timing.estimate import Estimate
from podyard.hardware.accelerator_types import parse

_MIB = 2**20


def _estimate(text: str, slice_: str = "v3-8") -> Estimate:
    return estimate_program(parse_stablehlo(text), parse(slice_))


def _module(attribute: str) -> str:
    """Two arrays of 4 MiB, of which the second is added to the first."""
    return f"""module @m {{
  func.func public @main(%a: tensor<1024x1024xf32> {attribute}, %b: tensor<1024x1024xf32>) -> tensor<1024x1024xf32> {{
    %0 = stablehlo.add %a, %b : tensor<1024x1024xf32>
    return %0 : tensor<1024x1024xf32>
  }}
}}
"""  # noqa: E501


@pytest.mark.parametrize(
    ("attribute", "mib"),
    [
        ("", 12),
        ("{tf.aliasing_output = 0 : i32}", 8),
        ("{jax.buffer_donor = true}", 8),
        ("{jax.x = true}", 12),
    ],
)
def test_a_donor_gives_its_place_to_a_result_of_its_size(attribute: str, mib: int) -> None:
    assert _estimate(_module(attribute)).peak_hbm_bytes == mib * _MIB


def test_a_donor_of_another_size_gives_its_place_to_nothing() -> None:
    text = _module("{jax.buffer_donor = true}").replace(
        "-> tensor<1024x1024xf32>", "-> tensor<1024x1024xbf16>"
    )
    text = text.replace("return %0 : tensor<1024x1024xf32>", "return %1 : tensor<1024x1024xbf16>")
    convert = (
        "    %1 = stablehlo.convert %0 : (tensor<1024x1024xf32>) -> "
        "tensor<1024x1024xbf16>\n    return"
    )
    assert _estimate(text.replace("    return", convert)).peak_hbm_bytes == 10 * _MIB


def test_sharded_donors_are_matched_by_what_a_device_has() -> None:
    """JAX does not know how a result will lie, and leaves the choice to the compiler."""
    jax = pytest.importorskip("jax")
    sharding: Any = jax.sharding
    mesh = sharding.AbstractMesh((8,), ("x",), axis_types=(sharding.AxisType.Auto,))
    lies = sharding.NamedSharding(mesh, sharding.PartitionSpec("x"))
    given = jax.ShapeDtypeStruct((8192, 1024), "float32", sharding=lies)
    text = lower_for_tpu(jax.jit(lambda a, b: a + b, donate_argnums=0), given, given)
    assert "jax.buffer_donor" in text
    assert _estimate(text).peak_hbm_bytes == 8 * _MIB


def test_what_a_scan_still_reads_is_not_overwritten_by_what_it_stacks() -> None:
    """A cache whose layers a scan takes and gives back: the compiler makes the new one next to the
    old one."""
    jax = pytest.importorskip("jax")

    def step(cache: Any, x: Any) -> Any:
        return jax.lax.scan(lambda x, own: (x + own[0], own + x), x, cache)[1]

    given = (
        jax.ShapeDtypeStruct((16, 256, 1024), "float32"),
        jax.ShapeDtypeStruct((1024,), "float32"),
    )
    estimate = _estimate(lower_for_tpu(jax.jit(step, donate_argnums=0), *given))
    assert 32 * _MIB <= estimate.peak_hbm_bytes < 33 * _MIB


MODULE = """module @m attributes {{mhlo.num_partitions = {devices} : i32}} {{
  sdy.mesh @mesh = <["x"={devices}]>
  func.func public @main(%arg0: tensor<1024x1024xf32> {{{first}}}, %arg1: tensor<1024x512xf32> {{{second}}},
      %arg2: tensor<1024x1024xf32> {{{third}}})
      -> (tensor<1024x512xf32>, tensor<1024x1024xf32>, tensor<1024x1024xf32>) {{
    %0 = stablehlo.add %arg1, %arg1 : tensor<1024x512xf32>
    %1 = stablehlo.add %arg0, %arg2 : tensor<1024x1024xf32>
    %2 = stablehlo.multiply %arg0, %arg2 : tensor<1024x1024xf32>
    return %0, %1, %2 : tensor<1024x512xf32>, tensor<1024x1024xf32>, tensor<1024x1024xf32>
  }}
}}"""  # noqa: E501
DONOR = "jax.buffer_donor = true"
SPLIT = 'sdy.sharding = #sdy.sharding<@mesh, [{"x"}, {}]>'


def module(*attributes: str, devices: int = 1) -> str:
    first, second, third = (*attributes, "", "", "")[:3]
    return MODULE.format(devices=devices, first=first, second=second, third=third)


@pytest.mark.parametrize(
    ("attributes", "donated"),
    [
        ((), {}),
        (("tf.aliasing_output = 2 : i32",), {0: 2}),
        ((DONOR,), {0: 1}),  # the first result of its type
        ((DONOR, DONOR, DONOR), {0: 1, 1: 0, 2: 2}),
        ((DONOR, "", "tf.aliasing_output = 1 : i32"), {0: 2, 2: 1}),  # what is named comes first
        (("jax.buffer_donor = false",), {}),
    ],
)
def test_a_donor_gives_its_memory_to_the_first_free_result_of_its_type(
    attributes: tuple[str, ...], donated: dict[int, int]
) -> None:
    program = parse_stablehlo(module(*attributes))
    assert partition(program).donated == donated
    found = _estimate(module(*attributes))
    nbytes = sum({0: 4, 1: 2, 2: 4}[value] * _MIB for value in donated)
    assert (
        found.argument_bytes + found.result_bytes - found.peak_hbm_bytes
        == nbytes - found.temporary_bytes
    )


def test_types_are_those_of_one_device() -> None:
    split = f"{DONOR}, {SPLIT}"
    program = partition(parse_stablehlo(module(split, split, split, devices=8)))
    assert program.donated == {0: 1, 1: 0, 2: 2}
    assert str(program.types[0]) == "f32[128,1024]"
    found = _estimate(module(split, split, split, devices=8))
    assert found.argument_bytes == (4 + 2 + 4) * _MIB // 8
    assert found.peak_hbm_bytes - found.temporary_bytes < found.argument_bytes + 4096


def test_the_peak_is_the_larger_of_what_hbm_and_the_chip_hold() -> None:
    """The compiler's peak without donation is 46,144,000 bytes: arguments, results, and 6 MiB on
    the chip."""
    jax = pytest.importorskip("jax")

    def step(cache: Any, x: Any, a: Any, b: Any) -> Any:
        return jax.lax.scan(lambda x, own: (x + own[0], own + x), x, cache)[1], (a @ b) @ b

    square = jax.ShapeDtypeStruct((1024, 1024), "bfloat16")
    given = (
        jax.ShapeDtypeStruct((16, 256, 1024), "float32"),
        jax.ShapeDtypeStruct((1024,), "float32"),
        square,
        square,
    )
    kept, donated = (
        _estimate(lower_for_tpu(jax.jit(step, donate_argnums=places), *given), "v5litepod-1")
        for places in ((), (0,))
    )
    assert kept.peak_hbm_bytes == pytest.approx(46_144_000, rel=0.05) and kept.on_chip_bytes > 0
    # A result next to the argument whose place it takes: more than what is on the chip instead.
    assert not donated.on_chip_bytes and donated.peak_hbm_bytes < kept.peak_hbm_bytes
