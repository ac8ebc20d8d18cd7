"""Hosts by use cases alone, the agent played by the test: the same rows on both databases."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from sqlalchemy import select, update

from podyard.base.clock import ManualClock
from podyard.base.errors import Code, PodyardError
from podyard.control.access import identity
from podyard.control.compute import guest_attributes, host_connections, hosts, nodes, slice_networks
from podyard.control.compute.hosts import HostWanted
from podyard.db.compute import hosts as host_rows
from podyard.db.compute import nodes as node_rows
from podyard.db.store import yard
from podyard.db.store.transition import move
from podyard.db.store.unit_of_work import Database, UnitOfWork
from podyard.db.tables.base import outbox
from podyard.db.tables.compute import nodes as nodes_table
from podyard.domain.fleet_file import instant_fleet
from podyard.domain.host import NodeFacts, facts_of_json
from podyard.domain.host_key import key_seed, public_key
from podyard.domain.host_record import HostRecord
from podyard.domain.node import PUBSUB_SCOPE, NodeRecord, NodeSpec, UsageClass
from podyard.domain.principal import PLATFORM, Principal
from podyard.domain.ran_module import RanModule
from tests.builders import AGENT, PROJECT, ZONE, Play

NODE = "pod"
VIEWER = Principal("viewer", {PROJECT: frozenset({"tpu.viewer"})})
STRANGER = Principal("stranger", {})
SCRIPT = {"startup-script": "echo hello"}


class Hosts(Play):
    """One node of four hosts that is READY, and the words of its host server."""

    def __init__(self, database: Database, clock: ManualClock) -> None:
        super().__init__(database, clock, instant_fleet())

    def make(self, metadata: Mapping[str, str] | None = None, **extras: Any) -> None:
        spec = NodeSpec(
            "v2-32",
            "4x4",
            "tpu-vm-base",
            UsageClass.ON_DEMAND,
            metadata=dict(metadata or {}),
            extras=extras,
        )

        def body(uow: UnitOfWork) -> None:
            nodes.create(uow, instant_fleet(), PLATFORM, PROJECT, ZONE, NODE, spec)
            node = self._read(uow)
            node_rows.add_hosts(uow, node.node_key, 1, 4)
            move(
                uow,
                node,
                "created",
                reason="ready",
                changed=dataclasses.replace(node, ready_since=uow.now),
            )

        self.database.run(body)

    def record(self) -> NodeRecord:
        return self.database.read(self._read)

    def ask_for(self, *workers: int, caller: Principal = PLATFORM) -> list[HostRecord]:
        return self.database.run(lambda uow: hosts.ask(uow, caller, PROJECT, ZONE, NODE, workers))

    def hosts(self) -> list[HostRecord]:
        return self.database.read(lambda uow: host_rows.of_node(uow, self._read(uow).node_key))

    def host_states(self) -> list[str]:
        return [host.state for host in self.hosts()]

    def settle(self) -> None:
        """The loop's look, by a loop that has watched for long."""
        since = self.clock.now().plus_seconds(-1000)
        self.database.run(lambda uow: hosts.settle(uow, since))

    def tell(
        self, state: str, of: Sequence[HostRecord] | None = None, **said: Any
    ) -> list[HostWanted]:
        """Return what the host server says of its hosts; returns what it is told."""
        usual: dict[str, Any] = {
            "address": "127.0.0.1", "metadata_address": "127.0.0.1:80", "ports": {"ssh": 22},
            "ssh_host_key": "ssh-ed25519 K", "scripts": {}, "guest_attributes": None, "problem": "",
        }  # fmt: skip
        mine = [host for host in (of or self.hosts()) if host.agent_id == "local"]
        reports = [
            hosts.HostReport(
                **{
                    "host_id": host.host_id,
                    "generation": host.generation,
                    "state": state,
                    **usual,
                    **said,
                }
            )
            for host in mine
        ]
        wanted, _ = self.database.run(lambda uow: hosts.sync(uow, AGENT, "local", reports, {}))
        return wanted

    def leave(self, event: str) -> None:
        self.database.run(lambda uow: move(uow, self._read(uow), event, reason=event))

    def _read(self, uow: UnitOfWork) -> NodeRecord:
        node = node_rows.find(uow, PROJECT, ZONE, NODE)
        assert node is not None
        return node


