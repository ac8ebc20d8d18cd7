"""Work on the host in the middle of a program: its transfers take time, and a doubt names it."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from podyard import engine
from podyard.engine.step.host_memory import HostCopy, waited_seconds
from podyard.engine.timing.estimate import Estimate
from podyard.hardware.accelerator_types import parse

MIB = 2**20
LINK = 1.5e10  # bytes per second of a v5e chip's link to its host
SHAPES = (
    jax.ShapeDtypeStruct((2048, 2048), jnp.float32),
    jax.ShapeDtypeStruct((1024, 2048), jnp.float32),
)
TRANSFERS = """
module @step {
  func.func public @main(%w: tensor<2048x2048xf32>, %x: tensor<1024x2048xf32>) -> tensor<1024x2048xf32> {
    %0 = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0] : (tensor<1024x2048xf32>, tensor<2048x2048xf32>) -> tensor<1024x2048xf32>
    %token = stablehlo.create_token : !stablehlo.token
    %sent = "stablehlo.send"(%0, %token) <{channel_handle = #stablehlo.channel_handle<handle = 1, type = 2>, is_host_transfer = true}> : (tensor<1024x2048xf32>, !stablehlo.token) -> !stablehlo.token
    %got:2 = "stablehlo.recv"(%sent) <{channel_handle = #stablehlo.channel_handle<handle = 2, type = 3>, is_host_transfer = true}> : (!stablehlo.token) -> (tensor<1024x2048xf32>, !stablehlo.token)
    %1 = stablehlo.dot_general %got#0, %w, contracting_dims = [1] x [0] : (tensor<1024x2048xf32>, tensor<2048x2048xf32>) -> tensor<1024x2048xf32>
    return %1 : tensor<1024x2048xf32>
  }
}
"""  # noqa: E501


def _call(w: Any, x: Any) -> Any:
    y = x @ w
    z = jax.pure_callback(np.negative, jax.ShapeDtypeStruct(y.shape, y.dtype), y)
    return z @ w


def _plain(w: Any, x: Any) -> Any:
    return -(x @ w) @ w


def _estimate(function: Any) -> Estimate:
    lowered = jax.jit(function).trace(*SHAPES).lower(lowering_platforms=("cpu",))
    return engine.analyze_stablehlo(lowered.as_text(), "v5litepod-1")


def test_a_callback_takes_the_way_to_the_host_and_back() -> None:
    plain, call = _estimate(_plain), _estimate(_call)
    way = 8 * MIB / LINK
    waited = call.modelled_seconds - plain.modelled_seconds
    assert 1.98 * way < waited < 2 * way + 0.2e-3
    (doubt,) = call.doubts
    assert "run on the host: transfers are counted" in doubt.reason
    assert not doubt.about_memory


def test_what_only_goes_to_the_host_is_not_waited_for_where_work_follows() -> None:
    def log(w: Any, x: Any) -> Any:
        y = x @ w
        jax.debug.callback(lambda _: None, y[:8])
        for _ in range(8):
            y = y @ w
        return y

    def work(w: Any, x: Any) -> Any:
        for _ in range(9):
            x = x @ w
        return x

    assert _estimate(log).modelled_seconds < 1.05 * _estimate(work).modelled_seconds


def test_transfers_of_a_module_are_a_call() -> None:
    estimate = engine.analyze_stablehlo(TRANSFERS, "v5litepod-1")
    way = 8 * MIB / LINK
    assert (
        2 * way < estimate.modelled_seconds < _estimate(_plain).modelled_seconds + 2 * way + 0.2e-3
    )
    assert [doubt.reason.split(" (")[0] for doubt in estimate.doubts] == [
        "send",
        "recv",
    ]


@pytest.mark.parametrize("turns", [1, 10])
def test_an_answer_is_waited_for_in_each_turn(turns: int) -> None:
    kind = parse("v5litepod-1")
    out = HostCopy(is_load=False, nbytes=15_000_000, at=0.004)
    back = HostCopy(is_load=True, nbytes=15_000_000, at=0.004, after=(0.004, 15_000_000))
    assert waited_seconds([out, back], 0.005, kind, turns) == pytest.approx(0.002 * turns)
