"""What reports say of an estimate that is made by hand, so that every figure is known."""

from __future__ import annotations

import dataclasses
import itertools
import json
import re
from collections import defaultdict
from fractions import Fraction
from html.parser import HTMLParser
from typing import Any, get_args

import pytest

from podyard.base.errors import Code, invalid
from podyard.engine.report import compare, html, pictures, roofline, table, trace
from podyard.engine.report.document import document
from podyard.engine.report.summary import (
    HourlyPrice,
    Report,
    bytes_text,
    cost_text,
    hourly_text,
    percent,
    time_text,
)
from podyard.engine.timing.estimate import BufferEstimate, Estimate, OpEstimate
from podyard.engine.timing.kernels import Bound
from podyard.hardware.generations import GENERATIONS

GIB = 2**30
CLOCK_HZ = 1e9
HOSTILE = '</title><script>alert("1")</script>&\'\n'


def operation(index: int, cycles: float, bound: Bound = "hbm", **changes: Any) -> OpEstimate:
    units = (
        (("mxu", cycles / 2), ("vpu", cycles / 4), ("hbm", cycles))
        if bound == "hbm"
        else (("mxu", cycles),)
    )
    return OpEstimate(
        **{
            "name": f"fusion.{index}",
            "kind": "matrix",
            "cycles": cycles,
            "bytes": round(cycles * 400),
            "flops": round(cycles * 20_000),
            "bound": bound,
            "unit_cycles": units,
            **changes,
        }
    )


def in_a_row(*ops: OpEstimate) -> tuple[OpEstimate, ...]:
    found, at = [], 0.0
    for op in ops:
        found.append(dataclasses.replace(op, start_cycles=at))
        at += op.cycles
    return tuple(found)


