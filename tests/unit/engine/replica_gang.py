"""Replica processes for tests: `run_gang` starts one per group of hosts and lets them meet over
pipes.

As a script, it is one such process: a spec comes in on stdin, events go out on stdout, one JSON
object per line.
"""

from __future__ import annotations

import base64
import dataclasses
import json
import os
import pickle
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from podyard.base.clock import OsClock
from podyard.base.errors import PodyardError
from podyard.engine.executor import Peer, ReplicaSpec, run_replica
from podyard.engine.training.store import FileStore

RING_KEY = b"0123456789abcdef0123456789abcdef"


def spec_of(**changes: Any) -> ReplicaSpec:
    """A short run of digits-cnn on a v2-8."""
    spec = ReplicaSpec(
        recipe="digits-cnn",
        arguments={"learningRate": 1e-3, "dropout": 0.25},
        mode="train",
        steps=5,
        global_batch=32,
        seed=7,
        checkpoint_every_steps=0,
        accelerator_type="v2-8",
        core_count=8,
        host_count=1,
        host_indices=(0,),
        rank=0,
        process_count=1,
        epoch=1,
        ring_key=RING_KEY,
        compilation_cache=None,
    )
    return dataclasses.replace(spec, **changes)


class Recorder:
    """A metrics sink that remembers; after `stop_after` steps it says stop, after `yield_after` it
    says yield.

    `hears_late`: what is known outside is what was there at the last `report_now`.
    """

    def __init__(
        self,
        stop_after: int | None = None,
        yield_after: int | None = None,
        *,
        hears_late: bool = False,
    ) -> None:
        self.steps: list[tuple[int, float, float, float, float]] = []
        self.evaluations: dict[int, dict[str, float]] = {}
        self.checkpoints: list[tuple[int, str, str]] = []
        self.best: list[int] = []
        self.gone: list[int] = []
        self.lines: list[str] = []
        self.result: dict[str, float | str] | None = None
        self._stop_after = stop_after
        self._yield_after = yield_after
        self._resumable_step = 0 if hears_late else sys.maxsize

    def step(
        self, step: int, loss: float, accuracy: float, wall_seconds: float, modelled_seconds: float
    ) -> None:
        self.steps.append((step, loss, accuracy, wall_seconds, modelled_seconds))

    def on_evaluation(self, step: int, metrics: Mapping[str, float]) -> None:
        self.evaluations[step] = dict(metrics)

    def checkpoint(self, step: int, name: str, sha256: str, is_best: bool) -> None:
        self.checkpoints.append((step, name, sha256))
        self.best += [step] if is_best else []

    def resumable_step(self) -> int:
        return self._resumable_step

    def report_now(self) -> None:
        self._resumable_step = max([self._resumable_step, *(step for step, *_ in self.checkpoints)])

    def on_prune(self, steps: Sequence[int]) -> None:
        self.gone += steps

    def log(self, line: str) -> None:
        self.lines.append(line)

    def on_end(self, metrics: Mapping[str, float | str]) -> None:
        self.result = dict(metrics)

    def stopping(self) -> bool:
        return self._stop_after is not None and len(self.steps) >= self._stop_after

    def yielding(self) -> bool:
        return self._yield_after is not None and len(self.steps) >= self._yield_after

    @property
    def params_sha256(self) -> str:
        return next(line.split()[1] for line in self.lines if line.startswith("paramsSha256"))


class Alone:
    """The rendezvous of a gang of one."""

    def join(self, address: str) -> Sequence[Peer]:
        return [Peer(0, (0,), address)]


class _Pipes:
    def __init__(self, spec: ReplicaSpec) -> None:
        self._spec = spec

    def join(self, address: str) -> Sequence[Peer]:
        _say({"address": address})
        return [Peer(p[0], tuple(p[1]), p[2], p[3]) for p in json.loads(sys.stdin.readline())]


def _say(event: Mapping[str, object]) -> None:
    print(json.dumps(event), flush=True)


def _main() -> None:
    order = json.loads(sys.stdin.readline())
    spec: ReplicaSpec = pickle.loads(base64.b64decode(order["spec"]))
    recorder = Recorder(order["stop_after"], order["yield_after"])
    error, ended = None, None
    try:
        ended = run_replica(
            spec,
            _Pipes(spec),
            recorder,
            FileStore(Path(order["store"])),
            order["resume"],
            "127.0.0.1:0",
            OsClock(),
        )
    except PodyardError as failure:
        error = [failure.code.name, failure.message]
    _say(
        {
            "steps": recorder.steps,
            "checkpoints": recorder.checkpoints,
            "lines": recorder.lines,
            "evaluations": list(recorder.evaluations.items()),
            "result": recorder.result,
            "ended": ended and ended.value,
            "error": error,
        }
    )


def run_gang(
    spec: ReplicaSpec,
    groups: Sequence[Sequence[int]],
    store: Path,
    resume: int | None = None,
    stop_after: int | None = None,
    yield_after: int | None = None,
    machines: Sequence[str] = (),
) -> list[dict[str, Any]]:
    """Return what each process of the gang reported; `groups[i]` are the hosts of process i,
    `machines[i]` is where it runs: those of one machine share a window folder, but one with a
    capital letter, which cannot share memory."""
    environment = {**os.environ, "JAX_PLATFORMS": "cpu"}
    processes = [
        subprocess.Popen(
            [sys.executable, __file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
        )
        for _ in groups
    ]
    try:
        for rank, (process, hosts) in enumerate(zip(processes, groups, strict=True)):
            own = dataclasses.replace(
                spec, host_indices=tuple(hosts), rank=rank, process_count=len(groups)
            )
            if machines and machines[rank].islower():
                windows = store.parent / f"{store.name}-windows-{machines[rank]}"
                windows.mkdir(exist_ok=True)
                own = dataclasses.replace(own, window_folder=str(windows))
            order = {"resume": resume, "stop_after": stop_after, "yield_after": yield_after}
            _tell(
                process,
                {
                    "spec": base64.b64encode(pickle.dumps(own)).decode(),
                    "store": str(store),
                    **order,
                },
            )
        addresses = [_hear(process)["address"] for process in processes]
        names = [name.lower() for name in machines] or [""] * len(groups)
        peers = [
            (rank, list(groups[rank]), address, names[rank])
            for rank, address in enumerate(addresses)
        ]
        for process in processes:
            _tell(process, peers)
        return [_hear(process) for process in processes]
    finally:
        for process in processes:
            process.kill()
            process.communicate()


def _tell(process: subprocess.Popen[str], message: object) -> None:
    assert process.stdin is not None
    process.stdin.write(json.dumps(message) + "\n")
    process.stdin.flush()


def _hear(process: subprocess.Popen[str]) -> dict[str, Any]:
    assert process.stdout is not None
    heard: dict[str, Any] = json.loads(process.stdout.readline())
    return heard


if __name__ == "__main__":
    _main()
