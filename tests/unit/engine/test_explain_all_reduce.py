from __future__ import annotations

import itertools
import json
import re
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from podyard.base.errors import PodyardError
from podyard.cli.kit.commands import root
from podyard.engine import film
from podyard.engine.collectives import explain_html
from podyard.engine.collectives.explain import (
    BYTES_MAX,
    CHIPS_MAX,
    DEFAULT_BYTES,
    DEFAULT_RANKS,
    RANKS_MAX,
    TEXT_COLUMNS,
    ExplainedSlice,
    Ring,
    as_text,
    coordinates,
    direction,
    explain,
    facts,
    move_bytes,
    orders_table,
    progress,
)
from podyard.engine.collectives.schedule import ring_all_reduce, summation_order
from podyard.engine.timing.collectives import (
    COLLECTIVE_START_SECONDS,
    all_reduce_bytes_per_chip,
    all_reduce_plan,
)
from podyard.hardware.accelerator_types import all_types, parse
from tests.unit.engine.pages import Reader, open_console

ROOT = Path(__file__).parents[3]
# Two and three dimensions, equal and unequal, with and without links that wrap round; all are
# drawn.
DRAWN = ("v2-8", "v3-64", "v5litepod-64", "v4-32", "v4-128")
PHASES_ONLY = ("v5litepod-256", "v4-256", "v4-8192")


def ring_of(ranks: int, nbytes: int = DEFAULT_BYTES) -> Ring:
    found = explain(ranks, nbytes=nbytes)
    assert isinstance(found, Ring)
    return found


def slice_of(name: str, nbytes: int = DEFAULT_BYTES) -> ExplainedSlice:
    found = explain(accelerator_type=name, nbytes=nbytes)
    assert isinstance(found, ExplainedSlice)
    return found


def members(mask: int) -> set[int]:
    return {rank for rank in range(mask.bit_length()) if mask >> rank & 1}


@pytest.mark.parametrize("ranks", range(1, RANKS_MAX + 1))
def test_a_ring_begins_with_own_parts_and_ends_with_all_of_them_everywhere(ranks: int) -> None:
    ring = ring_of(ranks)
    assert [frame.number for frame in ring.frames] == list(range(2 * (ranks - 1) + 1))
    assert ring.frames[0].held == tuple((1 << rank,) * ranks for rank in range(ranks))
    assert ring.frames[-1].held == (((1 << ranks) - 1,) * ranks,) * ranks


@pytest.mark.parametrize("ranks", range(2, RANKS_MAX + 1))
def test_each_step_of_a_ring_adds_one_part_to_one_chunk_of_each_rank(ranks: int) -> None:
    frames = ring_of(ranks).frames
    for before, after in itertools.pairwise(frames[:ranks]):
        for move in after.moves:
            own, new = (members(frame.held[move.receiver][move.into]) for frame in (before, after))
            assert (
                new == own | members(before.held[move.sender][move.first])
                and len(new) == after.number + 1
            )
        pairs = zip(itertools.chain(*before.held), itertools.chain(*after.held), strict=True)
        assert sum(old != new for old, new in pairs) == ranks
    for rank, held in enumerate(frames[ranks - 1].held):
        assert [chunk for chunk, mask in enumerate(held) if mask == (1 << ranks) - 1] == [
            (rank + 1) % ranks
        ]


