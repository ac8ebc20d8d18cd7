"""Metrics, checkpoints and log lines of a job, step by step. All of it is kept by attempt."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from podyard.base.clock import PlatformTime


@dataclasses.dataclass(frozen=True, slots=True)
class MetricPoint:
    """`metrics`: what a step measured, by name: loss and accuracy of a recipe, whatever a user's
    program says."""

    step: int
    attempt: int
    metrics: Mapping[str, float]
    wall_seconds: float
    modelled_seconds: float


@dataclasses.dataclass(frozen=True, slots=True)
class CheckpointRecord:
    """`best`: it was the best one when it was written."""

    step: int
    attempt: int
    name: str
    sha256: str
    best: bool
    at: PlatformTime


@dataclasses.dataclass(frozen=True, slots=True)
class EvaluationRecord:
    step: int
    attempt: int
    metrics: Mapping[str, float]


@dataclasses.dataclass(frozen=True, slots=True)
class JobFailure:
    """The last lines of the worker that has ended an attempt."""

    attempt: int
    worker: int
    lines: list[str]
