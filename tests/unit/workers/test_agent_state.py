"""The agent's decisions, without any process."""

from __future__ import annotations

from podyard.workers.kit.agent_state import (
    EXIT_LOST_CONTACT,
    Forget,
    Known,
    KnownReplicas,
    ReplicaPhase,
    Start,
    Stop,
    Wanted,
)


def _run(fence: int = 1) -> Wanted:
    return Wanted("r", fence, True, "token")


def _stop(fence: int = 1) -> Wanted:
    return Wanted("r", fence, False, "token")


def _phases(state: KnownReplicas) -> dict[str, ReplicaPhase]:
    return {item.replica: item.phase for item in state.reports()}


def _running() -> KnownReplicas:
    state = KnownReplicas()
    assert state.on_synced([_run()], []) == [Start("r", 1, "token")]
    state.on_started("r", 7)
    return state


def test_a_listed_replica_is_started_once() -> None:
    state = _running()
    assert state.on_synced([_run()], state.reports()) == []
    assert _phases(state) == {"r": ReplicaPhase.RUNNING}


def test_a_replica_that_shall_stop_is_stopped_once_and_reported_until_it_is_acknowledged() -> None:
    state = _running()
    assert state.on_synced([_stop()], state.reports()) == [Stop("r", "the server wants it to stop")]
    assert state.on_synced([_stop()], state.reports()) == []
    state.on_exited("r", -15)
    (said,) = state.reports()
    assert (said.phase, said.reason) == (ReplicaPhase.EXITED, "the server wants it to stop")
    # The server still lists it: it has not taken the report yet.
    assert state.on_synced([_stop()], []) == []
    assert state.on_synced([], state.reports()) == [Forget("r")]
    assert state.reports() == []


def test_an_exit_that_was_not_reported_yet_is_not_forgotten() -> None:
    state = _running()
    before = state.reports()
    state.on_exited("r", -9)
    assert state.on_synced([], before) == []
    assert state.reports()[0].reason == "the process was killed by signal 9"


def test_a_replica_that_shall_stop_and_never_ran_is_reported_as_exited() -> None:
    state = KnownReplicas()
    assert state.on_synced([_stop()], []) == []
    assert state.reports() == [
        Known("r", 1, ReplicaPhase.EXITED, None, 0, "stopped before it was started")
    ]


def test_a_replica_that_is_no_longer_listed_or_has_another_fence_is_stopped() -> None:
    state = _running()
    assert state.on_synced([], state.reports()) == [Stop("r", "the server no longer lists it")]
    state = _running()
    assert state.on_synced([_run(fence=2)], state.reports()) == [
        Stop("r", "the server no longer lists it")
    ]


def test_what_an_earlier_agent_left_is_adopted_or_reported_dead() -> None:
    state = KnownReplicas()
    state.on_adopted("r", 1, 7)
    state.on_found_dead("s", 1)
    assert state.on_synced([_run(), Wanted("s", 1, True, "t")], state.reports()) == []
    assert _phases(state) == {"r": ReplicaPhase.RUNNING, "s": ReplicaPhase.EXITED}


def test_a_shutdown_stops_what_runs_only() -> None:
    state = _running()
    state.on_found_dead("s", 1)
    assert state.on_shutdown() == [Stop("r", "the agent is shutting down")]
    assert state.on_shutdown() == []
    state.on_exited("r", -15)
    assert {item.replica: item.released for item in state.reports()} == {"r": True, "s": True}


def test_a_start_that_fails_is_an_exit_with_its_reason() -> None:
    state = KnownReplicas()
    state.on_synced([_run()], [])
    state.on_start_failed("r", "no such program")
    assert state.reports()[0].reason == "no such program"


def test_a_replica_that_lost_contact_is_released_with_the_reason_in_words() -> None:
    state = KnownReplicas(lease_seconds=15)
    state.on_synced([_run()], [])
    state.on_started("r", 7)
    state.on_exited("r", EXIT_LOST_CONTACT)
    (report,) = state.reports()
    assert (report.released, report.reason) == (True, "lost contact with the API for 15 s")


def test_a_replica_that_crashes_is_not_released() -> None:
    state = _running()
    state.on_exited("r", 1)
    assert [item.released for item in state.reports()] == [False]