@pytest.mark.parametrize(("ranks", "nbytes"), [(4, 1024), (3, 1000), (7, 5), (5, 0)])
def test_bytes_of_a_ring_are_those_of_its_messages(ranks: int, nbytes: int) -> None:
    ring = ring_of(ranks, nbytes)
    sent = [0] * ranks
    for frame in ring.frames:
        for move in frame.moves:
            sent[move.sender] += move_bytes(ring.schedule, nbytes, move)
    assert sent == ring.bytes_sent and sum(sent) == 2 * (ranks - 1) * nbytes
    if nbytes % ranks == 0:
        assert set(sent) == {2 * (ranks - 1) * nbytes // ranks}


def test_the_order_of_summation_is_the_schedules() -> None:
    names, *lines = orders_table(ring_of(5))
    assert names == ("chunk", "order of the ranks")
    assert lines[0] == ("0", "(((0 + 1) + 2) + 3) + 4") and lines[3] == (
        "3",
        "(((3 + 4) + 0) + 1) + 2",
    )
    for chunk, text in lines:
        assert tuple(map(int, re.findall(r"\d", text))) == summation_order(
            ring_all_reduce(5), int(chunk)
        )
    assert orders_table(ring_of(1))[1:] == (("0", "0"),)


@pytest.mark.parametrize("nbytes", [0, 4096, DEFAULT_BYTES])
def test_phases_take_what_the_plan_takes_and_send_what_it_sends(nbytes: int) -> None:
    kinds = [*(kind.name for kind in all_types()), "v4-8192"]
    assert len(kinds) > 100
    for name in kinds:
        found = slice_of(name, nbytes)
        plan = all_reduce_plan(name, nbytes)
        assert found.plan == plan
        if not found.colours:
            assert plan.seconds == 0
            continue
        slowest = max(colour.seconds for colour in found.colours)
        assert COLLECTIVE_START_SECONDS + slowest == pytest.approx(plan.seconds, rel=1e-12)
        assert sum(colour.share for colour in found.colours) == pytest.approx(1)
        sent = sum(span.nbytes for colour in found.colours for span in colour.spans)
        assert sent == pytest.approx(all_reduce_bytes_per_chip(found.kind, nbytes), abs=0.5)
        for colour in found.colours:
            ends = [COLLECTIVE_START_SECONDS, *(span.start + span.seconds for span in colour.spans)]
            assert [span.start for span in colour.spans] == pytest.approx(ends[:-1])


@pytest.mark.parametrize("name", DRAWN)
def test_every_step_of_a_slice_goes_along_the_phase_that_is_said(name: str) -> None:
    found = slice_of(name)
    assert found.schedule is not None and found.frames[1:]
    shape = found.kind.topology.shape
    sent = [[0.0 for _ in colour.spans] for colour in found.colours]
    for frame in found.frames[1:]:
        for index, moves in enumerate(found.moves_by_colour(frame)):
            which, step = found.colours[index].at(frame.number)
            span = found.colours[index].spans[which]
            assert moves and 1 <= step <= span.phase.steps
            for move in moves:
                dimension, way, wraps = direction(shape, move)
                assert dimension == span.phase.dimension and (span.phase.wraps or not wraps)
                here, there = (
                    coordinates(shape, move.sender),
                    list(coordinates(shape, move.receiver)),
                )
                there[dimension] -= way
                assert [a % extent for a, extent in zip(there, shape, strict=True)] == list(here)
                sent[index][which] += move_bytes(found.schedule, found.nbytes, move)
    for colour, totals in zip(found.colours, sent, strict=True):
        chips = found.kind.chip_count
        assert [total / chips for total in totals] == pytest.approx(
            [span.nbytes for span in colour.spans], rel=1e-3
        )


@pytest.mark.parametrize("name", DRAWN)
def test_bars_of_a_slice_only_grow_and_are_full_at_the_end(name: str) -> None:
    found = slice_of(name)
    chips = found.kind.chip_count
    shares = [progress(found, frame) for frame in found.frames]
    assert shares[0] == [[1 / chips] * len(found.colours)] * chips
    assert shares[-1] == [[1.0] * len(found.colours)] * chips
    for before, after in itertools.pairwise(shares):
        assert before != after
        assert all(
            b >= a for x, y in zip(before, after, strict=True) for a, b in zip(x, y, strict=True)
        )


@pytest.mark.parametrize("name", PHASES_ONLY)
def test_slices_that_nobody_could_read_have_phases_only_and_say_so(name: str) -> None:
    found = slice_of(name)
    assert found.kind.chip_count > CHIPS_MAX and not found.frames and found.colours
    assert any(f"More than {CHIPS_MAX} chips" in fact for fact in facts(found))
    assert any("twisted" in fact for fact in facts(found)) == parse(name).topology.twisted
    source = explain_html.page(found)
    assert (
        "<button" not in source
        and "data-film=" not in source
        and "scatters along x" in Reader(source).text
    )


@pytest.mark.parametrize(
    ("arguments", "allowed"),
    [
        ({"ranks": 0}, "1 to 8 ranks"),
        ({"ranks": RANKS_MAX + 1}, "1 to 8 ranks"),
        ({"nbytes": -1}, "0 to 1125899906842624 bytes"),
        ({"nbytes": BYTES_MAX + 1}, "0 to 1125899906842624 bytes"),
        ({"accelerator_type": "v3-33"}, "the nearest that do are .*v3-32"),
        ({"accelerator_type": "a100"}, "a type is a generation"),
        ({"accelerator_type": "v3-32", "nbytes": -1}, "0 to 1125899906842624 bytes"),
        ({"accelerator_type": "v3-32", "ranks": 4}, "not both"),
    ],
)
def test_what_is_not_explained_is_refused_with_what_is(
    arguments: dict[str, Any], allowed: str
) -> None:
    with pytest.raises(PodyardError, match=allowed):
        explain(**arguments)


def test_without_a_wish_a_ring_is_explained() -> None:
    assert explain() == explain(DEFAULT_RANKS, None, DEFAULT_BYTES)


def test_nothing_moves_where_there_is_one() -> None:
    assert "nothing is sent" in as_text(explain(1)) and "nothing is sent" in as_text(
        slice_of("v5litepod-1")
    )
    for trace in (explain(1), slice_of("v5litepod-1")):
        assert "data-film" not in explain_html.figure(trace)


def test_the_text_shows_whose_parts_every_chunk_has() -> None:
    assert """
Step 3 of 4 \u00b7 gather: sums are handed on
  Each rank sends one chunk of 1 B to the next one, which keeps it instead of its own chunk.
          chunk 0  chunk 1  chunk 2
  rank 0  012      012      0.2      chunk 1 to 1
  rank 1  01.      012      012      chunk 2 to 2
  rank 2  012      .12      012      chunk 0 to 0
""" in as_text(ring_of(3, 3))


def test_the_text_has_a_map_for_every_colour() -> None:
    text = as_text(slice_of("v3-64", 32 * 2**10))
    assert (
        """
Step 3 of 20 \u00b7 scatter: sums are made
  A scatters along x, step 3 of 3: 192 KiB in all.
  B scatters along y, step 3 of 7: 48.0 KiB in all.
  A
      o   o   o   o   o   o   o   o
      v^  v^  v^  v^  v^  v^  v^  v^
      o   o   o   o   o   o   o   o
      v^  v^  v^  v^  v^  v^  v^  v^
      o   o   o   o   o   o   o   o
      v^  v^  v^  v^  v^  v^  v^  v^
      o   o   o   o   o   o   o   o
  B
      o  >o  >o  >o   o<  o<  o<  o
      o  >o  >o  >o   o<  o<  o<  o
      o  >o  >o  >o   o<  o<  o<  o
      o  >o  >o  >o   o<  o<  o<  o

Step 4 of 20"""
        in text
    )
    cube = as_text(slice_of("v4-16"))
    assert "    o+  o+    -o  -o" in cube and "    o< >o      o< >o" in cube


@pytest.mark.parametrize(
    "trace", [*(explain(k) for k in range(1, RANKS_MAX + 1)), *map(slice_of, DRAWN + PHASES_ONLY)]
)
def test_lines_of_text_fit(trace: Ring | ExplainedSlice) -> None:
    lines = as_text(trace).splitlines()
    assert max(map(len, lines)) <= TEXT_COLUMNS and not any(line != line.rstrip() for line in lines)


def frames_of(source: str) -> list[dict[str, Any]]:
    (figure,) = Reader(source).having("data-film")
    found: list[dict[str, Any]] = json.loads(figure["data-film"] or "")["frames"]
    return found


def classes(reader: Reader, name: str) -> list[str]:
    return [a["class"] or "" for _, a in reader.elements if name in (a.get("class") or "").split()]


def test_the_figure_of_a_ring_carries_every_step() -> None:
    ring = ring_of(3)
    source = explain_html.figure(ring)
    frames = frames_of(source)
    for frame, shown in zip(ring.frames, frames, strict=True):
        bars = [
            100 if rank in members(mask) else 0
            for held in frame.held
            for mask in held
            for rank in range(3)
        ]
        assert shown["bars"] == bars
        received = {3 * move.receiver + move.into for move in frame.moves}
        full = {index for index in range(9) if frame.held[index // 3][index % 3] == 0b111}
        assert {i for i, mark in enumerate(shown["marks"]) if mark in "nb"} == received
        assert {i for i, mark in enumerate(shown["marks"]) if mark in "db"} == full
        assert shown["on"] == sorted(3 * move.sender + move.first for move in frame.moves)


@pytest.mark.parametrize("name", DRAWN)
def test_the_figure_of_a_slice_lights_what_moves_and_its_phases(name: str) -> None:
    found = slice_of(name)
    source = explain_html.figure(found)
    reader = Reader(source)
    parts = classes(reader, "part")
    arrows = [index for index, kind in enumerate(parts) if "arrow" in kind]
    spans = sum(len(colour.spans) for colour in found.colours)
    assert len(parts) == len(arrows) + 2 * spans and arrows == list(range(len(arrows)))
    for frame, shown in zip(found.frames, frames_of(source), strict=True):
        assert (
            len(shown["bars"])
            == len(classes(reader, "bar"))
            == found.kind.chip_count * len(found.colours)
        )
        assert len(shown["marks"]) == len(classes(reader, "box")) == found.kind.chip_count
        pairs = {
            (c, m.sender, m.receiver)
            for c, ms in enumerate(found.moves_by_colour(frame))
            for m in ms
        }
        assert sum(index < len(arrows) for index in shown["on"]) == len(pairs)
        phases = [index - len(arrows) for index in shown["on"] if index >= len(arrows)]
        assert len(phases) == (2 * len(found.colours) if frame.number else 0)
        assert [index - spans for index in phases if index >= spans] == [
            index for index in phases if index < spans
        ]


@pytest.mark.parametrize(
    "trace", [ring_of(4), slice_of("v3-32"), slice_of("v4-1024")], ids=lambda trace: trace.title
)
def test_the_page_asks_for_nothing(trace: Ring | ExplainedSlice) -> None:
    source = explain_html.page(trace)
    assert not re.search(r"https?:|@import|url\(|\bsrc=|\bhref=|\bfetch\(|\bimport\b", source)
    assert "default-src 'none'" in source
    figure = explain_html.figure(trace)
    assert figure in source and not re.search(r"<style|\sstyle=|\son\w+=|<script", figure)


def test_the_first_step_is_there_without_a_script() -> None:
    ring = ring_of(4)
    source = explain_html.page(ring)
    reader = Reader(source)
    assert (
        "Step 1 of 6" in reader.text
        and "Each rank sends one chunk of 16.0 MiB to the next one" in reader.text
    )
    assert [a.get("class") for a in reader.having("hidden")] == ["film-controls"]
    shown = frames_of(source)[1]
    bars = [a for a in reader.having("data-full") if "bar" in (a["class"] or "")]
    widths = [float(a["width"] or "") / float(a["data-full"] or "") for a in bars]
    assert [round(100 * width) for width in widths] == shown["bars"]
    lit = [index for index, kind in enumerate(classes(reader, "part")) if kind.endswith(" on")]
    assert lit == shown["on"]
    marks = {"box": ".", "box now": "n", "box done": "d", "box now done": "b"}
    assert "".join(marks[kind] for kind in classes(reader, "box")) == shown["marks"]


def run(*arguments: str) -> tuple[int, str, BaseException | None]:
    done = CliRunner().invoke(root, ["explain", "all-reduce", *arguments])
    return done.exit_code, done.output, done.exception


def test_the_command_prints_text_and_writes_pages(tmp_path: Path) -> None:
    assert run("--ranks", "3", "--bytes", "999") == (0, as_text(ring_of(3, 999)), None)
    out = tmp_path / "page.html"
    assert run("--accelerator-type", "v3-32", "-o", "html", "--out", str(out)) == (0, "", None)
    assert out.read_text(encoding="utf-8") == explain_html.page(slice_of("v3-32"))
    code, _, failure = run("--ranks", "0", "--out", str(out))
    assert code == 1 and isinstance(failure, PodyardError) and "1 to 8 ranks" in failure.message
    assert out.read_text(encoding="utf-8") == explain_html.page(slice_of("v3-32"))
    assert run("--bytes", "many")[0] == 2


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("all-reduce-4.html", ("--ranks", "4")),
        ("all-reduce-v3-32.html", ("--accelerator-type", "v3-32")),
    ],
)
def test_the_pages_among_the_documents_are_those_that_the_command_makes(
    name: str, arguments: tuple[str, ...]
) -> None:
    kept = (ROOT / "docs" / "concepts" / name).read_text(encoding="utf-8")
    assert kept == run(*arguments, "-o", "html")[1]


def test_the_console_shows_the_same_figure_to_those_who_may_see_the_project(tmp_path: Path) -> None:
    url = "/console/demo/all-reduce"
    with open_console(tmp_path) as get:
        assert get(url, signed_in=False).headers["location"] == "/login"
        assert explain_html.figure(explain(), 0, lambda at: f"?at={at}#film") in get(url).text
        query = "?accelerator_type=v3-32&nbytes=4096"
        page = get(f"{url}{query}&at=3")
        figure = explain_html.figure(slice_of("v3-32", 4096), 3, lambda at: f"{query}&at={at}#film")
        assert page.status_code == 200 and figure in page.text and "Step 3 of 12" in figure
        assert 'class="part on span' in figure and '<tr class="part on">' in figure, (
            "what moves is marked"
        )
        names = Reader(page.text).having("value")
        assert {"v2-8", "v4-128", "v5litepod-64"} <= {one["value"] for one in names}, (
            "slices to choose from"
        )
        assert not re.search(
            r"<style|\sstyle=|\son\w+=|<script(?! type=\"module\" src=)", page.text
        )
        assert '<a href="/console/demo/all-reduce" aria-current="page">All-reduce</a>' in page.text
        assert '<a href="/console/demo/mxu">' in page.text
        for name in (*film.STYLES, *film.SCRIPTS):
            assert f'="{url}/{name}"' in page.text
            assert get(f"{url}/{name}").text == film.asset(explain_html.PACKAGE, name)
        for query, reason in (
            ("ranks=9", "1 to 8 ranks"),
            ("ranks=x", "from 1 to 8"),
            ("nbytes=-1", "0 to 11258"),
        ):
            refused = get(f"{url}?{query}")
            assert (
                refused.status_code == 400
                and reason in refused.text
                and "data-film" not in refused.text
            )
        evil = get(f"{url}?accelerator_type=%22%3E%3Cimg%3E")
        assert evil.status_code == 400 and "<img" not in evil.text
        assert get(f"{url}/explain.py").status_code == 400
        assert get("/console/other/all-reduce").status_code == 404
