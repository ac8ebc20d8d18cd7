"""Guest attributes of a node's hosts: what their programs have published, and what is known of each
before any of them runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from podyard.base.errors import invalid_field
from podyard.control.compute import lookup
from podyard.db.compute import hosts
from podyard.db.store import yard
from podyard.db.store.unit_of_work import UnitOfWork
from podyard.domain.host import (
    HOST_KEYS_NAMESPACE,
    INVENTORY_NAMESPACE,
    attribute_items,
    host_name,
)
from podyard.domain.host_key import KEY_TYPE, key_seed, public_key
from podyard.domain.host_record import HostRecord
from podyard.domain.node import NodeRecord
from podyard.domain.principal import Principal


def of_node(
    uow: UnitOfWork,
    principal: Principal,
    project: str,
    zone: str,
    node_id: str,
    query_path: str,
    worker_ids: Sequence[str],
) -> list[list[dict[str, str]]]:
    """Of each worker (none named: all) its items `{namespace, key, value}`, in order of the hosts.

    The host keys are there from the beginning: gcloud asks for them before any host runs.
    """
    node = lookup.node(uow, principal, "tpu.nodes.get", project, zone, node_id)
    known = {str(host.host_index): host for host in hosts.of_node(uow, node.node_key)}
    worker_ids = [worker for worker in worker_ids if worker]  # gcloud names all by an empty one
    for worker in worker_ids:
        if worker not in known:
            raise invalid_field(
                f"worker {worker!r} does not exist: node {node_id} has workers 0 to "
                f"{len(known) - 1}",
                "worker_ids",
            )
    secret = yard.read(uow).secret if known else ""
    return [
        attribute_items(_of_host(node, known[worker], secret), query_path)
        for worker in (worker_ids or known)
    ]


def _of_host(node: NodeRecord, host: HostRecord, secret: str) -> dict[str, Mapping[str, str]]:
    public = public_key(key_seed(secret, host.host_id))
    known = {
        HOST_KEYS_NAMESPACE: {KEY_TYPE: public},
        INVENTORY_NAMESPACE: {"hostname": host_name(node.node_id, host.host_index)},
    }
    return {**host.guest_attributes, **known}
