"""A replica that trains, evaluates or predicts with the engine."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from podyard.base.clock import RealClock
from podyard.base.errors import Code, PodyardError
from podyard.base.training_settings import SETS_ON_HAND, TrainingSettings
from podyard.engine.executor import Ended, Peer, ReplicaSpec, run_replica
from podyard.engine.training.store import CheckpointStore, FileStore
from podyard.workers.kit.fetched_folder import bring
from podyard.workers.kit.http_client import JsonClient
from podyard.workers.kit.http_store import HttpStore
from podyard.workers.replica.event_writer import EventWriter
from podyard.workers.replica.reporter import Reporter

JOIN_POLL_SECONDS = 0.05
OBJECT_SECONDS_MAX = 60.0  # for one answer: a digest of gigabytes, a sync of a slow disk
# a gang whose processes are spread over slow machines; past it one of them is lost
JOIN_SECONDS_MAX = 120.0


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
                answer = self._api.call(
                    "POST", self._path, {"fence": self._fence, "address": address}
                )
            except PodyardError as error:
                if error.code is not Code.UNAVAILABLE:
                    raise
                answer = {"ready": False}
            if answer["ready"]:
                return [
                    Peer(
                        peer["processIndex"],
                        tuple(peer["hostIndices"]),
                        peer["address"],
                        peer["agent"],
                    )
                    for peer in answer["peers"]
                ]
            self._clock.sleep(JOIN_POLL_SECONDS)
        raise PodyardError(
            Code.UNAVAILABLE, f"the gang was not complete within {JOIN_SECONDS_MAX:.0f} s"
        )


class KeepingStore:
    """A job's files. While checkpoints cannot be written, those that there are are not taken
    away."""

    def __init__(self, store: CheckpointStore, writes_fail: Callable[[], bool]) -> None:
        self._store = store
        self._writes_fail = writes_fail
        self.put, self.get, self.list = store.put, store.get, store.list

    def delete(self, name: str) -> None:
        if not self._writes_fail():
            self._store.delete(name)


class Files:
    """The places of a replica's files: in the platform's folders, or on another machine that has
    none of them."""

    def __init__(self, spec: Mapping[str, Any], replica_id: str, clock: RealClock) -> None:
        self._spec = spec
        self._replica_id = replica_id
        self._clock = clock
        folder = os.environ.get("PODYARD_OBJECTS")
        self._objects = None if folder is None else Path(folder)

    def own(self) -> FileStore | HttpStore:
        return self._store(self._spec["objectsPrefix"], "objects")

    def events(self) -> FileStore | HttpStore:
        """Of which nothing waits: an API that restarts must not keep training waiting for a
        curve."""
        return self._store(self._spec["objectsPrefix"], "objects", patience_seconds=0.0)

    def source(self) -> FileStore | HttpStore:
        """Of the job that this one starts from."""
        return self._store(self._spec["startFrom"]["objectsPrefix"], "source")

    def bring(self, tell: Callable[[str], None], stopping: Callable[[], bool]) -> None:
        """The data set and the programs, to a machine that does not have the platform's folders."""
        if self._objects is not None:
            return
        data = self._spec["arguments"].get("data")
        if isinstance(data, str) and data and data not in SETS_ON_HAND:
            bring(
                self._remote("data"),
                Path(os.environ["PODYARD_DATASETS"]),
                data,
                self._clock,
                tell,
                stopping,
            )
        if ":" in self._spec["recipe"]:
            root = Path(os.environ["PODYARD_PROGRAMS"])
            bring(self._remote("programs"), root, ".", self._clock, tell, stopping)

    def _store(
        self, prefix: str, of: str, patience_seconds: float | None = None
    ) -> FileStore | HttpStore:
        if self._objects is not None:
            return FileStore(self._objects / prefix)
        return self._remote(of, patience_seconds)

    def _remote(self, of: str, patience_seconds: float | None = None) -> HttpStore:
        # A connection for each: reports must not wait for a checkpoint.
        api = JsonClient(os.environ["PODYARD_URL"], os.environ["PODYARD_TOKEN"], OBJECT_SECONDS_MAX)
        patience = self._spec["leaseSeconds"] if patience_seconds is None else patience_seconds
        return HttpStore(api, self._replica_id, self._clock, patience, of)


def run_engine(
    spec: dict[str, Any],
    reporter: Reporter,
    api: JsonClient,
    replica_id: str,
    fence: int,
    clock: RealClock,
) -> str | None:
    """Return what the replica reports as its end; None: it was stopped."""
    reporter.log(
        f"rank {spec['rank']} of {spec['processCount']}, hosts {spec['hostIndices']}, pid "
        f"{os.getpid()}",
        "platform",
    )
    reporter.tells_training = not spec.get("rank")
    files = Files(spec, replica_id, clock)
    files.bring(lambda line: reporter.log(line, "platform"), reporter.stopping)
    store, start_from = KeepingStore(files.own(), reporter.writes_fail), spec["startFrom"]
    source = files.source() if start_from else store
    resume = (start_from["step"] if start_from else spec["resumeStep"]) or None
    if spec["rank"] == 0 and spec["mode"] == "train":
        reporter.events = EventWriter(
            files.events(), spec["attempt"], spec["resumeStep"], spec["steps"], clock
        )
    listen_on = f"{spec['bindAddress']}:0"
    rendezvous = HttpRendezvous(api, replica_id, fence, clock)
    ended = run_replica(
        to_spec(spec), rendezvous, reporter, store, resume, listen_on, clock, source
    )
    return {Ended.STOPPED: None, Ended.YIELDED: "YIELDED"}.get(ended, "SUCCEEDED")


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
