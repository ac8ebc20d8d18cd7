"""New instances: checked as Google does, then a row of nodes, its instances, boot disks and an
operation, in one unit."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from podyard.base.errors import Code, PodyardError
from podyard.base.ids import row_id
from podyard.control.access import identity
from podyard.control.compute import disks, nodes, persistent_disks, ports, quota
from podyard.control.compute.network import networks
from podyard.control.compute.persistent_disks import DiskRequest
from podyard.control.platform import operations
from podyard.db.compute import disks as disk_rows
from podyard.db.compute import instances as rows
from podyard.db.compute import resources
from podyard.db.store import timers
from podyard.db.store.transition import create_record
from podyard.db.store.unit_of_work import UnitOfWork
from podyard.domain.compute.images import newest_of
from podyard.domain.compute.refusal import (
    ComputeRefusal,
    Reason,
    already_exists,
    in_use,
    invalid_value,
    resource_not_found,
)
from podyard.domain.fleet import Fleet, region_of
from podyard.domain.host import default_service_account
from podyard.domain.instances.instance import (
    CPUS_PER_REGION_MAX,
    EACH_FIELD,
    HOSTS_WITHOUT_CHIPS_MAX,
    LEAST_FIELD,
    POLICIES_FIELD,
    VALID_SECONDS_MAX,
    InstanceRow,
    InstanceSpec,
    ProvisioningModel,
    check_name,
)
from podyard.domain.instances.messages import NO_PLACEMENT, read_policy
from podyard.domain.machine import ResourceKind
from podyard.domain.node import NodeRecord, NodeSpec, Road, instance_name
from podyard.domain.operation import Operation, OperationTarget, OperationVerb
from podyard.domain.principal import Principal
from podyard.domain.project import Project
from podyard.domain.reservation import check_asked
from podyard.hardware import machine_types
from podyard.hardware.accelerator_types import AcceleratorType, kind_of

BULK_MAX = 5000  # of one bulkInsert (its reference)
ID_BITS = 62  # of numbers of instances, as Compute Engine's are
BULK_PREFIX = "operation-"  # of the key of a bulk request, in `group_key` of what it makes


@dataclasses.dataclass(frozen=True, slots=True)
class InstanceRequest:
    """Instances that live and end together: the hosts of one row of nodes. `names`: one for each
    host; `topology`: of their slice, empty for one host; `group_key`: what they belong to."""

    names: tuple[str, ...]
    spec: InstanceSpec
    topology: str = ""
    group_key: str | None = None


def insert(
    uow: UnitOfWork,
    fleet: Fleet,
    principal: Principal,
    project: str,
    zone: str,
    name: str,
    spec: InstanceSpec,
) -> Operation:
    """One instance. Raises what Compute Engine refuses, with its reasons."""
    wanted = InstanceRequest((name,), with_disks(uow, project, zone, name, spec))
    check(uow, fleet, principal, project, zone, [wanted])
    return make(uow, fleet, principal, project, zone, wanted)[1]


def with_disks(
    uow: UnitOfWork, project: str, zone: str, name: str, spec: InstanceSpec
) -> InstanceSpec:
    """The same, with the disks of an instance `name`: new ones by name, and a boot disk that exists
    with its image, type and size. Raises NOT_FOUND for one that does not."""
    named = spec.with_disk_names(project, zone, name)
    if not spec.boot.exists:
        return named
    disk = disk_rows.find(uow, project, zone, spec.boot.name)
    if disk is None:
        raise resource_not_found(spec.boot_path(project, zone, name))
    image = disk.source or spec.boot.image
    boot = spec.boot._replace(image=image, size_gb=disk.size_gb, type=disk.type)
    return dataclasses.replace(named, boot=boot)


def bulk_insert(
    uow: UnitOfWork,
    fleet: Fleet,
    principal: Principal,
    project: str,
    zone: str,
    names: Sequence[str],
    spec: InstanceSpec,
) -> Operation:
    """Several instances, of which `spec.least_count` (0: all) must run: their operation ends when
    all that are left are RUNNING, or when too few are, and then the others are deleted."""
    if not 0 < len(names) <= BULK_MAX:
        raise invalid_value("count", len(names), f"It must be from 1 to {BULK_MAX}.")
    least = spec.least_count or len(names)
    if not 0 < least <= len(names):
        why = f"It must be from 1 to {len(names)}, the count."
        raise invalid_value(LEAST_FIELD, least, why)
    spec = dataclasses.replace(spec, bulk_count=len(names), least_count=least)
    if len(set(names)) < len(names):
        raise invalid_value(EACH_FIELD, names[0], "Names must be unique.")
    number = uow.streams.stream("instances").getrandbits(ID_BITS) + 1
    path = f"projects/{project}/zones/{zone}"
    principal.require("compute.instances.create", project, path)
    target = OperationTarget(ResourceKind.INSTANCE, path, project, zone, path, number)
    bulk = operations.begin(uow, target, OperationVerb.BULK_INSERT)
    wanted = [
        InstanceRequest((name,), with_disks(uow, project, zone, name, spec), "", bulk.operation_id)
        for name in names
    ]
    check(uow, fleet, principal, project, zone, wanted)
    for one in wanted:
        make(uow, fleet, principal, project, zone, one)
    return operations.find(uow, project, zone, bulk.operation_id)


def check(
    uow: UnitOfWork,
    fleet: Fleet,
    principal: Principal,
    project: str,
    zone: str,
    wanted: Sequence[InstanceRequest],
) -> None:
    """Raises what forbids instances; all of `wanted` are of one machine type. The caller's unit
    makes them all, and holds the project's row from here on."""
    for one in wanted:
        for name in one.names:
            principal.require(
                "compute.instances.create", project, instance_name(project, zone, name)
            )
            check_name(name)
    first = wanted[0].spec
    if zone not in fleet.zones:
        raise resource_not_found(f"projects/{project}/zones/{zone}")
    kinds = [check_machine(fleet, zone, one.spec, one.topology) for one in wanted]
    first.scheduling.check()
    if first.scheduling.model is ProvisioningModel.FLEX_START and not first.machine.has_chips:
        why = f"Machine type {first.machine_type} has no chips to wait for."
        raise invalid_value("scheduling.provisioningModel", "FLEX_START", why)
    check_asked(first.reservation_name, project, zone)
    owner = identity.project_row(uow, project)
    specs = [one.spec.node_spec(project, zone, one.names[0], one.topology) for one in wanted]
    check_account(uow, principal, owner, specs[0])
    for network in specs[0].networks:
        networks.check_named(uow, project, network.name, network.subnetwork, region_of(zone))
    check_policies(uow, project, first)
    _check_shared(specs, wanted)
    for one, spec in zip(wanted, specs, strict=True):
        _check_free(uow, project, zone, one, spec)
    new_disks = [disk for one in wanted for name in one.names for disk in _new_disks(one, name)]
    persistent_disks.check(uow, fleet, principal, project, zone, new_disks)
    _check_quotas(uow, fleet, owner, zone, first, kinds)
    named_specs = [(one.names[0], spec) for one, spec in zip(wanted, specs, strict=True)]
    ports.spending.admit(uow, project, principal.email, named_specs)


