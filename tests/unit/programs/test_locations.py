"""Lines of a module's text come from lines of the program."""

from __future__ import annotations

from podyard.programs.modules.locations import again_alone, lines_of_program

# As JAX prints it: frames inner first, aliases at both ends, the location of an operation with
# regions behind them, and a function of the library without a location.
MODULE = """#loc1 = loc("x")
module @jit_f {
  func.func public @main(%arg0: tensor<8xf32> loc("x")) -> tensor<8xf32> {
    %0 = call @sort(%arg0) : (tensor<8xf32>) -> tensor<8xf32> loc(#loc8)
    %1 = "stablehlo.while"(%0) ({
      %2 = stablehlo.negate %0 : tensor<8xf32> loc(#loc9)
      stablehlo.return %2 : tensor<8xf32> loc(#loc)
    }) : (tensor<8xf32>) -> tensor<8xf32> loc(#loc7)
    return %1 : tensor<8xf32> loc(#loc)
  }
  func.func private @sort(%arg0: tensor<8xf32> loc("x")) -> tensor<8xf32> {
    %0 = stablehlo.abs %arg0 : tensor<8xf32> loc(#loc1)
    return %0 : tensor<8xf32> loc(#loc)
  }
}
#loc = loc(unknown)
#loc2 = loc("/env/lib/python3.11/site-packages/flax/linen.py":70:4)
#loc3 = loc("/home/me/train.py":16:8 to 16:20)
#loc4 = loc("/home/me/train.py":20:0)
#loc5 = loc(callsite(#loc2 at #loc3))
#loc7 = loc("jit(f)/while"(#loc5))
#loc8 = loc("jit(f)/sort"(#loc4))
#loc9 = loc("jit(f)/neg"(#loc2))
"""


def _source_of(operation: str) -> str:
    lines = again_alone(MODULE).splitlines()
    (number,) = [place for place, line in enumerate(lines) if operation in line]
    return lines_of_program(MODULE)[number]


def test_the_innermost_frame_of_the_program_itself_is_named() -> None:
    assert _source_of("call @sort") == "train.py:20"


def test_an_operation_with_regions_has_the_location_behind_them() -> None:
    assert _source_of("stablehlo.while") == "train.py:16"


def test_a_frame_of_a_library_is_named_where_the_program_has_none() -> None:
    assert _source_of("stablehlo.negate") == "linen.py:70"


def test_a_function_without_locations_comes_from_its_caller() -> None:
    assert _source_of("stablehlo.abs") == "train.py:20"


def test_a_location_within_itself_is_none() -> None:
    text = (
        'module {\n  %0 = stablehlo.abs %1 : tensor<f32> loc(#loc1)\n}\n#loc1 = loc("f"(#loc1))\n'
    )
    assert lines_of_program(text) == ["", "", ""]
