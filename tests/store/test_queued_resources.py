"""Queued resources, by their use cases and the real loop, on both databases."""

from __future__ import annotations

import dataclasses

import pytest

from podyard.base.clock import ManualClock, PlatformTime
from podyard.base.errors import Code, PodyardError
from podyard.control.compute import nodes, queued_resources, quota
from podyard.control.jobs import jobs
from podyard.control.platform import agents, operations
from podyard.db.compute import queued_resources as rows
from podyard.db.jobs import jobs as job_rows
from podyard.db.store.unit_of_work import Database
from podyard.domain.job import JobRequest
from podyard.domain.node import UsageClass
from podyard.domain.principal import Principal
from podyard.hardware import accelerator_types
from podyard.hardware.accelerator_types import kind_of
from tests.builders import FLEET, PROJECT, ZONE, Play, node_spec, request


def test_a_request_with_room_goes_through_its_states_and_its_node_appears_when_it_is_placed(
    play: Play,
) -> None:
    operation = play.queue()
    assert (operation.verb, operation.target_kind, operation.is_done) == (
        "create",
        "queuedResource",
        True,
    )
    assert operation.response is not None
    accepted = rows.thaw(operation.response)
    assert (accepted.name, accepted.state) == (
        f"projects/{PROJECT}/locations/{ZONE}/queuedResources/q",
        "WAITING_FOR_RESOURCES",
    )
    assert accepted.spec == play.queued().spec
    assert play.states() == {}
    play.turn()
    assert (play.queued().state, play.states()) == ("PROVISIONING", {"n": "CREATING"})
    play.turn(10)
    assert (play.queued().state, play.states()) == ("ACTIVE", {"n": "READY"})
    assert play.queued().nodes == (play.node().name,)
    assert play.node().queued_resource == accepted.name
    assert play.history("queuedResource") == [
        "CREATING", "ACCEPTED", "WAITING_FOR_RESOURCES", "PROVISIONING", "ACTIVE",
    ]  # fmt: skip


def test_a_gang_without_room_for_all_waits_with_its_reason_and_holds_nothing(play: Play) -> None:
    play.create("other")
    play.queue(request("s", count=4))
    play.turn(30)
    waiting = play.queued()
    assert (waiting.state, waiting.nodes) == ("WAITING_FOR_RESOURCES", ())
    assert waiting.wait_reason.startswith("v2-8 needs a free box of 2x2 chips")
    assert len(play.held()) == 1
    play.run(nodes.delete, "other")
    play.turn()
    play.turn(10)
    assert play.queued().state == "ACTIVE"
    assert play.states() == {f"s-{index}": "READY" for index in range(4)}
    slices = [play.node(f"s-{index}") for index in range(4)]
    assert [(node.slice_index, node.slice_count, node.multislice_node) for node in slices] == [
        (index, 4, True) for index in range(4)
    ]


def test_a_waiting_request_costs_no_writes_while_nothing_changes(play: Play) -> None:
    play.create("other")
    play.queue(request("s", count=4))
    play.turn()
    runs: list[object] = []
    original = play.database.run
    play.database.run = lambda *a, **k: (runs.append(a), original(*a, **k))[1]  # type: ignore[method-assign,func-returns-value]
    for _ in range(5):
        play.loop.place()
    assert runs == []


def test_before_its_time_a_request_is_accepted_but_not_placed(play: Play) -> None:
    play.queue(request(valid_after_seconds=100.0, valid_until_seconds=200.0))
    play.turn(99)
    assert (play.queued().state, play.states()) == ("ACCEPTED", {})
    play.turn(1)
    assert play.queued().state == "PROVISIONING"