def check_account(uow: UnitOfWork, principal: Principal, owner: Project, spec: NodeSpec) -> None:
    """Raises PERMISSION_DENIED when the service account may do more than the caller."""
    email = spec.service_account.email or default_service_account(owner.number)
    identity.require_no_more(uow, principal, email)


def check_machine(fleet: Fleet, zone: str, spec: InstanceSpec, topology: str) -> AcceleratorType:
    """The slice that its hosts are, or the machine without chips. Raises INVALID for what the zone
    does not have."""
    machine = machine_types.find(spec.machine_type)
    if machine is None:
        raise spec.unknown_machine(zone)
    if not machine.has_chips:
        return kind_of(*_kind_names(spec.node_spec("", zone, "a")))
    kind = machine.kind(topology)
    offer = fleet.zones[zone].offers.get(machine.generation)
    if offer is None or not offer.fits(kind):
        raise spec.unknown_machine(zone)
    usage = spec.scheduling.usage_class
    if usage not in offer.usage_classes:
        why = f"{machine.name} in {zone} is offered as {', '.join(offer.usage_classes)} only."
        raise invalid_value("scheduling.provisioningModel", spec.scheduling.model, why)
    return kind


def _kind_names(spec: NodeSpec) -> tuple[str, str]:
    return spec.accelerator_type, spec.topology


