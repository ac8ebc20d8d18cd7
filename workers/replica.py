"""One replica process: `python -m podyard.workers.replica REPLICA`.

It learns from the API what to run, runs the engine, and reports. It stops itself when its lease lapses, since by then
others may hold its place; it is stopped at once, wherever the engine stands, when the platform says so.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from types import FrameType
from typing import Any

from typing_extensions import override

from podyard.base.clock import OsClock, RealClock
from podyard.base.errors import Code, PodyardError
from podyard.base.training_settings import TrainingSettings
from podyard.engine.executor import Ended, Peer, ReplicaSpec, run_replica
from podyard.engine.training.store import FileStore
from podyard.workers.agent_state import EXIT_LOST_CONTACT
from podyard.workers.http_client import JsonClient
from podyard.workers.reporter import Reporter

EXIT_FAILED = 1
JOIN_POLL_SECONDS = 0.05
JOIN_SECONDS_MAX = 120.0  # a gang whose processes are spread over slow machines; past it one of them is lost
START_SECONDS_MAX = 15.0  # the API may be restarting when the process starts
# What is wrong with the job or its data, and no other attempt would find otherwise.
PERMANENT = frozenset({Code.INVALID_ARGUMENT, Code.NOT_FOUND, Code.FAILED_PRECONDITION, Code.UNIMPLEMENTED})
STOP_GRACE_SECONDS = 0.8  # what the engine has for leaving by itself once it is told to stop


class HttpRendezvous:
    """The engine's Rendezvous: the API holds the addresses of the gang."""

    def __init__(self, api: JsonClient, replica_id: str, fence: int, clock: RealClock) -> None:
        self._api = api
        self._path = f"/podyard/v1/replicas/{replica_id}:join"
        self._fence = fence
        self._clock = clock

    def join(self, address: str) -> Sequence[Peer]:
        deadline = self._clock.monotonic_seconds() + JOIN_SECONDS_MAX
        while self._clock.monotonic_seconds() < deadline:
            try:
                answer = self._api.call("POST", self._path, {"fence": self._fence, "address": address})
            except PodyardError as error:
                if error.code is not Code.UNAVAILABLE:
                    raise
                answer = {"ready": False}
            if answer["ready"]:
                return [
                    Peer(peer["processIndex"], tuple(peer["hostIndices"]), peer["address"], peer["agent"])
                    for peer in answer["peers"]
                ]
            self._clock.sleep(JOIN_POLL_SECONDS)
        raise PodyardError(Code.UNAVAILABLE, f"the gang was not complete within {JOIN_SECONDS_MAX:.0f} s")


class KeepingStore(FileStore):
    """A job's files. While checkpoints cannot be written, those that there are are not taken away."""

    def __init__(self, root: Path, writes_fail: Callable[[], bool]) -> None:
        super().__init__(root)
        self._writes_fail = writes_fail

    @override
    def delete(self, name: str) -> None:
        if not self._writes_fail():
            super().delete(name)


def main(argv: Sequence[str]) -> int:
    replica_id, clock = argv[0], OsClock()
    fence = int(os.environ["PODYARD_REPLICA_FENCE"])
    api = JsonClient(os.environ["PODYARD_URL"], os.environ["PODYARD_TOKEN"])
    try:
        spec = _fetch(api, replica_id, clock)
    except PodyardError as error:
        print(f"replica {replica_id}: {error.message}", file=sys.stderr)
        return EXIT_LOST_CONTACT if error.code is Code.UNAVAILABLE else EXIT_FAILED
    reporter = Reporter(
        api, replica_id, fence, spec["leaseSeconds"], spec["resumeStep"], clock, _stop_soon, _lease_lapsed
    )
    signal.signal(signal.SIGTERM, lambda _number, _frame: _leave())
    reporter.start()
    reporter.log(f"rank {spec['rank']} of {spec['processCount']}, hosts {spec['hostIndices']}, pid {os.getpid()}")
    objects = Path(os.environ["PODYARD_OBJECTS"])
    store, start_from = KeepingStore(objects / spec["objectsPrefix"], reporter.writes_fail), spec["startFrom"]
    source = FileStore(objects / start_from["objectsPrefix"]) if start_from else store
    resume = (start_from["step"] if start_from else spec["resumeStep"]) or None
    try:
        listen_on = f"{spec['bindAddress']}:0"
        rendezvous = HttpRendezvous(api, replica_id, fence, clock)
        ended = run_replica(to_spec(spec), rendezvous, reporter, store, resume, listen_on, clock, source)
    except PodyardError as error:
        return _fail(reporter, f"{error.code.name}: {error.message}", is_permanent=error.code in PERMANENT)
    except SystemExit as error:
        return _fail(reporter, f"the program called exit({error.code!r})")
    except Exception as error:
        import traceback

        traceback.print_exc()
        return _fail(reporter, f"{type(error).__name__}: {error}")
    if ended is not Ended.STOPPED:
        return _close(reporter, "YIELDED" if ended is Ended.YIELDED else "SUCCEEDED", None, 0)
    return 0


