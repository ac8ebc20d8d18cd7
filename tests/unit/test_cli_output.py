"""How tables of the command line show what they are given."""

from __future__ import annotations

import pytest

from podyard.cli.output import cell


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("976.925000000000", "976.925"),
        ("200.000000000", "200.00"),
        ("-0.100000", "-0.10"),
        ("4.50", "4.50"),
        ("0.000435000000", "0.000435"),
        ("10.128.0.100", "10.128.0.100"),
        ("1.0", "1.0"),
        (None, "-"),
        ({"a": 1, "b": 2}, "a=1,b=2"),
    ],
)
def test_a_cell_is_for_people(value: object, shown: str) -> None:
    assert cell(value) == shown
