"""`fsck` on SQLite and PostgreSQL: nothing is wrong with what the platform wrote, and each wrong
row is named.
`fsck --leaks`: what holds chips or quota for nothing, and its deletion through the API."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Table, delete, update

from podyard.base.clock import ManualClock, PlatformTime
from podyard.base.contents import Content
from podyard.cli.kit import commands
from podyard.control.checks import fsck, leaks
from podyard.control.checks.fsck import Violation
from podyard.control.compute import nodes, persistent_disks, queued_resources
from podyard.control.compute.persistent_disks import DiskRequest
from podyard.control.storage import buckets, objects
from podyard.db.store import timers
from podyard.db.store.unit_of_work import Database, UnitOfWork
from podyard.db.tables.base import state_changes
from podyard.db.tables.billing import usage_events
from podyard.db.tables.compute import disks as disks_table
from podyard.db.tables.compute import hosts, node_counts, operations, slices
from podyard.db.tables.compute import nodes as nodes_table
from podyard.db.tables.queue import queued_resources as queued_table
from podyard.db.tables.storage import buckets as buckets_table
from podyard.db.tables.storage import objects as objects_table
from podyard.domain.node import UsageClass
from podyard.domain.principal import PLATFORM
from podyard.pricing.current_card import default_rate_card
from tests.builders import PROJECT, Play, request
from tests.yard import Yard, open_yard

HOUR = 3600.0


@pytest.fixture
def play(database: Database, clock: ManualClock) -> Play:
    """Two nodes READY, one stopped and deleted, and a queued resource of two slices that is ACTIVE;
    a disk and a bucket with an object."""
    play = Play(database, clock)
    play.create("n")
    play.create("spot", usage_class=UsageClass.SPOT)
    play.create("gone")
    play.run(nodes.delete, "gone")
    play.turn(30)
    play.run(persistent_disks.create, DiskRequest("d", labels={"team": "a"}))
    play.database.run(lambda uow: buckets.create(uow, PLATFORM, PROJECT, "b-1"))
    content = Content(digest="0" * 64, size=5, crc32c=0, md5="x")
    play.database.run(lambda uow: objects.put(uow, PLATFORM, "b-1", "o", content))
    play.queue(request("q", count=2, kind="v5litepod-1"))
    play.turn()
    play.turn(30)
    return play


def _found(play: Play) -> list[Violation]:
    return play.database.read(lambda uow: fsck.check(uow, play.fleet, default_rate_card()))


def test_nothing_is_wrong_with_what_the_platform_wrote(play: Play) -> None:
    assert _found(play) == []
    play.clock.advance(5)
    play.run(queued_resources.delete, "q", force=True)
    play.ask(nodes.preempt, "spot")
    play.turn(30)
    assert _found(play) == []


def _set(table: Table, *conditions: Any, **values: Any) -> Callable[[UnitOfWork], Any]:
    """As a foreign tool would: a unit of work refuses to write states."""
    return lambda uow: uow.connection.execute(update(table).where(*conditions).values(**values))


def _drop(table: Table, *conditions: Any) -> Callable[[UnitOfWork], Any]:
    return lambda uow: uow.execute(delete(table).where(*conditions))


def _moved_to_the_one_that_is_gone(uow: UnitOfWork) -> None:
    mine = slices.c.node_key == _of_node(uow)
    uow.execute(update(slices).where(mine).values(node_key=_of_node(uow, "gone")))


def _of_node(uow: UnitOfWork, name: str = "n") -> str:
    row = uow.first(nodes_table.select().where(nodes_table.c.node_id == name))
    assert row is not None
    return str(row["node_key"])


N, Q_1 = nodes_table.c.node_id == "n", nodes_table.c.node_id == "q-1"
CREATED = state_changes.c.event == "created"
DELETE_OF_A_NODE = (state_changes.c.event == "delete", state_changes.c.machine == "node")
RUNNING = {"state": "RUNNING", "version": 1, "ended": None, "response": None}
WRONG: list[tuple[str, str, Callable[[UnitOfWork], Any]]] = [
    ("I1", "chips, and v2-8 has 4", _set(slices, chips="1")),
    ("I1", "has no chips", _drop(slices)),
    ("I2", "still holds chips", _moved_to_the_one_that_is_gone),
    ("I6", "usage events stand for", _drop(usage_events, usage_events.c.state == "READY")),
    ("I6", "or say something else", _set(usage_events, at=PlatformTime(5))),
    (
        "I6",
        "does not say what it is",
        _set(usage_events, usage_events.c.resource_seq == 1, labels=None),
    ),
    (
        "I6",
        "other labels",
        _set(usage_events, usage_events.c.resource_seq == 1, labels={"team": "x"}),
    ),
    (
        "I6",
        "another creator",
        _set(usage_events, usage_events.c.resource_seq == 1, created_by=None),
    ),
    ("I6", "its usage events end with ('EXISTS', 2, 5)", _set(buckets_table, bytes=6)),
    ("I6", "its row counts 1 objects of 5 bytes", _set(objects_table, size=4)),
    ("I6", "its usage events end with ('EXISTS', 1", _set(disks_table, size_gb=700)),
    ("I6", "another creator, or other labels", _set(disks_table, labels={"team": "b"})),
    ("I6", "there is no such resource", _drop(disks_table)),
    ("I6", "its usage events have gaps", _drop(usage_events, usage_events.c.bytes == 0)),
    (
        "I7",
        "response and error_code",
        _set(operations, operations.c.state == "SUCCEEDED", error_code=8),
    ),
    ("I7", "nothing will end it", _set(operations, **RUNNING)),
    ("I8", "hosts instead of", _drop(hosts)),
    ("I9", "nodes are counted", _set(node_counts, nodes=7)),
    ("I10", "its last line says", _set(nodes_table, N, state="STOPPED")),
    ("I10", "the table says None", _set(state_changes, CREATED, event="unhidden")),
    ("I13", "no timer will end", _set(nodes_table, N, state="DELETING")),
    (
        "I13",
        "nobody fires timers",
        lambda uow: timers.put(uow, "moon.full", "x", 0, uow.now.plus_seconds(60)),
    ),
    (
        "I13",
        "has not been fired",
        lambda uow: timers.put(uow, "node.created", _of_node(uow), 1, PlatformTime(7)),
    ),
    ("I14", "ACTIVE with 1 of 2", _set(nodes_table, Q_1, state="STOPPED")),
    ("I14", "first ACTIVE at", _set(queued_table, valid_until=PlatformTime(7))),
    ("I15", "and was preempted", _set(state_changes, *DELETE_OF_A_NODE, event="preempt")),
    ("I16", "nobody is named", _set(state_changes, actor="")),
    ("I16", "its last line is of version", _drop(state_changes, CREATED)),
]


@pytest.mark.parametrize(
    ("invariant", "detail", "wrong"), WRONG, ids=[f"{i}-{d.replace(' ', '-')}" for i, d, _ in WRONG]
)
def test_a_wrong_row_is_named(
    play: Play, invariant: str, detail: str, wrong: Callable[[UnitOfWork], Any]
) -> None:
    play.database.run(wrong)
    found = _found(play)
    assert [item for item in found if item.invariant == invariant and detail in item.detail], found


def test_two_slices_with_one_chip_are_named(play: Play) -> None:
    def wrong(uow: UnitOfWork) -> None:
        other = uow.first(slices.select().where(slices.c.node_key == _of_node(uow, "spot")))
        assert other is not None
        mine = {name: other[name] for name in ("chips", "origin", "shape", "pod_id")}
        uow.execute(update(slices).where(slices.c.node_key == _of_node(uow)).values(**mine))

    play.database.run(wrong)
    assert [item.invariant for item in _found(play)] == ["I1", "I2"]


def test_what_changed_since_an_event_is_looked_at_alone(play: Play) -> None:
    last = play.database.read(
        lambda uow: uow.execute(state_changes.select().order_by(state_changes.c.seq)).all()
    )[-1].seq
    play.database.run(
        lambda uow: uow.execute(
            update(state_changes).where(state_changes.c.event == "created").values(actor="")
        )
    )
    card = default_rate_card()
    assert play.database.read(lambda uow: fsck.check(uow, play.fleet, card, last)) == []
    play.run(nodes.delete, "n")
    found = play.database.read(lambda uow: fsck.check(uow, play.fleet, card, last))
    assert {item.resource.rsplit("/", 1)[-1] for item in found} == {"n"}


def test_leaks_are_idle_nodes_and_those_past_their_label(play: Play) -> None:
    play.create("late", labels={"ttl": "30m"})
    play.turn(600)
    found = play.database.read(lambda uow: leaks.find(uow, PROJECT, HOUR))
    assert found == []
    play.clock.advance(1800)
    found = play.database.read(lambda uow: leaks.find(uow, PROJECT, HOUR))
    assert [(leak.name.rsplit("/", 1)[-1], "ttl=30m" in leak.why) for leak in found] == [
        ("late", True)
    ]
    play.clock.advance(HOUR)
    found = play.database.read(lambda uow: leaks.find(uow, None, HOUR))
    assert [leak.name.rsplit("/", 2)[-1] for leak in found] == ["late", "n", "spot", "q"]
    assert "without a job since" in found[1].why
    assert play.database.read(lambda uow: leaks.find(uow, "other", HOUR)) == []


def test_a_queued_resource_that_waits_for_nothing_is_a_leak(play: Play) -> None:
    for name in ("q-0", "q-1"):
        play.run(nodes.delete, name)
    play.turn(60)
    assert play.queued("q").state == "SUSPENDED"
    found = play.database.read(lambda uow: leaks.find(uow, PROJECT, 100 * HOUR))
    assert [(leak.kind, leak.state) for leak in found] == [("queuedResource", "SUSPENDED")]


def _cli(capsys: pytest.CaptureFixture[str], *argv: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as ended:
        commands.run(list(argv))
    said = capsys.readouterr()
    return int(ended.value.code or 0), said.out, said.err


def test_the_command_says_what_is_wrong_and_exits_with_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with open_yard(tmp_path) as yard:
        yard.create("n")
    code, out, err = _cli(capsys, "fsck", "--data", str(tmp_path))
    assert (code, out) == (0, "")
    assert "0 violations" in err
    database = Database(f"sqlite:///{tmp_path / 'podyard.db'}", ManualClock(yard.clock.now()))
    database.run(lambda uow: uow.execute(delete(slices)))
    database.close()
    code, out, _ = _cli(capsys, "fsck", "--data", str(tmp_path), "-o", "json")
    assert code == 1
    [violation] = json.loads(out)["violations"]
    assert violation["invariant"] == "I1"
    assert violation["resource"].endswith("/nodes/n")
    assert set(violation) == {"invariant", "at", "resource", "detail"}
    code, out, _ = _cli(capsys, "fsck", "--data", str(tmp_path))
    assert code == 1
    assert "it is READY and has no chips" in out


def test_a_folder_without_a_database_is_refused_and_none_is_made(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, _, err = _cli(capsys, "fsck", "--data", str(tmp_path))
    assert code == 1
    assert "there is no database" in err
    assert list(tmp_path.iterdir()) == []


def test_a_wrong_duration_and_a_deletion_without_leaks_are_usage_errors(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert _cli(capsys, "fsck", "--leaks", "--idle", "soon")[0] == 2
    assert _cli(capsys, "fsck", "--delete")[0] == 2


def _turning(yard: Yard, ended: threading.Event) -> None:
    while not ended.wait(0.05):
        yard.loop.round()


@pytest.mark.slow
def test_leaks_are_deleted_through_the_api(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_yard(tmp_path) as yard:
        yard.create("n", labels={"ttl": "1s"})
        yard.create("kept")
        yard.step(3)
        for name, value in (("URL", yard.url), ("TOKEN", yard.token), ("DATA", str(tmp_path))):
            monkeypatch.setenv(f"PODYARD_{name}", value)
        code, out, _ = _cli(capsys, "fsck", "--leaks", "-o", "json")
        assert code == 1
        assert [leak["name"].rsplit("/", 1)[-1] for leak in json.loads(out)] == ["n"]
        ended = threading.Event()
        thread = threading.Thread(target=_turning, args=(yard, ended))
        thread.start()
        try:
            code, _, err = _cli(capsys, "fsck", "--leaks", "--delete", "--yes")
        finally:
            ended.set()
            thread.join()
        assert code == 0
        assert "nodes/n is deleted" in err
        assert [
            node["name"].rsplit("/", 1)[-1] for node in yard.ok("GET", yard.nodes())["nodes"]
        ] == ["kept"]
