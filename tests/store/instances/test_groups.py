"""Managed groups, templates and policies, on both databases."""

from __future__ import annotations

from typing import Any

import pytest

from podyard.base.clock import ManualClock
from podyard.base.errors import PodyardError
from podyard.control.access import identity
from podyard.control.compute import persistent_disks
from podyard.control.compute.instances import changes, groups, life, resize_requests, templates
from podyard.control.compute.instances.resize_requests import NamedGroup
from podyard.control.compute.persistent_disks import DiskRequest
from podyard.db.compute import disks as disk_rows
from podyard.db.compute import instances as rows
from podyard.db.compute import slices
from podyard.db.store.unit_of_work import Database
from podyard.domain.compute.refusal import ComputeRefusal
from podyard.domain.disk import DISKS_PER_PROJECT_MAX
from podyard.domain.instances.group import GroupRequest, GroupSpec, ManagedGroup, TargetSizeMode
from podyard.domain.instances.instance import AttachedDisk, Scheduling
from podyard.domain.machine import ResourceKind
from podyard.domain.principal import PLATFORM, Principal
from tests.builders import PROJECT, ZONE, Play
from tests.store.instances.test_life import CPU, clean, insert, shown, status

REGION = "us-central1"
TEMPLATE = f"projects/{PROJECT}/global/instanceTemplates/t"
POLICY = f"projects/{PROJECT}/regions/{REGION}/resourcePolicies/p"
SLICE = GroupSpec(TEMPLATE, "g", TargetSizeMode.BULK, POLICY)
FLEET = """
zones:
  us-central1-a: {v5e: {shape: 4x4}}
timings: {create_seconds: 10, restart_seconds: 5, maintenance_seconds: 60}
"""


@pytest.fixture
def play(database: Database, clock: ManualClock) -> Play:
    return Play(database, clock, FLEET)


def describe(
    play: Play, machine: str = "ct5lp-hightpu-4t", topology: str = "2x4", **properties: Any
) -> None:
    template = {"name": "t", "properties": {"machineType": machine, **properties}}
    policy = {
        "name": "p",
        "workloadPolicy": {"type": "HIGH_THROUGHPUT", "acceleratorTopology": topology},
    }

    def put(place: str, kind: ResourceKind, message: dict[str, Any]) -> None:
        play.database.run(
            lambda uow: templates.insert(uow, play.fleet, PLATFORM, PROJECT, place, kind, message)
        )

    put("global", ResourceKind.INSTANCE_TEMPLATE, template)
    put(REGION, ResourceKind.RESOURCE_POLICY, policy)


def make(play: Play, spec: GroupSpec = SLICE, size: int = 2, name: str = "g") -> None:
    play.run(groups.insert, GroupRequest(name, spec, size))


def group(play: Play, name: str = "g") -> ManagedGroup:
    return play.ask(groups.get, name)


def names(play: Play) -> list[str]:
    return [one.row.name for one in play.database.read(lambda uow: rows.of_project(uow, PROJECT))]


def test_a_group_with_a_topology_is_one_slice(play: Play) -> None:
    describe(play)
    make(play)
    assert [one.status for one in group(play).instances] == ["PROVISIONING"] * 2
    play.turn()
    play.turn(10)
    found = group(play)
    assert (found.is_stable, found.topology_state) == (True, "ACTIVE")
    assert [one.row.host_index for one in found.instances] in ([0, 1], [1, 0])
    assert len({one.internal_ip for one in found.instances}) == 2
    (held,) = play.database.read(slices.list_all)
    assert held.chips.bit_count() == 8
    assert all(one.row.name.startswith("g-") for one in found.instances)
    clean(play)
    play.run(groups.resize, "g", 0)
    play.turn()
    assert (group(play).instances, names(play)) == ([], [])
    play.run(groups.resize, "g", 2)
    play.turn()
    play.turn(10)
    assert group(play).is_stable
    play.run(groups.delete, "g")
    play.turn()
    assert names(play) == []
    with pytest.raises(ComputeRefusal, match="was not found"):
        group(play)
    clean(play)


def test_a_slice_waits_for_room_and_then_comes_as_a_whole(play: Play) -> None:
    describe(play, topology="4x4")
    insert(play, "other")
    play.turn()
    make(play, size=4)
    play.turn()
    assert {one.status for one in group(play).instances} == {"PROVISIONING"}
    assert group(play).topology_state == "ACTIVATING"
    play.run(life.delete, "other")
    play.turn()
    play.turn(10)
    assert group(play).is_stable
    clean(play)


def test_an_instance_of_a_slice_that_is_deleted_comes_back(play: Play) -> None:
    describe(play)
    make(play)
    play.turn()
    play.turn(10)
    first = names(play)[0]
    play.run(life.delete, first)
    assert status(play, first) == "REPAIRING"
    play.turn(5)
    assert group(play).is_stable
    assert first in names(play)
    clean(play)


def test_a_group_of_single_hosts_makes_again_what_it_loses(play: Play) -> None:
    describe(play, CPU)
    make(play, GroupSpec(TEMPLATE, "vm"), 3)
    play.turn(10)
    assert group(play).is_stable
    lost = names(play)[0]
    play.run(life.delete, lost)
    play.turn()
    assert len(names(play)) == 2
    play.turn(30)
    play.turn(10)
    assert group(play).is_stable
    assert lost not in names(play)
    chosen = f"projects/{PROJECT}/zones/{ZONE}/instances/{names(play)[0]}"
    play.run(groups.delete_instances, "g", [chosen])
    play.turn()
    play.turn(60)
    assert len(names(play)) == group(play).row.target_size == 2
    clean(play)


