"""Materialised hosts: a host is made real on an agent only when something must run on it.

What has to run follows from the rows alone, so that lost messages do no harm: a host runs while its
node is READY and it was requested, or the node has a start-up or shutdown script. `generation`
counts how often a host was materialised, and fences every report of an earlier life.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from podyard.base.clock import RealTime
from podyard.base.errors import (
    Code,
    PodyardError,
    failed_precondition,
    invalid,
    not_found,
)
from podyard.control.access import identity
from podyard.control.compute import host_disks, lookup
from podyard.control.platform.agents import poke, require_agent
from podyard.db.access import projects
from podyard.db.compute import hosts, instances
from podyard.db.compute import nodes as node_rows
from podyard.db.compute.hosts import NodeModule
from podyard.db.platform import agents, faults
from podyard.db.store import yard
from podyard.db.store.transition import move, store
from podyard.db.store.unit_of_work import UnitOfWork
from podyard.domain.host import (
    DEFAULT_SCOPES,
    SHUTDOWN_SCRIPT,
    STARTUP_SCRIPT,
    Multislice,
    NodeFacts,
    default_service_account,
    host_address,
)
from podyard.domain.host_key import key_seed
from podyard.domain.host_record import HostRecord, HostState
from podyard.domain.node import NodeRecord, NodeState
from podyard.domain.principal import STORAGE_USER, Principal
from podyard.domain.ran_module import RanModule
from podyard.scheduler.spread import choose, company_of, room_of

USE = "podyard.hosts.use"
RETRY_SECONDS = 5.0  # a host that could not start, or whose agent left, is not tried again at once
TOKEN_SECONDS = 3600  # as the tokens of Google's metadata server


@dataclasses.dataclass(frozen=True, slots=True)
class HostWanted:
    """One host on an agent; `run` False: it is to stop. `key_seed`: its private ssh key."""

    host_id: str
    generation: int
    node_key: str
    index: int
    run: bool
    key_seed: bytes


@dataclasses.dataclass(frozen=True, slots=True)
class HostReport:
    """The host server's report on one host. `state`: STARTING, RUNNING or EXITED. `address` is that
    of its ssh server; `metadata_address` has a port. `guest_attributes` None: as they were."""

    host_id: str
    generation: int
    state: str
    address: str
    metadata_address: str
    ports: Mapping[str, int]
    ssh_host_key: str
    scripts: Mapping[str, Any]
    guest_attributes: Mapping[str, Mapping[str, str]] | None
    problem: str
    isolation: str = ""
    software: str = ""
    programs: tuple[RanModule, ...] | None = None


def ask(
    uow: UnitOfWork,
    principal: Principal,
    project: str,
    zone: str,
    node_id: str,
    host_indices: Sequence[int],
) -> list[HostRecord]:
    """Materialises hosts (none named: all) and returns them. They are RUNNING once their agent says
    so.

    Raises FAILED_PRECONDITION unless the node is READY, RESOURCE_EXHAUSTED with the numbers when
    there is no room.
    """
    node = lookup.node(uow, principal, USE, project, zone, node_id)
    if node.state is not NodeState.READY:
        raise failed_precondition(
            f"node {node_id} is {node.state}: its hosts run only while it is READY"
        )
    outside = [index for index in host_indices if not 0 <= index < node.host_count]
    if outside:
        raise invalid(
            f"worker {outside[0]} does not exist: node {node_id} has workers 0 to "
            f"{node.host_count - 1}",
            "workers",
        )
    found = hosts.of_node(uow, node.node_key)
    return materialise(
        uow, node, [host for host in found if not host_indices or host.host_index in host_indices]
    )


def materialise(
    uow: UnitOfWork, node: NodeRecord, chosen: Sequence[HostRecord]
) -> list[HostRecord]:
    """Start hosts of a READY node, and return them. Raises RESOURCE_EXHAUSTED without room."""
    _materialise(uow, [(node, host) for host in chosen if host.state is HostState.VIRTUAL])
    ids = [host.host_id for host in chosen]
    hosts.set_asked(uow, ids)
    return [host for host in hosts.of_node(uow, node.node_key) if host.host_id in ids]


def materialise_all(uow: UnitOfWork, slices: Sequence[NodeRecord]) -> list[HostRecord]:
    """Gives all hosts of READY nodes a life at once, and returns them in order. Raises
    FAILED_PRECONDITION while one stops, RESOURCE_EXHAUSTED when there is no room for all."""
    found = [(node, host) for node in slices for host in hosts.of_node(uow, node.node_key)]
    for node, host in found:
        if host.state is HostState.STOPPING:
            raise failed_precondition(f"host {host.host_index} of node {node.node_id} is stopping")
    _materialise(uow, [(node, host) for node, host in found if host.state is HostState.VIRTUAL])
    hosts.set_asked(uow, [host.host_id for _, host in found])
    return [host for node in slices for host in hosts.of_node(uow, node.node_key)]


def list_hosts(
    uow: UnitOfWork, principal: Principal, project: str, zone: str, node_id: str
) -> tuple[NodeFacts, list[HostRecord]]:
    """Return what the node's hosts know, and the hosts in order."""
    node = lookup.node(uow, principal, "tpu.nodes.get", project, zone, node_id)
    return facts(uow, node), hosts.of_node(uow, node.node_key)