def to_spec(data: dict[str, Any]) -> ReplicaSpec:
    return ReplicaSpec(
        recipe=data["recipe"],
        arguments=data["arguments"],
        mode=data["mode"],
        steps=data["steps"],
        global_batch=data["globalBatch"],
        seed=data["seed"],
        checkpoint_every_steps=data["checkpointEverySteps"],
        accelerator_type=data["acceleratorType"],
        core_count=data["coreCount"],
        host_count=data["hostCount"],
        host_indices=tuple(data["hostIndices"]),
        rank=data["rank"],
        process_count=data["processCount"],
        epoch=data["epoch"],
        ring_key=data["ringKey"].encode(),
        compilation_cache=os.environ.get("PODYARD_CACHE"),
        window_folder=os.environ.get("PODYARD_WINDOWS"),
        data_folder=os.environ.get("PODYARD_DATASETS"),
        program_folder=os.environ.get("PODYARD_PROGRAMS"),
        training=TrainingSettings.of_json(data["training"]),
        learning_rate_scale=data["learningRateScale"],
    )


def _fetch(api: JsonClient, replica_id: str, clock: RealClock) -> dict[str, Any]:
    deadline = clock.monotonic_seconds() + START_SECONDS_MAX
    while True:
        try:
            return api.call("GET", f"/podyard/v1/replicas/{replica_id}")
        except PodyardError as error:
            if error.code is not Code.UNAVAILABLE or clock.monotonic_seconds() > deadline:
                raise
            clock.sleep(JOIN_POLL_SECONDS)


def _fail(reporter: Reporter, text: str, *, is_permanent: bool = False) -> int:
    if reporter.stopping():
        return 0  # an error while the gang is being stopped is not a failure
    print(text, file=sys.stderr)
    if reporter.has_lost_contact():
        # A peer whose lease lapsed a moment earlier has broken the ring.
        print("the API has not answered for a while: the failure is not reported", file=sys.stderr)
        return EXIT_LOST_CONTACT
    return _close(reporter, "FAILED", text, EXIT_FAILED, is_permanent=is_permanent)


def _close(reporter: Reporter, state: str, text: str | None, code: int, *, is_permanent: bool = False) -> int:
    """Reports the end; returns the exit code of the process, `code` where the report was taken."""
    try:
        reporter.close(state, text, is_permanent=is_permanent)
    except PodyardError as error:
        print(f"the end could not be reported: {error.message}", file=sys.stderr)
        return EXIT_LOST_CONTACT if error.code is Code.UNAVAILABLE else EXIT_FAILED
    return code


def _stop_soon(_reason: str) -> None:
    """The engine looks at `stopping()` between steps; one that hangs in a collective is ended all the same."""
    timer = threading.Timer(STOP_GRACE_SECONDS, _leave)
    timer.daemon = True
    timer.start()


def _leave(_number: int = 0, _frame: FrameType | None = None) -> None:
    os._exit(0)


def _lease_lapsed() -> None:
    print("the lease has lapsed: nobody has taken a report for that long", file=sys.stderr, flush=True)
    os._exit(EXIT_LOST_CONTACT)


if __name__ == "__main__":
    code = main(sys.argv[1:])
    sys.stdout.flush()
    sys.stderr.flush()
    # Threads of the engine may still hang in a collective; everything that counts has been reported.
    os._exit(code)
