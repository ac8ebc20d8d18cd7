"""Jobs on several slices, on both databases: their nodes wait, are placed, and are made again
together."""

from __future__ import annotations

import pytest

from podyard.base.clock import ManualClock
from podyard.control.checks import fsck
from podyard.control.compute import hosts, nodes, queue_view, slice_networks
from podyard.control.compute.hosts import HostReport
from podyard.control.jobs import jobs
from podyard.db.billing import cost_dimensions
from podyard.db.compute import nodes as node_rows
from podyard.db.store.unit_of_work import Database
from podyard.domain.job import Job, JobRequest
from podyard.domain.node import UsageClass, node_name
from podyard.domain.principal import PLATFORM
from podyard.domain.user_program import UserProgram
from podyard.pricing.current_card import default_rate_card
from tests.builders import AGENT, PROJECT, ZONE, Play, node_spec

# A pod with room for four v2-8.
FLEET = """
zones:
  us-central1-a: {v2: {shape: 4x4}}
timings: {create_seconds: 10, preemption_notice_seconds: 30}
"""


class SlicesOfJob(Play):
    """With an agent, and a host server that ends what is to stop."""

    def submit(self, count: int) -> None:
        asked = JobRequest(run=UserProgram(command="true"), num_nodes=count)
        self.run(jobs.create, "both", asked, node_spec("v2-8", usage_class=UsageClass.SPOT))
        self.turn()

    def job(self) -> Job:
        return self.ask(jobs.get, "both")

    def pass_time(self, seconds: float = 10) -> None:
        self.turn(seconds)
        stopping = [
            host
            for host in self.database.run(lambda uow: hosts.list_wanted(uow, "local"))
            if not host.run
        ]
        gone = [
            HostReport(h.host_id, h.generation, "EXITED", "", "", {}, "", {}, None, "")
            for h in stopping
        ]
        self.database.run(lambda uow: hosts.sync(uow, AGENT, "local", gone, {}))
        self.turn(10)

    def holders(self) -> list[str]:
        return sorted(row["node_id"] for row in self.held())


@pytest.fixture
def yard(database: Database, clock: ManualClock) -> SlicesOfJob:
    found = SlicesOfJob(database, clock, FLEET)
    found.register()
    return found


def test_slices_on_two_machines_have_one_network(database: Database, clock: ManualClock) -> None:
    yard = SlicesOfJob(database, clock, FLEET.replace("create_seconds: 10", "create_seconds: 0"))
    for agent in ("local", "other"):
        yard.register(hosts_max=1, agent_id=agent)
    yard.submit(2)
    where = {replica.agent_id: replica.rank for replica in yard.live()}
    assert sorted(where) == ["local", "other"]
    keys = yard.database.read(
        lambda uow: [node.node_key for node in jobs.nodes_of(uow, yard.job())]
    )

    def network_of(agent: str) -> slice_networks.SliceNetwork:
        (found,) = database.read(
            lambda uow: slice_networks.of_agent(uow, agent, {keys[where[agent]]})
        )
        return found

    mine, theirs = network_of("local"), network_of("other")
    assert mine.key == theirs.key
    assert [peer.agent_id for peer in (*mine.peers, *theirs.peers)] == ["other", "local"]


def test_slices_wait_are_placed_and_are_made_again_together(yard: SlicesOfJob) -> None:
    for name in ("a", "b", "c"):
        assert yard.create(name).error_code is None
    yard.submit(2)
    assert yard.job().state_reason.startswith(
        "node both-0 is CREATING: v2-8 needs a free box of 2x2 chips"
    )
    assert yard.holders() == ["a", "b", "c"], "no slice is held while another waits"
    (row,) = yard.database.read(
        lambda uow: queue_view.rows(uow, yard.fleet, PLATFORM, PROJECT, ZONE)
    )
    assert (row.kind, row.name) == ("job", yard.job().name)
    yard.run(nodes.delete, "a")
    yard.pass_time()
    assert (yard.holders(), yard.job().state) == (["b", "both-0", "both-1", "c"], "PREPARING")
    running = yard.database.read(lambda uow: jobs.running_by_node(uow, PLATFORM, PROJECT, ZONE))
    assert running == {node_name(PROJECT, ZONE, name): "both" for name in ("both-0", "both-1")}
    more = [
        yard.database.read(
            lambda uow, most=most: cost_dimensions.has_more_nodes(uow, PROJECT, most)
        )
        for most in (4, 5)
    ]
    assert more == [True, False], "three nodes, one of them deleted, and two slices"
    keys = yard.database.read(
        lambda uow: [node.node_key for node in jobs.nodes_of(uow, yard.job())]
    )
    spans = yard.database.read(lambda uow: cost_dimensions.job_spans_on(uow, keys))
    assert [span.resource_id for span in spans] == keys
    assert yard.database.read(lambda uow: slice_networks.of_agent(uow, "local", keys)) == []
    both = yard.database.read(lambda uow: node_rows.of_job(uow, yard.job().job_key))
    facts = [yard.database.read(lambda uow, node=node: hosts.facts(uow, node)) for node in both]
    assert len({one.multislice.coordinator_ip for one in facts if one.multislice is not None}) == 1
    for replica in yard.live():
        yard.say(replica)
    # An on-demand node takes one of the two: both programs are asked to save and to leave.
    yard.run(nodes.create, "new", node_spec("v2-8"))
    yard.turn()
    assert [yard.say(replica) for replica in yard.live()] == ["YIELD", "YIELD"]
    for replica in yard.live():
        yard.say(replica, "YIELDED")
    yard.exit(yard.live())
    yard.pass_time(30)
    yard.pass_time()
    job = yard.job()
    assert (job.state, job.preemptions, job.failures) == ("RECOVERING", 1, 0)
    assert yard.holders() == ["b", "c", "new"], "the other slice is given back, too"
    again = yard.database.read(lambda uow: [node.node_key for node in jobs.nodes_of(uow, job)])
    assert not set(keys) & set(again)
    yard.run(nodes.delete, "new")
    yard.pass_time()
    assert (yard.holders(), yard.job().state) == (["b", "both-0", "both-1", "c"], "PREPARING")
    assert not yard.database.read(lambda uow: fsck.check(uow, yard.fleet, default_rate_card()))