def test_a_request_that_is_not_fulfilled_in_time_fails_and_says_which_bound(play: Play) -> None:
    play.create("other", "v2-32")
    play.queue(request(valid_until_seconds=60.0))
    play.turn(59)
    assert play.queued().state == "WAITING_FOR_RESOURCES"
    play.turn(1)
    failed = play.queued()
    assert (failed.state, failed.error_code) == ("FAILED", int(Code.DEADLINE_EXCEEDED))
    assert "the end of its validUntilDuration of 60s: v2-8 needs a free box" in failed.error_message
    play.run(nodes.delete, "other")
    play.turn(10)
    assert play.queued().state == "FAILED"
    with pytest.raises(PodyardError, match="reset is not supported while in state FAILED"):
        play.run(queued_resources.reset, "q")


def test_nodes_that_are_not_ready_in_time_are_deleted(play: Play) -> None:
    play.queue(request(valid_until_seconds=5.0))
    play.turn()
    assert play.queued().state == "PROVISIONING"
    play.turn(5)
    assert (play.queued().state, play.states(), play.held()) == ("FAILED", {}, [])


def test_the_end_of_the_policy_does_not_touch_what_is_active(play: Play) -> None:
    play.queue(request(valid_until_seconds=50.0))
    play.turn()
    play.turn(10)
    play.turn(100)
    assert play.queued().state == "ACTIVE"


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"valid_until": PlatformTime(1)}, "must be in the future"),
        ({"valid_after_seconds": 20.0, "valid_until_seconds": 10.0}, "must end after it starts"),
        ({"nodes": ()}, "must have 1 to 256 nodes, got 0"),
        ({"nodes": request().nodes * 2}, "node id n is used twice in the queued resource"),
    ],
)
def test_a_request_that_can_never_be_is_refused(
    play: Play, changes: dict[str, object], text: str
) -> None:
    with pytest.raises(PodyardError, match=text) as caught:
        play.queue(request(**changes))  # type: ignore[arg-type]
    assert caught.value.code is Code.INVALID_ARGUMENT
    assert play.history("queuedResource") == []


def test_names_that_are_taken_are_refused_at_once_or_fail_when_its_turn_comes(play: Play) -> None:
    play.queue()
    with pytest.raises(PodyardError, match="queuedResources/q' already exists"):
        play.queue(request("m"))
    play.turn()
    with pytest.raises(PodyardError, match="nodes/n' already exists"):
        play.queue(name="p")
    play.queue(request("late", valid_after_seconds=100.0), name="late")
    play.create("late")
    play.turn(100)
    failed = play.queued("late")
    assert (failed.state, failed.error_code) == ("FAILED", int(Code.ALREADY_EXISTS))
    assert failed.nodes == ()


def test_one_node_that_is_preempted_suspends_it_and_stays_listed(play: Play) -> None:
    play.queue(request(usage_class=UsageClass.SPOT))
    play.turn()
    play.turn(10)
    assert play.node().spec.usage_class is UsageClass.SPOT
    play.ask(nodes.preempt, "n")
    assert (play.queued().state, play.queued().state_initiator) == ("SUSPENDING", "SERVICE")
    play.turn()
    assert (play.queued().state, play.states(), play.held()) == (
        "SUSPENDED",
        {"n": "PREEMPTED"},
        [],
    )


def test_a_user_who_deletes_a_node_suspends_it_and_reset_makes_the_node_anew(play: Play) -> None:
    play.queue()
    play.turn()
    play.turn(10)
    first = play.node().node_key
    play.run(nodes.delete, "n")
    assert (play.queued().state, play.queued().state_initiator) == ("SUSPENDING", "USER")
    play.turn()
    assert (play.queued().state, play.states()) == ("SUSPENDED", {})
    play.turn(1000)
    assert play.states() == {}
    operation = play.run(queued_resources.reset, "q")
    assert (operation.verb, operation.is_done) == ("reset", True)
    play.turn()
    play.turn(10)
    assert (play.queued().state, play.queued().state_initiator, play.states()) == (
        "ACTIVE",
        "",
        {"n": "READY"},
    )
    assert play.node().node_key != first


