from __future__ import annotations

import itertools
import re
import xml.etree.ElementTree as ElementTree

import pytest
from markupsafe import Markup

from podyard.web.kit import charts, formats
from podyard.web.kit.charts import Bar, ChartLine, ChartPoint

NOISE = re.compile(r"\d\.\d{3,}")  # a coordinate has one decimal at most


def parsed(svg: str) -> ElementTree.Element:
    """The SVG as XML (so it is well-formed), after the checks that hold for every chart."""
    root = ElementTree.fromstring(str(svg))
    assert root.attrib["role"] == "img"
    ids = root.attrib["aria-labelledby"].split()
    assert [element.attrib["id"] for element in root[:2]] == ids
    assert root[0].tag == "title" and root[0].text
    assert root[1].tag == "desc" and root[1].text
    for element in root.iter():
        for name in ("x", "y", "width", "height", "points", "cx", "cy", "d", "viewBox"):
            text = element.attrib.get(name, "")
            assert not NOISE.search(text) and not re.search(r"(^|[ ,])-?\.\d|nan|inf|e-", text), (
                text
            )
    assert "style=" not in str(svg), "the content security policy refuses style attributes"
    return root


def line(*values: float) -> Markup:
    points = [ChartPoint(index + 1, value) for index, value in enumerate(values)]
    return charts.line_chart("Loss", [ChartLine("loss", points)], x_name="step", y_name="Loss")


def test_no_point_is_an_empty_frame_that_says_so() -> None:
    root = parsed(line())
    assert root[1].text == "Loss. loss: no point yet"
    assert not root.findall("polyline") and not root.findall("circle")


def test_one_point_is_a_dot() -> None:
    root = parsed(line(0.1 + 0.2))
    assert len(root.findall("circle")) == 1
    assert root[1].text == "Loss. loss: 0.3 at step 1"


def test_many_points_are_one_line_inside_the_frame() -> None:
    root = parsed(line(*(2.302 / (1 + index) for index in range(400))))
    (drawn,) = root.findall("polyline")
    pairs = [tuple(map(float, pair.split(","))) for pair in drawn.attrib["points"].split()]
    assert len(pairs) == 400
    assert all(0 <= x <= charts.WIDTH and 0 <= y <= charts.HEIGHT for x, y in pairs)
    assert "from 2.302 at step 1 to 0.005755 at step 400" in (root[1].text or "")


def test_what_is_not_finite_is_left_out() -> None:
    root = parsed(line(1.0, float("nan"), float("inf"), 0.5))
    assert len(root.findall("polyline")[0].attrib["points"].split()) == 2


@pytest.mark.parametrize(
    "value", [1e-9, 0.011, 0.63, 1.0, 1.0001, 2.4, 2.6, 9.99, 10.0, 123.4, 7e8]
)
def test_an_axis_covers_its_largest_value_and_is_not_much_larger(value: float) -> None:
    assert value <= charts.nice_top(value) * (1 + 1e-9) <= value * 2.5 * (1 + 1e-9)


@pytest.mark.parametrize("value", [0.0, -1.0, float("nan"), float("inf")])
def test_an_axis_without_a_value_ends_at_one(value: float) -> None:
    assert charts.nice_top(value) == 1.0


def test_bars_stack_without_gap_and_without_overlap() -> None:
    bars = [Bar("2026-11-20", [("a", 1.0), ("b", 2.0)]), Bar("2026-11-21", [("b", 0.5)])]
    root = parsed(charts.stacked_bars("Cost", bars, unit="dollars"))
    drawn = [r.attrib for r in root.findall("rect")]
    assert len(drawn) == 3
    lower, upper = drawn[0], drawn[1]
    assert float(upper["y"]) + float(upper["height"]) == pytest.approx(float(lower["y"]), abs=0.11)
    assert drawn[0]["class"] == drawn[2]["class"] == "bar s1", (
        "b is the largest series, in every bar"
    )
    assert "the highest is 2026-11-20 with 3" in (root[1].text or "")


def test_no_bar_says_so_and_many_bars_do_not_crowd_their_labels() -> None:
    assert parsed(charts.stacked_bars("Cost", [], unit="dollars"))[1].text == "nothing yet"
    bars = [Bar(f"2026-10-{day:02d}", [("a", 1.0)]) for day in range(1, 32)]
    root = parsed(charts.stacked_bars("Cost", bars, unit="dollars"))
    labels = [
        float(t.attrib["x"]) for t in root.findall("text") if (t.text or "").startswith("2026")
    ]
    assert min(b - a for a, b in itertools.pairwise(labels)) > 80


@pytest.mark.parametrize("highest", [1, 3, 7, 12, 140])
def test_the_axis_of_counts_has_whole_numbers(highest: int) -> None:
    chart = charts.stacked_bars(
        "Preemptions", [Bar("12-17", [("taken", float(highest))])], unit="a day", are_counts=True
    )
    numbers = [
        float(t.text or "")
        for t in parsed(chart).findall("text")
        if t.attrib["text-anchor"] == "end"
    ]
    assert len(numbers) == 6 and numbers == [round(number) for number in numbers]
    assert numbers[-1] >= highest


def test_series_beyond_the_last_colour_are_one() -> None:
    bars = [Bar("day", [(f"n{index}", float(index)) for index in range(1, 20)])]
    names = charts.series_names(bars)
    assert len(names) == charts.SERIES_MAX and names[-1] == "other" and names[0] == "n19"
    root = parsed(charts.stacked_bars("Cost", bars, unit="dollars"))
    assert len(root.findall("rect")) == 19


def test_names_of_users_are_text() -> None:
    evil = "<img src=x onerror=alert(1)>"
    svg = charts.stacked_bars(evil, [Bar(evil, [(evil, 1.0)])], unit=evil)
    assert "<img" not in svg
    parsed(svg)


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.63, "0.63"), (0.1 + 0.2, "0.3"), (0, "0"), (1234.5678, "1,235"), (-0.00001, "-0.00001"),
        (1e-9, "1e-9"),
     (2.3025850929940455, "2.303"), (float("nan"), "not a number"), (100.0, "100"), (1e15, "1e15")],
)  # fmt: skip
def test_numbers_have_no_noise_and_a_leading_zero(value: float, text: str) -> None:
    assert formats.number(value) == text


@pytest.mark.parametrize(("step", "ends"), [(0.0, "0"), (1.0, "1")])
def test_the_axis_of_a_single_step_does_not_begin_below_0(step: float, ends: str) -> None:
    one = charts.line_chart(
        "t", [ChartLine("loss", [ChartPoint(step, 0.5)])], x_name="x", y_name="y"
    )
    (dot,) = re.findall(r'<circle [^>]*cx="([\d.]+)"', one)
    assert (float(dot) <= charts.LEFT) is (step == 0), "step 0 stands at the left end of the axis"
    assert f">{ends}</text>" in one
