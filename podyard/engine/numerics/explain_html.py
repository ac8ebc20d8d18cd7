"""A trace as HTML: `figure` is the part that a page of any site can hold, `page` a whole file
without any other.

The figure shows the last cycle as plain SVG and tables, so that it says something without a script.
With
its scripts it becomes a film of all cycles: they fill the same elements from the figure's data.
"""

from __future__ import annotations

import html
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from podyard.engine import film
from podyard.engine.numerics.explain import (
    PHASE_TEXTS,
    ArrayCycle,
    Plane,
    Trace,
    sentences,
    text_of,
)

_CELL = 64  # the unit of all lengths below is a pixel of an unscaled picture
_WIDE_CELL = 172  # for operands of more than _SHORT_DIGITS
_SHORT_DIGITS = 3
_GAP = 4
_LEFT, _TOP, _BOTTOM, _RIGHT = 86, 52, 52, 8
_DIGIT = {"a": 8, "w": 8, "s": 10}  # width of a digit in the style's font sizes
_NOTHING = "."  # a register without an operand; no number looks like it

PACKAGE = "podyard.engine.numerics"


def page(trace: Trace) -> str:
    """One HTML file that asks for nothing else."""
    return film.page(PACKAGE, "A matrix unit, cycle by cycle", trace.title, figure(trace))


def figure(trace: Trace, at: int | None = None, url_of: Callable[[int], str] | None = None) -> str:
    """The figure at cycle `at` (None: the last one, and a script begins with the first); the styles
    and scripts of `film` belong to it, and it holds none. `url_of`: the address of another
    cycle."""
    last = trace.cycles[-1]
    shown = last if at is None else trace.cycles[min(max(at, 0), last.number)]
    begin = 0 if at is None else shown.number
    entered = {(operand.matrix, operand.row, operand.column): "now" for operand in shown.entered}
    tables = "".join(
        (
            _table("x", "x, activations", trace.x, entered),
            _table("w", "w, weights", trace.w, entered),
            _table("y", "y = x w", *_results(trace, shown)),
        )
    )
    data = _data(trace)
    return (
        f"{film.opening('mxu', at=begin, **data)}"
        f"{film.head('Cycle', _headline(trace, shown), shown.number, last.number, url_of)}"
        '<div class="mxu-stage"><div '
        f'class="mxu-main">{film.picture("The array", _picture(trace, shown))}'
        f"{film.caption(_cycle_text(shown))}{_legend(trace)}</div><div "
        f'class="mxu-side">{tables}</div></div></div>'
    )


def _results(trace: Trace, shown: ArrayCycle) -> tuple[Plane, Mapping[tuple[str, int, int], str]]:
    """Return what has left the array for y up to a cycle, and the classes of its cells."""
    plane: list[list[float | int | None]] = [[None] * len(line) for line in trace.y]
    classes = {}
    for cycle in trace.cycles[: shown.number + 1]:
        for one in cycle.left:
            plane[one.row][one.column] = one.total
            now = " now" if cycle.number == shown.number else ""
            classes["y", one.row, one.column] = f"{'done' if one.final else 'part'}{now}"
    return tuple(map(tuple, plane)), classes


def _data(trace: Trace) -> dict[str, Any]:
    """Return what the script shows, as texts. Planes repeat (weights stay), so that each is there
    once: `texts[index]`."""
    texts: dict[str, int] = {}

    def kept_cells(cells: Iterable[str]) -> int:
        return texts.setdefault(" ".join(cells), len(texts))

    frames = [
        {
            "now": _headline(trace, cycle),
            "said": _cycle_text(cycle),
            "fold": cycle.fold,
            "cells": [
                kept_cells(_texts(cycle.activations)),
                kept_cells(_texts(cycle.weights)),
                kept_cells(_texts(cycle.sums)),
                kept_cells(_kinds(cycle)),
            ],
            "edges": [kept_cells(edge) for edge in _edges(trace, cycle)],
            "in": [f"{operand.matrix}{operand.row},{operand.column}" for operand in cycle.entered],
            "out": [[o.row, o.column, text_of(o.total), int(o.final)] for o in cycle.left],
        }
        for cycle in trace.cycles
    ]
    return {"flow": trace.dataflow, "cols": trace.cols, "texts": list(texts), "frames": frames}


def _texts(plane: Plane) -> list[str]:
    return [text_of(value) or _NOTHING for line in plane for value in line]


def _kinds(cycle: ArrayCycle) -> list[str]:
    """Return what a cell does: `work` adds a product, `hold` only keeps or passes something on,
    `idle` is empty."""
    kinds = []
    for line in zip(cycle.working, cycle.activations, cycle.weights, cycle.sums, strict=True):
        for working, *registers in zip(*line, strict=True):
            full = any(register is not None for register in registers)
            kinds.append("work" if working else "hold" if full else "idle")
    return kinds


def _edges(trace: Trace, cycle: ArrayCycle) -> list[list[str]]:
    """Labels `x[0,1]=3` of the left, the top and the bottom edge, one for each lane."""
    left, top, bottom = [_NOTHING] * trace.rows, [_NOTHING] * trace.cols, [_NOTHING] * trace.cols
    for operand in cycle.entered:
        label = f"{operand.matrix}[{operand.row},{operand.column}]={text_of(operand.value)}"
        (left if operand.edge == "left" else top)[operand.lane] = label
    if trace.dataflow != "os":
        for output in cycle.left:
            lane = (output.column if trace.dataflow == "ws" else output.row) % trace.cols
            bottom[lane] = f"y[{output.row},{output.column}]={text_of(output.value)}"
    return [left, top, bottom]