def test_reset_of_an_active_one_makes_all_nodes_anew_at_once(play: Play) -> None:
    play.queue(request("s", count=2))
    play.turn()
    play.turn(10)
    before = {play.node(name).node_key for name in play.states()}
    play.run(queued_resources.reset, "q")
    play.turn()
    play.turn(10)
    assert (play.queued().state, play.states()) == ("ACTIVE", {"s-0": "READY", "s-1": "READY"})
    assert not before & {play.node(name).node_key for name in play.states()}


def test_a_multislice_that_loses_one_slice_makes_it_anew_and_restarts_the_others(
    play: Play,
) -> None:
    play.queue(request("s", count=2, usage_class=UsageClass.SPOT))
    play.turn()
    play.turn(10)
    lost, kept = play.node("s-0").node_key, play.node("s-1").node_key
    play.ask(nodes.preempt, "s-0")
    assert (play.queued().state, play.node("s-0").state) == ("PROVISIONING", "PREEMPTED")
    play.turn()
    assert play.states() == {"s-0": "CREATING", "s-1": "READY"}
    play.turn(10)
    assert play.states() == {"s-0": "READY", "s-1": "RESTARTING"}
    play.turn(5)
    assert (play.queued().state, play.states()) == ("ACTIVE", {"s-0": "READY", "s-1": "READY"})
    assert play.node("s-0").node_key != lost
    assert play.node("s-1").node_key == kept
    assert play.history("queuedResource")[-2:] == ["PROVISIONING", "ACTIVE"]


def test_a_slice_that_is_made_anew_waits_for_chips_and_never_fails(play: Play) -> None:
    play.queue(request("s", count=4, usage_class=UsageClass.SPOT))
    play.turn()
    play.turn(10)
    thief = play.run(nodes.create, "thief", node_spec())
    play.clock.advance(1)
    play.ask(nodes.preempt, "s-0")
    play.turn(10)
    assert play.operation(thief).state == "RUNNING"
    play.turn(600)
    assert (play.queued().state, play.node("s-0").state, play.node("thief").state) == (
        "PROVISIONING", "CREATING", "READY",
    )  # fmt: skip
    assert play.node("s-0").state_reason.startswith("v2-8 needs a free box")
    play.run(nodes.delete, "thief")
    play.turn()
    play.turn(10)
    play.turn(5)
    assert (play.queued().state, set(play.states().values())) == ("ACTIVE", {"READY"})


def test_a_multislice_that_loses_all_slices_is_suspended(play: Play) -> None:
    play.queue(request("s", count=2, usage_class=UsageClass.SPOT))
    play.turn()
    play.turn(10)
    for name in ("s-0", "s-1"):
        play.ask(nodes.preempt, name)
    assert play.queued().state == "SUSPENDING"
    play.turn()
    assert (play.queued().state, play.states()) == (
        "SUSPENDED",
        {"s-0": "PREEMPTED", "s-1": "PREEMPTED"},
    )


def test_delete_without_force_is_refused_while_nodes_live(play: Play) -> None:
    play.queue()
    play.turn()
    for state in ("PROVISIONING", "ACTIVE"):
        assert play.queued().state == state
        with pytest.raises(PodyardError, match="has nodes: delete them first, or use force"):
            play.run(queued_resources.delete, "q")
        play.turn(10)
    operation = play.run(queued_resources.delete, "q", True)
    assert not operation.is_done
    assert (play.queued().state, play.states()) == ("DELETING", {"n": "DELETING"})
    play.turn()
    ended = play.operation(operation)
    assert ended.is_done
    assert ended.error_code is None
    assert ended.response is not None
    assert rows.thaw(ended.response).name.endswith("/q")
    assert (play.states(), play.held()) == ({}, [])
    with pytest.raises(PodyardError, match="was not found"):
        play.queued()
    play.queue()


def test_delete_without_force_takes_what_waits_and_what_is_suspended_with_its_listed_nodes(
    play: Play,
) -> None:
    play.queue(request(valid_after_seconds=100.0))
    assert play.run(queued_resources.delete, "q").is_done
    play.queue(request(usage_class=UsageClass.SPOT))
    play.turn()
    play.turn(10)
    play.ask(nodes.preempt, "n")
    play.turn()
    operation = play.run(queued_resources.delete, "q")
    play.turn()
    assert play.operation(operation).is_done
    assert play.states() == {}


