"""Bodies in StableHLO text: loops in loops, and manual computations."""

from __future__ import annotations

import pytest

from podyard.base.errors import PodyardError
from podyard.engine.program.from_stablehlo import parse_stablehlo
from podyard.engine.timing.analysis import estimate_program
from podyard.hardware.accelerator_types import parse


def test_loops_that_would_take_years_are_refused() -> None:
    def loop(name: str, inside: str) -> str:
        return f"""
        %{name}0 = stablehlo.constant dense<0> : tensor<i64>
        %{name}end = stablehlo.constant dense<10000000> : tensor<i64>
        %{name}one = stablehlo.constant dense<1> : tensor<i64>
        %{name}last = stablehlo.while(%{name} = %{name}0) : tensor<i64>
        cond {{
          %less = stablehlo.compare LT, %{name}, %{name}end : (tensor<i64>, tensor<i64>) -> tensor<i1>
          stablehlo.return %less : tensor<i1>
        }} do {{
          {inside}
          %next = stablehlo.add %{name}, %{name}one : tensor<i64>
          stablehlo.return %next : tensor<i64>
        }}"""  # noqa: E501

    for depth, refused in ((1, False), (2, True)):
        text = "%t = stablehlo.tanh %x : tensor<8xf32>"
        for level in range(depth):
            text = loop(f"l{level}", text)
        module = (
            f"func.func @main(%x: tensor<8xf32>) -> tensor<8xf32> {{ {text}\n return %x : "
            f"tensor<8xf32> }}"
        )
        program = parse_stablehlo(module)
        if refused:
            with pytest.raises(PodyardError, match="runs 100000000000000 times"):
                estimate_program(program, parse("v3-8"))
        else:
            assert estimate_program(program, parse("v3-8")).confidence == "modelled"


def test_a_manual_computation_may_have_no_arguments() -> None:
    program = parse_stablehlo("""module @jit_f {
  sdy.mesh @mesh = <["x"=2]>
  func.func public @main() -> tensor<8xf32> {
    %0 = sdy.manual_computation() in_shardings=[] out_shardings=[<@mesh, [{"x"}]>] manual_axes={"x"} () {
      %c = stablehlo.constant dense<1.0> : tensor<4xf32>
      sdy.return %c : tensor<4xf32>
    } : () -> tensor<8xf32>
    return %0 : tensor<8xf32>
  }
}
""")  # noqa: E501
    assert [step.opcode for step in program.body.operations] == ["constant", "unshard"]
