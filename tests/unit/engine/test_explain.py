from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
from click.testing import CliRunner

from podyard.base.errors import PodyardError
from podyard.cli.kit.commands import root
from podyard.engine import film
from podyard.engine.numerics import explain_html
from podyard.engine.numerics.explain import (
    CYCLES_MAX,
    OPERAND_MAX,
    SIDE_MAX,
    Trace,
    as_text,
    explain,
    text_of,
)
from podyard.engine.numerics.mxu import mxu_matmul
from podyard.engine.timing.systolic import Dataflow, systolic_cycles
from tests.unit.engine.pages import Reader, open_console

ROOT = Path(__file__).parents[3]
DATAFLOWS: tuple[Dataflow, ...] = get_args(Dataflow)
# (m, k, n, rows, cols): one that fits, and others whose sizes are no multiples of the array's.
SHAPES = [(4, 4, 4, 4, 4), (3, 5, 6, 2, 4), (1, 7, 2, 3, 3), (5, 1, 5, 4, 2), (2, 2, 2, 5, 6)]
every_case = pytest.mark.parametrize(
    ("shape", "dataflow"), [(shape, dataflow) for shape in SHAPES for dataflow in DATAFLOWS]
)


def ints(plane: Any) -> Any:
    return np.array(plane, np.int64)


@every_case
def test_the_trace_is_the_product_in_the_cycles_of_the_closed_form(
    shape: tuple[int, int, int, int, int], dataflow: Dataflow
) -> None:
    m, k, n, rows, cols = shape
    trace = explain(m, k, n, rows, cols, dataflow)
    assert np.array_equal(ints(trace.y), ints(trace.x) @ ints(trace.w))
    assert {
        1 <= value <= OPERAND_MAX for line in (*trace.x, *trace.w) for value in line if value
    } == {True}
    assert [cycle.number for cycle in trace.cycles] == list(
        range(systolic_cycles(m, k, n, rows, cols, dataflow) + 1)
    )
    assert trace.folds == trace.cycles[-1].fold + 1