def list_wanted(uow: UnitOfWork, agent_id: str) -> list[HostWanted]:
    """The hosts that have a life on the agent, and whether they go on."""
    live = hosts.live(uow, agent_id)
    secret = yard.read(uow).secret if live else ""
    return [
        HostWanted(
            host.host_id,
            host.generation,
            host.node_key,
            host.host_index,
            host.state is not HostState.STOPPING,
            key_seed(secret, host.host_id),
        )
        for host in live
    ]


def list_removed(uow: UnitOfWork, host_ids: Sequence[str]) -> list[str]:
    """Return which of the hosts are no more: their folders may go."""
    return sorted(set(host_ids) - hosts.present(uow, host_ids))


def sync(
    uow: UnitOfWork,
    principal: Principal,
    agent_id: str,
    reports: Sequence[HostReport],
    known: Mapping[str, str],
) -> tuple[list[HostWanted], dict[str, tuple[str, NodeFacts]]]:
    """Takes what the host server saw; returns its hosts, and by node the facts (with their digest)
    that are not `known` by that digest."""
    require_agent(principal, agent_id)
    there = {host.host_id: host for host in hosts.live(uow, agent_id)}
    for report in reports:
        host = there.get(report.host_id)
        if host is not None and host.generation == report.generation:  # else of a life that is over
            _take(uow, host, report)
    _stop_where_not_ready(uow, agent_id)
    live = list_wanted(uow, agent_id)
    if live:
        hosts.renew_leases(uow, agent_id)
    news = {}
    for key in sorted({host.node_key for host in live}):
        found = facts(uow, node_rows.get_by_key(uow, key))
        digest = found.digest()
        if known.get(key) != digest:
            news[key] = (digest, found)
    return live, news


def token(uow: UnitOfWork, principal: Principal, agent_id: str, host_id: str) -> tuple[str, int]:
    """(access token of the host's service account, seconds that it lives). Raises what
    `programs_principal` does."""
    require_agent(principal, agent_id)
    host = hosts.find(uow, host_id)
    if host is None or host.agent_id != agent_id or not host.is_live:
        raise not_found(f"hosts/{host_id}")
    node = node_rows.get_by_key(uow, host.node_key)
    account = programs_principal(uow, node).email
    return identity.lend(uow, account, TOKEN_SECONDS, project=node.project), TOKEN_SECONDS


def programs_principal(uow: UnitOfWork, record: NodeRecord) -> Principal:
    """Return who programs on the hosts of a node are, whether it lives or is gone: its service
    account, in its project.

    Raises PERMISSION_DENIED for an account of another project: who may create a node must not act
    as that.
    """
    node = facts(uow, record)
    default = default_service_account(node.project_number)
    own = (default, f"@{node.project}.iam.gserviceaccount.com")
    if not node.service_account.endswith(own):
        raise PodyardError(
            Code.PERMISSION_DENIED,
            f"service account {node.service_account} is not of project {node.project}: its node "
            "gets no token for it",
        )
    if node.service_account == default:
        # as Compute Engine's own account of a project
        identity.bind(uow, default, node.project, STORAGE_USER)
    roles = projects.roles_of(uow, node.service_account).get(node.project, frozenset())
    return Principal(node.service_account, {node.project: roles})


