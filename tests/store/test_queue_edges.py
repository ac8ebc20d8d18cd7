"""What several do at once to one node, and what its hosts know of its networks; on both
databases."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from podyard.base.errors import Code, PodyardError
from podyard.control.compute import hosts, nodes
from podyard.db.compute import nodes as node_rows
from podyard.db.store.unit_of_work import Stale, UnitOfWork
from podyard.domain.principal import PLATFORM
from tests.builders import PROJECT, ZONE, Play

DISK = {"sourceDisk": f"projects/{PROJECT}/zones/{ZONE}/disks/data", "mode": "READ_WRITE"}


def _patched_while_another_is(
    play: Play, first: tuple[str, Mapping[str, Any]], second: tuple[str, Mapping[str, Any]]
) -> list[Code | None]:
    """Both updates, the second sent while the unit of the first has changed the node and not yet
    committed."""
    changed, sent = threading.Event(), threading.Event()

    def slow(uow: UnitOfWork) -> None:
        nodes.patch(uow, PLATFORM, PROJECT, ZONE, *first)
        changed.set()
        # The second runs meanwhile where the database lets it: it must find out by itself that it
        # has to wait.
        sent.wait(5)
        threading.Event().wait(0.1)

    def quick(uow: UnitOfWork) -> None:
        nodes.patch(uow, PLATFORM, PROJECT, ZONE, *second)

    def run(body: Any) -> Code | None:
        try:
            play.database.run(body)
        except PodyardError as error:
            return error.code
        return None

    with ThreadPoolExecutor(2) as pool:
        one = pool.submit(run, slow)
        assert changed.wait(5)
        two = pool.submit(run, quick)
        sent.set()
        return [one.result(10), two.result(10)]


def test_two_updates_at_once_are_both_kept(play: Play) -> None:
    play.create("n")
    codes = _patched_while_another_is(
        play, ("n", {"labels": {"a": "b"}}), ("n", {"description": "text"})
    )
    assert codes == [None, None]
    spec = play.node().spec
    assert (spec.labels, spec.description) == ({"a": "b"}, "text")


def test_two_nodes_cannot_take_one_disk_at_once(play: Play) -> None:
    for name in ("n", "m"):
        play.create(name)
    codes = _patched_while_another_is(
        play, ("n", {"dataDisks": [DISK]}), ("m", {"dataDisks": [DISK]})
    )
    assert codes == [None, Code.FAILED_PRECONDITION]
    assert "dataDisks" not in play.node("m").spec.extras


def test_an_update_of_a_node_that_has_moved_on_meanwhile_is_stale_and_not_lost(play: Play) -> None:
    play.create("n")

    def body(uow: UnitOfWork) -> None:
        node = node_rows.find(uow, PROJECT, ZONE, "n")
        assert node is not None
        older = dataclasses.replace(node, version=node.version - 1)
        with pytest.MonkeyPatch.context() as patched, pytest.raises(Stale):
            patched.setattr(node_rows, "find", lambda *_: older)
            nodes.patch(uow, PLATFORM, PROJECT, ZONE, "n", {"description": "text"})

    play.database.run(body)


@pytest.mark.parametrize("several", [True, False])
def test_hosts_know_the_network_that_they_are_reached_by(play: Play, several: bool) -> None:
    own = {"network": "projects/demo/global/networks/default", "enableExternalIps": True}
    extras = (
        {"networkConfigs": [own, {"network": "default"}]} if several else {"networkConfig": own}
    )
    play.create("n", extras=extras)
    facts, _ = play.ask(hosts.list_hosts, "n")
    assert facts.network == "default"
    assert facts.external_ips == tuple(host.external_ip for host in play.node().hosts)