@pytest.fixture
def play(database: Database, clock: ManualClock) -> Hosts:
    return Hosts(database, clock)


def test_a_host_lives_only_when_it_is_asked_for(play: Hosts) -> None:
    play.register(hosts_max=4)
    play.make()
    play.settle()
    assert play.host_states() == ["VIRTUAL"] * 4
    assert [host.state for host in play.ask_for(2)] == ["STARTING"]
    assert play.host_states() == ["VIRTUAL", "VIRTUAL", "STARTING", "VIRTUAL"]
    assert [(host.index, host.generation, host.run) for host in play.tell("RUNNING")] == [
        (2, 1, True)
    ]
    assert play.host_states()[2] == "RUNNING"
    host = play.hosts()[2]
    assert (host.bind_address, host.port_map, host.agent_id) == ("127.0.0.1", {"ssh": 22}, "local")
    assert play.ask_for(2)[0].generation == 1
    assert len(play.ask_for()) == 4


def test_programs_stand_until_others_are_told(play: Hosts) -> None:
    module = RanModule("jit_step", 3, 1e-3, None, 0.5, True, "fits", "")
    play.register(hosts_max=4)
    play.make()
    play.ask_for(0)
    play.tell("RUNNING", programs=(module,))
    play.tell("RUNNING", programs=None)
    assert play.hosts()[0].programs == (module,)
    play.tell("RUNNING", programs=())
    assert play.hosts()[0].programs == ()


def test_modules_that_do_not_fit_are_listed_once_for_each_node(play: Hosts) -> None:
    fits = RanModule("jit_init", 1, 1e-3, None, 0.5, True, "fits", "")
    large = RanModule("jit_step", 3, None, None, 0.0, False, "does not fit", "")
    play.register(hosts_max=4)
    play.make()
    play.ask_for(0, 1)
    play.tell("RUNNING", programs=(fits, large))
    found = play.database.read(lambda uow: hosts.modules_that_do_not_fit(uow, PLATFORM, PROJECT))
    name = f"projects/{PROJECT}/locations/{ZONE}/nodes/{NODE}"
    assert [(one.node, one.module) for one in found] == [(name, large)]
    assert play.database.read(lambda uow: host_rows.modules_that_do_not_fit(uow, "other")) == []


def test_scripts_make_every_host_live_and_poke_the_agent(play: Hosts) -> None:
    play.register(hosts_max=4)
    play.make(SCRIPT)
    play.settle()
    assert play.host_states() == ["STARTING"] * 4
    sent = play.database.read(lambda uow: uow.all(select(outbox)))
    assert {(row["queue"], row["task"]) for row in sent} == {("agent.local", "podyard.poke_agent")}


def test_there_is_room_on_living_agents_or_a_refusal_with_the_numbers(play: Hosts) -> None:
    play.make(SCRIPT)
    with pytest.raises(
        PodyardError, match="4 hosts of node pod must run at once and the 0 live agents"
    ) as caught:
        play.ask_for()
    assert caught.value.code is Code.RESOURCE_EXHAUSTED
    play.register(hosts_max=3)
    with pytest.raises(PodyardError, match="the 1 live agents have room for 3 more of 3"):
        play.ask_for()
    play.settle()
    assert play.host_states() == ["VIRTUAL"] * 4
    assert "room for 3" in play.hosts()[0].problem
    play.register(hosts_max=2, agent_id="other")
    assert sorted(host.agent_id for host in play.ask_for()) == ["local", "local", "local", "other"]
    play.clock.advance(100)
    assert play.hosts()[0].problem == ""