def settle(uow: UnitOfWork, watching_since: RealTime) -> None:
    """The loop's look: stops hosts whose node is not READY, writes off those of dead agents, starts
    what has to run.

    `watching_since`: since when this loop has watched without a gap; nobody is written off before a
    whole lease of it.
    """
    _stop_where_not_ready(uow, None)
    if uow.real_now >= watching_since.plus_seconds(uow.leases.replica_seconds):
        _lose_silent(uow)
    for node in node_rows.that_want_hosts(uow):
        names = node.spec.metadata
        scripted = STARTUP_SCRIPT in names or SHUTDOWN_SCRIPT in names
        waiting = [
            host
            for host in hosts.of_node(uow, node.node_key)
            if host.state is HostState.VIRTUAL
            and (scripted or host.asked)
            and _is_due(uow, node, host)
        ]
        try:
            _materialise(uow, [(node, host) for host in waiting])
        except PodyardError as error:
            _note(uow, waiting, error.message)


def facts(uow: UnitOfWork, record: NodeRecord) -> NodeFacts:
    """Return what the hosts of a node know of it."""
    node, project = node_rows.to_node(uow, record), projects.read(uow, record.project)
    number = 0 if project is None else project.number
    account, upcoming = node.spec.service_account, node.upcoming_maintenance
    network = node.spec.networks[0]  # a host is reached by the first of several
    rows = instances.rows_of_record(uow, record)
    return NodeFacts(
        node_key=node.node_key,
        project=node.project,
        project_number=number,
        zone=node.zone,
        node_id=node.node_id,
        number=node.number,
        state=node.state,
        accelerator_type=node.spec.accelerator_type,
        topology=node.spec.topology,
        runtime_version=node.spec.runtime_version,
        usage_class=str(node.spec.usage_class),
        description=node.spec.description,
        tags=tuple(node.spec.tags),
        metadata=dict(node.spec.metadata),
        service_account=account.email or default_service_account(number),
        scopes=account.scopes or DEFAULT_SCOPES,
        network=(network.name or "default").rsplit("/", 1)[-1],
        internal_ips=tuple(host.internal_ip for host in node.hosts),
        external_ips=tuple(host.external_ip for host in node.hosts if network.has_external_ips),
        maintenance_workers=node.maintenance_workers,
        upcoming_maintenance=None if upcoming is None else dataclasses.asdict(upcoming),
        multislice=_multislice(uow, record),
        metadata_down=faults.without_metadata(uow, record),
        reclaimed=record.is_reclaimed,
        host_addresses=_addresses(uow, record),
        project_metadata={} if project is None else dict(project.compute_metadata),
        disks=host_disks.of_node(uow, record),
        boot_disk_gb=host_disks.boot_gb(uow, record),
        instance_names=tuple(row.name for row in rows),
        instance_numbers=tuple(row.number for row in rows),
        own=tuple(row.own for row in rows),
        machine_type=record.machine_type,
    )


def _addresses(uow: UnitOfWork, node: NodeRecord) -> tuple[str, ...]:
    if node.first_address == 0:
        return ()  # it has no hosts yet
    base = yard.read(uow).address_base
    return tuple(host_address(base, node.first_address + index) for index in range(node.host_count))


def programs(uow: UnitOfWork, node_key: str) -> tuple[RanModule, ...]:
    """The programs that ran on the first host that ran any: all hosts of a slice run the same."""
    return next((host.programs for host in hosts.of_node(uow, node_key) if host.programs), ())


def modules_that_do_not_fit(
    uow: UnitOfWork, principal: Principal, project: str
) -> list[NodeModule]:
    """Return what ran on hosts of the project's nodes and needs more memory than they have."""
    principal.require("tpu.nodes.list", project, f"projects/{project}/locations/-")
    return hosts.modules_that_do_not_fit(uow, project)


def _multislice(uow: UnitOfWork, node: NodeRecord) -> Multislice | None:
    if node.slice_count <= 1:
        return None
    number = node_rows.first_address_of(uow, node)
    address = host_address(yard.read(uow).address_base, number) if number else ""
    return Multislice(
        node.slice_index, node.slice_count, address, node_rows.internal_ip(number) if number else ""
    )


def _take(uow: UnitOfWork, host: HostRecord, report: HostReport) -> None:
    if report.state == "STARTING":
        store(uow, host, dataclasses.replace(host, software=report.software))
        return
    attributes = report.guest_attributes
    said = dataclasses.replace(
        host,
        scripts=dict(report.scripts),
        problem=report.problem,
        isolation=report.isolation,
        software=report.software,
        programs=host.programs if report.programs is None else report.programs,
        ssh_host_key=report.ssh_host_key or host.ssh_host_key,
        guest_attributes=host.guest_attributes
        if attributes is None
        else {name: dict(values) for name, values in attributes.items()},
        bind_address=report.address,
        metadata_address=report.metadata_address,
        port_map=dict(report.ports),
    )
    if report.state == "EXITED":
        _exit(uow, host, said, report.problem or "every process of the host is gone")
    elif host.state is HostState.STARTING:
        move(uow, host, "run", reason="the host answers", changed=said)
    else:
        store(uow, host, said)


