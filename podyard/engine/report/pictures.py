"""Pictures of a page: the step over time by unit, the memory, bars of a comparison. Plain SVG."""

from __future__ import annotations

import html
from collections.abc import Sequence

from podyard.engine.report.compare import Outcome
from podyard.engine.report.summary import Report, bytes_text, percent, time_text
from podyard.engine.report.trace import INFEED, KERNELS, THREADS, Span, spans

# A lane is drawn in this many columns; each is filled by the share of it that the unit is busy.
COLUMNS = 480
_WIDTH = 960
_LEFT, _RIGHT = 110, 60
_LANE, _GAP = 34, 10
_AXIS = 26
_CHARACTER = 7.0  # width of a letter, pixels
_NAMES = {
    KERNELS: "kernels",
    "mxu": "MXU",
    "vpu": "VPU",
    "hbm": "HBM",
    "ici": "ICI",
    INFEED: "dispatch, infeed",
}


def timeline(report: Report) -> str:
    """A lane per unit, over the time of one step. Operations too short to be seen are drawn
    together."""
    clock = report.estimate.clock_hz
    found = spans(report.estimate)
    end = max([report.estimate.modelled_seconds * clock, *(span.end for span in found)])
    if not found or end <= 0:
        return "<p class='hint'>No operation takes any time.</p>"
    height = len(THREADS) * (_LANE + _GAP) + _AXIS
    inner = _WIDTH - _LEFT - _RIGHT
    parts = [
        f'<svg viewBox="0 0 {_WIDTH} {height}" role="img" aria-label="The step over time, by unit">'
    ]
    for index, thread in enumerate(THREADS):
        top = index * (_LANE + _GAP)
        own = [span for span in found if span.thread == thread]
        busy = sum(span.cycles for span in own) / end
        parts.append(
            f'<text x="{_LEFT - 8}" y="{top + 22}" text-anchor="end">{_NAMES[thread]}</text>'
        )
        parts.append(f'<rect class="lane" x="{_LEFT}" y="{top}" width="{inner}" height="{_LANE}"/>')
        parts.append(
            _kernels(report, own, end, top) if thread == KERNELS else _busy(thread, own, end, top)
        )
        parts.append(f'<text x="{_WIDTH - _RIGHT + 8}" y="{top + 22}">{percent(busy)}</text>')
    for quarter in range(5):
        at = _LEFT + inner * quarter / 4
        anchor = "start" if quarter == 0 else "end" if quarter == 4 else "middle"
        label = time_text(end * quarter / 4 / clock)
        parts.append(f'<text x="{at:.1f}" y="{height - 8}" text-anchor="{anchor}">{label}</text>')
    return "".join([*parts, "</svg>"])


def _kernels(report: Report, own: Sequence[Span], end: float, top: float) -> str:
    """A box per operation, coloured by what bounds it; neighbours of less than a column become one
    box, of
    the colour of what takes longest among them."""
    column = end / COLUMNS
    parts: list[str] = []
    pending: list[Span] = []

    def flush() -> None:
        if pending:
            bound = mostly(pending)
            title = (
                pending[0].name
                if len(pending) == 1
                else f"{len(pending)} short operations, mostly {bound}"
            )
            parts.append(_box(f"b-{bound}", pending[0].start, pending[-1].end, end, top, title, ""))
            pending.clear()

    for span in own:
        if span.cycles < column:
            # Short ones that are far from each other are not neighbours.
            if pending and (
                span.start - pending[-1].end > column or span.end - pending[0].start > 4 * column
            ):
                flush()
            pending.append(span)
            continue
        flush()
        bound = mostly([span])
        title = f"{span.name}: {time_text(span.cycles / report.estimate.clock_hz)}, {bound}"
        parts.append(_box(f"b-{bound}", span.start, span.end, end, top, title, span.name))
    flush()
    return "".join(parts)


def mostly(found: Sequence[Span]) -> str:
    """Return what bounds most of the cycles of operations."""
    cycles: dict[str, float] = {}
    for span in found:
        bound = span.op.bound if span.op is not None else "overhead"
        cycles[bound] = cycles.get(bound, 0.0) + span.cycles
    return max(cycles, key=lambda bound: cycles[bound])


def _box(
    kind: str, start: float, stop: float, end: float, top: float, title: str, label: str
) -> str:
    inner = _WIDTH - _LEFT - _RIGHT
    x, width = _LEFT + inner * start / end, max(0.6, inner * (stop - start) / end)
    letters = int((width - 8) / _CHARACTER)
    shown = "" if letters < 4 else label if len(label) <= letters else f"{label[: letters - 1]}…"
    text = (
        f'<text class="in" x="{x + 4:.1f}" y="{top + 22:.0f}">{html.escape(shown)}</text>'
        if shown
        else ""
    )
    return (
        f'<g><title>{html.escape(title)}</title><rect class="{kind}" x="{x:.2f}" y="{top:.0f}" '
        f'width="{width:.2f}" '
        f'height="{_LANE}"/>{text}</g>'
    )


