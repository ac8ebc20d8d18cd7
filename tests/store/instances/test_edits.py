"""Changes of single instances, on both databases: the rows that follow agree with each other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from podyard.base.clock import ManualClock
from podyard.control.compute import hosts
from podyard.control.compute.instances import changes, create, edits, life
from podyard.control.compute.instances.edits import Named
from podyard.db.compute import instances as rows
from podyard.db.compute import nodes as node_rows
from podyard.db.store.unit_of_work import Database
from podyard.domain.compute.refusal import ComputeRefusal
from podyard.domain.host import NodeFacts
from podyard.domain.instances.instance import EXHAUSTED, Instance, InstanceSpec
from podyard.domain.lists.filters import Condition
from podyard.domain.lists.pages import Order, RowQuery
from podyard.domain.operation import OperationVerb
from podyard.domain.principal import PLATFORM
from tests.builders import PROJECT, ZONE, Play
from tests.store.instances.test_groups import describe, make, names
from tests.store.instances.test_life import CPU, FLEX, TPU, clean, insert, operation, shown, status

FLEET = """
zones:
  us-central1-a: {v5e: {shape: 2x4}}
timings: {create_seconds: 10, restart_seconds: 5, stop_seconds: 5, start_seconds: 5}
"""


@pytest.fixture
def play(database: Database, clock: ManualClock) -> Play:
    return Play(database, clock, FLEET)


def instance_at(name: str) -> Named:
    return Named(PLATFORM, PROJECT, ZONE, name)


def set_machine_type(play: Play, name: str, machine: str) -> None:
    play.database.run(
        lambda uow: edits.set_machine_type(uow, play.fleet, instance_at(name), machine)
    )
    play.turn()


def pass_by(play: Play) -> None:
    """Everything that was begun ends."""
    play.turn()
    play.turn(20)


def stop(play: Play, name: str) -> None:
    play.run(life.stop, name)
    pass_by(play)


def test_a_machine_type_counts_from_its_change_on(play: Play) -> None:
    insert(play, "a", CPU)
    pass_by(play)
    with pytest.raises(ComputeRefusal, match="must be stopped to change its machine type"):
        set_machine_type(play, "a", "e2-standard-8")
    stop(play, "a")
    set_machine_type(play, "a", "e2-standard-8")
    assert shown(play, "a").node.accelerator_type == "e2-standard-8"
    play.run(life.start, "a")
    pass_by(play)
    assert (status(play, "a"), shown(play, "a").spec.machine_type) == ("RUNNING", "e2-standard-8")
    assert play.database.read(lambda uow: create.cpus_held(uow, PROJECT, "us-central1")) == 8
    clean(play)


@pytest.mark.parametrize(
    ("machine", "other", "text"),
    [
        (TPU, CPU, "of an instance with TPUs cannot be changed"),
        (CPU, TPU, "of an instance with TPUs cannot be changed"),
        (CPU, "n9-standard-1", "does not exist"),
        (CPU, "n2d-standard-224", "Quota 'CPUS' exceeded"),
    ],
)
def test_a_machine_type_that_cannot_be_set_is_refused(
    play: Play, machine: str, other: str, text: str
) -> None:
    insert(play, "a", machine)
    pass_by(play)
    stop(play, "a")
    with pytest.raises(ComputeRefusal, match=text):
        set_machine_type(play, "a", other)
    assert shown(play, "a").spec.machine_type == machine
    clean(play)


@pytest.mark.parametrize(("least", "state", "left"), [(1, "SUCCEEDED", 2), (3, "FAILED", 0)])
def test_a_bulk_request_needs_its_least_count(
    play: Play, least: int, state: str, left: int
) -> None:
    """Of three instances two find chips."""
    spec = InstanceSpec(TPU, least_count=least)
    begun = play.run(create.bulk_insert, ["a", "b", "c"], spec)
    for _ in range(3):
        pass_by(play)
    ended = operation(play, begun)
    assert ended.state == state
    assert len(names(play)) == left
    if state == "FAILED":
        assert ended.error_message == "Requested minimum count of 3 VMs could not be created."
        assert EXHAUSTED not in str(ended.error_details)
        assert "VM_MIN_COUNT_NOT_REACHED" in str(ended.error_details)
    clean(play)


def facts(play: Play, name: str) -> NodeFacts:
    target = shown(play, name)
    node = play.database.read(lambda uow: node_rows.get_by_key(uow, target.node.node_key))
    shared = play.database.read(lambda uow: hosts.facts(uow, node))
    return shared.of_host(target.row.host_index)


def names_with(play: Play, labels: Mapping[str, str]) -> list[str]:
    conditions = [Condition(f"labels.{key}", (value,)) for key, value in labels.items()]
    query = RowQuery(Order.NAME, 10, None, conditions)
    page = play.database.read(lambda uow: rows.page(uow, PROJECT, ZONE, query))
    return [one.row.name for one in page]


def test_instances_of_a_slice_have_labels_metadata_and_tags_of_their_own(play: Play) -> None:
    describe(play, labels={"team": "a"}, metadata={"items": [{"key": "k", "value": "v"}]})
    make(play)
    pass_by(play)
    first, second = names(play)
    target = shown(play, first)
    play.ask(changes.set_labels, first, {"team": "a", "kind": "head"}, target.label_fingerprint)
    play.ask(changes.set_metadata, first, {"k": "w"}, target.metadata_fingerprint)
    play.ask(changes.set_tags, first, ["web"], target.tag_fingerprint)
    head, worker = shown(play, first).spec, shown(play, second).spec
    assert (head.labels, head.metadata, head.tags) == (
        {"team": "a", "kind": "head"},
        {"k": "w"},
        ("web",),
    )
    assert (worker.labels, worker.metadata, worker.tags) == ({"team": "a"}, {"k": "v"}, ())
    assert (facts(play, first).metadata, facts(play, second).metadata) == ({"k": "w"}, {"k": "v"})
    assert (facts(play, first).tags, facts(play, second).tags) == (("web",), ())
    assert names_with(play, {"kind": "head"}) == [first]
    assert names_with(play, {"team": "a"}) == sorted([first, second])
    clean(play)


def test_the_database_tests_the_status_that_is_shown(play: Play) -> None:
    seen: set[str] = set()

    def list_by(conditions: Sequence[Condition] = ()) -> list[Instance]:
        query = RowQuery(Order.NAME, 10, None, conditions)
        return play.database.read(lambda uow: rows.page(uow, PROJECT, ZONE, query))

    def look() -> None:
        every = list_by()
        for one in every:
            seen.add(one.status)
            same = list_by([Condition("status", (one.status,))])
            expected = [other.row.name for other in every if other.status is one.status]
            assert [other.row.name for other in same] == expected

    for name in ("a", "b"):
        insert(play, name)
    look()
    pass_by(play)
    insert(play, "flex", scheduling=FLEX)
    insert(play, "cpu", CPU)
    look()
    for act in (lambda: play.run(life.stop, "a"), lambda: play.run(life.delete, "b")):
        act()
        look()
        play.loop.round()
        look()
        pass_by(play)
        look()
    play.run(life.start, "a")
    look()
    assert seen >= {"PENDING", "PROVISIONING", "STAGING", "RUNNING", "STOPPING", "TERMINATED"}


@pytest.mark.parametrize("verb", [OperationVerb.SUSPEND, OperationVerb.RESUME])
@pytest.mark.parametrize(
    ("machine", "text"), [(TPU, "cannot be suspended"), (CPU, "hosts cannot be frozen")]
)
def test_suspension_is_refused(play: Play, verb: OperationVerb, machine: str, text: str) -> None:
    insert(play, "a", machine)
    pass_by(play)
    with pytest.raises(ComputeRefusal, match=text):
        play.database.run(lambda uow: edits.refuse_suspension(uow, instance_at("a"), verb))


def test_two_instances_cannot_have_one_disk_to_write_to(play: Play) -> None:
    insert(play, "a", CPU)
    pass_by(play)
    with pytest.raises(ComputeRefusal, match="already being used by"):
        insert(play, "b", CPU, boot=InstanceSpec(CPU).boot._replace(name="a", exists=True))
    describe(play, disks=[{"boot": True, "source": "a"}])
    with pytest.raises(ComputeRefusal, match="cannot boot from one disk"):
        make(play)
    spec: dict[str, Any] = {"boot": InstanceSpec(CPU).boot._replace(name="none", exists=True)}
    with pytest.raises(ComputeRefusal, match="disks/none' was not found"):
        insert(play, "b", CPU, **spec)
