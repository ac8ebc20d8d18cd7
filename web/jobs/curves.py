"""The curves of jobs: which are drawn over each other, as SVG, as numbers, and what is new in
them."""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from markupsafe import Markup

from podyard.domain.attempt import Attempt, AttemptOutcome
from podyard.domain.job import Job
from podyard.domain.job_history import EvaluationRecord, MetricPoint
from podyard.domain.recipes import is_program
from podyard.web.kit.charts import ChartLine, ChartMark, ChartPoint, line_chart

T = TypeVar("T")

FIGURES_MAX = 12  # of one page
LINES_MAX = 10  # of one figure: as many colours as the style sheet has
POINTS_DRAWN_MAX = 400  # of a line: more than the chart is wide in pixels on a phone
POINTS_SENT_MAX = 1000  # of a line, for who zooms into it
# of a line in one second of a stream; the page has all of them when it is opened again
POINTS_AT_ONCE = 16
DIGITS_SENT = 5  # significant ones: finer than a pixel at any zoom that these points allow
USUAL_CURVES = ("loss", "accuracy")  # of recipes
EVALUATION = " (evaluation)"
# What is measured on other data has the same name behind one of these.
_PART = re.compile(
    r"(?:train|training|val|valid|validation|eval|evaluation|test)[_/. -]", re.IGNORECASE
)


@dataclasses.dataclass(frozen=True, slots=True)
class Figure:
    """Lines that are drawn over each other. `key`: the measure that they have in common."""

    key: str
    lines: Sequence[ChartLine]

    @property
    def title(self) -> str:
        return self.key.replace("_", " ").capitalize()

    def draw(self, marks: Sequence[ChartMark] = ()) -> Markup:
        return line_chart(
            f"{self.title} by step",
            [ChartLine(line.name, thin(line.points, POINTS_DRAWN_MAX)) for line in self.lines],
            x_name="step",
            y_name=f"{self.title} of the committed history",
            y_top=1.0 if self.key == "accuracy" else None,
            marks=marks,
        )


def measure_of(name: str) -> str:
    """`loss` of `loss`, `val_loss` and `train/loss`."""
    return _PART.sub("", name, count=1) if _PART.match(name) else name


def names_of(job: Job, points: Iterable[MetricPoint]) -> list[str]:
    """Return what the job measures: what recipes measure first. Without any points, a recipe shows
    where they will be."""
    has_usual = not (job.spec.run or job.spec.is_modelled or is_program(job.spec.recipe))
    return list(
        dict.fromkeys(
            [*(USUAL_CURVES if has_usual else ()), *(name for p in points for name in p.metrics)]
        )
    )


def figures_of(
    job: Job,
    points: Sequence[MetricPoint],
    evaluations: Sequence[EvaluationRecord],
    written: Mapping[str, Mapping[int, float]],
) -> list[Figure]:
    """`written`: curves out of event files."""
    lines: dict[str, list[ChartLine]] = {}
    for name in names_of(job, points):
        lines.setdefault(measure_of(name), []).append(line_of(name, points))
    for name, values in written.items():
        found = [ChartPoint(step, values[step]) for step in sorted(values)]
        lines.setdefault(measure_of(name), []).append(ChartLine(name, found))
    for name in dict.fromkeys(name for one in evaluations for name in one.metrics):
        found = [
            ChartPoint(one.step, one.metrics[name]) for one in evaluations if name in one.metrics
        ]
        # A single figure at the end is a dot next to a curve, and no chart by itself.
        if measure_of(name) in lines or len(found) > 1:
            told = name if name != measure_of(name) else name + EVALUATION
            lines.setdefault(measure_of(name), []).append(ChartLine(told, found))
    return [Figure(key, found[:LINES_MAX]) for key, found in list(lines.items())[:FIGURES_MAX]]


def line_of(name: str, points: Iterable[MetricPoint]) -> ChartLine:
    return ChartLine(
        name, [ChartPoint(p.step, p.metrics[name]) for p in points if name in p.metrics]
    )


