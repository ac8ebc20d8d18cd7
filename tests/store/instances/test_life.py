"""The life of instances, on both databases: one inventory of chips for both roads."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from podyard.base.clock import ManualClock
from podyard.base.errors import PodyardError
from podyard.control.checks import fsck
from podyard.control.compute import nodes, persistent_disks, quota
from podyard.control.compute.instances import create, life
from podyard.control.compute.persistent_disks import DiskRequest
from podyard.db.compute import disks as disk_rows
from podyard.db.compute import instances as rows
from podyard.db.compute import nodes as node_rows
from podyard.db.compute import operations as operation_rows
from podyard.db.store.unit_of_work import Database
from podyard.domain.compute.refusal import ComputeRefusal
from podyard.domain.instances.instance import (
    AttachedDisk,
    Instance,
    InstanceSpec,
    ProvisioningModel,
    Scheduling,
    TerminationAction,
)
from podyard.domain.operation import Operation
from podyard.pricing.current_card import default_rate_card
from tests.builders import PROJECT, ZONE, Play

FLEET = """
zones:
  us-central1-a: {v5e: {shape: 2x4}, v2: {shape: 2x2}}
timings: {create_seconds: 10, restart_seconds: 5, maintenance_seconds: 60}
"""
TPU, CPU = "ct5lp-hightpu-4t", "e2-standard-4"
SPOT = Scheduling(ProvisioningModel.SPOT)
FLEX = Scheduling(ProvisioningModel.FLEX_START, max_run_seconds=3600.0, valid_for_seconds=600.0)


@pytest.fixture
def play(database: Database, clock: ManualClock) -> Play:
    return Play(database, clock, FLEET)


def insert(play: Play, name: str, machine: str = TPU, **fields: Any) -> Operation:
    return play.run(create.insert, name, InstanceSpec(machine, **fields))


def shown(play: Play, name: str) -> Instance:
    return play.ask(life.get, name)


def status(play: Play, name: str) -> str:
    return shown(play, name).status


def operation(play: Play, begun: Operation) -> Operation:
    found = play.database.read(lambda uow: operation_rows.find(uow, begun.operation_id))
    assert found is not None
    return found


def clean(play: Play) -> None:
    assert (
        play.database.read(lambda uow: list(fsck.check(uow, play.fleet, default_rate_card()))) == []
    )


@pytest.mark.parametrize("machine", [TPU, CPU])
def test_an_instance_lives_its_life(play: Play, machine: str) -> None:
    begun = insert(play, "a", machine)
    play.turn()
    assert status(play, "a") == "STAGING"
    assert not operation(play, begun).is_done
    play.turn(10)
    assert operation(play, begun).state == "SUCCEEDED"
    running = shown(play, "a")
    assert (running.status, running.internal_ip.startswith("10.128.")) == ("RUNNING", True)
    stopped = play.run(life.stop, "a")
    play.turn()
    assert (status(play, "a"), operation(play, stopped).state) == ("TERMINATED", "SUCCEEDED")
    started = play.run(life.start, "a")
    play.turn()
    assert (status(play, "a"), operation(play, started).state) == ("RUNNING", "SUCCEEDED")
    reset = play.run(life.reset, "a")
    assert status(play, "a") == "RUNNING"
    play.turn(5)
    assert operation(play, reset).state == "SUCCEEDED"
    clean(play)
    gone = play.run(life.delete, "a")
    play.turn()
    assert operation(play, gone).state == "SUCCEEDED"
    with pytest.raises(ComputeRefusal, match=r"instances/a' was not found"):
        shown(play, "a")
    assert play.database.read(lambda uow: rows.of_project(uow, PROJECT)) == []
    assert play.database.read(lambda uow: disk_rows.of_project(uow, PROJECT)) == []
    clean(play)


def test_the_roads_share_the_chips_and_not_the_names(play: Play) -> None:
    """Eight chips: two instances of four, and then no node; the TPU API does not see them."""
    insert(play, "a")
    insert(play, "b")
    play.turn()
    play.turn(10)
    assert (status(play, "a"), status(play, "b")) == ("RUNNING", "RUNNING")
    spec = dataclasses.replace(
        shown(play, "a").node.spec, accelerator_type="v5litepod-4", extras={}, api_version="V2"
    )
    spec = dataclasses.replace(spec, runtime_version="v2-alpha-tpuv5-lite")
    begun = play.run(nodes.create, "a", spec)
    assert play.states() == {"a": "CREATING"}
    play.turn()
    assert play.states() == {}
    assert play.operation(begun).error_code == 8
    with pytest.raises(PodyardError, match="not found"):
        play.operation(insert(play, "c", CPU))
    play.turn(10)
    clean(play)


def test_a_stockout_leaves_the_operation_alone(play: Play) -> None:
    for name in ("a", "b", "c"):
        begun = insert(play, name)
        play.turn()
    failed = operation(play, begun)
    assert failed.error_message is not None
    assert failed.error_message.startswith(
        f"The zone 'projects/demo/zones/{ZONE}' does not have enough resources available"
    )
    (why,) = failed.error_details
    assert why.reason == "ZONE_RESOURCE_POOL_EXHAUSTED"  # type: ignore[union-attr]
    assert [one.row.name for one in play.database.read(lambda u: rows.of_project(u, PROJECT))] == [
        "a",
        "b",
    ]
    again = insert(play, "c", CPU)  # name and boot disk are free again
    play.turn(10)
    assert operation(play, again).state == "SUCCEEDED"
    clean(play)


@pytest.mark.parametrize(
    ("action", "after"), [(None, "TERMINATED"), (TerminationAction.DELETE, "gone")]
)
def test_a_preempted_instance_is_stopped_or_deleted(
    play: Play, action: TerminationAction | None, after: str
) -> None:
    insert(play, "a", scheduling=SPOT._replace(termination_action=action))
    play.turn()
    play.turn(10)
    simulated = play.run(life.simulate_maintenance, "a")
    assert status(play, "a") == "STOPPING"
    assert shown(play, "a").status_message.startswith("preempted")
    play.turn()
    assert operation(play, simulated).state == "SUCCEEDED"
    if after == "gone":
        with pytest.raises(ComputeRefusal):
            shown(play, "a")
    else:
        assert status(play, "a") == after
        play.run(life.start, "a")
        play.turn()
        assert (status(play, "a"), shown(play, "a").status_message) == ("RUNNING", "")
    verbs = {
        found.verb
        for found in play.database.read(operation_rows.list_all)
        if found.verb == "preempt"
    }
    assert verbs == {"preempt"}
    clean(play)


def test_flex_start_waits_runs_and_ends(play: Play) -> None:
    insert(play, "a")
    insert(play, "b")
    play.turn()
    begun = insert(play, "f", scheduling=FLEX)
    play.turn()
    assert status(play, "f") == "PENDING"
    play.run(life.delete, "a")
    play.turn()
    play.turn(10)
    assert status(play, "f") == "RUNNING"
    assert operation(play, begun).state == "SUCCEEDED"
    play.turn(3600)
    with pytest.raises(ComputeRefusal):
        shown(play, "f")
    clean(play)


def test_flex_start_is_given_up_when_its_time_is_over(play: Play) -> None:
    insert(play, "a")
    insert(play, "b")
    play.turn()
    begun = insert(play, "f", scheduling=FLEX)
    play.turn(599)
    assert status(play, "f") == "PENDING"
    play.turn(1)
    assert "does not have enough resources" in (operation(play, begun).error_message or "")
    with pytest.raises(ComputeRefusal):
        shown(play, "f")
    clean(play)


def test_a_limit_of_run_time_stops_again_after_a_start(play: Play) -> None:
    limit = Scheduling(max_run_seconds=100.0, termination_action=TerminationAction.STOP)
    insert(play, "a", scheduling=limit)
    play.turn()
    play.turn(10)
    play.turn(60)
    play.run(life.stop, "a")
    play.turn()
    play.run(life.start, "a")
    play.turn()
    play.turn(60)
    assert status(play, "a") == "RUNNING"
    play.turn(40)
    assert status(play, "a") == "TERMINATED"
    clean(play)


def test_a_bulk_request_is_all_or_nothing(play: Play) -> None:
    good = play.run(create.bulk_insert, ["a", "b"], InstanceSpec(TPU))
    play.turn()
    assert not operation(play, good).is_done
    play.turn(10)
    assert operation(play, good).state == "SUCCEEDED"
    play.run(life.delete, "a")
    play.turn()
    bad = play.run(create.bulk_insert, ["c", "d"], InstanceSpec(TPU))
    play.turn()
    play.turn(10)
    assert operation(play, bad).state == "FAILED"
    found = play.database.read(lambda uow: rows.of_project(uow, PROJECT))
    assert [one.row.name for one in found] == ["b"]
    clean(play)


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        (
            {"machine_type": "n9-standard-1"},
            "Machine type with name 'n9-standard-1' does not exist",
        ),
        ({"machine_type": "ct4p-hightpu-4t"}, "for GKE only"),
        ({"machine_type": "ct6e-standard-4t"}, "does not exist in zone 'us-central1-a'"),
        ({"machine_type": CPU, "scheduling": FLEX}, "has no chips to wait for"),
        (
            {"scheduling": Scheduling(ProvisioningModel.FLEX_START)},
            "must have a maximum run duration",
        ),
        ({"scheduling": SPOT._replace(automatic_restart=True)}, "automaticRestart be false"),
        ({"disks": (AttachedDisk(f"projects/demo/zones/{ZONE}/disks/none"),)}, "was not found"),
        ({"machine_type": "n2d-standard-224"}, "Quota 'CPUS' exceeded"),
    ],
)
def test_wrong_requests_leave_nothing_half_made(
    play: Play, fields: dict[str, Any], text: str
) -> None:
    with pytest.raises(ComputeRefusal, match=text):
        play.run(create.insert, "a", InstanceSpec(**{"machine_type": TPU, **fields}))
    assert play.database.read(lambda uow: node_rows.live(uow, PROJECT)) == []
    assert play.database.read(operation_rows.list_all) == []


def test_names_and_disks_in_use_are_refused(play: Play) -> None:
    disk = play.run(persistent_disks.create, DiskRequest("d"))
    insert(play, "a", CPU, disks=(AttachedDisk(disk.path),))
    with pytest.raises(ComputeRefusal, match=r"instances/a' already exists"):
        insert(play, "a", CPU)
    with pytest.raises(ComputeRefusal, match="is already being used by"):
        insert(play, "b", CPU, disks=(AttachedDisk(disk.path),))
    users = play.ask(persistent_disks.get, "a").users
    assert users == [f"projects/demo/zones/{ZONE}/instances/a"]


def test_quotas_count_both_roads(play: Play) -> None:
    insert(play, "a")
    found = play.database.read(
        lambda uow: quota.usage(
            uow,
            PROJECT,
            "us-central1",
            shown(play, "a").node.kind,
            shown(play, "a").node.usage_class,
        )
    )
    assert found == 4
