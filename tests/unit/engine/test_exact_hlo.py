"""What is read from the compiler's HLO text: cycles, loops, conditionals, collectives."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from podyard.base.errors import Code, PodyardError
from podyard.engine.exact import hlo


def _cycles(number: int) -> str:
    return (
        f', backend_config={{"flag_configs":[],"window_config":{{"estimated_cycles":"{number}"}}}}'
    )


def _loop(
    start: str = "0",
    step: str = "1",
    limit: str = "7",
    test: str = "%i, %limit",
    direction: str = "LT",
) -> str:
    """A loop around a kernel of 100 cycles; its condition runs a kernel of 3."""
    return f"""HloModule loops, is_scheduled=true

%body (state: (s32[], f32[8])) -> (s32[], f32[8]) {{
  %state = (s32[]{{:T(256)}}, /*index=1*/f32[8]{{0:T(256)}}) parameter(0)
  %n = s32[]{{:T(256)}} get-tuple-element(%state), index=0
  %step = s32[]{{:T(256)}} constant({step})
  %next = s32[]{{:T(256)}} add(%n, %step), metadata={{op_name="add"}}
  %x = f32[8]{{0:T(256)}} get-tuple-element(%state), index=1
  %kernel = f32[8]{{0:T(256)}} negate(%x), metadata={{op_name="f/neg(x)" source_line=3}}{_cycles(100)}
  ROOT %out = (s32[]{{:T(256)}}, f32[8]{{0:T(256)}}) tuple(%next, %kernel)
}}

%condition (state.1: (s32[], f32[8])) -> pred[] {{
  %state.1 = (s32[]{{:T(256)}}, f32[8]{{0:T(256)}}) parameter(0)
  %i = s32[]{{:T(256)}} get-tuple-element(%state.1), index=0
  %limit = s32[]{{:T(256)}} constant({limit})
  %look = f32[]{{:T(256)}} negate(%i){_cycles(3)}
  ROOT %test = pred[]{{:T(512)}} compare({test}), direction={direction}
}}

ENTRY %main (x.1: f32[8]) -> f32[8] {{
  %x.1 = f32[8]{{0:T(256)}} parameter(0)
  %start = s32[]{{:T(256)}} constant({start})
  %begin = s32[]{{:T(256)}} copy(%start)
  %first = (s32[]{{:T(256)}}, f32[8]{{0:T(256)}}) tuple(%begin, /*index=1*/%x.1)
  %while = (s32[]{{:T(256)}}, f32[8]{{0:T(256)}}) while(%first), condition=%condition, body=%body
  ROOT %result = f32[8]{{0:T(256)}} get-tuple-element(%while), index=1
}}
"""  # noqa: E501


_OPERATORS: dict[str, Callable[[int, int], bool]] = {
    "LT": int.__lt__, "LE": int.__le__, "GT": int.__gt__, "GE": int.__ge__, "NE": int.__ne__,
}  # fmt: skip


def test_a_kernel_carries_its_cycles_shape_and_name() -> None:
    ops = {op.name: op for op in hlo.summarise(_loop()).ops}
    assert ops["look"].count == 8
    assert ops["kernel"] == hlo.ExactOp("kernel", "negate", "f32[8]{0:T(256)}", 100, 7, "f/neg(x)")


def test_a_loop_multiplies_its_body_and_tests_once_more() -> None:
    assert hlo.summarise(_loop()).cycles == 7 * 100 + 8 * 3


@given(
    start=st.integers(-20, 20),
    step=st.integers(-5, 5),
    limit=st.integers(-20, 20),
    direction=st.sampled_from(sorted(_OPERATORS)),
    swapped=st.booleans(),
)
def test_the_trip_count_is_that_of_running_the_loop(
    start: int, step: int, limit: int, direction: str, swapped: bool
) -> None:
    compare = _OPERATORS[direction]
    trips, value = 0, start
    while (compare(limit, value) if swapped else compare(value, limit)) and trips < 100:
        trips, value = trips + 1, value + step
    test = "%limit, %i" if swapped else "%i, %limit"
    summary = hlo.summarise(_loop(str(start), str(step), str(limit), test, direction))
    if trips == 100:
        assert summary.unknown_trip_loops == ("while",)
    else:
        assert summary.unknown_trip_loops == ()
        assert sum(op.count for op in summary.ops if op.name == "kernel") == trips


def test_a_trip_count_in_the_text_counts() -> None:
    known = ', body=%body, backend_config={"known_trip_count":{"n":"12"}}'
    assert hlo.summarise(_loop(limit="%x").replace(", body=%body", known)).ops[-1].count == 12


def test_a_loop_over_data_is_counted_once_and_named() -> None:
    text = _loop().replace("%n, %step", "%n, %n")
    summary = hlo.summarise(text)
    assert summary.unknown_trip_loops == ("while",)
    assert [op.count for op in summary.ops if op.name == "kernel"] == [1]


def test_a_limit_that_the_state_carries_is_found() -> None:
    text = _loop().replace("(s32[]{:T(256)}, f32[8]", "(s32[]{:T(256)}, s32[]{:T(256)}, f32[8]")
    text = text.replace("index=1\n", "index=2\n").replace(
        "tuple(%begin, /*index=1*/", "tuple(%begin, %most, "
    )
    text = text.replace("  %begin", "  %most = s32[]{:T(256)} constant(9)\n  %begin")
    text = text.replace(
        "%limit = s32[]{:T(256)} constant(7)",
        "%limit = s32[]{:T(256)} get-tuple-element(%state.1), index=1",
    )
    kept = "  %kept = s32[]{:T(256)} get-tuple-element(%state), index=1\n  ROOT %out"
    text = text.replace("  ROOT %out", kept).replace("tuple(%next, ", "tuple(%next, %kept, ")
    assert hlo.summarise(text).ops[-1].count == 9
    changed = text.replace("tuple(%next, %kept, ", "tuple(%next, %next, ")
    assert hlo.summarise(changed).unknown_trip_loops == ("while",)


def test_a_counter_that_is_stepped_and_tested_inside_fusions_is_found() -> None:
    text = _loop().replace("add(%n, %step)", "fusion(%n, %step), kind=kLoop, calls=%plus")
    text = text.replace(
        "compare(%i, %limit), direction=LT", "fusion(%limit, %i), kind=kLoop, calls=%less"
    )
    fused = """