def marks_of(attempts: Sequence[Attempt], reached: Mapping[int, int]) -> list[ChartMark]:
    """Return where one attempt ends and the next one goes on. `reached`: the last step of each
    attempt."""
    found = []
    for before, attempt in itertools.pairwise(attempts):
        is_loss = before.outcome in (AttemptOutcome.PREEMPTED, AttemptOutcome.FAILED)
        last = reached.get(before.attempt, before.resume_step)
        ended = f"attempt {before.attempt} {before.outcome or 'ended'} at step {last}"
        text = f"{ended}, attempt {attempt.attempt} starts from step {attempt.resume_step}"
        found.append(ChartMark(attempt.resume_step, "lost" if is_loss else "resized", text))
    return found


def thin(points: Sequence[T], most: int) -> Sequence[T]:
    """About `most` of them, the first and the last among them."""
    stride = max(1, -(-len(points) // most))
    return [*points[::stride], *(points[-1:] if points and (len(points) - 1) % stride else ())]


def numbers_of(
    figures: Iterable[Figure], marks: Sequence[ChartMark] | None = None
) -> dict[str, Any]:
    """As charts.js reads them."""
    lines = {
        one.key: {line.name: _pairs(line.points, POINTS_SENT_MAX) for line in one.lines}
        for one in figures
    }
    told = {} if marks is None else {"marks": [[mark.x, mark.kind, mark.text] for mark in marks]}
    return {"figures": lines, **told}


def _pairs(points: Sequence[ChartPoint], most: int) -> list[list[float]]:
    return [
        [p.x, float(f"{p.y:.{DIGITS_SENT}g}")]
        for p in thin(points, most)
        if abs(p.y) < float("inf")
    ]


@dataclasses.dataclass(frozen=True, slots=True)
class PointFeed:
    """The points of a job's committed history that are new. The cursor is the attempt and the step
    of the last one:
    what a later attempt does again comes again, and replaces what was there."""

    points: Sequence[MetricPoint]
    name: str = "points"

    def since(self, cursor: str) -> tuple[Any, str]:
        fresh = [
            point for point in self.points if (point.attempt, point.step) > _read_cursor(cursor)
        ]
        if not fresh:
            return None, cursor
        figures: dict[str, dict[str, list[list[float]]]] = {}
        for name in dict.fromkeys(name for point in fresh for name in point.metrics):
            pairs = _pairs(line_of(name, fresh).points, POINTS_AT_ONCE)
            figures.setdefault(measure_of(name), {})[name] = pairs
        return {"figures": figures}, cursor_after(fresh)


def cursor_after(points: Sequence[MetricPoint]) -> str:
    return f"{points[-1].attempt}.{points[-1].step}" if points else ""


def _read_cursor(cursor: str) -> tuple[int, int]:
    match = re.fullmatch(r"(\d{1,9})\.(\d{1,15})", cursor)
    return (int(match[1]), int(match[2])) if match else (0, -1)


@dataclasses.dataclass(frozen=True, slots=True)
class CurveFeed:
    """The part of curves that changes seldom, and is sent whole then: evaluations, curves out of
    event files, marks.

    `growing`: the names of the lines that `PointFeed` sends."""

    figures: Sequence[Figure]
    marks: Sequence[ChartMark]
    growing: Collection[str]
    name: str = "curves"

    def since(self, cursor: str) -> tuple[Any, str]:
        present = self.digest()
        return (
            (None, cursor)
            if present == cursor
            else (numbers_of(self._whole(), self.marks), present)
        )

    def _whole(self) -> list[Figure]:
        return [
            Figure(one.key, [x for x in one.lines if x.name not in self.growing])
            for one in self.figures
        ]

    def digest(self) -> str:
        counts = [
            (one.key, line.name, len(line.points)) for one in self._whole() for line in one.lines
        ]
        return hashlib.sha256(repr((counts, self.marks)).encode()).hexdigest()[:12]
