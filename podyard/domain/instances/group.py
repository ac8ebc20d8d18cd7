"""Managed instance groups, the templates of their instances, and workload policies."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any

from podyard.base.clock import PlatformTime
from podyard.domain.compute.place import place_named
from podyard.domain.compute.resource import fingerprint_of
from podyard.domain.instances.instance import (
    Instance,
    InstanceStatus,
)

SIZE_FIELD, TEMPLATE_FIELD = "targetSize", "instanceTemplate"  # of InstanceGroupManager
GROUP_SIZE_MAX = 1000  # of a zonal group (docs: instance groups)


class TargetSizeMode(StrEnum):
    """BULK: all instances are made at once, or none."""

    INDIVIDUAL = "INDIVIDUAL"
    BULK = "BULK"


class FailureAction(StrEnum):
    REPAIR = "REPAIR"
    DO_NOTHING = "DO_NOTHING"


@dataclasses.dataclass(frozen=True, slots=True)
class GroupSpec:
    """`template`, `workload_policy`: paths `projects/P/...`; `topology`: of the policy, when the
    group was made; empty: its instances are not a slice. `set_by`: the user who has set it last;
    what the group has lost is made again with their rights. `extras`: fields that nothing follows
    from, as the API has them."""

    template: str
    base_name: str
    mode: TargetSizeMode = TargetSizeMode.INDIVIDUAL
    workload_policy: str = ""
    topology: str = ""
    description: str = ""
    on_failure: FailureAction = FailureAction.REPAIR
    set_by: str = ""
    extras: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        return dataclasses.asdict(self)


def group_spec_of(data: Mapping[str, Any]) -> GroupSpec:
    parsed = {
        "mode": TargetSizeMode(data["mode"]),
        "on_failure": FailureAction(data["on_failure"]),
    }
    return GroupSpec(**{**data, **parsed})


@dataclasses.dataclass(frozen=True, slots=True)
class GroupRequest:
    """A group as a client asks for it. `size` None: as it is."""

    name: str
    spec: GroupSpec
    size: int | None = None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class GroupRow:
    """`place`: a zone or a region; `zone`: of its instances."""

    group_key: str
    number: int
    project: str
    place: str
    zone: str
    name: str
    target_size: int
    spec: GroupSpec
    created: PlatformTime
    created_by: str

    @property
    def path(self) -> str:
        return group_path(self.project, self.place, self.name)

    @property
    def fingerprint(self) -> str:
        return fingerprint_of([self.target_size, self.spec.to_json()])


def group_path(project: str, place: str, name: str) -> str:
    return f"projects/{project}/{place_named(place).path}/instanceGroupManagers/{name}"


@dataclasses.dataclass(frozen=True, slots=True)
class ManagedGroup:
    """A group as it is shown."""

    row: GroupRow
    instances: Sequence[Instance]

    @property
    def is_stable(self) -> bool:
        """Return whether it has all of its instances, and all run."""
        running = [one for one in self.instances if one.status is InstanceStatus.RUNNING]
        return len(running) == len(self.instances) == self.row.target_size

    @property
    def topology_state(self) -> str:
        """Of the slice that its instances make: ACTIVE once all run."""
        return "ACTIVE" if self.is_stable and self.instances else "ACTIVATING"


class PolicyType(StrEnum):
    """Of a workload policy."""

    HIGH_THROUGHPUT = "HIGH_THROUGHPUT"
    HIGH_AVAILABILITY = "HIGH_AVAILABILITY"


@dataclasses.dataclass(frozen=True, slots=True)
class PolicySpec:
    """A resource policy of a workload, or (None) of a placement. The other kinds are refused."""

    workload_type: PolicyType | None = None
    topology: str = ""