%plus (a: s32[], b: s32[]) -> s32[] {
  %a = s32[] parameter(0)
  %b = s32[] parameter(1)
  ROOT %sum = s32[] add(%a, %b)
}

%less (c: s32[], d: s32[]) -> pred[] {
  %c = s32[] parameter(0)
  %d = s32[] parameter(1)
  ROOT %smaller = pred[] compare(%d, %c), direction=LT
}

%body"""
    summary = hlo.summarise(text.replace("\n%body", fused, 1))
    assert summary.unknown_trip_loops == ()
    assert [op.count for op in summary.ops if op.name == "kernel"] == [7]


def test_nested_loops_multiply() -> None:
    inner = _loop(limit="3").replace("%body", "%body.in").replace("%condition", "%condition.in")
    inner = inner[inner.index("%body.in") : inner.index("ENTRY")]
    nest = """%again = s32[]{:T(256)} constant(0)
  %first.in = (s32[]{:T(256)}, f32[8]{0:T(256)}) tuple(%again, %x)
  %while.in = (s32[]{:T(256)}, f32[8]{0:T(256)}) while(%first.in), condition=%condition.in, body=%body.in
  %kernel"""  # noqa: E501
    text = (
        _loop(limit="5")
        .replace("%kernel", nest, 1)
        .replace("HloModule loops", "HloModule loops\n\n" + inner, 1)
    )
    assert sorted(op.count for op in hlo.summarise(text).ops if op.name == "kernel") == [5, 15]


def test_of_a_conditional_the_longest_branch_counts() -> None:
    text = f"""HloModule m

%short (p: f32[8]) -> f32[8] {{
  %p = f32[8] parameter(0)
  ROOT %a = f32[8] negate(%p){_cycles(10)}
}}

%long (q: f32[8]) -> f32[8] {{
  %q = f32[8] parameter(0)
  ROOT %b = f32[8] negate(%q){_cycles(30)}
}}

ENTRY %main (c: s32[], x: f32[8]) -> f32[8] {{
  %c = s32[] parameter(0)
  %x = f32[8] parameter(1)
  ROOT %either = f32[8] conditional(%c, %x, %x), branch_computations={{%short, %long}}
}}
"""
    summary = hlo.summarise(text)
    assert (summary.cycles, summary.conditionals, [op.name for op in summary.ops]) == (
        30,
        ("either",),
        ["b"],
    )


def test_what_the_compiler_could_not_cost_has_no_cycles() -> None:
    summary = hlo.summarise(_loop().replace('"100"', f'"{2**63 - 1}"'))
    assert summary.ops[-1].cycles is None
    assert summary.cycles == 8 * 3


_DEBUG = r"\nRingOfTwo{colors:4 phases:2 cores:{4 2},{4 2},{4 2},{4 2} nophase0:0}"
_ALGORITHM = (
    '{"collective_algorithm_config":{"emitter":"SomeEmitter","strategy":"RingOfTwo","debug":"'
    + _DEBUG
    + '"}}'
)


def _collective(line: str) -> str:
    return f"""HloModule m

%plus (a: f32[], b: f32[]) -> f32[] {{
  %a = f32[] parameter(0)
  %b = f32[] parameter(1)
  ROOT %sum = f32[] add(%a, %b)
}}

%wrapped (w: f32[8]) -> f32[8] {{
  %w = f32[8] parameter(0)
  ROOT %reduce = f32[8] all-reduce(%w), to_apply=%plus, backend_config={_ALGORITHM}
}}

