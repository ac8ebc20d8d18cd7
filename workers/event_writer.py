"""The curves of a recipe as an event file of TensorBoard, one for each attempt, among what the job has made."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from pathlib import Path

from podyard.base import event_files
from podyard.base.clock import NANOS_PER_SECOND, RealClock

FOLDER = "events"
POINTS_MAX = 100_000  # of one attempt: a longer one writes every second step, or fewer
FLUSH_BYTES = 8 << 10


class EventWriter:
    """A disk that takes no more costs the curve, and not the job."""

    def __init__(self, objects: Path, attempt: int, resume_step: int, steps: int, clock: RealClock) -> None:
        seconds = clock.now().nanos // NANOS_PER_SECOND
        self._path = objects / FOLDER / f"events.out{event_files.MARK}{seconds:010}.attempt-{attempt:04}"
        self._clock = clock
        self._stride = max(1, -(-steps // POINTS_MAX))
        self._waiting = event_files.first_record(self._now())
        if attempt > 1:
            self._waiting += event_files.restart_record(self._now(), resume_step + 1)

    def add(self, step: int, values: Mapping[str, float], *, is_rare: bool = False) -> None:
        """`is_rare`: written in any case."""
        if is_rare or step % self._stride == 0:
            self._waiting += event_files.scalar_record(self._now(), step, values)
        if is_rare or len(self._waiting) >= FLUSH_BYTES:
            self.flush()

    def flush(self) -> None:
        data, self._waiting = self._waiting, b""
        with contextlib.suppress(OSError):
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with self._path.open("ab") as file:
                file.write(data)

    def _now(self) -> float:
        return self._clock.now().nanos / NANOS_PER_SECOND
