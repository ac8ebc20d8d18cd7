"""Arguments whose memory results take over, as StableHLO says it."""

from __future__ import annotations

import pytest

from podyard.engine import analyze_stablehlo
from podyard.engine.program.from_stablehlo import parse_stablehlo
from podyard.engine.program.partition import partition

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
}}"""
DONOR, MIB = "jax.buffer_donor = true", 2**20
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
    found = analyze_stablehlo(module(*attributes), "v3-8")
    nbytes = sum({0: 4, 1: 2, 2: 4}[value] * MIB for value in donated)
    assert found.argument_bytes + found.result_bytes - found.peak_hbm_bytes == nbytes - found.temporary_bytes


def test_types_are_those_of_one_device() -> None:
    split = f"{DONOR}, {SPLIT}"
    program = partition(parse_stablehlo(module(split, split, split, devices=8)))
    assert program.donated == {0: 1, 1: 0, 2: 2}
    assert str(program.types[0]) == "f32[128,1024]"
    found = analyze_stablehlo(module(split, split, split, devices=8), "v3-8")
    assert found.argument_bytes == (4 + 2 + 4) * MIB // 8
    assert found.peak_hbm_bytes - found.temporary_bytes < found.argument_bytes + 4096
