"""Shardings: what is read of them, how they spread, and the collectives that follow."""

from __future__ import annotations

import pytest

from podyard.base.errors import PodyardError
from podyard.engine.program.from_stablehlo import parse_stablehlo
from podyard.engine.program.shardings import Sharding, ShardingReader, mesh_of
from podyard.engine.timing.analysis import estimate_program
from podyard.hardware.accelerator_types import parse

GRID = mesh_of({"d": 8, "m": 4})  # digits 0, 1, 2 are d's, 3 and 4 m's
READER = ShardingReader({"@mesh": {"d": 8, "m": 4}}, GRID)


@pytest.mark.parametrize(
    ("text", "dims"),
    [
        ('#sdy.sharding<@mesh, [{"d"}, {"m"}]>', ((0, 1, 2), (3, 4))),
        ('#sdy.sharding<@mesh, [{"m", "d"}, {?}]>', ((3, 4, 0, 1, 2), ())),
        ('#sdy.sharding<@mesh, [{"d":(2)4}, {"d":(1)2, ?}]>', ((1, 2), (0,))),
        ('#sdy.sharding<mesh<["x"=32]>, [{}, {"x"}]>', ((), (0, 1, 2, 3, 4))),
        ("{devices=[8,4]<=[32]}", ((0, 1, 2), (3, 4))),
        ("{devices=[4,8]<=[8,4]T(1,0)}", ((3, 4), (0, 1, 2))),
        ("{devices=[8,1,4]<=[32] last_tile_dim_replicate}", ((0, 1, 2), ())),
        ("{devices=[1,4,8]<=[8,4]T(1,0) last_tile_dim_replicate}", ((), (3, 4))),
        ("{devices=[2,1,4,4]<=[32] last_tile_dims={replicated, manual}}", ((0,), ())),
        ("{devices=[2,16]" + ",".join(map(str, range(32))) + "}", ((0,), (1, 2, 3, 4))),
        ("{{devices=[8,4]<=[32]}}", ((0, 1, 2), (3, 4))),
        ("{replicated}", ((), ())),
    ],
)
def test_a_sharding_is_read(text: str, dims: tuple[tuple[int, ...], ...]) -> None:
    found = READER.read(text, 2)
    assert (found is not None and found.dims, READER.problem) == (dims, "")


@pytest.mark.parametrize(
    "text",
    [
        "{maximal device=0}",
        "{devices=[2,16]" + ",".join(map(str, [1, 0, *range(2, 32)])) + "}",  # no product of axes
        "{devices=[4,4]<=[16]}",  # not all devices
        '#sdy.sharding<@mesh, [{"d"}]>',  # another rank
        '#sdy.sharding<mesh<["x"=16]>, [{"x"}, {}]>',
    ],
)
def test_a_sharding_that_is_not_read_says_why(text: str) -> None:
    READER.read(text, 2)
    assert READER.problem


def test_groups_of_devices_are_axes() -> None:
    rows = [[column + 4 * row for row in range(8)] for column in range(4)]
    assert READER.group_axes(rows) == (0, 1, 2)
    assert READER.group_axes([[0, 1], [2, 3]]) is None  # not all devices
    assert (
        READER.group_axes(
            [[0, 1, 2, 4], *([place, place + 8, place + 16, place + 24] for place in range(1, 8))]
        )
        is None
    )
    assert GRID.groups_text((0, 1, 2)) == '"d"'
    assert GRID.groups_text((0, 3)) == '"d":2, "m":2'
    assert Sharding(((0,), ())).fits(2)


def test_shardings_say_which_axis_is_split_over_how_many_devices() -> None:
    text = (
        "module @m attributes {mhlo.num_partitions = 4 : i32, mhlo.num_replicas = 1 : i32} {\n"
        'sdy.mesh @grid = <["x"=4, "unused"=1]>\n'
        "func.func public @main(%a: tensor<8x4xf32> {sdy.sharding = #sdy.sharding<@grid, "
        '[{"x"}, {}]>},'
        " %b: tensor<4x8xf32> {sdy.sharding = #sdy.sharding<@grid, [{}, {?}]>},"
        ' %c: tensor<4x8xf32> {sdy.sharding = #sdy.sharding<@grid, [{"unused"}, {"x", ?}]>}) -> '
        "tensor<4x8xf32> {\n"
        "return %b : tensor<4x8xf32>\n}\n}"
    )
    program = parse_stablehlo(text)
    assert [given.dims for given in program.shardings.values()] == [
        ((0, 1), ()),
        ((), ()),
        ((), (0, 1)),
    ]
    assert (program.partitions, program.shardings[2].open_dims) == (4, (False, True))
    with pytest.raises(PodyardError, match="written for 4 devices, v5litepod-1 has 1"):
        estimate_program(program, parse("v5litepod-1"))
