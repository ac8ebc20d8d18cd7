"""Time series of a project's hosts, as Cloud Monitoring lists them: the use of hosts and chips by
jobs in the past hour (`host_use.py`)."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence

from podyard.control.jobs.host_use import STEP_SECONDS, HostUseHistory, UseStep
from podyard.db.compute import nodes
from podyard.db.jobs import jobs, slices
from podyard.db.store.unit_of_work import UnitOfWork
from podyard.domain.node import NodeRecord
from podyard.domain.principal import Principal

LIST = "monitoring.timeSeries.list"
RESOURCE_TYPE = "tpu_worker"
JOBS_MAX = 20  # of a node: the newest ones


@dataclasses.dataclass(frozen=True, slots=True)
class HostMetric:
    """`value`: of a step of `STEP_SECONDS`; `is_whole`: it is a whole number."""

    type: str
    title: str
    unit: str
    is_whole: bool
    value: Callable[[UseStep], float]


# The first two have the names that Google's have (docs.cloud.google.com/tpu/docs/
# troubleshooting/tpu-vm-monitoring); Google gives CPU as a share of the host's, which is not known
# here.
METRICS: Mapping[str, HostMetric] = {
    metric.type: metric
    for metric in (
        HostMetric(
            "tpu.googleapis.com/accelerator/duty_cycle",
            "Accelerator duty cycle",
            "%",
            False,
            lambda step: 100.0 * step.busy_share,
        ),
        HostMetric(
            "tpu.googleapis.com/memory/usage",
            "Memory usage of the host",
            "By",
            True,
            lambda step: step.memory_bytes,
        ),
        HostMetric(
            "podyard.googleapis.com/host/cpu_cores",
            "CPU cores in use on the host",
            "{cpu}",
            False,
            lambda step: step.cores,
        ),
    )
}


@dataclasses.dataclass(frozen=True, slots=True)
class Sample:
    """A value of the seconds `begin` to `end` of the machine's clock."""

    begin: int
    end: int
    value: float


@dataclasses.dataclass(frozen=True, slots=True)
class HostSeries:
    """`samples`: the newest first."""

    labels: Mapping[str, str]
    samples: Sequence[Sample]


def series_of(
    uow: UnitOfWork,
    principal: Principal,
    history: HostUseHistory,
    project: str,
    metric: HostMetric,
    seconds: range,
) -> list[HostSeries]:
    """The series of each host of a project with a sample in `seconds`, by the names of nodes."""
    principal.require(LIST, project, f"projects/{project}")
    series = []
    for node in _nodes(uow, history, project):
        for index, steps in _use_of(uow, history, node).items():
            samples = [
                Sample(step.begin, step.begin + STEP_SECONDS, metric.value(step))
                for step in reversed(steps)
                if step.seconds > 0 and step.begin in seconds
            ]
            if samples:
                series.append(HostSeries(_labels(project, node, index), samples))
    return series


def _nodes(uow: UnitOfWork, history: HostUseHistory, project: str) -> list[NodeRecord]:
    """The nodes of the project's jobs that the history knows, by their names."""
    keys = {
        key
        for job in jobs.of_keys(uow, project, history.job_keys())
        for key in slices.node_keys_of(uow, job)
    }
    rows = (nodes.find_by_key(uow, key) for key in sorted(keys))
    records = [record for record in rows if record is not None]
    return sorted(records, key=lambda record: (record.zone, record.node_id))


def _use_of(
    uow: UnitOfWork, history: HostUseHistory, record: NodeRecord
) -> Mapping[int, Sequence[UseStep]]:
    count = record.host_count
    places = {
        job.job_key: record.slice_index * count if job.spec.num_nodes > 1 else 0
        for job in jobs.on_node(uow, record.node_key, JOBS_MAX)
    }
    return history.of_jobs({key: range(at, at + count) for key, at in places.items()})


def _labels(project: str, record: NodeRecord, index: int) -> Mapping[str, str]:
    return {
        "project_id": project,
        "zone": record.zone,
        "node_id": record.node_id,
        "worker_id": str(index),
    }
