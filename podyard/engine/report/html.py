"""A report as one HTML file that asks for nothing else: no script, no request, light and dark."""

from __future__ import annotations

import html
from collections.abc import Sequence

from podyard.engine.report import compare, roofline
from podyard.engine.report.compare import Outcome
from podyard.engine.report.pictures import comparison_bars, memory_bar, timeline
from podyard.engine.report.summary import (
    BOUNDS,
    Report,
    bound_text,
    bytes_text,
    cost_text,
    count_text,
    percent,
)
from podyard.engine.report.table import TextBlock, costs, energy, figures, operations

_BOUND_TEXTS = {
    "mxu": "matrix units",
    "hbm": "HBM",
    "on-chip": "the chip's own memory",
    "vpu": "vector unit",
    "overhead": "fixed costs",
    "ici": "interconnect",
    "unpriced": "not explained",
}

_ACRONYMS = ("USD", "HBM", "MXU", "J")

_STYLE = """
:root { --ground: #f5f7f8; --card: #ffffff; --text: #16232b; --muted: #4f616c; --line: #d5dde2; --soft: #eaf0f2;
  --good: #17663a; --bad: #a3231f; --mxu: #0b7a82; --hbm: #c2571a; --vpu: #5b53b8; --ici: #b03a78; --over: #71808a;
  --chip: #8a6d1f; --unpriced: #b0bac0; color-scheme: light dark; }
@media (prefers-color-scheme: dark) { :root { --ground: #10171b; --card: #182126; --text: #e6edf0; --muted: #a3b3bc;
  --line: #2f3d45; --soft: #202b31; --good: #7fdca2; --bad: #ff9d96; --mxu: #3f9d98; --hbm: #d9793f; --vpu: #8078d8;
  --ici: #c9629b; --over: #7d8d97; --chip: #b39442; --unpriced: #4d5d66; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--ground); color: var(--text);
  font: 16px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "DejaVu Sans", sans-serif; }
main { max-width: 1080px; margin: 0 auto; padding: 24px 20px 40px; }
h1 { font-size: 1.5rem; line-height: 1.25; margin: 0 0 4px; overflow-wrap: anywhere; }
h2 { font-size: 1.06rem; margin: 0 0 10px; }
section { background: var(--card); border: 1px solid var(--line); border-radius: 12px; padding: 16px 18px;
  margin-top: 18px; }
.lead { color: var(--muted); margin: 0; overflow-wrap: anywhere; }
.legend + .scroll { margin-top: 14px; }
.hint { color: var(--muted); font-size: 0.88rem; margin: 8px 0 0; }
.good { color: var(--good); } .bad { color: var(--bad); }
.numbers { display: grid; grid-template-columns: repeat(auto-fill, minmax(170px, 1fr)); gap: 12px; margin-top: 18px; }
.numbers div { background: var(--card); border: 1px solid var(--line); border-radius: 12px; padding: 10px 14px; }
.numbers b { display: block; font-size: 1.25rem; font-variant-numeric: tabular-nums; overflow-wrap: anywhere; }
.numbers span { color: var(--muted); font-size: 0.88rem; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; font-size: 0.9rem; width: 100%; font-variant-numeric: tabular-nums; }
th { text-align: left; color: var(--muted); font-weight: 600; white-space: nowrap; }
th, td { padding: 4px 14px 4px 0; border-bottom: 1px solid var(--line); vertical-align: top; }
td { overflow-wrap: anywhere; } .tight td { white-space: nowrap; overflow-wrap: normal; }
.tight td:last-child { white-space: normal; min-width: 12ch; }
svg { display: block; width: 100%; min-width: 640px; height: auto; }
svg text { fill: var(--muted); font-size: 12.5px; font-variant-numeric: tabular-nums; }
svg text.in { fill: #ffffff; font-size: 12px; pointer-events: none; }
.lane { fill: var(--soft); } .grid { stroke: var(--line); } .ridge { stroke: var(--muted); stroke-dasharray: 4 4; }
.roof { fill: none; stroke: var(--text); stroke-width: 2; } .limit { stroke: var(--text); stroke-width: 3; }
circle { stroke: var(--card); stroke-width: 1; fill-opacity: 0.85; }
.b-mxu { fill: var(--mxu); background: var(--mxu); } .b-hbm { fill: var(--hbm); background: var(--hbm); }
.b-vpu { fill: var(--vpu); background: var(--vpu); } .b-ici { fill: var(--ici); background: var(--ici); }
.b-on-chip { fill: var(--chip); background: var(--chip); }
.b-overhead, .b-infeed { fill: var(--over); background: var(--over); }
.b-unpriced { fill: var(--unpriced); background: var(--unpriced); }
.m-arguments { fill: var(--mxu); background: var(--mxu); } .m-rest { fill: var(--hbm); background: var(--hbm); }
.legend { display: flex; flex-wrap: wrap; gap: 4px 18px; list-style: none; margin: 10px 0 0; padding: 0;
  color: var(--muted); font-size: 0.88rem; }
.legend i { display: inline-block; width: 12px; height: 12px; border-radius: 3px; margin-right: 6px; }
"""  # noqa: E501