def estimate(accelerator_type: str = "v3-32", **changes: Any) -> Estimate:
    """A step of 10 ms: 6 ms of HBM and 2 ms of the matrix units, 1.5 ms of collectives, 0.5 ms of
    the host."""
    ops = in_a_row(operation(0, 4e6), operation(1, 2e6, "mxu"), operation(2, 2e6, count=10))
    values: dict[str, Any] = {
        "accelerator_type": accelerator_type,
        "compiler": "podyard",
        "devices": 32,
        "modelled_seconds": 10e-3,
        "compute_seconds": 8e-3,
        "collective_seconds": 1.5e-3,
        "overhead_seconds": 0.5e-3,
        "dispatch_seconds": 0.5e-3,
        "feed_seconds": 1e-3,
        "host_loop": True,
        "cycles": 8e6,
        "flops": 160_000_000_000,
        "hbm_bytes": 3_200_000_000,
        "ici_bytes": 100_000_000,
        "mxu_utilization": 0.325,
        "argument_bytes": 1 * GIB,
        "result_bytes": GIB // 2,
        "temporary_bytes": 2 * GIB,
        "peak_hbm_bytes": 3 * GIB,
        "usable_hbm_bytes": round(15.48 * GIB),
        "fits": True,
        "memory_text": "",
        "bound": "hbm",
        "energy_joules": 0.5,
        "ops": ops,
        "collectives": ("all-reduce of f32[25557032]",),
        "largest_buffers": (
            BufferEstimate("activations", "temporary", GIB),
            BufferEstimate("w", "argument", GIB // 4),
        ),
        "unknown_ops": ("custom_call.sparse",),
        "clock_hz": CLOCK_HZ,
        "global_batch": 1000,
    }
    return Estimate(**{**values, **changes})


ON_DEMAND = HourlyPrice(
    "on-demand", 32_000_000_001, "a card", effective_from="2026-01-01T00:00:00Z", verified=False
)
SPOT = HourlyPrice("spot", None, "no spot price of v3-32 in us-central1")


def report(given: Estimate | None = None, **changes: Any) -> Report:
    values: dict[str, Any] = {
        "example_count": 12_345,
        "zone": "us-central1-f",
        "prices": (ON_DEMAND, SPOT),
        **changes,
    }
    return Report("resnet-50", given or estimate(), **values)


def text_of(told: Report) -> str:
    lines: list[str] = []
    for block in table.blocks(told):
        lines += [
            *block.before,
            "  ".join(block.headings),
            *("  ".join(row) for row in block.rows),
            *block.after,
        ]
    return "\n".join(lines)


# --- figures


def test_the_headline_says_time_bound_and_memory() -> None:
    assert report(estimate(overhead_seconds=0.0)).headline == (
        "v3-32: 10.0 ms per step, 60 % of it hbm; fits (3.0 of 15.5 GiB)"
    )
    too_much = estimate(fits=False, peak_hbm_bytes=20 * GIB, bound="mxu")
    assert report(too_much).headline == (
        "v3-32: 10.0 ms per step (devices 9.50 ms, then the host 500 us), 20 % of it mxu; "
        "does not fit (20.0 of 15.5 GiB)"
    )
    assert report(estimate(peak_hbm_bytes=3 * 2**20)).verdict == "fits (3.00 MiB of 15.5 GiB)"
    assert report(estimate(fits=False)).verdict == "does not fit, says the compiler"
    unbound = estimate(ops=(operation(0, 1e6, "unpriced", unit_cycles=()),))
    assert ", bound by hbm;" in report(unbound).headline


def test_the_time_of_a_step_is_told_by_what_it_waits_for() -> None:
    seconds = report(estimate(compute_seconds=8.25e-3)).bound_seconds
    expected = {
        "mxu": 2e-3,
        "hbm": 6e-3,
        "on-chip": 0,
        "vpu": 0,
        "overhead": 0.5e-3,
        "ici": 1.5e-3,
        "unpriced": 0.25e-3,
    }
    assert dict(seconds) == pytest.approx(expected)
    assert set(seconds) == set(get_args(Bound))


def test_collectives_among_the_operations_count_once() -> None:
    collective = operation(9, 1.5e6, "ici", unit_cycles=(("ici", 1.5e6),))
    with_op = estimate(ops=(*estimate().ops, dataclasses.replace(collective, start_cycles=8e6)))
    assert report(with_op).bound_seconds["ici"] == pytest.approx(1.5e-3)
    ici = [span for span in trace.spans(with_op) if span.thread == "ici"]
    assert sum(span.cycles for span in ici) == pytest.approx(1.5e6)


def test_an_epoch_is_the_whole_batches_of_the_data_set() -> None:
    assert report().steps_per_epoch == 12
    assert report().epoch_seconds == pytest.approx(0.12)
    assert report(example_count=None).steps_per_epoch is None
    assert report(example_count=999).epoch_seconds is None
    assert "999 examples, fewer than a batch" in text_of(report(example_count=999))


def test_costs_are_exact() -> None:
    told = report()
    step = told.cost_of_step(ON_DEMAND)
    assert step == Fraction(32_000_000_001, 10**9) / 3600 / 100
    assert told.cost_of_epoch(ON_DEMAND) == 12 * step
    assert told.cost_of_step(SPOT) is None
    assert ON_DEMAND.of_seconds(3e-12) == Fraction(32_000_000_001 * 3, 10**9 * 3600 * 10**12)
    assert cost_text(step) == "0.0000888889"
    assert cost_text(Fraction(1, 8), 2) == "0.13"
    assert cost_text(Fraction(1, 10**15)) == "0.000000000000001"
    assert hourly_text(32_000_000_001) == "32.000000001"
    assert hourly_text(4_500_000_000) == "4.50"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0 s"), (11.2e-3, "11.2 ms"), (35.12e-6, "35.1 us"), (0.9999e-3, "1.00 ms"),
        (3.2e-9, "3.20 ns"),
     (90, "90.0 s"), (150, "2.50 min"), (9000, "2.50 h"), (250_000, "2.89 d"), (5e-10, "0.5 ns")],
)  # fmt: skip
def test_times_have_three_digits(seconds: float, text: str) -> None:
    assert time_text(seconds) == text


