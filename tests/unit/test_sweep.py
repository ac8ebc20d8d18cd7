"""Which jobs a sweep has."""

from __future__ import annotations

from typing import Any

import pytest

from podyard.base.errors import PodyardError
from podyard.domain.sweep import SWEEP_JOBS_MAX, rows_of


def test_every_combination_of_the_lists() -> None:
    assert rows_of({"a": [1, 2], "b": ["x", "y"]}, []) == [
        {"a": 1, "b": "x"},
        {"a": 1, "b": "y"},
        {"a": 2, "b": "x"},
        {"a": 2, "b": "y"},
    ]


def test_every_row_with_every_combination() -> None:
    table = [{"a": 1, "b": 2}, {"a": 3, "b": 4}]
    assert rows_of({}, table) == table
    assert rows_of({"seed": [0, 1]}, table) == [
        {"a": 1, "b": 2, "seed": 0},
        {"a": 1, "b": 2, "seed": 1},
        {"a": 3, "b": 4, "seed": 0},
        {"a": 3, "b": 4, "seed": 1},
    ]


@pytest.mark.parametrize(
    ("values", "table", "text"),
    [
        ({}, [], "a sweep needs values or rows"),
        ({"a": []}, [], "values.a is empty: list at least one value"),
        ({"a": [1]}, [{"a": 2}], "a is in rows and in values: give it once"),
        ({}, [{"a": 1}, {"b": 1}], "rows must all have the same names"),
        ({"a": range(SWEEP_JOBS_MAX + 1)}, [], "the sweep has 501 jobs: at most 500 are allowed"),
        ({f"n{i}": range(1000) for i in range(9)}, [], "jobs: at most 500 are allowed"),
    ],
)
def test_what_is_no_sweep(values: dict[str, Any], table: list[dict[str, Any]], text: str) -> None:
    with pytest.raises(PodyardError, match=text):
        rows_of(values, table)