def test_who_may_not_and_what_is_not_there(play: Hosts) -> None:
    play.register(hosts_max=4)
    play.make()
    for caller in (STRANGER, VIEWER):
        with pytest.raises(PodyardError, match=r"podyard\.hosts\.use"):
            play.ask_for(99, caller=caller)
    with pytest.raises(PodyardError, match="worker 4 does not exist"):
        play.ask_for(4)
    with pytest.raises(PodyardError) as caught:
        play.database.run(lambda uow: hosts.ask(uow, STRANGER, PROJECT, ZONE, "nothing", []))
    assert caught.value.code is Code.PERMISSION_DENIED
    for agent in (STRANGER, dataclasses.replace(AGENT, agent_id="other")):
        with pytest.raises(PodyardError, match=r"podyard\.agents\.sync"):
            play.database.run(lambda uow, a=agent: hosts.sync(uow, a, "local", [], {}))
        with pytest.raises(PodyardError, match=r"podyard\.agents\.sync"):
            play.database.run(lambda uow, a=agent: hosts.token(uow, a, "local", "h"))


def test_a_node_that_leaves_ready_keeps_its_chips_until_its_hosts_are_over(play: Hosts) -> None:
    play.register(hosts_max=4)
    play.make(SCRIPT)
    play.settle()
    play.tell("RUNNING")
    key = play.record().node_key
    assert play.database.read(lambda uow: host_rows.is_busy(uow, key))
    play.leave("preempt")
    assert {host.run for host in play.tell("RUNNING")} == {False}
    assert play.host_states() == ["STOPPING"] * 4
    with pytest.raises(PodyardError, match="node pod is PREEMPTED"):
        play.ask_for()
    assert play.tell("EXITED") == []
    assert play.host_states() == ["VIRTUAL"] * 4
    assert not play.database.read(lambda uow: host_rows.is_busy(uow, key))
    play.settle()
    assert play.host_states() == ["VIRTUAL"] * 4


def test_a_node_that_is_ready_anew_boots_its_hosts_anew(play: Hosts) -> None:
    play.register(hosts_max=4)
    play.make(SCRIPT)
    play.settle()
    play.tell("RUNNING")
    play.clock.advance(60)
    play.register(hosts_max=4)
    # It left READY and came back between two looks.
    play.database.run(lambda uow: uow.execute(update(nodes_table).values(ready_since=uow.now)))
    play.settle()
    assert play.host_states() == ["STOPPING"] * 4
    play.tell("EXITED")
    play.settle()
    assert {(host.state, host.generation) for host in play.hosts()} == {("STARTING", 2)}


def test_words_of_an_earlier_life_are_not_taken(play: Hosts) -> None:
    play.register(hosts_max=4)
    play.make(SCRIPT)
    play.settle()
    earlier = play.hosts()
    play.tell("EXITED")
    play.clock.advance(hosts.RETRY_SECONDS)
    play.settle()
    assert {host.generation for host in play.hosts()} == {2}
    play.tell("EXITED", earlier)
    assert play.host_states() == ["STARTING"] * 4


def test_a_host_that_cannot_start_is_tried_again_after_a_while(play: Hosts) -> None:
    play.register(hosts_max=4)
    play.make(SCRIPT)
    play.settle()
    play.tell("EXITED", problem="no disk")
    play.settle()
    assert {(host.state, host.problem) for host in play.hosts()} == {("VIRTUAL", "no disk")}
    play.clock.advance(hosts.RETRY_SECONDS)
    play.settle()
    assert {(host.state, host.problem) for host in play.hosts()} == {("STARTING", "")}


def test_hosts_of_a_dead_agent_are_written_off_and_made_elsewhere(
    play: Hosts, clock: ManualClock
) -> None:
    play.register(hosts_max=4)
    play.make()
    play.ask_for(0)
    play.tell("RUNNING")
    clock.advance(play.database.leases.replica_seconds + 1)
    since = clock.now().plus_seconds(-1)
    play.database.run(lambda uow: hosts.settle(uow, since))
    assert play.host_states()[0] == "RUNNING"  # the loop itself may have been away
    play.register(hosts_max=4, agent_id="other")
    play.settle()
    assert (play.hosts()[0].state, play.hosts()[0].agent_id) == ("STARTING", "other")


def test_hosts_of_a_living_agent_wait_for_their_server(play: Hosts, clock: ManualClock) -> None:
    play.register(hosts_max=4)
    play.make()
    play.ask_for(0)
    clock.advance(play.database.leases.replica_seconds + 1)
    play.register(hosts_max=4)  # the agent lives, its host server does not
    play.settle()
    assert play.host_states()[0] == "STARTING"