def test_sizes_and_shares_are_short() -> None:
    assert [bytes_text(n) for n in (0, 1023, 1024, 3.12 * GIB)] == [
        "0 B",
        "1023 B",
        "1.00 KiB",
        "3.12 GiB",
    ]
    assert [percent(s) for s in (0, 0.000321, 0.0123, 0.0996, 0.46, 1)] == [
        "0 %",
        "0.03 %",
        "1.2 %",
        "10 %",
        "46 %",
        "100 %",
    ]


# --- text and JSON


def test_the_table_names_what_a_user_must_know() -> None:
    text = text_of(report())
    assert text.startswith(report().headline)
    for part in (
        "32 cores", "12 steps, 12345 examples", "32 %", "custom_call.sparse",
        "all-reduce of f32[25557032]",
        "32.000000001", "0.0000888889", "0.00106667", "a card (unverified)",
        "no spot price of v3-32 in us-central1",
        "16 J",
    ):  # fmt: skip
        assert part in text, part
    assert "largest arrays" not in text


def test_what_does_not_fit_names_the_largest_arrays() -> None:
    text = text_of(report(estimate(fits=False, peak_hbm_bytes=20 * GIB)))
    assert "DOES NOT FIT" in text
    assert "activations  temporary  1.00 GiB" in text


def test_operations_come_by_cycles_and_the_rest_is_counted() -> None:
    many = in_a_row(*(operation(i, 1000.0 + i) for i in range(40)))
    block = table.operations(report(estimate(ops=many)))
    assert [row[0] for row in block.rows] == [f"fusion.{i}" for i in range(39, 9, -1)]
    share = sum(1000 + i for i in range(10)) / sum(1000 + i for i in range(40))
    assert block.after == (f"and 10 others, {percent(share)} of the cycles",)
    assert table.operations(report()).after == ()


def test_long_lists_say_how_many_more_there_are() -> None:
    many = tuple(f"thing-{i}" for i in range(table.NAMES_SHOWN + 3))
    text = text_of(report(estimate(unknown_ops=many, collectives=many)))
    assert f"thing-{table.NAMES_SHOWN - 1} and 3 more" in text
    assert f"\n  thing-{table.NAMES_SHOWN - 1}\n  and 3 more\n" in text
    assert f"thing-{table.NAMES_SHOWN} " not in text


def test_no_name_breaks_a_line() -> None:
    assert table.short("a\nb\x1b[31m") == "a b [31m"
    assert len(table.short("x" * 1000)) == 44


def test_the_document_holds_all_of_the_estimate() -> None:
    told = document(report())
    assert json.loads(json.dumps(told, allow_nan=False)) is not None
    camel = {
        re.sub(r"_(.)", lambda m: m[1].upper(), field.name)
        for field in dataclasses.fields(Estimate)
    }
    # doubts are told as `confidence` and `reasons`, where there are any
    assert camel - {"doubts"} <= set(told)
    assert told["ops"][2]["unitCycles"] == {"mxu": 1e6, "vpu": 0.5e6, "hbm": 2e6}
    assert told["ops"][0]["share"] == 0.5
    assert told["prices"][0]["perStep"] == "0.0000888888888917"
    assert told["prices"][1] == {"usage": "spot", "reason": SPOT.note}
    assert sum(told["boundSeconds"].values()) == pytest.approx(told["modelledSeconds"])


# --- comparison


def outcomes() -> list[compare.Outcome]:
    def make(name: str) -> Report:
        if name == "v9-1":
            raise invalid("accelerator type 'v9-1' does not exist", "acceleratorType")
        faster = estimate(name, modelled_seconds=5e-3, energy_joules=None)
        return report(
            {"v2-32": estimate(name, fits=False, peak_hbm_bytes=16 * GIB), "v4-32": faster}.get(
                name
            )
        )

    return [compare.outcome_of(name, make) for name in ("v3-32", "v9-1", "v2-32", "v4-32")]


