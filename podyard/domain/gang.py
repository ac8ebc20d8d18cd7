"""Sizes of a job's gang: the whole slice, or for an elastic job fewer processes that its batch
divides for."""

from __future__ import annotations

import dataclasses

from podyard.domain.job import JobSpec
from podyard.hardware.accelerator_types import AcceleratorType


@dataclasses.dataclass(frozen=True, slots=True)
class GangSize:
    """One size of a gang: processes, the hosts that they stand for, and the batch of all of them
    together."""

    process_count: int
    host_count: int
    global_batch: int

    def hosts_of(self, rank: int) -> list[int]:
        """The contiguous hosts of one process; `rank` counts from 0."""
        first, last = (
            number * self.host_count // self.process_count for number in (rank, rank + 1)
        )
        return list(range(first, last))


def whole_gang(spec: JobSpec, kind: AcceleratorType) -> GangSize:
    """One process per host of all slices, unless the job asks for fewer."""
    hosts = kind.host_count * spec.num_nodes
    wanted = hosts if spec.replica_processes is None else min(spec.replica_processes, hosts)
    return GangSize(wanted, hosts, spec.global_batch)


def allowed_sizes(spec: JobSpec, kind: AcceleratorType) -> list[GangSize]:
    """The sizes that a job may run with, the largest first; only the whole gang unless it is
    elastic.

    Each process of a smaller gang keeps the hosts that it has in the whole one (rounded down where
    they are uneven).
    """
    whole = whole_gang(spec, kind)
    if spec.elastic is None:
        return [whole]
    smaller = (
        _smaller(spec, kind, whole, count)
        for count in range(whole.process_count - 1, spec.elastic.min_replicas - 1, -1)
    )
    return [whole, *(size for size in smaller if size is not None)]


def wanted_sizes(spec: JobSpec, kind: AcceleratorType) -> list[GangSize]:
    """Those of the allowed sizes that are no larger than what the job was set to, the largest
    first."""
    most = None if spec.elastic is None else spec.elastic.max_replicas
    return [
        size for size in allowed_sizes(spec, kind) if most is None or size.process_count <= most
    ]


def learning_rate_scale(spec: JobSpec, kind: AcceleratorType, host_count: int) -> float:
    """Return what the learning rate is multiplied by on `host_count` hosts."""
    linear = spec.elastic is not None and spec.elastic.learning_rate == "linear"
    return host_count / kind.host_count if linear else 1.0


def core_count(kind: AcceleratorType, host_count: int) -> int:
    """The cores of `host_count` hosts of a slice: all hosts have the same number."""
    return kind.core_count * host_count // kind.host_count


def _smaller(
    spec: JobSpec, kind: AcceleratorType, whole: GangSize, process_count: int
) -> GangSize | None:
    """None when the batch does not divide."""
    assert spec.elastic is not None
    hosts = process_count * (kind.host_count // whole.process_count)
    parts = core_count(kind, hosts) * spec.training.accumulation_steps
    scaled = spec.elastic.batch == "scale"
    batch, left = (
        divmod(spec.global_batch * hosts, kind.host_count) if scaled else (spec.global_batch, 0)
    )
    return None if left or batch % parts else GangSize(process_count, hosts, batch)
