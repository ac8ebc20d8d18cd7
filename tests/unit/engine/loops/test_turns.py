"""Turns of loops as TensorFlow's bridge writes them: two tests in a function, numbers that are
handed on in another form, and a loop for gradients that takes its limit from the loop before."""

from __future__ import annotations

import pytest

from podyard.engine.program.from_stablehlo import parse_stablehlo
from podyard.engine.program.loops import trip_count

TEXT = """
module @loops {{
  func.func private @cond(%i: tensor<i32>, %t: tensor<i32>) -> tensor<i1> {{
    %most = stablehlo.constant dense<{most}> : tensor<i32>
    %0 = stablehlo.compare LT, %i, %most : (tensor<i32>, tensor<i32>) -> tensor<i1>
    %end = stablehlo.constant dense<{end}> : tensor<i32>
    %1 = stablehlo.compare LT, %t, %end : (tensor<i32>, tensor<i32>) -> tensor<i1>
    %2 = stablehlo.{join} %0, %1 : tensor<i1>
    %3 = stablehlo.reshape %2 : (tensor<i1>) -> tensor<i1>
    return %3 : tensor<i1>
  }}
  func.func @main(%x: tensor<8xf32>) -> tensor<8xf32> {{
    %zero = stablehlo.constant dense<0> : tensor<i32>
    %0:3 = stablehlo.while(%i = %zero, %t = %zero, %a = %x) : tensor<i32>, tensor<i32>, tensor<8xf32>
    cond {{
      %c = func.call @cond(%i, %t) : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %c : tensor<i1>
    }} do {{
      %one = stablehlo.constant dense<1> : tensor<i32>
      %1 = stablehlo.add %i, %one : tensor<i32>
      %2 = stablehlo.reshape %1 : (tensor<i32>) -> tensor<i32>
      %two = stablehlo.constant dense<2> : tensor<i32>
      %3 = stablehlo.add %t, %two : tensor<i32>
      %4 = stablehlo.tanh %a : tensor<8xf32>
      stablehlo.return %2, %3, %4 : tensor<i32>, tensor<i32>, tensor<8xf32>
    }}
    %5:3 = stablehlo.while(%i = %zero, %n = %0#0, %a = %0#2) : tensor<i32>, tensor<i32>, tensor<8xf32>
    cond {{
      %c = stablehlo.compare LT, %i, %n : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %c : tensor<i1>
    }} do {{
      %one = stablehlo.constant dense<1> : tensor<i32>
      %1 = stablehlo.add %i, %one : tensor<i32>
      %2 = stablehlo.reshape %n : (tensor<i32>) -> tensor<i32>
      %3 = stablehlo.sine %a : tensor<8xf32>
      stablehlo.return %1, %2, %3 : tensor<i32>, tensor<i32>, tensor<8xf32>
    }}
    return %5#2 : tensor<8xf32>
  }}
}}
"""  # noqa: E501


CHAINED = """
    %l{k}:3 = stablehlo.while(%i = {start}, %n = {end}, %a = {array}) : tensor<i32>, tensor<i32>, tensor<8xf32>
    cond {{
      %c = stablehlo.compare LT, %i, %n : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %c : tensor<i1>
    }} do {{
      %one = stablehlo.constant dense<1> : tensor<i32>
      %1 = stablehlo.add %i, %one : tensor<i32>
      %2 = stablehlo.tanh %a : tensor<8xf32>
      stablehlo.return %1, %n, %2 : tensor<i32>, tensor<i32>, tensor<8xf32>
    }}"""  # noqa: E501


def _turns(most: int, end: int, join: str = "and") -> list[int | None]:
    program = parse_stablehlo(TEXT.format(most=most, end=end, join=join))
    loops = [one for one in program.body.operations if one.opcode == "while"]
    return [trip_count(program, loop) for loop in loops]


@pytest.mark.parametrize(("most", "end", "turns"), [(20, 20, 10), (7, 20, 7), (20, 9, 5)])
def test_the_first_test_that_fails_ends_a_loop_and_the_one_that_counts_its_turns(
    most: int, end: int, turns: int
) -> None:
    assert _turns(most, end) == [turns, turns]


def test_turns_are_unknown_where_one_of_two_tests_is_enough() -> None:
    assert _turns(20, 20, "or") == [None, None]


@pytest.mark.parametrize(("loops", "turns"), [(40, 0), (400, None)])
def test_a_counter_that_goes_through_many_loops_is_followed_for_a_while(
    loops: int, turns: int | None
) -> None:
    """Both numbers of each loop come out of the one before it: each is looked for once, or the work
    doubles with every loop."""
    parts, numbers = [], ("%zero", "%end", "%x")
    for k in range(loops):
        start, end, array = numbers
        parts.append(CHAINED.format(k=k, start=start, end=end, array=array))
        numbers = (f"%l{k}#0", f"%l{k}#1", f"%l{k}#2")
    program = parse_stablehlo(f"""module @m {{
      func.func @main(%x: tensor<8xf32>) -> tensor<8xf32> {{
        %zero = stablehlo.constant dense<0> : tensor<i32>
        %end = stablehlo.constant dense<3> : tensor<i32>
        {"".join(parts)}
        return {numbers[2]} : tensor<8xf32>
      }}
    }}""")
    chain = [one for one in program.body.operations if one.opcode == "while"]
    assert trip_count(program, chain[0]) == 3
    assert trip_count(program, chain[-1]) == turns
