"""What users' programs on a host compile and run: their files are read here, and priced by a process next to them."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from pathlib import Path

from podyard.base.clock import RealClock
from podyard.domain.ran_module import MODULES_KEPT_MAX, RanModule
from podyard.hardware.accelerator_types import AcceleratorType
from podyard.programs import estimator
from podyard.programs.summary import ModuleTotal, read_summary

LOOK_SECONDS = 5.0  # counts change all the time, and a report is a write to the database
_NOTE_CHARACTERS_MAX = 500


class HostPrograms:
    """Of one host. `folder`: where its programs write, as this process sees it: theirs, so nothing is written there,
    and nothing followed. `verdicts`: what is said of them. `environment`: of the process that prices."""

    def __init__(
        self, folder: Path, verdicts: Path, kind: AcceleratorType, environment: Mapping[str, str], clock: RealClock
    ) -> None:
        self._folder = folder
        self._verdicts = verdicts
        self._kind = kind
        self._environment = environment
        self._clock = clock
        self._looked = -LOOK_SECONDS
        self._found: tuple[RanModule, ...] = ()
        self._estimator: subprocess.Popen[bytes] | None = None

    def look(self) -> tuple[RanModule, ...]:
        """What has run so far. Starts pricing where something is new."""
        now = self._clock.monotonic_seconds()
        if now - self._looked < LOOK_SECONDS:
            return self._found
        self._looked = now
        summary = read_summary(self._folder, self._verdicts, self._kind)
        if any(module.estimate is None for module in summary.modules):
            self._price()
        self._found = tuple(map(_ran, summary.modules[:MODULES_KEPT_MAX]))
        return self._found

    def end(self) -> None:
        if self._estimator is not None:
            self._estimator.kill()
            self._estimator.wait()
            self._estimator = None

    def _price(self) -> None:
        if self._estimator is not None and self._estimator.poll() is None:
            return
        self._verdicts.mkdir(exist_ok=True, mode=0o700)
        (self._verdicts / estimator.DONE).touch()  # it ends when nothing is left
        self._estimator = subprocess.Popen(
            estimator.command(self._folder, self._verdicts, self._kind),
            env=dict(self._environment), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL, start_new_session=True,
        )  # fmt: skip


def _ran(module: ModuleTotal) -> RanModule:
    estimate = module.estimate
    if estimate is None:
        return RanModule(module.name, module.runs, None, module.wall_seconds, 0.0, True, "", "not priced yet")
    note = estimate.error or "; ".join(estimate.doubts)
    return RanModule(
        module.name, module.runs, estimate.seconds, module.wall_seconds, estimate.mfu, estimate.fits, estimate.verdict,
        note[:_NOTE_CHARACTERS_MAX],
    )  # fmt: skip
