"""A replica's voice: metrics, checkpoints and log lines, batched, in order, and never lost while
the lease is alive.

A background thread reports twice a second; the report is the heartbeat as well. What has been sent
stays at hand until the server has taken it, and is then dropped; the server keeps what comes twice
only once. Another thread looks at the lease, since a call over a network that was cut may hang for
longer.
"""

from __future__ import annotations

import dataclasses
import faulthandler
import math
import tempfile
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from podyard.base.clock import RealClock
from podyard.base.errors import Code, PodyardError
from podyard.domain import metric_lines
from podyard.domain.ran_module import ProgramRun
from podyard.workers.kit.line_buffer import LineBuffer
from podyard.workers.replica.event_writer import EventWriter
from podyard.workers.replica.machine_use import MachineMeter

STEP_LINE_SECONDS = 10.0  # between lines about steps: people read them
REPORT_SECONDS = 0.5  # half a second of news is what a person who watches waits for
LEASE_LOOK_SECONDS = 0.25  # how late the end of a lease is seen
ITEMS_PER_REPORT_MAX = 1000  # keeps a report far below the body limit of 1 MiB


# Of a report, in the order in which the server takes them: a checkpoint before it is said to be
# gone.
_LISTS = ("metrics", "evaluations", "checkpoints", "pruned")


class ReplicaApi(Protocol):
    def call(
        self, method: str, path: str, body: Mapping[str, Any] | None = None
    ) -> dict[str, Any]: ...


@dataclasses.dataclass
class _WaitingReports:
    metrics: list[dict[str, Any]] = dataclasses.field(default_factory=list)
    evaluations: list[dict[str, Any]] = dataclasses.field(default_factory=list)
    checkpoints: list[dict[str, Any]] = dataclasses.field(default_factory=list)
    pruned: list[int] = dataclasses.field(default_factory=list)
    summary: dict[str, Any] = dataclasses.field(default_factory=dict)
    run: dict[str, Any] | None = None  # the newest that the server has not taken

    def __bool__(self) -> bool:
        return any(getattr(self, name) for name in (*_LISTS, "summary", "run"))


