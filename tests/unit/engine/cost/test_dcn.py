"""Collectives between slices, over the data-centre network."""

from __future__ import annotations

import pytest

from podyard import engine
from podyard.base.errors import PodyardError
from podyard.engine.cost.dcn import DCN_START_SECONDS, dcn_seconds, in_first_slice
from podyard.hardware.accelerator_types import parse

SUM = """
module @jit_step attributes {{mhlo.num_partitions = {devices} : i32}} {{
  sdy.mesh @mesh = <["data"={slices}, "fsdp"=4]>
  func.func public @main(
      %arg0: tensor<{rows}x8192xf32> {{sdy.sharding = #sdy.sharding<@mesh, [{{"data", "fsdp"}}, {{}}]>}})
      -> tensor<8192x8192xf32> {{
    %0 = stablehlo.dot_general %arg0, %arg0, contracting_dims = [0] x [0]
        : (tensor<{rows}x8192xf32>, tensor<{rows}x8192xf32>) -> tensor<8192x8192xf32>
    return %0 : tensor<8192x8192xf32>
  }}
}}
"""  # noqa: E501


def _step(slices: int, on: str = "v5litepod-4") -> engine.Estimate:
    """A sum of 256 MiB over all devices, as of gradients; a device has the same rows on each."""
    devices = 4 * slices
    text = SUM.format(devices=devices, slices=slices, rows=8 * devices)
    return engine.analyze_stablehlo(text, on, slices=slices)


def test_a_sum_over_slices_takes_the_network_for_each_chips_part() -> None:
    one, two, four = (_step(slices) for slices in (1, 2, 4))
    part = 8192 * 8192 * 4 / 4
    waits = [other.collective_seconds - one.collective_seconds for other in (two, four)]
    hidden = [sum(each.hidden_seconds for each in other.collective_ops) for other in (two, four)]
    # 6.4 Tbps of a pod of 256 chips, in and out of each
    for wait, behind, slices in zip(waits, hidden, (2, 4), strict=True):
        network = DCN_START_SECONDS + 2 * (slices - 1) / slices * part / 3.125e9
        assert wait + behind == pytest.approx(network, rel=0.02)


def test_a_group_inside_of_each_slice_takes_no_network() -> None:
    assert in_first_slice([0, 1, 2, 3], 4) == ([0, 1, 2, 3], 1)
    assert in_first_slice([1, 5, 9], 4) == ([1], 3)
    kind = parse("v6e-8")
    assert dcn_seconds("all-gather", 10**9, chips=8, slices=1, kind=kind) == 0
    gather = dcn_seconds("all-gather", 10**9, chips=8, slices=2, kind=kind)
    assert gather == pytest.approx(DCN_START_SECONDS + 10**9 / 16 / 12.5e9)


def test_without_a_published_figure_the_network_is_a_doubt() -> None:
    doubts = _step(2, "v4-8").reasons
    assert [one for one in doubts if "between slices" in one]


def test_a_module_for_more_devices_says_how_many_there_are() -> None:
    text = SUM.format(devices=16, slices=4, rows=128)
    with pytest.raises(PodyardError, match="2 slices of v5litepod-4 has 8"):
        engine.analyze_stablehlo(text, "v5litepod-4", slices=2)


def test_a_sum_that_a_slice_scatters_behind_crosses_in_parts() -> None:
    """As gradients of weights that are split inside of slices: 64 MiB, of which a chip keeps 4."""
    text = """
module @jit_step attributes {mhlo.num_partitions = 32 : i32} {
  sdy.mesh @mesh = <["data"=2, "fsdp"=16]>
  func.func public @main(
      %arg0: tensor<4096x4096xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"data", "fsdp"}, {}]>})
      -> (tensor<4096x4096xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"fsdp"}, {}]>}) {
    %0 = stablehlo.dot_general %arg0, %arg0, contracting_dims = [0] x [0]
        : (tensor<4096x4096xf32>, tensor<4096x4096xf32>) -> tensor<4096x4096xf32>
    return %0 : tensor<4096x4096xf32>
  }
}
"""
    estimate = engine.analyze_stablehlo(text, "v5litepod-16", slices=2)
    (between,) = (one for one in estimate.collective_ops if one.axes == '"data"')
    assert between.seconds == pytest.approx(DCN_START_SECONDS + 4 * 2**20 / 3.125e9, rel=0.02)
