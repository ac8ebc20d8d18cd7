"""A replica that trains, evaluates or predicts with the engine."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from typing_extensions import override

from podyard.base.clock import RealClock
from podyard.base.errors import Code, PodyardError
from podyard.base.training_settings import TrainingSettings
from podyard.engine.executor import Ended, Peer, ReplicaSpec, run_replica
from podyard.engine.training.store import FileStore
from podyard.workers.event_writer import EventWriter
from podyard.workers.http_client import JsonClient
from podyard.workers.reporter import Reporter

JOIN_POLL_SECONDS = 0.05
JOIN_SECONDS_MAX = 120.0  # a gang whose processes are spread over slow machines; past it one of them is lost


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


def run_engine(
    spec: dict[str, Any], reporter: Reporter, api: JsonClient, replica_id: str, fence: int, clock: RealClock
) -> str | None:
    """What the replica reports as its end; None: it was stopped."""
    reporter.log(
        f"rank {spec['rank']} of {spec['processCount']}, hosts {spec['hostIndices']}, pid {os.getpid()}", "platform"
    )
    objects = Path(os.environ["PODYARD_OBJECTS"])
    store, start_from = KeepingStore(objects / spec["objectsPrefix"], reporter.writes_fail), spec["startFrom"]
    source = FileStore(objects / start_from["objectsPrefix"]) if start_from else store
    resume = (start_from["step"] if start_from else spec["resumeStep"]) or None
    if spec["rank"] == 0 and spec["mode"] == "train":
        root = objects / spec["objectsPrefix"]
        reporter.events = EventWriter(root, spec["attempt"], spec["resumeStep"], spec["steps"], clock)
    listen_on = f"{spec['bindAddress']}:0"
    rendezvous = HttpRendezvous(api, replica_id, fence, clock)
    ended = run_replica(to_spec(spec), rendezvous, reporter, store, resume, listen_on, clock, source)
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