def test_a_type_that_cannot_is_a_row_that_says_why() -> None:
    found = outcomes()
    assert [one.error.code if one.error else None for one in found] == [
        None, Code.INVALID_ARGUMENT, Code.RESOURCE_EXHAUSTED, None,
    ]  # fmt: skip
    block = compare.block(found)
    assert all(len(row) == len(block.headings) for row in block.rows)
    assert [row[2] for row in block.rows] == ["1", "-", "-", "0.5"]
    assert block.rows[1][-1] == "accelerator type 'v9-1' does not exist"
    assert block.rows[2][-1] == "does not fit (16.0 of 15.5 GiB)"
    assert "ERROR" not in compare.block([found[0], found[3]]).headings


def test_documents_of_a_comparison_have_ratios_or_an_error() -> None:
    first, unknown, too_small, last = compare.documents(outcomes())
    assert unknown["error"] == {
        "status": "INVALID_ARGUMENT",
        "message": "accelerator type 'v9-1' does not exist",
    }
    assert unknown["acceleratorType"] == "v9-1"
    assert too_small["error"]["status"] == "RESOURCE_EXHAUSTED"
    assert first["ratios"] == {"modelledSeconds": 1.0, "costPerStep": {"on-demand": 1.0}}
    assert last["ratios"] == {"modelledSeconds": 0.5, "costPerStep": {"on-demand": 0.5}}


def test_nothing_is_held_against_a_first_one_that_failed() -> None:
    found = outcomes()
    assert compare.ratio(found[3], found[1]) is None
    assert compare.cost_ratio(found[3], found[2], "on-demand") is None


# --- trace


def complete(told: Report) -> list[dict[str, Any]]:
    return [event for event in trace.trace_events(told)["traceEvents"] if event["ph"] == "X"]


def assert_no_overlap(events: list[dict[str, Any]]) -> None:
    threads: dict[tuple[int, int], list[dict[str, Any]]] = defaultdict(list)
    for event in events:
        threads[event["pid"], event["tid"]].append(event)
    for own in threads.values():
        for one, after in itertools.pairwise(own):
            assert one["ts"] + one["dur"] <= after["ts"] * (1 + 1e-12)


def test_a_trace_adds_up_to_the_estimate_on_every_core() -> None:
    told = report()
    events = complete(told)
    assert_no_overlap(events)
    assert {event["pid"] for event in events} == set(range(trace.PROCESSES_MAX))
    sums: dict[str, float] = defaultdict(float)
    for event in events:
        if event["pid"] == 3:
            sums[event["cat"]] += event["dur"]
    expected = {"kernels": 8000, "mxu": 5000, "vpu": 1500, "hbm": 6000, "ici": 1500, "infeed": 500}
    assert dict(sums) == pytest.approx(expected)
    assert max(event["ts"] + event["dur"] for event in events) == pytest.approx(10_000)


def test_a_trace_shows_no_core_that_is_not_there() -> None:
    told = trace.trace_events(report(estimate("v5litepod-1", devices=1)))
    assert {event["pid"] for event in told["traceEvents"]} == {0}
    assert told["otherData"]["devices"] == told["otherData"]["devicesShown"] == 1
    names = [
        event["args"]["name"] for event in told["traceEvents"] if event["name"] == "process_name"
    ]
    assert names == ["v5litepod-1 chip 0"]


def test_a_short_loop_is_drawn_out_and_a_long_one_says_how_long_it_is() -> None:
    short = [
        event for event in complete(report()) if event["pid"] == 0 and event["name"] == "fusion.2"
    ]
    assert len([event for event in short if event["cat"] == "hbm"]) == 10
    count = trace.LOOP_EVENTS_MAX + 1
    long = report(estimate(ops=in_a_row(operation(0, 1e6, count=count))))
    (event,) = (event for event in complete(long) if event["pid"] == 0 and event["cat"] == "hbm")
    assert event["name"] == f"fusion.0 (all {count} executions)"
    assert event["dur"] == pytest.approx(1000)


