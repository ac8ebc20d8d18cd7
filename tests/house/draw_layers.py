"""Draws docs/internals/layers.svg: the layers from import-linter's contracts, the processes from
the supervisor.

`python -m tests.house.draw_layers` writes the file. `tests/unit/test_layers_drawing.py` fails when
it is stale.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple
from xml.sax.saxutils import escape

from podyard.stack.supervisor import STOP_SECONDS

ROOT = Path(__file__).parents[2]
FILE = ROOT / "docs/internals/layers.svg"
COMMAND = "python -m tests.house.draw_layers"
LAYERS = "Layers: import downward only, never sideways"
ROOMS = "Rooms of control import downward only"
PURE = "Deciding modules touch no I/O"
# Package -> one line of a drawing. Every package of the contract has one.
PACKAGES: Mapping[str, str] = {
    "main": "composition root: the console script and the processes",
    "testing": "pytest plugin, podyard.local()",
    "simulation": "the whole platform on a virtual clock",
    "cli": "commands",
    "api": "REST, gRPC",
    "web": "console",
    "loop": "control loop",
    "workers": "agent, replicas",
    "stack": "supervisor, children, broker, backups of one data folder",
    "http": "what api and web share: authentication, limits, errors",
    "control": "use cases, in rooms that import each other downward only",
    "migrations": "schema revisions",
    "scheduler": "placement, queue, job decisions",
    "pricing": "metering, rating, bills",
    "db": "tables, all SQL, units of work, the one writer of state",
    "programs": "what runs inside users' programs on hosts",
    "lesson": "pictures for notebooks",
    "engine": "numerics, timing, collectives, training",
    "domain": "records, state tables, ports",
    "hardware": "chips, accelerator types, topologies",
    "settings": "environment variables",
    "base": "clocks, random streams, money, errors",
}
# Process -> what it does. The supervisor's children are those of STOP_SECONDS.
CHILDREN: Mapping[str, tuple[str, ...]] = {
    "api": (
        "uvicorn: Google's API over REST and gRPC,",
        "Podyard's REST API, the console; no state",
    ),
    "loop": ("one leader by lease: timers, placement,", "reconciler, outbox"),
    "storage": (
        "uvicorn: Cloud Storage's APIs; from the first",
        "connection until nobody has needed it for 60 s",
    ),
    "broker": ("Redis or Valkey on loopback: messages,", "which may be lost"),
    "agent": ("gets its desired state over HTTP; starts", "and stops what runs on this machine"),
}
# Module of an agent's child -> its name, and what it does.
GRANDCHILDREN: Mapping[str, tuple[str, str]] = {
    "workers/tasks/app.py": ("Celery worker", "receives messages, pokes the agent"),
    "workers/replica/replica.py": (
        "replica (one process group each)",
        "engine, gradient sums, reports over HTTP",
    ),
    "workers/host/server.py": (
        "host server (once there is a host)",
        "metadata server, ssh, start-up scripts",
    ),
}
_STYLE = """
  svg { --paper: #ffffff; --text: #1d2733; --muted: #55636f; --line: #c3ccd4; --edge: #e9eefb; --edge-line: #8aa0d8;
    --pure: #e4f4ea; --pure-line: #74b48d; --plain: #f3f5f7; --process: #fdf1e0; --process-line: #d9a45b; }
  @media (prefers-color-scheme: dark) { svg { --paper: #12171d; --text: #e6ebf0; --muted: #a3b0bc; --line: #45525f;
    --edge: #222c49; --edge-line: #6b83c8; --pure: #17352a; --pure-line: #4f9a72; --plain: #1d252d;
    --process: #3a2c17; --process-line: #b98a45; } }
  text { font: 12px system-ui, "Segoe UI", Helvetica, Arial, sans-serif; fill: var(--muted); }
  .title { font-size: 16px; font-weight: 600; fill: var(--text); }
  .name { font: 600 13px ui-monospace, SFMono-Regular, Menlo, Consolas, monospace; fill: var(--text); }
  .middle { text-anchor: middle; }
  rect { stroke-width: 1; rx: 6px; }
  .paper { fill: var(--paper); rx: 0; }
  .plain { fill: var(--plain); stroke: var(--line); }
  .pure { fill: var(--pure); stroke: var(--pure-line); }
  .edge { fill: var(--edge); stroke: var(--edge-line); }
  .process { fill: var(--process); stroke: var(--process-line); }
  .wire { stroke: var(--muted); stroke-width: 1.2; fill: none; }
"""  # noqa: E501
_LEFT, _TOP, _WIDTH, _GAP, _ROW = 24, 64, 620, 8, 50
_RIGHT, _PROCESS_WIDTH, _INDENT = 692, 344, 28


class Contracts(NamedTuple):
    """Layers and rooms from the top, each row its packages side by side; packages with modules that
    do no I/O."""

    layers: list[list[str]]
    rooms: list[list[str]]
    pure: frozenset[str]


def read_contracts(pyproject: str) -> Contracts:
    """Return what import-linter checks."""
    listed: list[dict[str, Any]] = tomllib.loads(pyproject)["tool"]["importlinter"]["contracts"]
    by_name = {contract["name"]: contract for contract in listed}
    pure = frozenset(name.split(".")[1] for name in by_name[PURE]["source_modules"])
    return Contracts(_rows(by_name[LAYERS]), _rows(by_name[ROOMS]), pure - {"workers"})


def _rows(contract: Mapping[str, Any]) -> list[list[str]]:
    return [
        [name.strip().rpartition(".")[2] for name in re.split("[|:]", row)]
        for row in contract["layers"]
    ]


def draw(contracts: Contracts) -> str:
    """The SVG. It follows the reader's light or dark colour scheme."""
    layers, below = _draw_layers(contracts)
    processes, end = _draw_processes()
    legend = _draw_legend(end + 34)
    width, height = _RIGHT + _PROCESS_WIDTH + _LEFT, max(below, end + 120) + 16
    return "\n".join(
        [
            (
                f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}"'
                f' width="{width}" height="{height}"'
                ' role="img" aria-labelledby="title desc">'
            ),
            '<title id="title">Layers and processes of Podyard</title>',
            (
                '<desc id="desc">Layers from the top: '
                f"{'; '.join(', '.join(row) for row in contracts.layers)}. "
                f"Processes: supervisor with {', '.join(CHILDREN)}.</desc>"
            ),
            f"<style>{_STYLE}</style>",
            f'<rect class="paper" width="{width}" height="{height}"/>',
            _text(_LEFT, 36, "Layers: a package imports only from rows below it", "title"),
            _text(_RIGHT, 36, "Processes of podyard up", "title"),
            *layers,
            *processes,
            *legend,
            "</svg>\n",
        ]
    )


def _draw_layers(contracts: Contracts) -> tuple[list[str], int]:
    parts: list[str] = []
    y = _TOP
    for number, row in enumerate(contracts.layers):
        room_rows = contracts.rooms if "control" in row else []
        height = _ROW + len(room_rows) * 32
        shares = [3.0 if name == "control" else 1.0 for name in row]
        free = _WIDTH - _GAP * (len(row) - 1)
        x = float(_LEFT)
        for name, share in zip(row, shares, strict=True):
            width = free * share / sum(shares)
            kind = "pure" if name in contracts.pure else "edge" if number < 4 else "plain"
            parts.append(_box(x, y, width, height, kind))
            parts.append(_text(x + width / 2, y + 21, name, "name middle"))
            parts.append(_text(x + width / 2, y + 38, PACKAGES[name], "middle"))
            if name == "control":
                parts += _draw_rooms(room_rows, x + 12, y + _ROW, width - 24)
            x += width + _GAP
        y += height + _GAP
    return parts, y


def _draw_rooms(rows: list[list[str]], left: float, top: int, width: float) -> list[str]:
    parts: list[str] = []
    for number, row in enumerate(rows):
        each = (width - _GAP * (len(row) - 1)) / len(row)
        for place, name in enumerate(row):
            x, y = left + place * (each + _GAP), top + number * 32
            parts.append(
                f'<rect class="paper" x="{x:.1f}" y="{y}" width="{each:.1f}" height="25" '
                'style="rx:4px"/>'
            )
            parts.append(_text(x + each / 2, y + 17, name, "name middle"))
    return parts


def _draw_processes() -> tuple[list[str], int]:
    parts = [_box(_RIGHT, _TOP, _PROCESS_WIDTH, _ROW, "process")]
    parts += [_text(_RIGHT + 12, _TOP + 21, "supervisor", "name")]
    parts += [_text(_RIGHT + 12, _TOP + 38, "starts, watches and restarts the others")]
    stem, start, y = _RIGHT + 14, _TOP + _ROW, _TOP + _ROW + 12
    last = y
    for name, lines in CHILDREN.items():
        parts += _draw_process(_RIGHT + _INDENT, y, name, lines)
        last = y + 20
        parts.append(f'<path class="wire" d="M{stem} {last}h{_INDENT - 14}"/>')
        y += 34 + 16 * len(lines) + 10
    parts.append(f'<path class="wire" d="M{stem} {start}V{last}"/>')
    stem, start = stem + _INDENT, y - 10
    for name, line in GRANDCHILDREN.values():
        parts += _draw_process(_RIGHT + 2 * _INDENT, y, name, (line,))
        last = y + 20
        parts.append(f'<path class="wire" d="M{stem} {last}h{_INDENT - 14}"/>')
        y += 34 + 16 + 10
    parts.append(f'<path class="wire" d="M{stem} {start}V{last}"/>')
    return parts, y


def _draw_process(x: int, y: int, name: str, lines: tuple[str, ...]) -> list[str]:
    width = _RIGHT + _PROCESS_WIDTH - x
    parts = [
        _box(x, y, width, 34 + 16 * len(lines), "process"),
        _text(x + 12, y + 21, name, "name"),
    ]
    return parts + [_text(x + 12, y + 38 + 16 * number, line) for number, line in enumerate(lines)]


def _draw_legend(y: int) -> list[str]:
    parts: list[str] = []
    for kind, text in (
        ("pure", "decides, without I/O (of pricing: most modules)"),
        ("edge", "edges: parse, call, format, keep going"),
        ("plain", "everything else"),
        ("process", "a process"),
    ):
        parts += [_box(_RIGHT, y - 12, 18, 15, kind), _text(_RIGHT + 28, y, text)]
        y += 24
    return parts


def _box(x: float, y: float, width: float, height: float, kind: str) -> str:
    return (
        f'<rect class="{kind}" x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}"/>'
    )


def _text(x: float, y: float, text: str, kind: str = "") -> str:
    marked = f'class="{kind}" ' if kind else ""
    return f'<text {marked}x="{x:.1f}" y="{y:.1f}">{escape(text)}</text>'


def main() -> None:
    assert set(CHILDREN) == set(STOP_SECONDS), "the supervisor has other children"
    FILE.write_text(
        draw(read_contracts((ROOT / "pyproject.toml").read_text(encoding="utf-8"))),
        encoding="utf-8",
    )


if __name__ == "__main__":
    main()
