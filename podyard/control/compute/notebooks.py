"""The notebook of a node: where it is, and its token, for those who may use the node's hosts."""

from __future__ import annotations

import dataclasses

from podyard.control.compute import hosts, lookup
from podyard.db.compute import hosts as host_rows
from podyard.db.store import yard
from podyard.db.store.unit_of_work import UnitOfWork
from podyard.domain.host import NOTEBOOK
from podyard.domain.host_key import key_seed, notebook_token
from podyard.domain.host_record import HostRecord, HostState
from podyard.domain.principal import Principal


@dataclasses.dataclass(frozen=True, slots=True)
class NotebookPlace:
    """`url` has the token, and is empty until the host runs. It leads to a browser on the machine
    of the host."""

    host: HostRecord
    token: str
    url: str


def open_notebook(
    uow: UnitOfWork, principal: Principal, project: str, zone: str, node_id: str, worker: int
) -> NotebookPlace:
    """Materialise the host, as ssh does. JupyterLab starts with the first request at `url`.

    Raises PERMISSION_DENIED without `podyard.hosts.use`, FAILED_PRECONDITION unless the node is
    READY.
    """
    (host,) = hosts.ask(uow, principal, project, zone, node_id, (worker,))
    return _place(uow, host)


def find_notebook(
    uow: UnitOfWork, principal: Principal, project: str, zone: str, node_id: str
) -> NotebookPlace | None:
    """Return the notebook of the first host without starting it; None before the node has hosts.

    Raises PERMISSION_DENIED without `podyard.hosts.use`.
    """
    node = lookup.node(uow, principal, hosts.USE, project, zone, node_id)
    first = next(iter(host_rows.of_node(uow, node.node_key)), None)
    return None if first is None else _place(uow, first)


def _place(uow: UnitOfWork, host: HostRecord) -> NotebookPlace:
    token = notebook_token(key_seed(yard.read(uow).secret, host.host_id))
    port = host.port_map.get(NOTEBOOK) if host.state is HostState.RUNNING else None
    address = host.metadata_address.rpartition(":")[0]
    url = f"http://{address}:{port}/lab?token={token}" if port is not None else ""
    return NotebookPlace(host, token, url)