def test_quota_counts_from_acceptance_until_deletion_and_nodes_do_not_count_twice(
    database: Database, clock: ManualClock
) -> None:
    play = Play(database, clock, FLEET + "quotas: {default: 16}\n")
    kind = kind_of("v2-8", "2x2")

    def used() -> int:
        return database.read(
            lambda uow: quota.usage(uow, PROJECT, "us-central1", kind, UsageClass.ON_DEMAND)
        )

    play.queue(request(valid_after_seconds=50.0, valid_until_seconds=100.0))
    assert used() == 8
    play.turn(50)
    assert (play.queued().state, used()) == ("PROVISIONING", 8)
    with pytest.raises(PodyardError) as caught:
        play.queue(request("s", count=2), name="more")
    assert caught.value.code is Code.RESOURCE_EXHAUSTED
    play.turn(10)
    play.run(nodes.delete, "n")
    play.turn()
    assert (play.queued().state, used()) == ("SUSPENDED", 8)
    play.run(queued_resources.delete, "q")
    assert used() == 0


def test_run_time_ends_nodes_as_terminated_and_suspends_even_a_multislice(play: Play) -> None:
    play.queue(request("s", count=2, max_run_seconds=3600.0))
    play.turn()
    play.turn(10)
    assert play.node("s-0").termination == play.node("s-0").created.plus_seconds(3610)
    play.turn(3599)
    assert play.queued().state == "ACTIVE"
    play.turn(1)
    assert play.states() == {"s-0": "TERMINATED", "s-1": "TERMINATED"}
    assert (play.queued().state, play.queued().state_initiator) == ("SUSPENDED", "SERVICE")


def test_a_preemptible_node_ends_after_24_hours_and_a_spot_node_does_not(play: Play) -> None:
    play.create("old", usage_class=UsageClass.PREEMPTIBLE)
    play.create("spot", usage_class=UsageClass.SPOT)
    play.create("dated", termination_time=play.node("spot").created.plus_seconds(600).nanos)
    play.turn(600)
    assert play.states() == {"old": "READY", "spot": "READY", "dated": "TERMINATED"}
    play.turn(24 * 3600)
    assert play.states() == {"old": "TERMINATED", "spot": "READY", "dated": "TERMINATED"}
    assert "24 hours" in play.node("old").state_reason
    with pytest.raises(PodyardError, match="the termination time must be in the future"):
        play.create("late", termination_time=1)


def test_a_stopped_node_ends_at_its_time_as_well(play: Play) -> None:
    play.create("n", usage_class=UsageClass.PREEMPTIBLE)
    play.run(nodes.stop, "n")
    play.turn(24 * 3600)
    assert play.states() == {"n": "TERMINATED"}


def test_a_creation_that_waits_for_the_loop_can_be_cancelled(play: Play) -> None:
    operation = play.run(nodes.create, "n", node_spec())
    play.ask(operations.cancel, operation.operation_id)
    ended = play.operation(operation)
    assert (ended.state, ended.error_code) == ("CANCELLED", int(Code.CANCELLED))
    assert play.states() == {}
    placed = play.run(nodes.create, "n", node_spec())
    play.turn()
    play.ask(operations.cancel, placed.operation_id)
    play.turn(10)
    assert (play.operation(placed).state, play.states()) == ("SUCCEEDED", {"n": "READY"})


