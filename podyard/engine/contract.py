"""The engine's inputs, and the ports that it needs from outside: one process of a gang, and three
Protocols around it.

The engine knows neither HTTP nor a database; `workers/replica/replica.py` implements the
Protocols. No JAX in here.
"""

from __future__ import annotations

import dataclasses
import enum
import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Protocol

from podyard.base.errors import invalid
from podyard.base.training_settings import TrainingSettings
from podyard.engine.training.settings import check_settings

MODES = ("train", "evaluate", "predict", "export")


@dataclasses.dataclass(frozen=True)
class ReplicaSpec:
    """The spec of one process of a gang.

    `core_count` shards share the global batch, `core_count // host_count` on each host.
    `host_indices` are the hosts that this process holds; `rank` is its index among `process_count`
    processes. `epoch` fences earlier gangs of the same job, `ring_key` (16 bytes or more) is known
    to this gang only. `checkpoint_every_steps` 0: only at the end. `window_folder`: where the
    processes of a machine share memory; without one they sum over TCP.
    `data_folder`: where the argument `data` of a recipe is a folder; without one it is a path.
    `program_folder`: where the modules of users' programs are; a recipe that is called
    "module:function" is one of them. `learning_rate_scale` is for a gang that is smaller than the
    job's.
    """

    recipe: str
    arguments: Mapping[str, object]
    mode: str
    steps: int
    global_batch: int
    seed: int
    checkpoint_every_steps: int
    accelerator_type: str
    core_count: int
    host_count: int
    host_indices: tuple[int, ...]
    rank: int
    process_count: int
    epoch: int
    ring_key: bytes = dataclasses.field(repr=False)
    compilation_cache: str | None = None
    window_folder: str | None = None
    data_folder: str | None = None
    program_folder: str | None = None
    training: TrainingSettings = dataclasses.field(default_factory=TrainingSettings)
    learning_rate_scale: float = 1.0


class Ended(enum.Enum):
    """The end of a replica. YIELDED: in order, after a checkpoint, so that another gang can go
    on."""

    FINISHED = "FINISHED"
    YIELDED = "YIELDED"
    STOPPED = "STOPPED"


@dataclasses.dataclass(frozen=True)
class Peer:
    """A process of the gang, this one included. `address`: "host:port" of its ring listener.
    Processes of the same `machine` have the same window folder; an empty name is not a machine."""

    process_index: int
    host_indices: tuple[int, ...]
    address: str
    machine: str = ""


class Rendezvous(Protocol):
    """`join` blocks until all processes of this epoch have joined. Raises PodyardError ABORTED for
    a fenced epoch."""

    def join(self, address: str) -> Sequence[Peer]: ...


class MetricsSink(Protocol):
    """The reports of the process that holds host 0 (`log` and `stopping`: every process). Steps are
    1-based.

    `evaluated`: what was measured on the test data after a step, by name ("val_loss"). `checkpoint`
    is called after the checkpoint is durable, `pruned` after those of these steps are gone;
    `finished` last, and not at all after a stop or when the gang has yielded. `resumable_step`: of
    the newest checkpoint that is known outside, from which the next gang would resume; `report_now`
    says at once what waits to be said. `stopping`: leave at once; `yielding`: leave in order, all
    after the same step, with a checkpoint.
    """

    def step(
        self, step: int, loss: float, accuracy: float, wall_seconds: float, modelled_seconds: float
    ) -> None: ...
    def on_evaluation(self, step: int, metrics: Mapping[str, float]) -> None: ...
    def checkpoint(self, step: int, name: str, sha256: str, is_best: bool) -> None: ...
    def on_prune(self, steps: Sequence[int]) -> None: ...
    def resumable_step(self) -> float: ...
    def report_now(self) -> None: ...
    def log(self, line: str) -> None: ...
    def on_end(self, metrics: Mapping[str, float | str]) -> None: ...
    def stopping(self) -> bool: ...
    def yielding(self) -> bool: ...


def check_spec(spec: ReplicaSpec) -> None:
    """Raises PodyardError INVALID_ARGUMENT for numbers that contradict each other."""
    if spec.mode not in MODES:
        raise invalid(f"mode {spec.mode!r} is not one of {', '.join(MODES)}", "mode")
    if spec.steps < 0 or spec.checkpoint_every_steps < 0:
        raise invalid("steps and checkpoint_every_steps are not negative", "steps")
    if (
        spec.host_count < 1
        or spec.core_count < spec.host_count
        or spec.core_count % spec.host_count
    ):
        raise invalid(
            f"{spec.core_count} cores cannot be spread evenly over {spec.host_count} hosts",
            "core_count",
        )
    if spec.global_batch < 1 or spec.global_batch % spec.core_count:
        raise invalid(
            f"global batch {spec.global_batch} is not a positive multiple of the "
            f"{spec.core_count} cores",
            "global_batch",
        )
    if spec.global_batch % (spec.core_count * spec.training.accumulation_steps):
        raise invalid(
            f"the {spec.global_batch // spec.core_count} examples of a core cannot be computed in"
            f" {spec.training.accumulation_steps} equal parts",
            "training.accumulationSteps",
        )
    check_settings(spec.training, spec.checkpoint_every_steps)
    hosts = set(spec.host_indices)
    if (
        not hosts
        or len(hosts) != len(spec.host_indices)
        or not hosts <= set(range(spec.host_count))
    ):
        raise invalid(
            f"hosts {spec.host_indices} are not distinct hosts of 0..{spec.host_count - 1}",
            "host_indices",
        )
    if not 0 <= spec.rank < spec.process_count <= spec.host_count:
        raise invalid(
            f"rank {spec.rank} of {spec.process_count} processes for {spec.host_count} hosts",
            "rank",
        )
    if (spec.process_count == 1) != (len(hosts) == spec.host_count):
        raise invalid("one process holds all hosts exactly when it is the only one", "host_indices")


def agreement_digest(spec: ReplicaSpec, start: str) -> bytes:
    """32 bytes that are equal exactly for processes that train the same thing from the same
    `start`."""
    common = {
        "recipe": spec.recipe,
        "arguments": dict(spec.arguments),
        "mode": spec.mode,
        "steps": spec.steps,
        "globalBatch": spec.global_batch,
        "seed": spec.seed,
        "cores": spec.core_count,
        "hosts": spec.host_count,
        "training": dataclasses.asdict(spec.training),
        "learningRateScale": spec.learning_rate_scale,
        "start": start,
    }
    return hashlib.sha256(json.dumps(common, sort_keys=True).encode()).digest()
