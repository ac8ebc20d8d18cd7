"""Donated arguments: whose place a result takes, and when it cannot."""

from __future__ import annotations

from typing import Any

import pytest

from podyard.engine.exact.client import lower_for_tpu
from podyard.engine.program.from_stablehlo import parse_stablehlo
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
"""


@pytest.mark.parametrize(
    ("attribute", "mib"),
    [("", 12), ("{tf.aliasing_output = 0 : i32}", 8), ("{jax.buffer_donor = true}", 8), ("{jax.x = true}", 12)],
)
def test_a_donor_gives_its_place_to_a_result_of_its_size(attribute: str, mib: int) -> None:
    assert _estimate(_module(attribute)).peak_hbm_bytes == mib * _MIB


def test_a_donor_of_another_size_gives_its_place_to_nothing() -> None:
    text = _module("{jax.buffer_donor = true}").replace("-> tensor<1024x1024xf32>", "-> tensor<1024x1024xbf16>")
    text = text.replace("return %0 : tensor<1024x1024xf32>", "return %1 : tensor<1024x1024xbf16>")
    convert = "    %1 = stablehlo.convert %0 : (tensor<1024x1024xf32>) -> tensor<1024x1024xbf16>\n    return"
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
    """A cache whose layers a scan takes and gives back: the compiler makes the new one next to the old one."""
    jax = pytest.importorskip("jax")

    def step(cache: Any, x: Any) -> Any:
        return jax.lax.scan(lambda x, own: (x + own[0], own + x), x, cache)[1]

    given = (jax.ShapeDtypeStruct((16, 256, 1024), "float32"), jax.ShapeDtypeStruct((1024,), "float32"))
    estimate = _estimate(lower_for_tpu(jax.jit(step, donate_argnums=0), *given))
    assert 32 * _MIB <= estimate.peak_hbm_bytes < 33 * _MIB
