"""The run of the real tier: batch after batch until everything has run or the time is over."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Protocol

from podyard.base.clock import RealTime
from tests.real.files import FileResult, RealFile
from tests.real.forecast import batch_seconds, next_batch, pace
from tests.real.record import Entry
from tests.real.runs import Run

RunFiles = Callable[[Sequence[RealFile], float | None], Run]


class Clock(Protocol):
    def now(self) -> RealTime: ...

    def monotonic_seconds(self) -> float: ...


@dataclasses.dataclass(frozen=True)
class Deadlines:
    """Times of the monotonic clock: nothing starts that is forecast to end after `soft`; what runs
    is ended at `hard`. None: no limit."""

    soft: float | None = None
    hard: float | None = None


@dataclasses.dataclass
class Session:
    """`run`, `missing` and `save` are the outside: what runs files, which environments of some are
    not installed, and what keeps the record. `known_flaky`: files that are not given a second run.
    `slowness` as measured."""

    run: RunFiles
    missing: Callable[[Collection[str]], Sequence[str]]
    save: Callable[[Mapping[str, Entry]], None]
    clock: Clock
    limits: Deadlines
    known_flaky: Collection[str]
    slowness: float
    commit: str
    record: dict[str, Entry]
    results: dict[str, FileResult] = dataclasses.field(default_factory=dict)
    flaky: list[str] = dataclasses.field(default_factory=list)
    failed: list[str] = dataclasses.field(default_factory=list)
    _forecast: float = 0.0
    _actual: float = 0.0

    def run_all(self, files: Sequence[RealFile]) -> list[RealFile]:
        """Run the files in their order, as far as the limits allow; return those that are left
        out."""
        waiting = list(files)
        environments = sorted({name for file in files for name in file.environments})
        while batch := next_batch(waiting, self.record, self.missing(environments), self._left()):
            waiting = [file for file in waiting if file not in batch]
            for file in self._failures(batch):
                self._run_again(file)
        return [
            file for file in files if file.name not in self.results and file.name not in self.failed
        ]

    def _left(self) -> float:
        """The seconds of the reference machine until the soft limit."""
        if self.limits.soft is None:
            return float("inf")
        return (self.limits.soft - self.clock.monotonic_seconds()) / self._pace()

    def _pace(self) -> float:
        return pace(self.slowness, self._forecast, self._actual)

    def _failures(self, batch: Sequence[RealFile]) -> list[RealFile]:
        """Run a batch, and return the files that have failed: a test has, or tests are missing
        although nothing ended the run."""
        missing = self.missing(sorted({name for file in batch for name in file.environments}))
        forecast = batch_seconds(batch, self.record, missing)
        run = self._run_until_hard(batch)
        if not run.is_ended:
            self._forecast += forecast
            self._actual += run.seconds
        self._keep(run.results)
        passed = {result.name for result in run.results if result.has_passed}
        cut = {
            result.name
            for result in run.results
            if run.is_ended and not result.is_whole and not result.failed
        }
        return [file for file in batch if file.name not in passed | cut]

    def _run_again(self, file: RealFile) -> None:
        """Run a failed file once more, alone. A file that is known to fail at times has failed at
        once, and so has one for which no time is left."""
        seconds_left = self._until_hard()
        if file.name not in self.known_flaky and (seconds_left is None or seconds_left > 0):
            run = self._run_until_hard([file])
            self._keep(run.results)
            if all(result.has_passed for result in run.results):
                self.flaky.append(file.name)
                return
        self.record.pop(file.name, None)  # it has not passed: it is among the first of the next run
        self.save(self.record)
        self.failed.append(file.name)

    def _run_until_hard(self, files: Sequence[RealFile]) -> Run:
        return self.run(files, self._until_hard())

    def _until_hard(self) -> float | None:
        return (
            None if self.limits.hard is None else self.limits.hard - self.clock.monotonic_seconds()
        )

    def _keep(self, results: Sequence[FileResult]) -> None:
        for result in results:
            if result.is_whole or result.failed:
                self.results[result.name] = result
            if result.has_passed:
                seconds = result.seconds / self._pace()
                self.record[result.name] = Entry(self.commit, self.clock.now(), seconds)
        self.save(self.record)
