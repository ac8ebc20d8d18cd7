"""Reports of users' programs on a host: their files are read here, and priced by a process next to
them."""

from __future__ import annotations

import math
import subprocess
import threading
from collections.abc import Mapping
from pathlib import Path

from podyard.base.clock import RealClock
from podyard.domain.ran_module import ProgramRun, RanModule
from podyard.hardware.accelerator_types import AcceleratorType
from podyard.programs import estimator
from podyard.programs.plan.run_record import program_run
from podyard.programs.summary import ProgramSummary, read_summary

PRICE_LOOK_SECONDS = 0.1  # the end of a job waits for it
LOOK_SECONDS = 5.0  # counts change all the time, and a report is a write to the database


class HostPrograms:
    """Of one host. `folder`: where its programs write, as this process sees it: theirs, so nothing
    is written there,
    and nothing followed. `verdicts`: what is said of them. `cache`: estimates that all hosts share.
    `environment`: of the process that prices."""

    def __init__(
        self,
        folder: Path,
        verdicts: Path,
        cache: Path,
        kind: AcceleratorType,
        environment: Mapping[str, str],
        clock: RealClock,
    ) -> None:
        self._folder = folder
        self._verdicts = verdicts
        self._kind = kind
        self._environment = {**environment, estimator.CACHE_VARIABLE: str(cache)}
        self._clock = clock
        self._looked = -math.inf
        self._found: tuple[RanModule, ...] = ()
        self._reader: threading.Thread | None = None
        self._estimator: subprocess.Popen[bytes] | None = None

    def look(self) -> tuple[RanModule, ...]:
        """Return what the last look found. The next one, in a thread, since files of programs may
        be large, starts here."""
        now = self._clock.monotonic_seconds()
        is_idle = self._reader is None or not self._reader.is_alive()
        if (
            is_idle
            and now - self._looked >= LOOK_SECONDS
            and (self._found or (self._folder / "processes").exists())
        ):
            self._looked = now
            self._reader = threading.Thread(target=self._read, name="podyard-programs", daemon=True)
            self._reader.start()
        return self._found

    def end(self) -> None:
        self._looked = math.inf
        if self._reader is not None:
            self._reader.join()
        if self._estimator is not None:
            self._estimator.kill()
            self._estimator.wait()

    def _read(self) -> None:
        """Starts pricing where something is new."""
        summary = read_summary(self._folder, self._verdicts, self._kind)
        if any(module.estimate is None for module in summary.modules):
            self._price()
        self._found = program_run(summary).modules

    def run_of(self, replica: str) -> ProgramRun | None:
        """Return the run of a job's replica as far as it is priced; None: it has compiled
        nothing."""
        summary = self._summary_of(replica)
        return program_run(summary) if summary.modules or summary.error else None

    def price_run_of(self, replica: str, seconds: float) -> ProgramRun | None:
        """Return the run of a job's replica that has ended, with all of its modules priced, or as
        it is after so many seconds."""
        until = self._clock.monotonic_seconds() + seconds
        while self._clock.monotonic_seconds() < until:
            if all(one.estimate is not None for one in self._summary_of(replica).modules):
                break
            self._price()
            self._clock.sleep(PRICE_LOOK_SECONDS)
        return self.run_of(replica)

    def _summary_of(self, replica: str) -> ProgramSummary:
        return read_summary(self._folder, self._verdicts, self._kind, replica=replica)

    def _price(self) -> None:
        if self._estimator is not None and self._estimator.poll() is None:
            return
        self._verdicts.mkdir(exist_ok=True, mode=0o700)
        (self._verdicts / estimator.DONE).touch()  # it ends when nothing is left
        self._estimator = subprocess.Popen(
            estimator.command(self._folder, self._verdicts, estimator.PricedOn(self._kind)),
            env=self._environment, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )  # fmt: skip