def _busy(thread: str, own: Sequence[Span], end: float, top: float) -> str:
    """An area: how much of each column's time the unit is busy."""
    busy = busy_shares(own, end)
    inner = (_WIDTH - _LEFT - _RIGHT) / COLUMNS
    base = top + _LANE
    corners = [f"{_LEFT},{base}"]
    last = -1.0
    for index, share in enumerate([*busy, 0.0]):
        # Columns of one height are one step of the outline.
        if share != last:
            x = _LEFT + index * inner
            corners += [
                f"{x:.1f},{base - _LANE * max(last, 0):.1f}",
                f"{x:.1f},{base - _LANE * share:.1f}",
            ]
            last = share
    name = html.escape(f"{_NAMES[thread]}: busy {percent(sum(busy) / COLUMNS)} of the step")
    return (
        f'<polygon class="b-{thread}" points="{" ".join(corners)}"><title>{name}</title></polygon>'
    )


def busy_shares(own: Sequence[Span], end: float) -> list[float]:
    """Of each of COLUMNS equal parts of [0, end], the share (0 to 1) that `own` covers."""
    column = end / COLUMNS
    shares = [0.0] * COLUMNS
    for span in own:
        first = min(COLUMNS - 1, int(span.start / column))
        last = min(COLUMNS - 1, int(span.end / column))
        for index in range(first, last + 1):
            covered = min(span.end, (index + 1) * column) - max(span.start, index * column)
            shares[index] += max(0.0, covered) / column
    return [round(min(1.0, share), 3) for share in shares]


def memory_bar(report: Report) -> str:
    """Arguments and the rest of the peak, against what a program can use."""
    estimate = report.estimate
    peak, usable = estimate.needed_hbm_bytes, estimate.usable_hbm_bytes
    arguments = min(estimate.argument_bytes, peak)
    whole = max(peak, usable, 1)
    inner = _WIDTH - 2 * 6
    limit = 6 + inner * usable / whole
    parts = [
        f'<svg viewBox="0 0 {_WIDTH} 76" role="img" aria-label="{html.escape(report.verdict)}">'
    ]
    parts.append(f'<rect class="lane" x="6" y="24" width="{inner}" height="28" rx="4"/>')
    at = 6.0
    for kind, nbytes in (("arguments", arguments), ("rest of the peak", peak - arguments)):
        width = inner * nbytes / whole
        name = html.escape(f"{kind}: {bytes_text(nbytes)}")
        parts.append(
            f'<rect class="m-{kind.split()[0]}" x="{at:.1f}" y="24" width="{width:.1f}" '
            'height="28">'
            f"<title>{name}</title></rect>"
        )
        at += width
    parts.append(f'<line class="limit" x1="{limit:.1f}" y1="16" x2="{limit:.1f}" y2="60"/>')
    usable_text, peak_text = f"usable {bytes_text(usable)}", f"peak {bytes_text(peak)}"
    parts.append(f'<text x="{limit - 4:.1f}" y="14" text-anchor="end">{usable_text}</text>')
    # A label below a bar that ends near the left edge starts there, else it ends there.
    anchor = "start" if at < _WIDTH / 2 else "end"
    parts.append(f'<text x="{at:.1f}" y="70" text-anchor="{anchor}">{peak_text}</text>')
    return "".join([*parts, "</svg>"])


def comparison_bars(outcomes: Sequence[Outcome]) -> str:
    """A bar per type that can run the program: the time of a step, in what it is made of."""
    ran = [
        (one.accelerator_type, one.report)
        for one in outcomes
        if one.report is not None and one.error is None
    ]
    longest = max((report.estimate.modelled_seconds for _, report in ran), default=0.0)
    if not longest:
        return ""
    inner, row = _WIDTH - 260, 34
    parts = [
        (
            f'<svg viewBox="0 0 {_WIDTH} {row * len(ran)}" role="img" aria-label="Time per '
            'step, by type">'
        )
    ]
    for index, (name, report) in enumerate(ran):
        top, at = index * row, 130.0
        parts.append(f'<text x="122" y="{top + 20}" text-anchor="end">{html.escape(name)}</text>')
        seconds = report.bound_seconds
        # What is made of parts that overlap is drawn as long as the step is.
        scale = report.estimate.modelled_seconds / (sum(seconds.values()) or 1.0) / longest * inner
        for bound, part in seconds.items():
            if part > 0:
                title = html.escape(f"{bound}: {time_text(part)}")
                parts.append(
                    f'<rect class="b-{bound}" x="{at:.1f}" y="{top + 3}" '
                    f'width="{part * scale:.1f}" height="24">'
                    f"<title>{title}</title></rect>"
                )
                at += part * scale
        parts.append(f'<text x="{at + 8:.1f}" y="{top + 20}">{report.step_text}</text>')
    return "".join([*parts, "</svg>"])
