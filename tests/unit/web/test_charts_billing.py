"""Charts of the billing pages: what is drawn is what was given."""

from __future__ import annotations

import re

import pytest
from markupsafe import Markup

from podyard.base.money import amount_text, minor_text
from podyard.web.billing.common import cents, exactly, short
from podyard.web.kit import charts
from podyard.web.kit.charts import ChartPoint, Outlook
from tests.unit.web.test_charts import parsed


def areas(path: str) -> list[tuple[float, float]]:
    """(bottom, top) of each bar of a series."""
    return [(float(a), float(b)) for a, b in re.findall(r"M[\d.]+ ([\d.]+)V([\d.]+)h", path)]


def test_series_stand_on_one_another_and_share_the_scale() -> None:
    svg = charts.stacked_series(
        "Cost",
        ["a", "b"],
        [("x", [1.0, 2.0]), ("y", [3.0, 0.0])],
        unit="dollars",
        shown=lambda v: f"{v:g}",
    )
    root = parsed(svg)
    first, second = (areas(path.attrib["d"]) for path in root.findall("path"))
    assert len(first) == 2 and len(second) == 1, "nothing is drawn for zero"
    assert second[0][0] == first[0][1], "y stands on x"
    per_unit = first[0][0] - first[0][1]
    assert first[1][0] - first[1][1] == pytest.approx(2 * per_unit, abs=0.2)
    assert second[0][0] - second[0][1] == pytest.approx(3 * per_unit, abs=0.2)
    assert root[1].text == "2 bars of dollars; the highest is a with 4"


def test_a_chart_of_full_width_reaches_the_edge_with_bars_of_the_same_heights() -> None:
    def draw(width: float) -> Markup:
        return charts.stacked_series(
            "Cost", ["a", "b"], [("x", [1.0, 2.0])], unit="d", shown=str, width=width
        )

    usual, full = draw(charts.WIDTH), draw(charts.FULL_WIDTH)
    assert areas(usual) == areas(full)
    edges = [float(line) for line in re.findall(r'x2="([0-9.]+)"', full)]
    assert max(edges) == charts.FULL_WIDTH - charts.RIGHT
    assert 'class="chart full"' in full and 'class="chart"' in usual


def test_what_is_negative_hangs_below_zero() -> None:
    root = parsed(
        charts.stacked_series(
            "Credits", ["a"], [("x", [-2.0]), ("y", [-1.0])], unit="dollars", shown=str
        )
    )
    (first,), (second,) = (areas(path.attrib["d"]) for path in root.findall("path"))
    assert first[0] < first[1] == second[0] < second[1]


def test_no_series_and_no_bars_are_an_empty_frame() -> None:
    assert (
        parsed(charts.stacked_series("Cost", [], [], unit="d", shown=str))[1].text == "nothing yet"
    )
    assert not parsed(charts.stacked_series("Cost", ["a"], [], unit="d", shown=str)).findall("path")


def test_each_column_says_its_own_figure_under_a_pointer() -> None:
    svg = charts.stacked_series(
        "Cost", ["a", "b"], [("x", [1.0, 2.0])], unit="d", shown=str, hover=["a: $1.00", "b: $2.00"]
    )
    columns = parsed(svg).findall("rect[@class='hover']")
    assert [column[0].text for column in columns] == ["a: $1.00", "b: $2.00"]
    assert float(columns[1].attrib["x"]) == pytest.approx(
        float(columns[0].attrib["x"]) + float(columns[0].attrib["width"])
    )


def test_names_of_users_are_text_in_a_chart() -> None:
    svg = charts.stacked_series(
        "Cost", ["<b>"], [("<i>&", [1.0])], unit="<u>", shown=str, hover=["<b>: <i>&"]
    )
    assert "<b>" not in svg and "<i>" not in svg and parsed(svg).find("path") is not None


def test_a_line_goes_on_into_its_range() -> None:
    points = [ChartPoint(0, 0), ChartPoint(1, 10), ChartPoint(2, 20)]
    root = parsed(
        charts.line_to_range(
            "So far", points, Outlook(4, 20, 40, 60), x_name="day", y_name="USD", shown=short
        )
    )
    dashed, line = root.findall("polyline")
    (area,) = root.findall("polygon")
    end = line.attrib["points"].split()[-1]
    assert dashed.attrib["points"].split()[0] == end == area.attrib["points"].split()[0]
    assert "from $20 to $60" in (root[1].text or "") and "$40 expected at day 4" in (
        root[1].text or ""
    )


@pytest.mark.parametrize("points", [[], [ChartPoint(0, 0)], [ChartPoint(0, 0), ChartPoint(1, 0)]])
def test_an_outlook_without_use_is_drawn(points: list[ChartPoint]) -> None:
    parsed(
        charts.line_to_range(
            "So far", points, Outlook(1, 0, 0, 0), x_name="day", y_name="USD", shown=short
        )
    )


def test_amounts_read_as_money() -> None:
    cent = 2_628_000 * 10**7
    assert [amount_text(minor_text(n, 2), "USD") for n in (0, 5, -5, 123456789)] == [
        "$0.00",
        "$0.05",
        "-$0.05",
        "$1,234,567.89",
    ]
    assert (
        cents(cent // 2) == "$0.005"
        and cents(-cent // 2) == "-$0.005"
        and cents(12345 * cent) == "$123.45"
    )
    assert exactly(cent) == "0.010000000000"
    assert [short(v) for v in (0, 999, 1500, -2_500_000)] == ["$0", "$999", "$1.5k", "-$2.5M"]