def _exit(uow: UnitOfWork, host: HostRecord, said: HostRecord, reason: str) -> None:
    """`said`: the host with what its last report says."""
    node = node_rows.get_by_key(uow, host.node_key)
    stays = node.state is NodeState.READY and node.ready_since == host.ready_since
    changed = dataclasses.replace(
        said,
        agent_id=None,
        bind_address=None,
        port_map={},
        lease_until=None,
        metadata_address="",
        asked=host.asked and stays,
    )
    move(uow, host, "exit", reason=reason, changed=changed)


def _stop_where_not_ready(uow: UnitOfWork, agent_id: str | None) -> None:
    """Stop hosts of a node that has left READY, or has come back since (a reboot)."""
    for found in hosts.to_stop(uow, agent_id):
        move(uow, found.host, "stop", reason=f"node {found.node_id} is {found.node_state}")
        _poke(uow, found.host.agent_id)


def _lose_silent(uow: UnitOfWork) -> None:
    """A host server that cannot report ends by itself within its lease; while its agent lives, it
    is replaced."""
    lapsed = [
        host
        for host in hosts.live(uow, None)
        if host.lease_until is None or host.lease_until < uow.real_now
    ]
    living = {agent.agent_id for agent in agents.list_living(uow)} if lapsed else set()
    for host in lapsed:
        if host.agent_id not in living:
            reason = f"agent {host.agent_id} is silent and the lease is over"
            _exit(uow, host, dataclasses.replace(host, problem=reason), reason)


def _materialise(uow: UnitOfWork, chosen: Sequence[tuple[NodeRecord, HostRecord]]) -> None:
    """Gives each host, of one (multi)slice, a life on the agent with the most room: all or none."""
    if not chosen:
        return
    living = agents.list_living(uow)
    used = hosts.live_counts(uow)
    companies = {agent.agent_id: agent.company for agent in living}
    free = {
        agent.agent_id: agent.hosts_max - used.get(agent.agent_id, 0)
        for agent in living
        if agent.takes_work
    }
    nodes = {node.node_key: node.node_id for node, _ in chosen}
    there = {
        host.agent_id: 1
        for key in nodes
        for host in hosts.of_node(uow, key)
        if host.agent_id is not None
    }
    if (company := company_of(there, companies)) is not None:
        # The hosts of a node are one slice: those that join it give the same bits and reach the
        # others.
        free = {
            agent_id: count for agent_id, count in free.items() if companies[agent_id] == company
        }
    room = room_of(free := host_disks.narrow(uow, [node for node, _ in chosen], free), companies)
    if room < len(chosen):
        most = sum(agent.hosts_max for agent in living)
        raise PodyardError(
            Code.RESOURCE_EXHAUSTED,
            f"{len(chosen)} hosts of node{'s' * (len(nodes) > 1)} {', '.join(nodes.values())} must "
            f"run at once and the {len(living)} live agents have room for {room} more of {most}",
        )
    for (node, host), agent_id in zip(chosen, choose(len(chosen), free, companies), strict=True):
        changed = dataclasses.replace(
            host,
            agent_id=agent_id,
            generation=host.generation + 1,
            ready_since=node.ready_since,
            tried=uow.real_now,
            lease_until=uow.real_now.plus_seconds(uow.leases.replica_seconds),
            problem="",
            software="",
            scripts={},
            programs=(),
        )
        move(uow, host, "materialise", reason=f"on agent {agent_id}", changed=changed)
        host_disks.pin(uow, node, agent_id)
        _poke(uow, agent_id)


def _is_due(uow: UnitOfWork, node: NodeRecord, host: HostRecord) -> bool:
    if host.tried is None or host.ready_since != node.ready_since:
        return True
    return uow.real_now >= host.tried.plus_seconds(RETRY_SECONDS)


def _note(uow: UnitOfWork, waiting: Sequence[HostRecord], problem: str) -> None:
    ids = [host.host_id for host in waiting if host.problem != problem]
    if ids:
        hosts.set_problem(uow, ids, problem)


def _poke(uow: UnitOfWork, agent_id: str | None) -> None:
    assert agent_id is not None, "a live host is on an agent"
    poke(uow, agent_id)
