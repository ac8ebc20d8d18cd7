"""A report as blocks of text for a terminal. The printer aligns the columns."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from podyard.engine.report.summary import (
    EXACT_SENTENCE,
    Report,
    bound_text,
    bytes_text,
    cost_text,
    count_text,
    host_text,
    hourly_text,
    memory_pair,
    percent,
    time_text,
)
from podyard.engine.timing.estimate import Estimate, OpEstimate

OPS_SHOWN = 30
NAMES_SHOWN = 12
_NAME_WIDTH = 44
NOTHING = "-"


@dataclasses.dataclass(frozen=True, slots=True)
class TextBlock:
    """Lines, then a table (none without headings), then lines."""

    before: tuple[str, ...] = ()
    headings: tuple[str, ...] = ()
    rows: tuple[tuple[str, ...], ...] = ()
    after: tuple[str, ...] = ()


def blocks(report: Report) -> list[TextBlock]:
    """Headline, figures, operations, memory where it is short, costs."""
    found = [
        TextBlock(before=(report.headline,)),
        TextBlock(headings=("FIGURE", "VALUE"), rows=tuple(figures(report))),
    ]
    if report.estimate.ops:
        found.append(operations(report))
    if not report.estimate.fits:
        found.append(_buffers(report))
    if report.prices:
        found.append(costs(report))
    return found


def figures(report: Report) -> list[tuple[str, str]]:
    """Name and value of every figure of the step."""
    estimate, device = report.estimate, report.device
    parts = ", ".join(f"{bound} {time_text(s)}" for bound, s in report.bound_seconds.items() if s)
    found = [
        ("program", report.program),
        (
            "accelerator type",
            (
                f"{estimate.accelerator_type}, "
                f"{estimate.devices} {device}{_s(estimate.devices)} in use"
            ),
        ),
        ("compiler", _compiler(estimate)),
    ]
    if estimate.doubts:
        found += _lines("lower bound because", estimate.reasons)
    if estimate.global_batch is not None:
        found.append(("global batch", str(estimate.global_batch)))
    found += [
        ("time per step", report.step_text),
        ("- computing", time_text(estimate.compute_seconds)),
        ("- memory traffic, at least", time_text(estimate.traffic_seconds)),
        ("- collectives", time_text(estimate.collective_seconds)),
        ("- waiting for the host", time_text(estimate.overhead_seconds)),
        ("host, a step", host_text(estimate)),
        ("waits for", parts or NOTHING),
        ("time per epoch", _epoch(report)),
        ("bound", estimate.bound),
        ("MFU, model FLOPs", percent(estimate.mfu) if estimate.modelled_seconds else NOTHING),
        (
            "HFU, with recomputation",
            percent(estimate.hfu) if estimate.modelled_seconds else NOTHING,
        ),
        ("MXU utilisation", percent(estimate.mxu_utilization)),
        (f"arguments, a {device}", bytes_text(estimate.argument_bytes)),
        (f"temporaries, a {device}", bytes_text(estimate.temporary_bytes)),
        (f"results, a {device}", bytes_text(estimate.result_bytes)),
        (f"peak HBM, a {device}", _peak(estimate)),
    ]
    if estimate.memory_text:
        found += _lines("memory", estimate.memory_text.splitlines())
    found += [
        ("memory" if not index else "", line)
        for index, line in enumerate(estimate.memory_text.splitlines())
    ]
    found += [
        (f"flops, a {device}", count_text(estimate.flops)),
        (f"HBM traffic, a {device}", bytes_text(estimate.hbm_bytes)),
        (f"ICI traffic, a {device}", bytes_text(estimate.ici_bytes)),
        *_lines("collectives", estimate.collectives),
        ("priced by bytes only", names(estimate.unknown_ops)),
        ("energy per step", energy(report)),
    ]
    return found


def operations(report: Report) -> TextBlock:
    """The longest operations, and what the others come to."""
    ordered = report.by_cycles
    shown, others = ordered[:OPS_SHOWN], ordered[OPS_SHOWN:]
    share = sum(report.share_of(op) for op in others)
    after = (
        (f"and {len(others)} other{_s(len(others))}, {percent(share)} of the cycles",)
        if others
        else ()
    )
    headings = (
        "OPERATION",
        "KIND",
        "COUNT",
        "TIME",
        "CYCLES",
        "SHARE",
        "BOUND",
        "FLOPS",
        "BYTES",
        "WHERE",
    )
    return TextBlock(
        headings=headings, rows=tuple(operation_row(report, op) for op in shown), after=after
    )


def operation_row(report: Report, op: OpEstimate) -> tuple[str, ...]:
    return (
        short(op.name),
        op.kind,
        str(op.count),
        time_text(report.seconds_of(op)),
        f"{op.cycles:.0f}",
        percent(report.share_of(op)),
        op.bound,
        count_text(op.flops),
        bytes_text(op.bytes),
        short(op.where) or NOTHING,
    )


def _buffers(report: Report) -> TextBlock:
    rows = tuple(
        (short(b.name), b.kind, bytes_text(b.nbytes)) for b in report.estimate.largest_buffers
    )
    return TextBlock(("The largest arrays:",), ("ARRAY", "KIND", "SIZE"), rows)


def costs(report: Report) -> TextBlock:
    """A row per usage class. What has no price says why."""
    currency = next(
        (price.currency for price in report.prices if price.nanos_per_hour is not None), "USD"
    )
    headings = (
        "USAGE",
        f"{currency}_PER_HOUR",
        f"{currency}_PER_STEP",
        f"{currency}_PER_EPOCH",
        "PRICE",
    )
    after = ("Lower bounds, like the time per step.",) if report.estimate.doubts else ()
    return TextBlock((f"Cost in {report.zone}:",), headings, tuple(cost_rows(report)), after)


def cost_rows(report: Report) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = []
    for price in report.prices:
        step, epoch = report.cost_of_step(price), report.cost_of_epoch(price)
        if price.nanos_per_hour is None or step is None:
            rows.append((price.usage, NOTHING, NOTHING, NOTHING, price.note))
            continue
        checked = "" if price.verified else " (unverified)"
        rows.append((
            price.usage,
            hourly_text(price.nanos_per_hour),
            cost_text(step),
            NOTHING if epoch is None else cost_text(epoch),
            f"from {price.effective_from[:10]}: {price.note}{checked}",
        ))  # fmt: skip
    return rows


def energy(report: Report) -> str:
    joules = report.slice_joules
    return report.energy_note if joules is None else f"{joules:.4g} J ({report.energy_note})"


def _peak(estimate: Estimate) -> str:
    said = f"{memory_pair(estimate)}: {'fits' if estimate.fits else 'DOES NOT FIT'}"
    return f"at least {said} (lower bound)" if estimate.is_memory_lower_bound else said


def _epoch(report: Report) -> str:
    seconds = report.epoch_seconds
    if seconds is not None:
        return (
            f"{bound_text(report.estimate, seconds)} ({report.steps_per_epoch} steps, "
            f"{report.example_count} examples)"
        )
    if report.example_count is None:
        return f"{NOTHING} (the program has no data set)"
    return f"{NOTHING} (the data set has {report.example_count} examples, fewer than a batch)"


def _lines(name: str, lines: Sequence[str]) -> list[tuple[str, str]]:
    """A row per line, the first one with the name; how many more there are than NAMES_SHOWN."""
    shown = list(lines[:NAMES_SHOWN]) or ["none"]
    if len(lines) > NAMES_SHOWN:
        shown.append(f"and {len(lines) - NAMES_SHOWN} more")
    return [(name if not index else "", line) for index, line in enumerate(shown)]


def names(all_names: Sequence[str]) -> str:
    """The first names, and how many more there are."""
    shown = ", ".join(all_names[:NAMES_SHOWN]) or "none"
    more = len(all_names) - NAMES_SHOWN
    return f"{shown} and {more} more" if more > 0 else shown


def short(text: str) -> str:
    """One line of at most _NAME_WIDTH characters; control characters become blanks."""
    clean = "".join(char if char.isprintable() else " " for char in text)
    return clean if len(clean) <= _NAME_WIDTH else f"{clean[: _NAME_WIDTH - 3]}..."


def _compiler(estimate: Estimate) -> str:
    return estimate.compiler if estimate.compiler == "podyard" else f"xla-tpu: {EXACT_SENTENCE}"


def _s(count: int) -> str:
    return "" if count == 1 else "s"