_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<title>{title}</title>
<style>{style}</style>
</head>
<body>
<main>
<h1>{title}</h1>
{body}
</main>
</body>
</html>
"""


def page(outcomes: Sequence[Outcome]) -> str:
    """The page of the first outcome, with a comparison where there are more. Raises ValueError for
    none at all."""
    if not outcomes:
        raise ValueError("a page is about at least one accelerator type")
    main = outcomes[0]
    compared = _comparison(outcomes) if len(outcomes) > 1 else ""
    error = "" if main.error is None else f"{main.accelerator_type}: {main.error.message}"
    body = f'<p class="bad">{html.escape(error)}</p>' if error else ""
    body += compared if main.report is None else _report(main.report, compared)
    program = next((one.report.program for one in outcomes if one.report is not None), "a program")
    title = html.escape(f"{program} on {main.accelerator_type}")
    return _PAGE.format(title=title, style=_STYLE, body=body)


def _report(report: Report, compared: str) -> str:
    parts = [
        f'<p class="lead">{html.escape(report.headline)}</p>',
        _headline_numbers(report),
        compared,
        _section("One step over time", _wide(timeline(report)), _bounds_legend()),
        _section(f"Roofline of a {report.device}", _wide(roofline.svg(report)), _bounds_legend()),
        _memory(report),
    ]
    if report.estimate.ops:
        parts.append(_section("Operations", _table(operations(report))))
    if report.prices:
        parts.append(_section(f"Cost in {report.zone}", _table(costs(report))))
    parts.append(
        _section(
            "All figures",
            _table(TextBlock(headings=("FIGURE", "VALUE"), rows=tuple(figures(report))), ""),
        )
    )
    return "\n".join(parts)


def _comparison(outcomes: Sequence[Outcome]) -> str:
    bars, block = comparison_bars(outcomes), compare.block(outcomes)
    if block.headings[-1] == "ERROR":
        rows = tuple((row[0], row[-1]) if row[-1] else row[:-1] for row in block.rows)
        block = TextBlock(headings=block.headings[:-1], rows=rows, after=block.after)
    return _section(
        "Compared, costs per step", _wide(bars), _bounds_legend() if bars else "", _table(block)
    )


def _headline_numbers(report: Report) -> str:
    estimate = report.estimate
    numbers = [
        (report.step_text, "per step"),
        (percent(estimate.mfu), f"MFU (HFU {percent(estimate.hfu)})"),
        (percent(estimate.mxu_utilization), "MXU utilisation"),
        (percent(report.bound_share), f"of a step waits for: {_BOUND_TEXTS[estimate.bound]}"),
        (count_text(estimate.flops), f"flops a {report.device} and step"),
        (bytes_text(estimate.hbm_bytes), "HBM traffic"),
        (bytes_text(estimate.ici_bytes), "ICI traffic"),
    ]
    if report.epoch_seconds is not None:
        numbers.insert(
            1,
            (
                bound_text(estimate, report.epoch_seconds),
                f"per epoch of {report.steps_per_epoch} steps",
            ),
        )
    if report.slice_joules is not None:
        numbers.append((energy(report).partition(" (")[0], "energy per step"))
    for price in report.prices:
        cost = report.cost_of_epoch(price)
        what = "epoch"
        if cost is None:
            cost, what = report.cost_of_step(price), "step"
        if cost is not None:
            numbers.append((f"{cost_text(cost, 3)} {price.currency}", f"per {what}, {price.usage}"))
    cells = "".join(
        f"<div><b>{html.escape(value)}</b><span>{html.escape(name)}</span></div>"
        for value, name in numbers
    )
    return f'<div class="numbers">{cells}</div>'


def _memory(report: Report) -> str:
    estimate = report.estimate
    kind = "good" if estimate.fits else "bad"
    items = (("m-arguments", "arguments"), ("m-rest", "temporaries and results at the peak"))
    parts = [
        f'<p class="{kind}">{html.escape(report.verdict)}</p>',
        _wide(memory_bar(report)),
        _legend(items),
    ]
    if estimate.largest_buffers:
        rows = tuple(
            (buffer.name, buffer.kind, bytes_text(buffer.nbytes))
            for buffer in estimate.largest_buffers
        )
        parts.append(
            _table(TextBlock(("The largest arrays:",), ("ARRAY", "KIND", "SIZE"), rows), "")
        )
    return _section(f"Memory of a {report.device}", *parts)


def _wide(picture: str) -> str:
    """A picture that narrow windows scroll, so that its letters stay readable."""
    return f'<div class="scroll">{picture}</div>'


def _section(title: str, *parts: str) -> str:
    return f"<section><h2>{html.escape(title)}</h2>{''.join(parts)}</section>"


def _table(block: TextBlock, kind: str = "tight") -> str:
    """A row with too few cells has a last one that takes the width of the others."""
    head = "".join(f"<th>{html.escape(_heading(name))}</th>" for name in block.headings)
    rows = "".join(f"<tr>{_cells(row, len(block.headings))}</tr>" for row in block.rows)
    after = "".join(f'<p class="hint">{html.escape(line)}</p>' for line in block.after)
    return f'<div class="scroll"><table class="{kind}"><tr>{head}</tr>{rows}</table></div>{after}'


def _cells(row: Sequence[str], columns: int) -> str:
    *first, last = row
    span = f' colspan="{columns - len(first)}"' if len(row) < columns else ""
    return (
        "".join(f"<td>{html.escape(cell)}</td>" for cell in first)
        + f"<td{span}>{html.escape(last)}</td>"
    )


def _heading(name: str) -> str:
    """`USD per step` of `USD_PER_STEP`, `Bound` of `BOUND`."""
    words = [word if word in _ACRONYMS else word.lower() for word in name.split("_")]
    return " ".join((words[0] if words[0] in _ACRONYMS else words[0].capitalize(), *words[1:]))


def _bounds_legend() -> str:
    return _legend(tuple((f"b-{bound}", _BOUND_TEXTS[bound]) for bound in BOUNDS))


def _legend(items: Sequence[tuple[str, str]]) -> str:
    entries = "".join(f'<li><i class="{kind}"></i>{html.escape(text)}</li>' for kind, text in items)
    return f'<ul class="legend">{entries}</ul>'
