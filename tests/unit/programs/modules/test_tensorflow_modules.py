"""Modules of TensorFlow's bridge, as it writes them, on all devices of a slice."""

from __future__ import annotations

import pytest

from podyard import engine
from podyard.hardware.accelerator_types import parse
from podyard.programs import tensorflow_modules
from podyard.programs.estimator import estimate

STEP = """\
#loc1 = loc("x.1")
module @a_inference_step_28__.4 attributes {mhlo.cross_program_prefetches = [], mhlo.input_output_alias = [{alias = \
{kind = "may_alias", parameter_index = array<i64>, parameter_number = 1 : i64}, output_index = array<i64: 1>}, \
{alias = {kind = "may_alias", parameter_index = array<i64>, parameter_number = 2 : i64}, output_index = \
array<i64: 2>}], mhlo.is_dynamic = false, mhlo.use_auto_spmd_partitioning = false} {
  func.func private @region_0.3(%arg0: tensor<f32> loc("XlaCustomCallV2"), %arg1: tensor<f32> loc("a\\"b")) -> \
tensor<f32> {
    %0 = stablehlo.add %arg0, %arg1 : tensor<f32> loc(#loc7)
    return %0 : tensor<f32> loc(#loc)
  } loc(#loc)
  func.func @main(%arg0: tensor<16x64xf32> loc("XLA_Args"), %arg1: tensor<64x32xf32> loc("XLA_Args"), \
%arg2: tensor<i64> loc("XLA_Args")) -> (tensor<16x32xf32>, tensor<64x32xf32>, tensor<i64>) {
    %1 = stablehlo.dot %arg0, %arg1, precision = [DEFAULT, DEFAULT] {mhlo.frontend_attributes = {grad_x = "false", \
grad_y = "false"}} : (tensor<16x64xf32>, tensor<64x32xf32>) -> tensor<16x32xf32> loc(#loc21)
    %15 = stablehlo.dot_general %arg0, %1, contracting_dims = [0] x [0], precision = [DEFAULT, DEFAULT] : \
(tensor<16x64xf32>, tensor<16x32xf32>) -> tensor<64x32xf32> loc("Conv"(#loc26))
    %17 = stablehlo.custom_call @podyard_all_reduce(%15) {api_version = 3 : i32, backend_config = "", operand_layouts = \
[dense<[1, 0]> : tensor<2xindex>], result_layouts = [dense<[1, 0]> : tensor<2xindex>]} : (tensor<64x32xf32>) -> \
tensor<64x32xf32> loc(#loc7)
    %19 = stablehlo.subtract %arg1, %17 : tensor<64x32xf32> loc(#loc27)
    %21 = mhlo.copy %19 : tensor<64x32xf32> loc(#loc13)
    %c_2 = stablehlo.constant dense<1> : tensor<i64> loc(#loc28)
    %22 = stablehlo.add %arg2, %c_2 : tensor<i64> loc(#loc28)
    return %1, %21, %22 : tensor<16x32xf32>, tensor<64x32xf32>, tensor<i64> loc(#loc)
  } loc(#loc)
} loc(#loc)
#loc7 = loc("XlaCustomCallV2")
#loc28 = loc(fused[#loc19, #loc9])
"""  # noqa: E501


def test_the_gradient_sum_is_that_of_the_slice() -> None:
    text = tensorflow_modules.over_replicas(STEP, "train step", 8, 1)
    assert "loc(" not in text and "mhlo.copy" not in text and "module @train_step " in text
    found = engine.analyze_stablehlo(text, accelerator_type="v3-8")
    plan = engine.all_reduce_plan("v3-8", 64 * 32 * 4)
    assert [str(one).split(",")[0] for one in found.collectives] == [
        f"all-reduce of {64 * 32 * 4} bytes: {plan.family}"
    ]
    assert found.collective_seconds == pytest.approx(plan.seconds)


def test_a_replica_has_its_part_of_the_batch_and_updates_variables_in_place() -> None:
    text = tensorflow_modules.over_replicas(STEP, "step", 8, 1)
    found = engine.analyze_stablehlo(text, accelerator_type="v3-8")
    assert found.flops >= 2 * 2 * 16 * 64 * 32
    assert (
        "%arg0: tensor<128x64xf32>, %arg1: tensor<64x32xf32> {tf.aliasing_output = 1 : i32}" in text
    )


def test_one_device_needs_no_mesh() -> None:
    without_sum = STEP.replace("stablehlo.subtract %arg1, %17", "stablehlo.subtract %arg1, %15")
    one = tensorflow_modules.over_replicas(without_sum, "step", 1, 1)
    assert one == tensorflow_modules.of_one_device(without_sum, "step")
    assert "sdy." not in one and engine.analyze_stablehlo(one, accelerator_type="v5litepod-1").flops


def test_what_is_no_module_is_an_error() -> None:
    with pytest.raises(ValueError, match="no module with a function main"):
        tensorflow_modules.over_replicas("HloModule step", "step", 8, 1)


def test_a_step_that_xla_does_not_compile_is_not_covered() -> None:
    found = estimate(b"// not lowered: it has no kernel for AsString", parse("v3-8"))
    assert found.seconds is None
    assert found.error == "XLA does not compile it: it has no kernel for AsString"
