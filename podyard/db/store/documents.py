"""Everything that the JSON of one node is made from, as one tuple, read by one statement.

Equal tuples give equal JSON, so an answer that was made once may be given again for as long as the
tuple is the same: nothing has to be told when a node changes. SQLite only: it answers within the
process, while any other database would be asked over the network, which a worker thread does.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import Select, String, func, literal_column, select
from sqlalchemy.dialects import sqlite

from podyard.db.store.unit_of_work import Database, UnitOfWork
from podyard.db.tables.access import projects
from podyard.db.tables.compute import hosts, nodes

Document = tuple[Any, ...]


# Of a host the wire shows its addresses only; the rest changes each second once it runs.
_OF_HOST = (hosts.c.internal_ip, hosts.c.external_ip)


def _query() -> Select[Any]:
    of_node = (
        select(*_OF_HOST).where(hosts.c.node_key == nodes.c.node_key).order_by(hosts.c.host_index)
    )
    inner = of_node.correlate(nodes).subquery()
    all_hosts = select(func.json_group_array(func.json_array(*inner.columns))).scalar_subquery()
    joined = nodes.join(projects, projects.c.project == nodes.c.project)
    name = literal_column(":name", String)
    return (
        select(*nodes.columns, projects.c.number, all_hosts)
        .select_from(joined)
        .where(nodes.c.live_name == name)
    )


_SQL = str(_query().compile(dialect=sqlite.dialect(paramstyle="named")))


def peek(database: Database, name: str) -> Document | None:
    """The node of this name as it stands committed; None when there is none, or the database is not
    SQLite."""
    return database.peek(_SQL, {"name": name})


def read(uow: UnitOfWork, name: str) -> Document | None:
    """The same inside a unit, in its snapshot."""
    if uow.connection.dialect.name != "sqlite":
        return None
    row = uow.connection.exec_driver_sql(_SQL, {"name": name}).first()
    return None if row is None else tuple(row)