@every_case
def test_every_product_is_added_once_and_every_element_leaves_complete_once(
    shape: tuple[int, int, int, int, int], dataflow: Dataflow
) -> None:
    m, k, n, rows, cols = shape
    trace = explain(m, k, n, rows, cols, dataflow)
    assert sum(sum(map(sum, cycle.working)) for cycle in trace.cycles) == m * k * n
    outputs = [output for cycle in trace.cycles for output in cycle.left]
    complete = Counter((output.row, output.column) for output in outputs if output.final)
    assert complete == Counter((row, column) for row in range(m) for column in range(n))
    assert all(
        output.total == trace.y[output.row][output.column] for output in outputs if output.final
    )
    parts = 1 if dataflow == "os" else -(-k // rows)
    assert len(outputs) == m * n * parts


@every_case
def test_operands_enter_as_often_as_their_dataflow_needs_them(
    shape: tuple[int, int, int, int, int], dataflow: Dataflow
) -> None:
    m, k, n, rows, cols = shape
    trace = explain(m, k, n, rows, cols, dataflow)
    entered: Counter[tuple[str, int, int]] = Counter()
    for cycle in trace.cycles:
        for operand in cycle.entered:
            matrix = trace.x if operand.matrix == "x" else trace.w
            assert operand.value == matrix[operand.row][operand.column]
            entered[operand.matrix, operand.row, operand.column] += 1
    times = {
        "ws": {"x": -(-n // cols), "w": 1},
        "is": {"x": 1, "w": -(-m // cols)},
        "os": {"x": -(-n // cols), "w": -(-m // rows)},
    }[dataflow]
    expected = {("x", i, j): times["x"] for i in range(m) for j in range(k)}
    expected |= {("w", i, j): times["w"] for i in range(k) for j in range(n)}
    assert entered == expected


@every_case
def test_phases_follow_each_other_in_every_fold(
    shape: tuple[int, int, int, int, int], dataflow: Dataflow
) -> None:
    m, k, n, rows, cols = shape
    trace = explain(m, k, n, rows, cols, dataflow)
    for fold in range(trace.folds):
        cycles = [cycle for cycle in trace.cycles if cycle.fold == fold]
        phases = [cycle.phase for cycle in cycles]
        assert phases == sorted(phases, key=["load", "stream", "drain"].index)
        assert phases.count("load") == (0 if dataflow == "os" else rows)
        for cycle in cycles:
            if cycle.phase != "stream":
                assert not any(operand.edge == "left" for operand in cycle.entered)
            if cycle.phase == "load":
                assert not any(map(any, cycle.working)) and not cycle.left
            if cycle.phase == "drain":
                assert not cycle.entered


def test_a_sum_holds_what_the_cells_above_it_have_added() -> None:
    trace = explain(6, 4, 5, 4, 5)
    x, w = ints(trace.x), ints(trace.w)
    checked = 0
    for cycle in trace.cycles:
        for r, line in enumerate(cycle.sums):
            for c, total in enumerate(line):
                index = cycle.number - 4 - r - c
                assert (total is None) == (not 0 <= index < 6)
                if total is not None:
                    assert total == x[index, : r + 1] @ w[: r + 1, c]
                    checked += 1
    assert checked == 6 * 4 * 5


def test_operands_may_be_given() -> None:
    rng = np.random.default_rng(0)
    x, w = (
        rng.standard_normal((3, 4)).astype(np.float32),
        rng.standard_normal((4, 2)).astype(np.float32),
    )
    trace = explain(3, 4, 2, 2, 2, operands=(x, w))
    assert np.array_equal(np.array(trace.y, np.float32), mxu_matmul(x, w, 2, 2).result)
    whole = explain(
        1, 2, 1, operands=(np.array([[-128, 3]], np.int8), np.array([[-128], [2]], np.int8))
    )
    assert whole.y == ((16390,),)
    endless = explain(
        1, 1, 1, operands=(np.array([[np.inf]], np.float32), np.array([[0.0]], np.float32))
    )
    assert "y[0,0] + nan = nan" in as_text(endless)
    with pytest.raises(PodyardError, match="not \\[4, 4\\]"):
        explain(4, 4, 2, operands=(x, w))


def test_the_seed_decides_the_operands() -> None:
    assert explain(3, 3, 3, seed=1) == explain(3, 3, 3, seed=1)
    assert explain(3, 3, 3, seed=1).x != explain(3, 3, 3, seed=2).x


def test_what_nobody_could_read_is_refused_with_the_reason() -> None:
    with pytest.raises(PodyardError, match="up to 16 x 16"):
        explain(1, 1, 1, SIDE_MAX + 1, 4)
    longest = CYCLES_MAX - (2 * 4 + 4 - 2)
    assert len(explain(longest, 4, 4).cycles) == CYCLES_MAX
    with pytest.raises(PodyardError, match="takes 601 cycles on a 4 x 4 array"):
        explain(longest + 1, 4, 4)
    with pytest.raises(PodyardError, match=r"takes 10{9}\d* cycles"):
        explain(4, 10**15, 4, dataflow="os")
    for sizes in ((0, 1, 1), (1, -1, 1), (1, 1, 1, 0, 1)):
        with pytest.raises(PodyardError, match="positive sizes"):
            explain(*sizes)
    with pytest.raises(PodyardError, match="'xs'"):
        explain(1, 1, 1, dataflow="xs")  # type: ignore[arg-type]


def test_numbers_are_short() -> None:
    assert [text_of(value) for value in (None, 3, 3.0, -0.015625, 1e20, float("inf"))] == [
        "", "3", "3", "-0.015625", "1e+20", "inf",
    ]  # fmt: skip


def test_the_text_has_one_aligned_block_a_cycle() -> None:
    trace = explain(
        2,
        3,
        2,
        2,
        2,
        operands=(np.array([[4, 5, 4], [2, 5, 3]], np.int8), np.ones((3, 2), np.int8)),
    )
    text = as_text(trace)
    assert len(
        re.findall(r"^cycle \d+, fold \d, (?:load|stream|drain):", text, re.MULTILINE)
    ) == len(trace.cycles)
    assert (
        """
cycle 4, fold 0, stream: operands enter
         activations   weights   partial sums
  row 0  . 2           1 1       . 2
  row 1  5 5           1 1       7 9
  in at the left: x[1,1] = 5
  out: y[1,0] = 7 so far, y[0,1] = 9 so far
"""
        in text
    )
    assert text.endswith("y = x w\n    13 13\n    10 10\n")


def data_of(source: str) -> dict[str, Any]:
    (figure,) = Reader(source).having("data-film")
    found: dict[str, Any] = json.loads(figure["data-film"] or "")
    return found


def registers(trace: Trace, data: dict[str, Any], number: int) -> None:
    texts = [data["texts"][index].split(" ") for index in data["frames"][number]["cells"]]
    cycle = trace.cycles[number]
    for shown, plane in zip(texts, (cycle.activations, cycle.weights, cycle.sums), strict=False):
        assert shown == [text_of(value) or "." for line in plane for value in line]
    assert [kind == "work" for kind in texts[3]] == [
        working for line in cycle.working for working in line
    ]


@pytest.mark.parametrize("dataflow", DATAFLOWS)
def test_the_figure_carries_every_cycle(dataflow: Dataflow) -> None:
    trace = explain(3, 5, 6, 2, 4, dataflow)
    data = data_of(explain_html.figure(trace))
    assert len(data["frames"]) == len(trace.cycles)
    for number in range(len(trace.cycles)):
        registers(trace, data, number)
    last = {
        (row, column): text
        for frame in data["frames"]
        for row, column, text, final in frame["out"]
        if final
    }
    assert last == {(i, j): text_of(trace.y[i][j]) for i in range(3) for j in range(6)}


def test_the_page_asks_for_nothing_and_shows_the_last_cycle_without_a_script() -> None:
    trace = explain(4, 4, 4)
    source = explain_html.page(trace)
    reader = Reader(source)
    assert not re.search(r"https?:|@import|url\(|\bsrc=|\bhref=|\bfetch\(|\bimport\b", source)
    assert "default-src 'none'" in source
    assert [tag for tag, _ in reader.elements].count("script") == 2
    assert "Cycle 13 (last: 13)" in reader.text and "y[3,3] = 32" in reader.text
    shown = re.findall(r'class="done(?: now)?" data-at="y\d,\d">(\d+)<', source)
    assert [int(text) for text in shown] == ints(trace.y).ravel().tolist()
    (controls,) = [a for a in reader.having("hidden") if a.get("class") == "film-controls"]
    assert controls is not None
    assert {a["data-go"] for a in reader.having("data-go")} == {
        "first",
        "back",
        "play",
        "on",
        "last",
    }


def test_long_numbers_are_pressed_into_their_cell() -> None:
    wide = explain(
        1, 1, 1, 1, 1, operands=(np.array([[1234567.0]], np.float32), np.array([[1.0]], np.float32))
    )
    assert "textLength" not in explain_html.figure(explain(1, 1, 1, 1, 1))
    assert re.search(r'class="a"[^>]* textLength="78">1.23699e\+06<', explain_html.figure(wide))


def run(*arguments: str) -> tuple[int, str, BaseException | None]:
    done = CliRunner().invoke(root, ["explain", "mxu", *arguments])
    return done.exit_code, done.output, done.exception


def test_the_command_prints_text_and_writes_pages(tmp_path: Path) -> None:
    assert run("--m", "2", "--k", "3", "--n", "1", "--dataflow", "os", "--seed", "3") == (
        0, as_text(explain(2, 3, 1, dataflow="os", seed=3)), None,
    )  # fmt: skip
    out = tmp_path / "page.html"
    assert run("--rows", "2", "--cols", "3", "-o", "html", "--out", str(out)) == (0, "", None)
    assert out.read_text(encoding="utf-8") == explain_html.page(explain(4, 4, 4, 2, 3))


def test_a_refused_command_leaves_the_file_as_it_was(tmp_path: Path) -> None:
    out = tmp_path / "page.html"
    out.write_text("mine")
    code, _, failure = run("--rows", "17", "--out", str(out))
    assert code == 1 and isinstance(failure, PodyardError) and "16 x 16" in failure.message
    assert out.read_text() == "mine"
    assert run("--dataflow", "xs")[0] == 2


def test_the_page_among_the_documents_is_the_one_that_the_command_makes() -> None:
    kept = (ROOT / "docs" / "concepts" / "mxu-4x4x4.html").read_text(encoding="utf-8")
    assert kept == run("--m", "4", "--k", "4", "--n", "4", "-o", "html")[1]


def test_the_console_shows_the_same_figure_to_those_who_may_see_the_project(tmp_path: Path) -> None:
    url = "/console/demo/mxu"
    with open_console(tmp_path) as get:
        assert get(url, signed_in=False).headers["location"] == "/login"
        query = "?m=3&k=5&n=6&rows=2&dataflow=is"
        page = get(f"{url}{query}")
        figure = explain_html.figure(
            explain(3, 5, 6, 2, 4, "is"), 0, lambda at: f"{query}&at={at}#film"
        )
        assert page.status_code == 200 and figure in page.text
        assert not re.search(
            r"<style|\sstyle=|\son\w+=|<script(?! type=\"module\" src=)", page.text
        )
        assert '<a href="/console/demo/mxu" aria-current="page">Matrix unit</a>' in page.text
        assert '<a href="/console/demo/all-reduce">' in page.text
        for name in ("film.js", "film.css", "explain.js", "explain.css"):
            assert f'="{url}/{name}"' in page.text
            assert get(f"{url}/{name}").text == film.asset(explain_html.PACKAGE, name)
        refused = get(f"{url}?rows=17")
        assert (
            refused.status_code == 400
            and "up to 16 x 16" in refused.text
            and 'value="17"' in refused.text
        )
        evil = get(f"{url}?dataflow=%22%3E%3Cimg%3E")
        assert evil.status_code == 400 and "<img" not in evil.text
        assert get(f"{url}/explain.py").status_code == 400
        assert get("/console/other/mxu").status_code == 404


@pytest.mark.parametrize("at", [0, 4, 7, 13, 99])
def test_without_a_script_links_lead_from_cycle_to_cycle(tmp_path: Path, at: int) -> None:
    trace = explain(4, 4, 4)
    shown = trace.cycles[min(at, 13)]
    with open_console(tmp_path) as get:
        page = Reader(get(f"/console/demo/mxu?at={at}").text)
    assert f"Cycle {shown.number} (last: 13)" in page.text
    links = [
        attributes["href"]
        for attributes in page.having("href")
        if "#film" in (attributes["href"] or "")
    ]
    wanted = [0] * (shown.number > 0) + [shown.number - 1] * (shown.number > 0)
    wanted += [shown.number + 1, 13] if shown.number < 13 else []
    assert links == [f"?at={number}#film" for number in wanted]
    places = {
        attributes["data-at"]: attributes["class"] or "" for attributes in page.having("data-at")
    }
    entered = {f"{one.matrix}{one.row},{one.column}" for one in shown.entered}
    assert {place for place, kind in places.items() if "now" in kind and place[0] != "y"} == entered
    left = {
        f"y{one.row},{one.column}"
        for cycle in trace.cycles[: shown.number + 1]
        for one in cycle.left
    }
    assert {place for place, kind in places.items() if place.startswith("y") and kind} == left
