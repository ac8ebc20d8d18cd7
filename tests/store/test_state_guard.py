"""A state that is written past `transition` is refused at run time, in whatever form SQLAlchemy
takes it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import bindparam, insert, select, update

from podyard.base.errors import PodyardError
from podyard.control.access import identity
from podyard.control.compute import nodes
from podyard.db.compute import hosts as host_rows
from podyard.db.compute import nodes as node_rows
from podyard.db.store.state_guard import StateWritten
from podyard.db.store.transition import move
from podyard.db.store.unit_of_work import Database, UnitOfWork
from podyard.db.tables.compute import hosts
from podyard.db.tables.compute import nodes as table
from podyard.domain.fleet_file import instant_fleet
from podyard.domain.node import NodeSpec, UsageClass
from podyard.domain.principal import PLATFORM

NODE = ("demo", "us-central1-a", "n")
READY = {"state": "READY"}


@pytest.fixture
def held(database: Database) -> Database:
    """A database with one node that is CREATING."""

    def body(uow: UnitOfWork) -> None:
        identity.bootstrap(uow, "owner", "agent", "local")
        nodes.create(
            uow,
            instant_fleet(),
            PLATFORM,
            *NODE,
            NodeSpec("v2-8", "2x2", "tpu-vm-base", UsageClass.ON_DEMAND),
        )

    database.run(body)
    return database


WRITES: dict[str, Callable[[UnitOfWork, str], Any]] = {
    "update of the unit": lambda uow, key: uow.update(table, {"node_key": key}, READY),
    "values by name": lambda uow, key: uow.execute(update(table).values(state="READY")),
    "values in a dict": lambda uow, key: uow.execute(update(table).values(READY)),
    "values spread": lambda uow, key: uow.execute(update(table).values(**READY)),
    "values by column": lambda uow, key: uow.execute(
        update(table).values({table.c.state: "READY"})
    ),
    "values in their order": lambda uow, key: uow.execute(
        update(table).ordered_values((table.c.state, "READY"))
    ),
    "values of the execution": lambda uow, key: uow.execute(update(table), READY),
    "values of the execution and others": lambda uow, key: uow.execute(
        update(table).values(wait_reason="x"), READY
    ),
    "several executions": lambda uow, key: uow.execute(insert(hosts), [READY, READY]),
    "in what is asked": lambda uow, key: uow.first(
        update(table).values(READY).returning(table.c.node_key)
    ),
    "in a list that is asked": lambda uow, key: uow.all(
        update(table).values(READY).returning(table.c.node_key)
    ),
    "insert of the unit": lambda uow, key: uow.insert(hosts, {"host_id": "h", **READY}),
    "inserts of the unit": lambda uow, key: uow.insert_all(hosts, [{"host_id": "h", **READY}]),
    "insert": lambda uow, key: uow.execute(insert(hosts).values(host_id="h", **READY)),
    "inserts": lambda uow, key: uow.execute(insert(hosts).values([{"host_id": "h", **READY}])),
    "inserts by position": lambda uow, key: uow.execute(insert(hosts).values([tuple(hosts.c)])),
    "insert of what is selected": lambda uow, key: uow.execute(
        insert(hosts).from_select(["host_id", "state"], select(table.c.node_key, table.c.state))
    ),
}


@pytest.mark.parametrize("how", WRITES)
def test_a_state_is_written_by_transition_alone(held: Database, how: str) -> None:
    node = held.read(lambda uow: node_rows.find(uow, *NODE))
    assert node is not None
    with pytest.raises(StateWritten, match="transition"):
        held.run(lambda uow: WRITES[how](uow, node.node_key))
    assert held.read(lambda uow: node_rows.find(uow, *NODE)) == node


def test_a_state_may_be_asked_for(held: Database) -> None:
    wanted = update(table).where(
        table.c.state == bindparam("now"), table.c.node_id == bindparam("id")
    )
    done = held.run(
        lambda uow: uow.execute(wanted.values(wait_reason="x"), {"now": "CREATING", "id": "n"})
    )
    assert done.rowcount == 1


def test_a_record_that_has_changed_since_it_was_read_is_stale(held: Database) -> None:
    def body(uow: UnitOfWork) -> None:
        node = node_rows.find(uow, *NODE)
        assert node is not None
        node_rows.add_hosts(uow, node.node_key, 1, 1)
        (host,) = host_rows.of_node(uow, node.node_key)
        starting = move(uow, host, "materialise", reason="test")
        assert (starting.state, starting.version) == ("STARTING", 2)
        assert host_rows.of_node(uow, node.node_key) == [starting]
        with pytest.raises(PodyardError, match="changed"):
            move(uow, host, "materialise", reason="again")

    held.run(body)