ENTRY %main (x: f32[8]) -> f32[8] {{
  %x = f32[8] parameter(0)
  ROOT {line}
}}
"""


@pytest.mark.parametrize(
    "line",
    [
        f"%reduce = f32[8] all-reduce(%x), to_apply=%plus, backend_config={_ALGORITHM}",
        "%both = f32[8] fusion(%x), kind=kCustom, calls=%wrapped",
    ],
)
def test_a_collective_carries_its_algorithm_also_from_within_a_fusion(line: str) -> None:
    (found,) = hlo.summarise(_collective(line)).collectives
    assert (found.name, found.kind, found.emitter, found.strategy) == (
        "reduce",
        "all-reduce",
        "SomeEmitter",
        "RingOfTwo",
    )
    assert (found.colors, found.phases, found.rings) == (4, 2, "{4 2},{4 2},{4 2},{4 2}")
    assert found.debug == _DEBUG[2:]


def test_a_collective_without_an_algorithm_is_still_one() -> None:
    (found,) = hlo.summarise(_collective("%p = f32[8] collective-permute-start(%x)")).collectives
    assert (found.kind, found.strategy, found.colors) == ("collective-permute-start", "", 0)


@pytest.mark.parametrize(
    ("line", "kind", "size", "nbytes"),
    [
        (
            "%r = f32[8] all-reduce(%x), replica_groups={{0,1},{2,3}}, to_apply=%plus",
            "all-reduce",
            2,
            32,
        ),
        (
            "%r = (f32[8], bf16[2,4]) all-reduce(%x, %x), replica_groups={}, to_apply=%plus",
            "all-reduce",
            8,
            48,
        ),
        (
            "%r = f32[64] all-gather(%x), replica_groups=[1,8]<=[8], dimensions={0}",
            "all-gather",
            8,
            256,
        ),
        ("%r = f32[1] all-gather(%x), replica_groups=[4,2]<=[2,4]T(1,0)", "all-gather", 2, 4),
        (
            "%r = f32[2] reduce-scatter(%x), replica_groups=mesh['a'=2,'b'=4] {'b'}",
            "reduce-scatter",
            4,
            32,
        ),
        (
            "%r = f32[8] all-to-all(%x), replica_groups=mesh['a'=2,'b'=4] {'a','b':(1)2}",
            "all-to-all",
            4,
            32,
        ),
        (
            (
                "%r = f32[8] all-reduce(%x), replica_groups=mesh['a'=4,'b'=2], "
                "device_ids=([2,4]T(1,0)) {'a'}"
            ),
            "all-reduce",
            4,
            32,
        ),
        (
            "%r = (f32[8], f32[8], u32[], u32[]) collective-permute-start(%x)",
            "collective-permute-start",
            0,
            32,
        ),
    ],
)
def test_a_collective_says_who_exchanges_how_much(
    line: str, kind: str, size: int, nbytes: int
) -> None:
    text = _collective(line).replace("HloModule m", "HloModule m, num_partitions=8")
    (found,) = hlo.summarise(text).collectives
    assert (found.kind, found.group_size, found.nbytes) == (kind, size, nbytes)


def test_pieces_of_one_collective_in_several_kernels_are_one_and_a_fused_scatter_is_named() -> None:
    text = """HloModule m, num_partitions=8

%piece (a: f32[8]) -> f32[64] {
  %a = f32[8] parameter(0)
  ROOT %g = f32[64] all-gather(%a), channel_id=3, replica_groups=[2,4]<=[8], dimensions={0}
}

%all-reduce-scatter.1 (b: f32[64]) -> f32[8] {
  %b = f32[64] parameter(0)
  %sum = f32[64] all-reduce(%b), channel_id=4, replica_groups=[1,8]<=[8], to_apply=%plus
  ROOT %part = f32[8] slice(%sum), slice={[0:8]}
}

ENTRY %main (x: f32[8]) -> f32[8] {
  %x = f32[8] parameter(0)
  %copy-start = (f32[8]{0:S(1)}, f32[8], u32[]) copy-start(%x)
  %copy-done = f32[8]{0:S(1)} copy-done(%copy-start)
  %first = f32[64] fusion(%copy-done), kind=kLoop, calls=%piece
  %second = f32[64] fusion(%x), kind=kLoop, calls=%piece
  ROOT %r = f32[8] fusion(%second), kind=kCustom, calls=%all-reduce-scatter.1
}
"""
    summary = hlo.summarise(text)
    assert [(one.kind, one.group_size, one.nbytes) for one in summary.collectives] == [
        ("all-gather", 4, 256),
        ("reduce-scatter", 8, 256),
    ]
    assert summary.fetched_bytes == 32


@pytest.mark.parametrize(
    "text",
    [
        "HloModule nothing",
        _loop().replace("body=%body", "body=%nobody"),
        _loop().replace('"100"}', '"100"]'),
        "ENTRY %main () -> f32[] {\n  ROOT %x = f32[] constant((\n}",
    ],
)
def test_text_that_is_not_understood_is_an_error(text: str) -> None:
    with pytest.raises(PodyardError, match="cannot read") as caught:
        hlo.summarise(text)
    assert caught.value.code is Code.INTERNAL
