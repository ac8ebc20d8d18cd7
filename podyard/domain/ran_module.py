"""Modules that users' programs ran on a host or in a job, and the time of each on the slice."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from dataclasses import fields
from typing import Any

from podyard.base.spelling import camel_case

MODULES_KEPT_MAX = 10  # of one host: those that take the most on the slice


@dataclasses.dataclass(frozen=True, slots=True)
class RanModule:
    """A module that JAX compiled there. `seconds` of one run on the devices of the slice (`note`
    says why there are none, or what is not modelled); `wall_seconds` from one run's end to the next
    on this machine. `mfu`, `hfu`: model and hardware FLOPs utilization, 0 to 1. `fits`: on the
    memory of a device. None: not known."""

    name: str
    runs: int
    seconds: float | None
    wall_seconds: float | None
    mfu: float | None
    fits: bool | None
    verdict: str
    note: str
    hfu: float | None = None

    def to_answer(self) -> dict[str, Any]:
        """Return the module as the API has it."""
        return {camel_case(field.name): getattr(self, field.name) for field in fields(self)}


@dataclasses.dataclass(frozen=True, slots=True)
class ProgramRun:
    """A user's program in one attempt of a job. `modules`: those that take the most on the slice
    first; `modules_left_out`: how many more ran. `step`: the training step's module, empty: there
    is none; `step_reason`: why it is the one. `steps`: training steps that ran, `step_seconds`: of
    one on the slice, `seconds`: of all runs of all modules on the slice; None: not known. `error`:
    the exception that ended the program."""

    modules: tuple[RanModule, ...]
    modules_left_out: int = 0
    step: str = ""
    step_reason: str = ""
    steps: int | None = None
    step_seconds: float | None = None
    seconds: float | None = None
    error: str = ""

    @classmethod
    def of_answer(cls, answer: Mapping[str, Any]) -> ProgramRun:
        """Return what `to_answer` has made."""
        return cls(**{**_by_name(cls, answer), "modules": modules_of(answer.get("modules", ()))})

    def to_answer(self) -> dict[str, Any]:
        """Return the run as the API has it: what is not known is None."""
        answer = {camel_case(field.name): getattr(self, field.name) for field in fields(self)}
        return {**answer, "modules": [module.to_answer() for module in self.modules]}

    @classmethod
    def of_stored(cls, stored: Mapping[str, Any]) -> ProgramRun:
        """Return what `dataclasses.asdict` has made."""
        modules = tuple(RanModule(**module) for module in stored["modules"])
        return cls(**{**stored, "modules": modules})


def modules_of(answers: Iterable[Mapping[str, Any]]) -> tuple[RanModule, ...]:
    """Return the modules of an answer of the API."""
    return tuple(RanModule(**_by_name(RanModule, answer)) for answer in answers)


def _by_name(record: type, answer: Mapping[str, Any]) -> dict[str, Any]:
    return {field.name: answer[camel_case(field.name)] for field in fields(record)}
