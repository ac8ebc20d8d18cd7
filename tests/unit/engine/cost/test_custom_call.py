"""Time of kernels: the unit that they keep busy longest."""

from __future__ import annotations

import dataclasses
import json

import pytest

from podyard import engine
from podyard.base.kernel_cost import KernelCost
from podyard.engine.cost.custom_call import STEP_SECONDS, CoreRates, doubts_of, kernel_seconds

RATES = CoreRates(
    flops_per_second=100.0, vector_per_second=10.0, hbm_bytes_per_second=5.0, vmem_bytes=64.0
)
COST = KernelCost("kernel", flops=1000.0, hbm_bytes=20.0, vector_operations=40.0)


def test_units_work_at_the_same_time_and_steps_are_added() -> None:
    seconds = kernel_seconds(COST, RATES)
    assert (seconds.matrix, seconds.vector, seconds.hbm, seconds.total, seconds.bound) == (
        10,
        4,
        4,
        10,
        "mxu",
    )
    for field, bound in (
        ("hbm_bytes", "hbm"),
        ("vector_operations", "vpu"),
        ("transcendentals", "vpu"),
    ):
        assert kernel_seconds(dataclasses.replace(COST, **{field: 1e4}), RATES).bound == bound
    in_steps = kernel_seconds(dataclasses.replace(COST, steps=4.0), RATES)
    # a quarter of the copies waits for nothing else
    assert in_steps.total == 10 + 4 * STEP_SECONDS + 1


def test_more_vmem_than_a_kernel_may_have_is_named() -> None:
    large = dataclasses.replace(COST, vmem_bytes=65.0)
    assert doubts_of(COST, RATES) == []
    assert "VMEM" in doubts_of(large, RATES)[0]
    assert doubts_of(dataclasses.replace(large, vmem_limit_bytes=100.0), RATES) == []


MODULE = """module @jit_f {
  func.func public @main(%arg0: tensor<1024x1024xbf16>) -> tensor<1024x1024xbf16> {
    %0 = stablehlo.custom_call @tpu_custom_call(%arg0) {ATTRIBUTES} : (tensor<1024x1024xbf16>) -> tensor<1024x1024xbf16>
    return %0 : tensor<1024x1024xbf16>
  }
}
"""  # noqa: E501


def _estimate(attributes: str) -> engine.Estimate:
    return engine.analyze_stablehlo(
        MODULE.replace("ATTRIBUTES", attributes), accelerator_type="v5litepod-1"
    )


def _text(data: object) -> str:
    return json.dumps(data).replace('"', "\\22")


@pytest.mark.parametrize("record", [True, False])
def test_a_custom_call_takes_what_its_record_or_its_author_says(record: bool) -> None:
    flops = 197e12 / 1000
    if record:
        record_text = KernelCost("mine", flops, 1e6, flops).to_json().replace('"', "\\22")
        attributes = f'mhlo.frontend_attributes = {{podyard_kernel = "{record_text}"}}'
    else:
        estimate = {"flops": flops, "transcendentals": 0, "bytes_accessed": 1e6}
        attributes = (
            f'backend_config = "{_text({"custom_call_config": {"cost_estimate": estimate}})}"'
        )
    found = _estimate(attributes)
    assert found.device_seconds == pytest.approx(1e-3, rel=0.01)
    assert found.flops == flops and found.reasons == ()
    assert found.ops[0].name == f"custom_call @{'mine' if record else 'tpu_custom_call'}.1"


def test_a_kernel_that_says_nothing_is_priced_by_its_bytes_with_a_warning() -> None:
    found = _estimate('backend_config = "{}"')
    assert found.device_seconds == pytest.approx(2 * 2 * 2**20 / 737.7e9, rel=0.1)
    assert any("kernel body unknown" in reason for reason in found.reasons)


def test_a_kernel_in_a_loop_runs_at_each_turn() -> None:
    loop = """module @jit_f {
  func.func public @main(%arg0: tensor<128x128xf32>) -> tensor<128x128xf32> {
    %c = stablehlo.constant dense<0> : tensor<i32>
    %0:2 = stablehlo.while(%i = %c, %x = %arg0) : tensor<i32>, tensor<128x128xf32>
    cond {
      %n = stablehlo.constant dense<10> : tensor<i32>
      %1 = stablehlo.compare LT, %i, %n : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %1 : tensor<i1>
    } do {
      %1 = stablehlo.custom_call @tpu_custom_call(%x) {backend_config = "CONFIG"} : (tensor<128x128xf32>) -> tensor<128x128xf32>
      %one = stablehlo.constant dense<1> : tensor<i32>
      %2 = stablehlo.add %i, %one : tensor<i32>
      stablehlo.return %2, %1 : tensor<i32>, tensor<128x128xf32>
    }
    return %0#1 : tensor<128x128xf32>
  }
}
"""  # noqa: E501
    estimate = {"flops": 197e9, "transcendentals": 0, "bytes_accessed": 1e6}
    text = loop.replace("CONFIG", _text({"custom_call_config": {"cost_estimate": estimate}}))
    found = engine.analyze_stablehlo(text, accelerator_type="v5litepod-1")
    assert found.device_seconds == pytest.approx(10e-3, rel=0.01)
