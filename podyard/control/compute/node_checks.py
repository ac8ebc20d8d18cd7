"""Checks of requests for nodes: what no zone offers, names and disks in use, states that forbid."""

from __future__ import annotations

from podyard.base import ids
from podyard.base.errors import Code, PodyardError, invalid_field
from podyard.control.compute import disks
from podyard.db.compute import nodes as rows
from podyard.db.store.unit_of_work import UnitOfWork
from podyard.domain.fleet import Fleet, Zone
from podyard.domain.node import TPU_NODE_VERSIONS, NodeRecord, NodeSpec, node_name
from podyard.domain.operation import OperationVerb
from podyard.hardware import runtime_versions
from podyard.hardware.accelerator_types import AcceleratorType, kind_of


def check_free(uow: UnitOfWork, project: str, zone: str, node_id: str, spec: NodeSpec) -> None:
    """Raises ALREADY_EXISTS when a node has the name, and what `disks.check` raises when its disks
    are in use."""
    if rows.find(uow, project, zone, node_id) is not None:
        raise PodyardError(
            Code.ALREADY_EXISTS, f"Resource '{node_name(project, zone, node_id)}' already exists"
        )
    disks.check(uow, project, None, spec)


def check_spec(
    uow: UnitOfWork, fleet: Fleet, zone: str, spec: NodeSpec, *, of_job: bool = False
) -> AcceleratorType:
    """The type of the node; raises INVALID_ARGUMENT for what the zone does not offer, or no node
    can be. `of_job`: one that a job makes may have the versions of TPU Nodes."""
    zone_of(fleet, zone)
    kind = kind_of(spec.accelerator_type, spec.topology)
    fleet.check_node(zone, kind, spec.usage_class)
    runtime_versions.check_version(
        spec.runtime_version,
        kind.generation,
        of_tpu_node=spec.api_version in TPU_NODE_VERSIONS,
        of_job=of_job,
        unknown_allowed=fleet.unknown_runtime_versions,
    )
    if spec.max_run_seconds is not None and spec.max_run_seconds <= 0:
        raise invalid_field(
            "the run duration must be greater than 0 s", "scheduling_config.max_run_duration"
        )
    if spec.termination_time is not None and spec.termination_time <= uow.now.nanos:
        raise invalid_field(
            "the termination time must be in the future", "scheduling_config.termination_timestamp"
        )
    disks.check_modes(kind, spec)
    return kind


def bad_state(verb: OperationVerb, node: NodeRecord) -> PodyardError:
    return bad_request(f"{verb} is not supported while in state {node.state}", node)


def bad_request(what: str, node: NodeRecord) -> PodyardError:
    return ids.bad_request(what, node.node_key, node.version)


def zone_of(fleet: Fleet, zone: str) -> Zone:
    """The zone; a missing one is refused in Google's words, which clients match on."""
    found = fleet.zones.get(zone)
    if found is None:
        raise PodyardError(
            Code.PERMISSION_DENIED, f"Location {zone} is not found or access is unauthorized."
        )
    return found