def _check_free(
    uow: UnitOfWork, project: str, zone: str, one: InstanceRequest, spec: NodeSpec
) -> None:
    """Names, and data disks that exist."""
    for name in one.names:
        if rows.find(uow, project, zone, name) is not None:
            raise already_exists(instance_name(project, zone, name))
    for disk in one.spec.disks:
        if disk.new_gb == 0:
            require_disk(uow, project, zone, disk.source)
    try:
        disks.check(uow, project, None, spec)
    except PodyardError as error:
        if error.code is not Code.FAILED_PRECONDITION:
            raise
        raise ComputeRefusal(Reason.IN_USE, error.message) from error


def _check_shared(specs: Sequence[NodeSpec], wanted: Sequence[InstanceRequest]) -> None:
    """Raises `resourceInUseByAnotherResource` for a disk that two of `wanted` would write to."""
    taken: dict[str, str] = {}
    for spec, one in zip(specs, wanted, strict=True):
        if one.spec.boot.exists and len(one.names) > 1:
            why = "The instances of a slice cannot boot from one disk."
            raise invalid_value("disks[0].source", one.spec.boot.name, why)
        for disk in spec.data_disks:
            user = taken.setdefault(disk.source, one.names[0])
            if user != one.names[0] and disk.mode != disks.READ_ONLY:
                raise in_use("disk", disk.source, user)


def check_policies(uow: UnitOfWork, project: str, spec: InstanceSpec) -> None:
    """Raises INVALID, in Google's words, unless the policies place instances."""
    for path in spec.placement_policies:
        parts = path.split("/")
        policy = (
            resources.find(uow, project, ResourceKind.RESOURCE_POLICY, parts[3], parts[-1])
            if parts[1] == project and parts[2] == "regions"
            else None
        )
        if policy is None:
            why = "The referenced resource policy resource cannot be found."
            raise invalid_value(f"{POLICIES_FIELD}[0]", path, why)
        if read_policy(policy.spec).workload_type is not None:
            raise ComputeRefusal(Reason.INVALID, NO_PLACEMENT)


def require_disk(uow: UnitOfWork, project: str, zone: str, path: str) -> None:
    """Raises NOT_FOUND unless the disk is one of the project in the zone."""
    name = path.rpartition("/")[2]
    own = path == f"projects/{project}/zones/{zone}/disks/{name}"
    if not own or disk_rows.find(uow, project, zone, name) is None:
        raise resource_not_found(path)


def _check_quotas(
    uow: UnitOfWork,
    fleet: Fleet,
    owner: Project,
    zone: str,
    spec: InstanceSpec,
    kinds: Sequence[AcceleratorType],
) -> None:
    if spec.machine.has_chips:
        try:
            quota.check_all(uow, fleet, owner, zone, kinds, spec.scheduling.usage_class)
        except quota.QuotaExceeded as error:
            raise ComputeRefusal(Reason.QUOTA_EXCEEDED, error.message, error.details) from error
        return
    check_processors(uow, owner.project, zone, len(kinds) * (spec.machine.cpus or 0))
    there = rows.count_without_chips(uow)
    if there + len(kinds) > HOSTS_WITHOUT_CHIPS_MAX:
        text = (
            f"This yard runs at most {HOSTS_WITHOUT_CHIPS_MAX} instances without chips, and has "
            f"{there}: delete some"
        )
        raise ComputeRefusal(Reason.QUOTA_EXCEEDED, text)