@pytest.mark.parametrize("count", [1, 10])
def test_the_number_of_events_is_bounded(count: int) -> None:
    many = in_a_row(*(operation(i, 10.0, count=count) for i in range(3 * trace.OPS_MAX)))
    told = report(estimate(ops=many, devices=1))
    events = complete(told)
    assert len(events) <= len(trace.THREADS) * (trace.OPS_MAX + 1)
    assert_no_overlap(events)
    assert sum(event["dur"] for event in events if event["cat"] == "hbm") == pytest.approx(
        30 * trace.OPS_MAX / 1000
    )
    rest = [event["name"] for event in events if "more operations" in event["name"]]
    assert rest[0] == f"{2 * trace.OPS_MAX + 1} more operations"


def test_units_that_are_late_begin_the_next_operation_later() -> None:
    late = (operation(0, 10.0, unit_cycles=(("hbm", 15.0),)), operation(1, 10.0, start_cycles=10.0))
    hbm = [
        span for span in trace.spans(estimate(ops=late, overhead_seconds=0)) if span.thread == "hbm"
    ]
    assert [(span.start, span.cycles) for span in hbm] == [(0, 15), (15, 10)]


def test_names_survive_in_a_trace() -> None:
    told = trace.trace_events(report(estimate(ops=(operation(0, 10.0, name=HOSTILE),))))
    text = json.dumps(told)
    assert HOSTILE in [event["name"] for event in json.loads(text)["traceEvents"]]
    threads = {
        event["args"]["name"] for event in told["traceEvents"] if event["name"] == "thread_name"
    }
    assert threads == {"kernels", "MXU", "VPU", "HBM", "ICI", "infeed"}


# --- page


class Tags(HTMLParser):
    """Every tag is closed, and what is there."""

    VOID = ("meta",)

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[str] = []
        self.words: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append(tag)
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words.append(data)


def page_of(*found: compare.Outcome) -> tuple[str, Tags]:
    text = html.page(found)
    tags = Tags()
    tags.feed(text)
    assert tags.open == []
    return text, tags


def test_a_page_asks_for_nothing_and_runs_nothing() -> None:
    text, tags = page_of(*outcomes())
    assert "script" not in tags.seen and "link" not in tags.seen and "img" not in tags.seen
    assert (
        re.search(
            r"(https?:)?//|url\(|@import|src=",
            text.replace("https://cloud.google.com/tpu/docs/v", ""),
        )
        is None
    )
    assert "default-src 'none'" in text
    assert "prefers-color-scheme: dark" in text


def test_a_page_says_why_a_type_cannot_across_its_row() -> None:
    text, _ = page_of(*outcomes())
    columns = len(compare.block(outcomes()).headings) - 1
    assert (
        f'<td>v9-1</td><td colspan="{columns - 1}">accelerator type &#x27;v9-1&#x27; does '
        "not exist</td>" in text
    )
    assert page_of(outcomes()[1], outcomes()[0])[0].count("does not exist") == 2


def test_names_of_a_program_are_text_in_a_page() -> None:
    ops = (operation(0, 1e6, name=HOSTILE, where=HOSTILE),)
    buffers = (BufferEstimate(HOSTILE, HOSTILE, 7),)
    told = estimate(
        ops=ops,
        collectives=(HOSTILE,),
        unknown_ops=(HOSTILE,),
        memory_text=HOSTILE,
        largest_buffers=buffers,
    )
    prices = (HourlyPrice("spot", None, HOSTILE), HourlyPrice(HOSTILE, 1, HOSTILE))
    broken = compare.Outcome(HOSTILE, None, invalid(HOSTILE))
    for found in (
        [compare.Outcome("v3-8", Report(HOSTILE, told, 10**6, HOSTILE, prices)), broken],
        [broken],
    ):
        text, tags = page_of(*found)
        assert "<script" not in text
        assert "script" not in tags.seen
        assert any("<script>" in word for word in tags.words)