def test_facts_are_sent_once_and_again_when_they_change(play: Hosts) -> None:
    play.register(hosts_max=4)
    play.make(
        {**SCRIPT, "a-key": "1"},
        serviceAccount={"email": "robot@demo.iam.gserviceaccount.com", "scope": ["s"]},
    )
    play.settle()

    def ask(known: Mapping[str, str]) -> dict[str, tuple[str, NodeFacts]]:
        return play.database.run(lambda uow: hosts.sync(uow, AGENT, "local", [], known))[1]

    ((key, (digest, facts)),) = ask({}).items()
    assert facts.metadata["a-key"] == "1"
    assert facts.internal_ips == ("10.128.0.3", "10.128.0.4", "10.128.0.5", "10.128.0.6")
    scopes = ("s", PUBSUB_SCOPE)  # with the one that the server adds
    assert (facts.service_account, facts.scopes) == ("robot@demo.iam.gserviceaccount.com", scopes)
    assert facts_of_json(facts.to_json()) == facts
    assert ask({key: digest}) == {}
    play.database.run(
        lambda uow: nodes.patch(uow, PLATFORM, PROJECT, ZONE, NODE, {"metadata": {"a-key": "2"}})
    )
    assert ask({key: digest})[key][1].metadata == {"a-key": "2"}


def test_a_token_is_of_the_nodes_own_project_and_ends(play: Hosts, clock: ManualClock) -> None:
    play.register(hosts_max=4)
    play.make(serviceAccount={"email": "robot@demo.iam.gserviceaccount.com"})
    host_id = play.ask_for(0)[0].host_id
    made, seconds = play.database.run(lambda uow: hosts.token(uow, AGENT, "local", host_id))
    play.database.run(
        lambda uow: identity.bind(uow, "robot@demo.iam.gserviceaccount.com", PROJECT, "tpu.viewer")
    )
    principal = play.database.read(lambda uow: identity.authenticate(uow, made))
    assert (principal.email, principal.agent_id) == ("robot@demo.iam.gserviceaccount.com", None)
    assert principal.may("tpu.nodes.get", PROJECT)
    assert not principal.may("tpu.nodes.delete", PROJECT)
    # Whatever else the account may do elsewhere: this token is good here only.
    play.database.run(
        lambda uow: identity.bind(uow, "robot@demo.iam.gserviceaccount.com", "other", "owner")
    )
    assert not play.database.read(lambda uow: identity.authenticate(uow, made)).may(
        "tpu.nodes.get", "other"
    )
    clock.advance(seconds)
    with pytest.raises(PodyardError) as caught:
        play.database.read(lambda uow: identity.authenticate(uow, made))
    assert caught.value.code is Code.UNAUTHENTICATED


@pytest.mark.parametrize(
    "email", ["owner@podyard.local", "robot@other.iam.gserviceaccount.com", "x@evil.demo.iam.com"]
)
def test_a_node_gets_no_token_of_somebody_else(play: Hosts, email: str) -> None:
    play.register(hosts_max=4)
    play.make(serviceAccount={"email": email})
    host_id = play.ask_for(0)[0].host_id
    with pytest.raises(PodyardError, match="is not of project demo"):
        play.database.run(lambda uow: hosts.token(uow, AGENT, "local", host_id))


def test_guest_attributes_come_by_worker_and_path(play: Hosts) -> None:
    play.register(hosts_max=4)
    play.make()
    play.ask_for(1)
    said = {"hostkeys": {"ssh-ed25519": "another"}, "mine": {"b": "2", "a": "1"}}
    play.tell("RUNNING", guest_attributes=said)
    play.tell("RUNNING")  # nothing new: they stay

    def ask(path: str, *workers: str, caller: Principal = VIEWER) -> list[list[dict[str, str]]]:
        return play.database.read(
            lambda uow: guest_attributes.of_node(
                uow, caller, PROJECT, ZONE, NODE, path, list(workers)
            )
        )

    # The keys that the hosts will have are there before any of them runs, and nothing on a host can
    # change them.
    secret = play.database.read(yard.read).secret
    keys = [public_key(key_seed(secret, host.host_id)) for host in play.hosts()]
    item = {"namespace": "hostkeys", "key": "ssh-ed25519", "value": keys[1]}
    assert ask("hostkeys/", "1") == ask("hostkeys/", "", "1") == [[item]]
    # gcloud's way to say "all"
    assert [items[0]["value"] for items in ask("hostkeys/", "")] == keys
    assert len(set(keys)) == 4
    assert [len(items) for items in ask("")] == [2, 4, 2, 2]
    # gcloud's tunnels ask for a host by this name
    assert [items[0]["value"] for items in ask("guestInventory/hostname")] == [
        f"{NODE}-w-{index}" for index in range(4)
    ]
    assert ask("mine/a", "1")[0] == [{"namespace": "mine", "key": "a", "value": "1"}]
    with pytest.raises(PodyardError, match="worker '9' does not exist"):
        ask("hostkeys/", "9")
    with pytest.raises(PodyardError, match=r"tpu\.nodes\.get"):
        ask("hostkeys/", caller=STRANGER)


