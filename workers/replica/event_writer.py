"""The curves of a recipe as an event file of TensorBoard, one for each attempt, among what the job
has made."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from podyard.base import event_files
from podyard.base.clock import NANOS_PER_SECOND, RealClock
from podyard.base.errors import Code, PodyardError

FOLDER = "events"
POINTS_MAX = 100_000  # of one attempt: a longer one writes every second step, or fewer
FLUSH_BYTES = 8 << 10
WAITING_BYTES_MAX = 1 << 20  # while nobody answers; what is more is lost


class GrowingStore(Protocol):
    """`append` raises OSError, or PodyardError UNAVAILABLE when it can be tried again."""

    def append(self, name: str, offset: int, data: bytes) -> None: ...


class EventWriter:
    """A disk that takes no more costs the curve, and not the job."""

    def __init__(
        self, store: GrowingStore, attempt: int, resume_step: int, steps: int, clock: RealClock
    ) -> None:
        seconds = clock.now().nanos // NANOS_PER_SECOND
        self._store = store
        self._name = f"{FOLDER}/events.out{event_files.MARK}{seconds:010}.attempt-{attempt:04}"
        self._offset = 0
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
        try:
            self._store.append(self._name, self._offset, data)
        except OSError:
            return
        except PodyardError as error:
            if error.code is Code.UNAVAILABLE and len(data) < WAITING_BYTES_MAX:
                self._waiting = data
            return
        self._offset += len(data)

    def _now(self) -> float:
        return self._clock.now().nanos / NANOS_PER_SECOND