def _headline(trace: Trace, cycle: ArrayCycle) -> str:
    fold = f", fold {cycle.fold} (last: {trace.folds - 1})" if trace.folds > 1 else ""
    return (
        f"Cycle {cycle.number} (last: {trace.cycles[-1].number}){fold} \u00b7 "
        f"{PHASE_TEXTS[cycle.phase]}"
    )


def _cycle_text(cycle: ArrayCycle) -> str:
    return "; ".join(sentences(cycle)) or "nothing enters, nothing leaves"


def _picture(trace: Trace, cycle: ArrayCycle) -> str:
    step = _cell_width(trace)
    width, height = _LEFT + trace.cols * step + _RIGHT, _TOP + trace.rows * _CELL + _BOTTOM
    name = html.escape(f"The registers of {trace.title}")
    parts = [
        (
            f'<svg viewBox="0 0 {width} {height}" width="{width}" height="{height}" role="img" '
            f'aria-label="{name}">'
        )
    ]
    registers = (
        _texts(cycle.activations),
        _texts(cycle.weights),
        _texts(cycle.sums),
        _kinds(cycle),
    )
    side, across = _CELL - _GAP, step - _GAP
    room = across // 2 - 6  # of each of the two operands
    for index, (activation, weight, total, kind) in enumerate(zip(*registers, strict=True)):
        x, y = _LEFT + index % trace.cols * step, _TOP + index // trace.cols * _CELL
        middle = x + across // 2
        parts.append(
            f'<g class="cell {kind}"><rect x="{x}" y="{y}" width="{across}" '
            f'height="{side}" rx="6"/>'
            f"{_label('a', x + 6, y + 17, activation, room, 'start')}"
            f"{_label('w', x + across - 6, y + 17, weight, room, 'end')}"
            f'<text class="t" x="{middle}" y="{y + 17}" text-anchor="middle">×</text>'
            f"{_label('s', middle, y + 47, total, across - 6, 'middle')}</g>"
        )
    left, top, bottom = _edges(trace, cycle)
    # The label of a lane: the operand's name, and below it the value.
    for row, text in enumerate(left):
        parts.append(_edge("left", _LEFT - 10, _TOP + row * _CELL + side // 2 - 4, text, "end"))
    for column, text in enumerate(top):
        parts.append(_edge("top", _LEFT + column * step + across // 2, _TOP - 30, text))
    for column, text in enumerate(bottom):
        parts.append(
            _edge(
                "bottom", _LEFT + column * step + across // 2, _TOP + trace.rows * _CELL + 14, text
            )
        )
    return "".join([*parts, "</svg>"])


def _cell_width(trace: Trace) -> int:
    """Wider where operands have more digits than fit next to each other."""
    longest = max(
        len(text_of(value)) for plane in (trace.x, trace.w) for line in plane for value in line
    )
    return _CELL if longest <= _SHORT_DIGITS else _WIDE_CELL


def _label(kind: str, x: int, y: int, text: str, width: int, anchor: str) -> str:
    """A register's number; one that is longer than `width` pixels is pressed together (by the
    script too)."""
    shown = "" if text == _NOTHING else html.escape(text)
    fits = width // _DIGIT[kind]
    pressed = f' lengthAdjust="spacingAndGlyphs" textLength="{width}"' if len(shown) > fits else ""
    return (
        f'<text class="{kind}" x="{x}" y="{y}" text-anchor="{anchor}" data-fits="{fits}" '
        f'data-width="{width}"{pressed}>'
        f"{shown}</text>"
    )


def _edge(kind: str, x: int, y: int, text: str, anchor: str = "middle") -> str:
    name, _, value = ("", "", "") if text == _NOTHING else text.partition("=")
    return (
        f'<g class="edge {kind}"><text class="name" x="{x}" y="{y}" '
        f'text-anchor="{anchor}">{html.escape(name)}</text>'
        f'<text class="value" x="{x}" y="{y + 17}" '
        f'text-anchor="{anchor}">{html.escape(value)}</text></g>'
    )


def _table(
    name: str, caption: str, plane: Plane, classes: Mapping[tuple[str, int, int], str]
) -> str:
    lines = "".join(
        "<tr>"
        + "".join(
            f'<td class="{classes.get((name, row, column), "")}" data-at="{name}{row},{column}">'
            f"{html.escape(text_of(value))}</td>"
            for column, value in enumerate(line)
        )
        + "</tr>"
        for row, line in enumerate(plane)
    )
    return (
        '<div class="mxu-matrix '
        f'{name}"><table><caption>{html.escape(caption)}</caption>{lines}</table></div>'
    )


def _legend(trace: Trace) -> str:
    sums = "stays in its cell" if trace.dataflow == "os" else "moves down"
    across, held = ("weight", "activation") if trace.dataflow == "is" else ("activation", "weight")
    second = "moves down" if trace.dataflow == "os" else "stays"
    entries: Sequence[tuple[str, str]] = (
        ("a", "activation: top left in a cell"),
        ("w", "weight: top right"),
        ("s", f"sum: below; it {sums}"),
        ("work", "a product is added in this cycle"),
        ("hold", "something is kept or passed on"),
        ("idle", "empty"),
    )
    ways = f"The {across} moves right, the {held} {second}."
    return f'{film.legend(entries)}<p class="mxu-ways">{html.escape(ways)}</p>'
