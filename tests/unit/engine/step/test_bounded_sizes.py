"""Arrays whose size is known when they run, up to a bound."""

from __future__ import annotations

from podyard.engine.program.from_stablehlo import parse_stablehlo

BOUNDED = "tensor<?x8xf32, #stablehlo.bounds<64, ?>>"
MODULE = f"""
module @m {{
  func.func public @main(%a: {BOUNDED}) -> {BOUNDED} {{
    %0 = stablehlo.tanh %a : {BOUNDED}
    return %0 : {BOUNDED}
  }}
}}
"""


def test_an_array_of_bounded_size_has_room_for_its_bound() -> None:
    program = parse_stablehlo(MODULE)
    assert [str(program.type_of(one)) for one in program.body.results] == ["f32[64,8]"]
