"""The use of hosts by jobs, over the past hour: CPU, memory, and the time of the chips.

It is kept in the memory of the process that takes the reports, since it is only looked at: a
restart begins it again. Replicas say what they have taken so far
(`workers/replica/machine_use.py`); what lies between two reports is a part of a step.
"""

from __future__ import annotations

import dataclasses
import threading
from collections import OrderedDict, deque
from collections.abc import Mapping, Sequence

from podyard.base.clock import NANOS_PER_SECOND, RealTime

STEP_SECONDS = 15  # a replica reports twice a second: finer steps would be 7,200 points an hour
STEPS_MAX = 240  # an hour: enough to see whether a program waits for its input
SERIES_MAX = 512  # hosts of jobs, some 20 MB; the one that has been silent for longest goes first
_MILLION, _KIB = 1e6, 1024.0


@dataclasses.dataclass(frozen=True, slots=True)
class ReplicaUse:
    """The use in a report. `cpu_micros` and `memory_kib_seconds` grow with the process;
    `device_seconds` is what the steps since the last report would take on the chips."""

    replica_id: str
    job_key: str
    host_indices: Sequence[int]
    cpu_micros: int
    memory_kib_seconds: int
    device_seconds: float


@dataclasses.dataclass(slots=True)
class UseStep:
    """The use of a host from `begin` (seconds of the machine's clock) on, for `STEP_SECONDS`.
    `seconds` of them are known."""

    begin: int
    seconds: float = 0.0
    cpu_seconds: float = 0.0
    byte_seconds: float = 0.0
    device_seconds: float = 0.0

    @property
    def cores(self) -> float:
        return self.cpu_seconds / self.seconds

    @property
    def memory_bytes(self) -> float:
        return self.byte_seconds / self.seconds

    @property
    def busy_share(self) -> float:
        """Return how much of the time the chips would have computed: at most all of it."""
        return min(1.0, self.device_seconds / self.seconds)


class HostUseHistory:
    """Threads may share it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._steps: OrderedDict[tuple[str, int], deque[UseStep]] = OrderedDict()  # by job and host
        self._last: OrderedDict[str, tuple[RealTime, ReplicaUse]] = OrderedDict()  # of each replica

    def take(self, use: ReplicaUse, now: RealTime) -> None:
        """A replica's first report is what later ones are compared with."""
        with self._lock:
            before = self._last.pop(use.replica_id, None)
            self._last[use.replica_id] = (now, use)
            while len(self._last) > SERIES_MAX:
                self._last.popitem(last=False)
            if before is None:
                return
            seconds, known = now.seconds_since(before[0]), before[1]
            # the machine's clock was set back
            if seconds <= 0 or use.cpu_micros < known.cpu_micros:
                return
            share = 1 / max(1, len(use.host_indices))
            for index in use.host_indices:
                step = self._step(use.job_key, index, now)
                step.seconds += seconds
                step.cpu_seconds += share * (use.cpu_micros - known.cpu_micros) / _MILLION
                step.byte_seconds += (
                    share * (use.memory_kib_seconds - known.memory_kib_seconds) * _KIB
                )
                step.device_seconds += use.device_seconds

    def job_keys(self) -> list[str]:
        """The jobs whose hosts' use is known."""
        with self._lock:
            return sorted({job_key for job_key, _ in self._steps})

    def of_jobs(self, hosts: Mapping[str, range]) -> dict[int, list[UseStep]]:
        """By host, the oldest step first. `hosts`: of each job, by key, which of its hosts are the
        node's."""
        with self._lock:
            found: dict[int, list[UseStep]] = {}
            for (job_key, index), steps in self._steps.items():
                if index in (own := hosts.get(job_key, ())):
                    found.setdefault(own.index(index), []).extend(
                        dataclasses.replace(step) for step in steps
                    )
        return {index: sorted(found[index], key=lambda step: step.begin) for index in sorted(found)}

    def _step(self, job_key: str, index: int, now: RealTime) -> UseStep:
        begin = now.nanos // NANOS_PER_SECOND // STEP_SECONDS * STEP_SECONDS
        steps = self._steps.setdefault((job_key, index), deque(maxlen=STEPS_MAX))
        self._steps.move_to_end((job_key, index))
        while len(self._steps) > SERIES_MAX:
            self._steps.popitem(last=False)
        if not steps or steps[-1].begin < begin:
            steps.append(UseStep(begin))
        return steps[-1]
