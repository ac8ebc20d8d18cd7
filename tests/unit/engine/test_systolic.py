"""The closed form of a systolic array's cycles against SCALE-Sim's own counts."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from podyard import engine
from podyard.engine.timing.systolic import Dataflow

_FILE = Path(__file__).parents[2] / "data" / "scalesim.csv"


def _rows() -> list[dict[str, str]]:
    with _FILE.open(newline="") as lines:
        return list(csv.DictReader(lines))


@pytest.mark.parametrize("dataflow", ["ws", "is", "os"])
def test_cycles_equal_every_stall_free_row_of_scalesim(dataflow: Dataflow) -> None:
    rows = [row for row in _rows() if row["dataflow"] == dataflow]
    wrong = []
    for row in rows:
        m, k, n, height, width = (int(row[name]) for name in ("m", "k", "n", "rows", "columns"))
        cycles = engine.systolic_cycles(m, k, n, height, width, dataflow)
        if cycles != int(row["cycles"]):
            wrong.append((row["case"], cycles, row["cycles"]))
    assert len(rows) > 30
    assert wrong == []


def test_the_rows_tell_dataflows_sizes_and_arrays_apart() -> None:
    """A formula that ignored one of these could not be equal on all of them."""
    facets = (("dataflow",), ("rows", "columns"), ("m",), ("k",), ("n",))
    rows = _rows()
    for ignored in facets:
        kept = [name for facet in facets if facet != ignored for name in facet]
        told_apart: dict[tuple[str, ...], set[str]] = {}
        for row in rows:
            told_apart.setdefault(tuple(row[name] for name in kept), set()).add(row["cycles"])
        assert any(len(cycles) > 1 for cycles in told_apart.values()), ignored
    assert any(row["rows"] != row["columns"] for row in rows)
