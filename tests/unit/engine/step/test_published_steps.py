"""Steps of MaxText as they were lowered, next to published times of real slices: `python -m
benchmarks.published` prints the table."""

from __future__ import annotations

import functools
import re
import statistics
from pathlib import Path

import pytest

from benchmarks.published.errors import errors_of
from benchmarks.published.rows import PublishedRow, read_counts, read_rows
from benchmarks.published.table import Comparison, compare
from podyard.cli.kit.tables import table
from podyard.hardware.generations import GENERATIONS
from tests import doc_outputs

PAGE = Path(__file__).parents[4] / "docs" / "howto" / "programs.md"
pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("published")]
RECORDED = [row for row in read_rows() if row.trace.exists()]
STATED = [row for row in RECORDED if not row.missing]
# Llama 4 Maverick (128 experts, tensor parallel): 0.66 of the published time.
FAR = {"rb229b73b46"}
# Gemma3: blocks of six layers, 47 GiB of 31.
TOO_LARGE = {"r45dc0e9128"}
# A router with room for 1.25 times the tokens computes on padding, which its trainer leaves out; a
# sliding window counts in whole blocks.
COUNTED_OTHERWISE = {"rf7405a7c7f", "r45dc0e9128"}


@functools.cache
def _comparison(row: PublishedRow) -> Comparison:
    return compare(row, read_counts()[row.id])


@pytest.mark.parametrize("row", STATED, ids=lambda row: row.name)
def test_a_fully_stated_row_is_near(row: PublishedRow) -> None:
    one = _comparison(row)
    assert one.estimate is not None and one.estimate.error == "" and one.ratio is not None
    assert (abs(one.ratio - 1) < 0.3) == (row.id not in FAR), one.ratio
    assert one.estimate.fits == (row.id not in TOO_LARGE), one.estimate.verdict


def test_half_of_the_fully_stated_rows_are_within_15_percent() -> None:
    ratios = [one.ratio for one in map(_comparison, STATED) if one.ratio is not None]
    assert statistics.median(abs(ratio - 1) for ratio in ratios) < 0.15


@pytest.mark.parametrize("row", RECORDED, ids=lambda row: row.name)
def test_model_flops_are_the_trainers(row: PublishedRow) -> None:
    ratio = _comparison(row).flops_ratio
    assert ratio is not None
    assert (abs(ratio - 1) < 0.025) == (row.id not in COUNTED_OTHERWISE), ratio


def test_the_error_that_is_expected_is_that_of_the_rows() -> None:
    comparisons = [_comparison(row) for row in RECORDED]
    errors = errors_of(comparisons)
    assert errors == {name: GENERATIONS[name].step_error for name in errors}


def test_the_table_of_the_page_is_that_of_the_rows() -> None:
    rows = []
    for one in map(_comparison, RECORDED):
        assert one.published_seconds and one.estimate and one.estimate.seconds and one.ratio
        times = f"{one.published_seconds:.2f} s | {one.estimate.seconds:.2f} s"
        rows.append(f"| {one.row.name} | {times} | {one.ratio:.2f} |")
    section = PAGE.read_text("utf-8").split("\n## Published training steps\n")[1].split("\n## ")[0]
    errors = [abs(one.ratio - 1) for one in map(_comparison, STATED) if one.ratio is not None]
    near = sum(error < 0.3 for error in errors)
    assert (
        f"Of {len(errors)} fully stated steps" in section and f" {near} are within 30 %" in section
    )
    assert f"half are within {statistics.median(errors):.0%}".replace("%", " %") in section
    assert sorted(re.findall(r"^\| .+ s \| .+$", section, re.MULTILINE)) == sorted(rows)


def test_the_errors_of_the_page_are_those_of_the_rows() -> None:
    lines = []
    for name in GENERATIONS:
        ratios = [
            one.ratio
            for one in map(_comparison, RECORDED)
            if one.row.generation == name and one.ratio is not None
        ]
        if ratios:
            middle = statistics.median(abs(ratio - 1) for ratio in ratios)
            spread = f"{min(ratios):.2f} to {max(ratios):.2f}"
            lines.append((name, str(len(ratios)), spread, f"{middle:.0%}"))
    text = table(("TPU", "STEPS", "ESTIMATE / PUBLISHED", "MEDIAN ERROR"), lines)
    doc_outputs.check("differences.md", "published steps", text, doc_outputs.NO_FIGURE)