def test_disks_are_written_to_by_one_node_with_one_host_only(play: Play) -> None:
    def disks(mode: str, name: str = "d") -> dict[str, object]:
        return {
            "extras": {
                "dataDisks": [{"sourceDisk": f"projects/p/zones/z/disks/{name}", "mode": mode}]
            }
        }

    with pytest.raises(PodyardError, match="v2-32 has 4 hosts, so its disks must be READ_ONLY"):
        play.create("pod", "v2-32", **disks("READ_WRITE"))
    play.create("a", **disks("READ_WRITE"))
    with pytest.raises(PodyardError, match=r"already being used by '.*nodes/a'"):
        play.create("b", **disks("READ_ONLY"))
    play.create("b", **disks("READ_ONLY", "shared"))
    play.create("c", **disks("READ_ONLY", "shared"))
    with pytest.raises(PodyardError, match=r"already being used by '.*nodes/c'"):
        play.ask(
            nodes.patch, "b", {"dataDisks": disks("READ_WRITE", "shared")["extras"]["dataDisks"]}
        )  # type: ignore[index]
    play.ask(nodes.patch, "a", {"dataDisks": []})
    play.ask(nodes.patch, "b", {"dataDisks": disks("READ_WRITE")["extras"]["dataDisks"]})  # type: ignore[index]


def test_reimage_gives_the_node_another_version(play: Play) -> None:
    play.create("n")
    operation = play.run(nodes.reimage, "n", "tpu-vm-base")
    assert play.node().state == "REIMAGING"
    play.turn()
    assert (play.node().state, play.node().spec.runtime_version) == ("READY", "tpu-vm-base")
    assert play.operation(operation).state == "SUCCEEDED"
    with pytest.raises(PodyardError, match="does not run on v2"):
        play.run(nodes.reimage, "n", "v2-alpha-tpuv5")


def test_who_may_not_see_learns_nothing(play: Play) -> None:
    play.queue()
    stranger = Principal("x", {})
    for name in ("q", "missing"):
        for use_case in (
            queued_resources.get,
            lambda u, p, *a: queued_resources.delete(u, play.fleet, p, *a),
        ):
            with pytest.raises(PodyardError) as caught:
                play.database.run(lambda u, f=use_case, n=name: f(u, stranger, PROJECT, ZONE, n))  # type: ignore[misc]
            assert caught.value.code is Code.PERMISSION_DENIED
            assert caught.value.message.endswith("(or it might not exist).")


def test_a_request_keeps_what_its_client_sent(play: Play) -> None:
    given = {"tpu": {"nodeSpec": [{"nodeId": "n"}]}, "spot": {}}
    play.queue(dataclasses.replace(request(), given=given))
    assert play.queued().spec.given == given
    assert accelerator_types.parse("v2-8").chip_count == 4


def test_a_job_goes_on_on_the_slice_that_is_made_anew(play: Play) -> None:
    agent = Principal("agent", {}, agent_id="local")
    play.database.run(
        lambda uow: agents.register(
            uow, agent, "local", agents.AskedRegistration(4, 4, "127.0.0.1", 1)
        )
    )
    play.queue(request("s", count=2, usage_class=UsageClass.SPOT))
    play.turn()
    play.turn(5)
    play.turn(5)
    first = play.node("s-0").node_key
    asked = JobRequest(recipe="digits-cnn", steps=10)
    play.run(jobs.create, "j", asked, "s-0")
    play.ask(nodes.preempt, "s-0")
    play.turn()
    play.turn(1)
    job = play.ask(jobs.get, "j")
    assert (job.state, play.node("s-0").state) == ("QUEUED", "CREATING")
    assert play.database.read(lambda uow: job_rows.get(uow, job.job_key)).node_key != first


def test_reset_waits_for_its_old_nodes_to_be_gone(database: Database, clock: ManualClock) -> None:
    play = Play(
        database,
        clock,
        FLEET.replace("create_seconds: 10", "create_seconds: 10, delete_seconds: 7"),
    )
    play.queue()
    play.turn()
    play.turn(10)
    play.run(queued_resources.reset, "q")
    play.turn(6)
    assert (play.queued().state, play.states()) == ("WAITING_FOR_RESOURCES", {"n": "DELETING"})
    play.turn(1)
    assert (play.queued().state, play.states()) == ("PROVISIONING", {"n": "CREATING"})