def check_processors(uow: UnitOfWork, project: str, zone: str, more: int) -> None:
    """Raises `quotaExceeded` where a project would have too many processors without chips in a
    region. The caller's unit holds the project's row."""
    region = region_of(zone)
    if more > 0 and cpus_held(uow, project, region) + more > CPUS_PER_REGION_MAX:
        limit = f"Limit: {CPUS_PER_REGION_MAX:.1f} in region {region}."
        raise ComputeRefusal(Reason.QUOTA_EXCEEDED, f"Quota 'CPUS' exceeded.  {limit}")


def cpus_held(uow: UnitOfWork, project: str, region: str) -> int:
    """The processors of the project's instances without chips in a region."""
    count = 0
    for zone, name in rows.types_on_road(uow, project):
        machine = machine_types.find(name)
        if machine is not None and region_of(zone) == region:
            count += machine.cpus or 0
    return count


def make(
    uow: UnitOfWork,
    fleet: Fleet,
    principal: Principal,
    project: str,
    zone: str,
    wanted: InstanceRequest,
) -> tuple[NodeRecord, Operation]:
    """The row of nodes of checked instances, and its operation."""
    of_group = wanted.group_key is not None and not wanted.group_key.startswith(BULK_PREFIX)
    spec = wanted.spec.node_spec(project, zone, wanted.names[0], wanted.topology, queues=of_group)
    detail = ports.spending.price_warning(uow, zone, spec)
    first = nodes.new_record(uow, project, zone, wanted.names[0], spec, principal.email)
    node = dataclasses.replace(
        first,
        road=Road.COMPUTE,
        live_name=instance_name(project, zone, wanted.names[0]),
        host_count=len(wanted.names),
    )
    target = operations.of_node(node)
    operation = operations.begin(uow, target, OperationVerb.INSERT, detail)
    node = dataclasses.replace(node, pending_operation=operation.operation_id)
    create_record(uow, node, reason="requested")
    stream = uow.streams.stream("instances")
    for index, name in enumerate(wanted.names):
        number = node.number if index == 0 else stream.getrandbits(ID_BITS) + 1
        row = InstanceRow(
            instance_key=row_id(stream, "instance"),
            number=number,
            project=project,
            zone=zone,
            name=name,
            node_key=node.node_key,
            host_index=index,
            group_key=wanted.group_key,
            created=uow.now,
        )
        rows.insert(uow, row)
        for disk in _new_disks(wanted, name):
            persistent_disks.make(uow, principal, project, zone, disk)
    if wanted.spec.scheduling.model is ProvisioningModel.FLEX_START:
        valid = wanted.spec.scheduling.valid_for_seconds
        until = uow.now.plus_seconds(VALID_SECONDS_MAX if valid is None else valid)
        timers.put(uow, "node.giveUp", node.node_key, 0, until)
    if not node.has_chips:
        nodes.give_hosts(uow, fleet, node)
    return node, operation


def _new_disks(wanted: InstanceRequest, name: str) -> list[DiskRequest]:
    """The boot disk of an instance, and data disks that come with the first one of a row."""
    spec, boot = wanted.spec, wanted.spec.boot
    boots = [
        DiskRequest(
            boot.name or name,
            boot.type,
            boot.size_gb,
            labels=spec.labels if boot.labels is None else boot.labels,
            source=newest_of(boot.image),
        )
    ]
    data = [
        DiskRequest(one.source.rpartition("/")[2], one.new_type, one.new_gb)
        for one in spec.disks
        if one.new_gb and name == wanted.names[0]
    ]
    return data if boot.exists else [*boots, *data]