class Reporter:
    """The engine's MetricsSink over HTTP. `stop` is called once, with a reason, when the server
    says so."""

    def __init__(  # noqa: PLR0913
        self,
        api: ReplicaApi,
        replica_id: str,
        fence: int,
        lease_seconds: float,
        resume_step: int,
        clock: RealClock,
        stop: Callable[[str], None],
        lapse: Callable[[], None],
    ) -> None:
        self._api = api
        self._path = f"/podyard/v1/replicas/{replica_id}:report"
        self._fence = fence
        self._lease_seconds = lease_seconds
        # A lease outlives two lost reports.
        self._report_seconds = min(REPORT_SECONDS, lease_seconds / 3)
        self._resume_step = self._resumable_step = resume_step
        self._pinned_step: float = math.inf
        self._clock = clock
        self._stop = stop
        self._lapse = lapse
        self._meter = MachineMeter(clock)
        self._waiting = _WaitingReports()
        self._run: ProgramRun | None = None
        self._lock = threading.Lock()
        self._sending = threading.Lock()
        self._stopping = threading.Event()
        self._yielding = threading.Event()
        self._writes_fail = threading.Event()
        self._closed = threading.Event()
        self._has_ended = threading.Event()  # the end has been told, or cannot be
        self._stacks_asked = 0
        self.events: EventWriter | None = None
        # Whether training is told in the log: of a recipe, by the replica of rank 0.
        self.tells_training = False
        self._tell_step_at = clock.monotonic_seconds()
        self.on_stacks: Callable[[], None] = self._log_stacks
        self._wake = threading.Event()
        self._accepted_at = clock.monotonic_seconds()
        self._lines = LineBuffer(self._takes_lines, self._wake.set)
        self._thread = threading.Thread(target=self._beat, name="reporter", daemon=True)
        self._lease_thread = threading.Thread(target=self._watch_lease, name="lease", daemon=True)

    def start(self) -> None:
        self._thread.start()
        self._lease_thread.start()

    def step(
        self, step: int, loss: float, accuracy: float, wall_seconds: float, modelled_seconds: float
    ) -> None:
        metrics = {"loss": loss, "accuracy": accuracy}
        seconds = {"wallSeconds": wall_seconds, "modelledSeconds": modelled_seconds}
        wrong = [name for name, value in {**metrics, **seconds}.items() if not math.isfinite(value)]
        if wrong:
            raise PodyardError(
                Code.ABORTED, f"step {step}: {', '.join(wrong)} is not a finite number"
            )
        with self._lock:
            if self._resume_step > step - 1:
                # The checkpoint that was asked for is damaged, and the engine went on from one
                # before it.
                self._waiting.summary["resumedStep"] = step - 1
                self._resume_step = self._resumable_step = step - 1
            self._waiting.metrics.append({"step": step, "metrics": metrics, **seconds})
        if self.events is not None:
            self.events.add(step, metrics)
        if self._clock.monotonic_seconds() >= self._tell_step_at:
            self._tell_step_at = self._clock.monotonic_seconds() + STEP_LINE_SECONDS
            self._tell(f"step {step}: {_values_text(metrics)}")

    def on_evaluation(self, step: int, metrics: Mapping[str, float]) -> None:
        """Values that are not finite are left out: evaluation goes on after a loss has diverged."""
        told = {name: value for name, value in metrics.items() if math.isfinite(value)}
        with self._lock:
            self._waiting.evaluations.append({"step": step, "metrics": told})
        if self.events is not None:
            self.events.add(step, told, is_rare=True)
        self._tell(f"evaluation at step {step}: {_values_text(told)}")

    def writes_fail(self) -> bool:
        """Return whether the platform says that checkpoints cannot be written: then none of the
        older ones may go."""
        return self._writes_fail.is_set()

    def checkpoint(self, step: int, name: str, sha256: str, is_best: bool) -> None:
        with self._lock:
            self._waiting.checkpoints.append(
                {"step": step, "name": name, "sha256": sha256, "best": is_best}
            )
        self._tell(f"checkpoint at step {step}{' (the best so far)' if is_best else ''}: {name}")
        # At once: what nobody was told of is computed again by the next gang.
        self._wake.set()

    def on_prune(self, steps: Sequence[int]) -> None:
        if self.writes_fail():
            return  # `KeepingStore` has kept them
        with self._lock:
            self._waiting.pruned += steps

    def resumable_step(self) -> float:
        """Of the newest checkpoint that the platform has taken note of, or of the one that this
        attempt began with. An older one that another job starts from counts instead: what is as new
        stays."""
        with self._lock:
            return min(self._resumable_step, self._pinned_step)

    def measure(self, line: str) -> None:
        """A line of JSON with a step is a point of the program's metrics; any other line is
        none."""
        found = metric_lines.read(line)
        if found is None:
            return
        point = {"step": found[0], "metrics": found[1], "wallSeconds": 0.0, "modelledSeconds": 0.0}
        with self._lock:
            self._waiting.metrics.append(point)
            is_much = len(self._waiting.metrics) >= ITEMS_PER_REPORT_MAX
        if is_much:
            self._wake.set()

    def _tell(self, text: str) -> None:
        if self.tells_training:
            self.log(text)

    def log(self, line: str, stream: str = "stdout") -> None:
        """`stream`: stdout, stderr, or platform for what Podyard says of the job itself."""
        self._lines.add(self._clock.now(), stream, line)

    def _takes_lines(self) -> bool:
        """Return whether lines that wait will be sent, so that a writer can be kept waiting."""
        is_own = threading.current_thread() is self._thread
        return self._thread.is_alive() and not (is_own or self._closed.is_set() or self.stopping())

    def on_end(self, metrics: Mapping[str, float | str]) -> None:
        with self._lock:
            self._waiting.summary.update(metrics)

    def on_run(self, run: ProgramRun | None) -> None:
        """The modules of a user's program, as far as it has run; None: it has compiled nothing."""
        if run is not None and run != self._run:
            self._run = run
            with self._lock:
                self._waiting.run = dataclasses.asdict(run)

    def stopping(self) -> bool:
        return self._stopping.is_set()

    def yielding(self) -> bool:
        return self._yielding.is_set()

    def report_now(self) -> None:
        """Reports at once, so that what the platform wants is known; while the API is away, that is
        what it last
        said."""
        try:
            self._send("RUNNING", None)
        except PodyardError as failure:
            if failure.code is not Code.UNAVAILABLE:
                self._ask_to_stop(failure.message)

    def close(self, state: str, error: str | None, *, is_permanent: bool = False) -> None:
        """Sends everything that waits, then the end. Raises UNAVAILABLE when the lease lapses
        first.

        `is_permanent`: another attempt would fail in the same way.
        """
        self._closed.set()
        self._wake.set()
        if self.events is not None:
            self.events.flush()
        try:
            self._send_all(state, error, is_permanent)
        finally:
            self._has_ended.set()

    def _send_all(self, state: str, error: str | None, is_permanent: bool) -> None:
        while True:
            try:
                while self._waiting or self._lines:
                    self._send("RUNNING", None)
                self._send(state, error, is_permanent)
                return
            except PodyardError as failure:
                if failure.code is not Code.UNAVAILABLE or self._has_lapsed():
                    raise
                self._clock.sleep(REPORT_SECONDS)

    def _beat(self) -> None:
        while not self._closed.is_set():
            self._wake.wait(self._report_seconds)
            self._wake.clear()
            if self._closed.is_set():
                return
            self.report_now()

    def _watch_lease(self) -> None:
        while not self._has_ended.wait(LEASE_LOOK_SECONDS):
            if self._has_lapsed():
                self._lapse()
                return

    def _send(self, state: str, error: str | None, is_permanent: bool = False) -> None:
        with self._sending:
            with self._lock:
                batch = self._waiting
                run = batch.run
                body: dict[str, Any] = {
                    "fence": self._fence,
                    "state": state,
                    "error": error,
                    "permanent": is_permanent,
                    **{name: getattr(batch, name)[:ITEMS_PER_REPORT_MAX] for name in _LISTS},
                    "summary": dict(batch.summary),
                    "used": self._meter.read(),
                    "run": run,
                }
            if (lines := self._lines.chunk()) is not None:
                body["log"] = lines
            answer = self._api.call("POST", self._path, body)
            with self._lock:
                self._resumable_step = max(
                    [self._resumable_step, *(item["step"] for item in body["checkpoints"])]
                )
                for name in _LISTS:
                    del getattr(batch, name)[: len(body[name])]
                batch.run = None if batch.run is run else batch.run
                for name, value in body["summary"].items():
                    if batch.summary.get(name) == value:
                        del batch.summary[name]
            self._accepted_at = self._clock.monotonic_seconds()
        if lines is not None:
            self._lines.on_taken(answer.get("nextLine", lines["seq"] + lines["lines"]))
        pinned = answer.get("pinnedStep")
        self._pinned_step = math.inf if pinned is None else pinned
        if answer.get("stacksAsked", 0) > self._stacks_asked:
            self._stacks_asked = answer["stacksAsked"]
            self.on_stacks()
        if answer.get("checkpointsFail"):
            self._writes_fail.set()
        else:
            self._writes_fail.clear()
        if answer.get("desired") == "YIELD":
            self._yielding.set()
        if answer.get("desired") == "STOP" and state == "RUNNING":
            self._ask_to_stop("the platform asked this replica to stop")

    def _log_stacks(self) -> None:
        """Log the stack of each thread of this process; its main one may hang."""
        with tempfile.TemporaryFile() as file:
            faulthandler.dump_traceback(file, all_threads=True)
            file.seek(0)
            for line in file.read().decode(errors="replace").splitlines():
                self.log(line, "stacks")

    def _ask_to_stop(self, reason: str) -> None:
        if not self._stopping.is_set():
            self._stopping.set()
            self._stop(reason)

    def has_lost_contact(self) -> bool:
        """Return whether no report has been taken for half a lease: far more than a restart of the
        API takes."""
        return self._silent_seconds() > self._lease_seconds / 2

    def _has_lapsed(self) -> bool:
        return self._silent_seconds() > self._lease_seconds

    def _silent_seconds(self) -> float:
        return self._clock.monotonic_seconds() - self._accepted_at


def _values_text(metrics: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {value:.4g}" for name, value in metrics.items())