def test_the_roofline_has_a_dot_per_operation_that_has_a_place() -> None:
    idle = operation(3, 10.0, flops=0, name="copy")
    told = report(estimate(ops=in_a_row(*estimate().ops, idle)))
    assert [point.op.name for point in roofline.points(told)] == [
        "fusion.0",
        "fusion.1",
        "fusion.2",
    ]
    assert roofline.points(told)[0].flops_per_byte == 50
    assert roofline.points(told)[0].flops_per_second == pytest.approx(20_000 * CLOCK_HZ)
    text = roofline.svg(told)
    assert text.count("<circle") == 3
    assert "fusion.1: 2.00 ms, 25 % of the cycles, mxu" in text
    assert "or too many: 1." in text


@pytest.mark.parametrize("name", [g.name for g in GENERATIONS.values() if g.node_type])
def test_the_roof_is_that_of_one_device(name: str) -> None:
    generation = GENERATIONS[name]
    roof = roofline.roof_of(f"{generation.name_prefix}-8")
    devices = generation.devices_per_chip
    assert roof.at(1e9) == generation.peak_bf16_flops_per_second / devices
    assert roof.at(1) == generation.hbm_bytes_per_second / devices
    assert roof.at(roof.ridge) == pytest.approx(roof.flops_per_second)


def test_dots_stay_inside_the_plot() -> None:
    ops = (
        operation(0, 1e9, flops=1, bytes=10**12),
        operation(1, 1.0, flops=10**15, bytes=1),
        operation(2, 5.0),
    )
    text = roofline.svg(report(estimate(ops=ops)))
    found = re.findall(r'<circle class="[^"]*" cx="([-\d.]+)" cy="([-\d.]+)"', text)
    assert len(found) == 3
    assert all(0 <= float(x) <= 720 and 0 <= float(y) <= 420 for x, y in found)


def test_a_lane_is_filled_by_the_share_of_time_that_its_unit_is_busy() -> None:
    end = float(pictures.COLUMNS)
    shares = pictures.busy_shares(
        [trace.Span("hbm", "a", 0.5, 2.0), trace.Span("hbm", "b", end - 0.25, 0.25)], end
    )
    assert shares[:4] == [0.5, 1, 0.5, 0]
    assert shares[-1] == 0.25
    assert sum(shares) == 2.25


def test_short_neighbours_are_one_box_of_what_takes_longest() -> None:
    ops = (
        operation(0, 1e6),
        operation(1, 10.0),
        operation(2, 25.0, "mxu"),
        operation(3, 10.0),
        operation(4, 1e6),
    )
    text = pictures.timeline(report(estimate(ops=in_a_row(*ops))))
    assert '<title>3 short operations, mostly mxu</title><rect class="b-mxu"' in text
    assert text.count('<rect class="b-hbm"') == 2


@pytest.mark.slow
def test_a_page_of_very_many_operations_stays_small() -> None:
    many = in_a_row(*(operation(i, 10.0 + i % 7) for i in range(20_000)))
    text, _ = page_of(compare.Outcome("v3-32", report(estimate(ops=many))))
    assert len(text) < 1_000_000
    assert text.count("<circle") == roofline.POINTS_MAX


def test_a_program_without_operations_has_a_page_and_a_trace() -> None:
    empty = estimate(ops=(), compute_seconds=0.0, collective_seconds=0.0, overhead_seconds=0.0,
        modelled_seconds=0.0,
                     collectives=(), unknown_ops=(), largest_buffers=(),
                     energy_joules=None)  # fmt: skip
    text, _ = page_of(compare.Outcome("v3-32", report(empty, prices=())))
    assert "No operation takes any time" in text
    assert complete(report(empty)) == []
    assert "no energy for v2" in text_of(
        report(dataclasses.replace(empty, accelerator_type="v2-8"))
    )