@pytest.mark.parametrize(
    ("spec", "size", "text"),
    [
        (
            GroupSpec(TEMPLATE, "g", TargetSizeMode.INDIVIDUAL, POLICY),
            2,
            "^MIGs with TPU accelerator topology require BULK mode in target size policy$",
        ),
        (SLICE, 3, "has 2 hosts of ct5lp-hightpu-4t: use 0 or 2"),
        (GroupSpec(TEMPLATE, "g", TargetSizeMode.BULK, "p"), 2, "The URL is malformed"),
        (GroupSpec(TEMPLATE[:-1] + "none", "g"), 1, "instanceTemplates/none' was not found"),
    ],
)
def test_wrong_groups_are_refused(play: Play, spec: GroupSpec, size: int, text: str) -> None:
    describe(play)
    with pytest.raises(ComputeRefusal, match=text):
        make(play, spec, size)
    assert names(play) == []


def test_what_a_group_uses_cannot_be_deleted_and_resize_requests_are_refused(play: Play) -> None:
    describe(play)
    make(play)
    with pytest.raises(ComputeRefusal, match="already being used by"):
        play.database.run(
            lambda uow: templates.delete(
                uow, PLATFORM, PROJECT, "global", ResourceKind.INSTANCE_TEMPLATE, "t"
            )
        )
    with pytest.raises(ComputeRefusal, match=r"^Creating resize requests for managed"):
        named = NamedGroup(PLATFORM, PROJECT, ZONE, "g")
        play.database.run(lambda uow: resize_requests.insert(uow, play.fleet, named, "r", 1, 0, ""))


def test_changes_of_an_instance(play: Play) -> None:
    insert(play, "a", CPU)
    play.turn(10)
    found = shown(play, "a")
    with pytest.raises(ComputeRefusal, match="fingerprint"):
        play.ask(changes.set_labels, "a", {"x": "y"}, "stale")
    play.ask(changes.set_labels, "a", {"x": "y"}, found.label_fingerprint)
    play.ask(changes.set_metadata, "a", {"k": "v"}, found.metadata_fingerprint)
    play.ask(changes.set_tags, "a", ["web"], found.tag_fingerprint)
    spec = shown(play, "a").spec
    assert (spec.labels, spec.metadata, spec.tags) == ({"x": "y"}, {"k": "v"}, ("web",))
    boot = f"projects/{PROJECT}/zones/{ZONE}/disks/a"
    insert(play, "b", CPU)
    play.turn(10)
    with pytest.raises(ComputeRefusal, match="is already being used by"):
        play.ask(changes.attach_disk, "b", AttachedDisk(boot))
    play.ask(changes.set_scheduling, "a", Scheduling(max_run_seconds=60.0))
    play.turn(49)
    assert status(play, "a") == "RUNNING"
    play.turn(1)
    assert status(play, "a") == "TERMINATED"
    clean(play)


def _as(play: Play, role: str, use_case: Any, *arguments: Any) -> Any:
    """A use case of a person with this role."""
    email = f"{role}@example.com"

    def unit(uow: Any) -> Any:
        identity.bind(uow, email, PROJECT, role)
        principal = Principal(email, {PROJECT: frozenset({role})})
        return use_case(uow, play.fleet, principal, PROJECT, ZONE, *arguments)

    return play.database.run(unit)


def test_a_group_makes_again_only_what_its_user_may_make(play: Play) -> None:
    """Otherwise a caller who may patch a group gets instances of an account that they may not act
    as."""
    boss = f"boss@{PROJECT}.iam.gserviceaccount.com"
    play.database.run(lambda uow: identity.bind(uow, boss, PROJECT, "owner"))
    account = {"serviceAccounts": [{"email": boss, "scopes": []}]}
    describe(play, CPU, **account)
    plain = {"name": "plain", "properties": {"machineType": CPU}}
    kind = ResourceKind.INSTANCE_TEMPLATE
    play.database.run(
        lambda uow: templates.insert(uow, play.fleet, PLATFORM, PROJECT, "global", kind, plain)
    )
    own = GroupSpec(TEMPLATE[:-1] + "plain", "vm")
    _as(play, "tpu.admin", groups.insert, GroupRequest("g", own, 1))
    play.turn(10)
    _as(play, "tpu.admin", groups.patch, GroupRequest("g", GroupSpec(TEMPLATE, "vm")))
    _as(play, "tpu.admin", life.delete, names(play)[0])
    for _ in range(3):
        play.turn(30)
    assert names(play) == []
    # Who may act as the account takes the group over, and it is whole again.
    _as(play, "owner", groups.patch, GroupRequest("g", GroupSpec(TEMPLATE, "vm")))
    play.turn(10)
    assert group(play).is_stable
    clean(play)


def test_a_group_that_cannot_be_filled_holds_nobody_up(play: Play) -> None:
    describe(play, CPU, disks=[{"boot": True, "initializeParams": {"diskType": "pd-ssd"}}])
    make(play, GroupSpec(TEMPLATE, "vm"), 2)
    play.turn(10)
    play.run(life.delete, names(play)[0])
    play.turn()

    def fill_up(uow: Any) -> None:
        there = len(disk_rows.of_project(uow, PROJECT))
        for number in range(DISKS_PER_PROJECT_MAX - there):
            request = DiskRequest(f"d{number}")
            persistent_disks.create(uow, play.fleet, PLATFORM, PROJECT, ZONE, request)

    play.database.run(fill_up)
    for _ in range(2):
        play.turn(30)
    assert len(names(play)) == 1
    with pytest.raises(PodyardError, match="the most that are allowed"):
        insert(play, "other", CPU)
    clean(play)
    play.ask(persistent_disks.delete, "d0")
    play.turn(30)
    play.turn(10)
    assert group(play).is_stable
    clean(play)