def test_the_first_connection_makes_the_host(play: Hosts) -> None:
    play.register(hosts_max=4)
    play.make()

    def connect(host_id: str) -> HostRecord:
        return play.database.run(lambda uow: host_connections.connect(uow, AGENT, "local", host_id))

    first, second, *_ = play.hosts()
    assert (connect(first.host_id).state, play.host_states()) == (
        "STARTING",
        ["STARTING", *["VIRTUAL"] * 3],
    )
    play.tell("RUNNING", play.hosts())
    assert connect(first.host_id).port_map == {"ssh": 22}
    with pytest.raises(PodyardError, match="hosts/none"):
        connect("none")
    with pytest.raises(PodyardError) as caught:
        play.database.run(
            lambda uow: host_connections.connect(uow, PLATFORM, "local", second.host_id)
        )
    assert caught.value.code is Code.PERMISSION_DENIED
    play.leave("stop")
    with pytest.raises(PodyardError, match="is STOPPING"):
        connect(second.host_id)


def test_taken_addresses_are_named_until_they_are_free(play: Hosts) -> None:
    play.make()
    host = play.hosts()[2].host_id

    def note(**taken: str) -> list[str]:
        play.database.run(lambda uow: host_connections.note_taken(uow, taken))
        return [host.problem for host in play.hosts()]

    assert note(**{host: "in use"}) == ["", "", "ssh: in use", ""]
    assert note() == [""] * 4


def test_folders_of_hosts_that_are_no_more_may_go(play: Hosts) -> None:
    play.register(hosts_max=4)
    play.make()
    there = play.hosts()[0].host_id
    assert play.database.read(lambda uow: hosts.list_removed(uow, [there, "host-of-old"])) == [
        "host-of-old"
    ]


def test_what_was_asked_for_comes_back_as_long_as_the_node_stays_ready(play: Hosts) -> None:
    play.register(hosts_max=4)
    play.make()
    play.ask_for(0)
    play.tell("EXITED")  # the agent left, say
    play.clock.advance(hosts.RETRY_SECONDS)
    play.settle()
    assert play.host_states()[0] == "STARTING"
    play.leave("preempt")
    play.tell("EXITED")
    assert {host.asked for host in play.hosts()} == {False}


def test_agents_of_one_slice_learn_of_each_other_and_of_one_key(play: Hosts) -> None:
    play.register(hosts_max=2)
    play.make()
    play.ask_for(0, 1)
    assert (
        play.database.read(
            lambda uow: slice_networks.of_agent(uow, "local", {play.record().node_key})
        )
        == []
    )
    play.register(hosts_max=2, agent_id="other")
    play.ask_for(2, 3)
    play.tell("RUNNING", address="10.0.0.5", ports={"ssh": 22, "tunnel": 7001})

    def networks(agent: str) -> list[slice_networks.SliceNetwork]:
        return play.database.read(
            lambda uow: slice_networks.of_agent(uow, agent, {play.record().node_key})
        )

    (here,), (there,) = networks("local"), networks("other")
    assert here.key == there.key and len(here.key) == 32
    assert there.peers == (slice_networks.NetworkPeer("local", "10.0.0.5", 7001),)
    # it has not said where it listens
    assert here.peers == (slice_networks.NetworkPeer("other", "", 0),)
