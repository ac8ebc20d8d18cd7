"""How long silence may last is a setting: the same one for the API, the loop and the agents."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from podyard.base.clock import ManualClock
from podyard.base.errors import PodyardError
from podyard.settings import Leases, from_environment
from podyard.workers.agent.agent import SYNC_SECONDS, Agent
from podyard.workers.agent.registration import Registration
from podyard.workers.kit.http_client import JsonClient
from tests.unit.control.gang import Gang, submit
from tests.yard import START, Yard, open_yard

SHORT = Leases(agent_seconds=0.5, replica_seconds=0.6)


@pytest.fixture
def yard(tmp_path: Path) -> Iterator[Yard]:
    with open_yard(tmp_path) as found:
        found.database.leases = SHORT
        yield found


def test_leases_come_from_the_environment_and_go_to_other_processes() -> None:
    named = {"PODYARD_AGENT_LEASE_SECONDS": "2", "PODYARD_REPLICA_LEASE_SECONDS": "2.5"}
    found = from_environment(named)
    assert found.leases == Leases(2.0, 2.5)
    assert from_environment(found.environment()).leases == found.leases
    assert from_environment({}).leases == Leases(10.0, 15.0)


@pytest.mark.parametrize("text", ["0.4", "601", "nan", "inf", "-1", "soon"])
def test_a_lease_that_no_process_could_keep_or_nobody_would_wait_for_is_refused(text: str) -> None:
    with pytest.raises(PodyardError, match=r"PODYARD_AGENT_LEASE_SECONDS is .* from 0\.5 to 600"):
        from_environment({"PODYARD_AGENT_LEASE_SECONDS": text})


def _turn(yard: Yard, seconds: float) -> None:
    """Time as a living loop sees it: rounds a tenth of a second apart."""
    for _ in range(round(seconds * 10)):
        yard.clock.advance(0.1)
        yard.loop.round()


def test_a_silent_gang_is_lost_after_a_short_lease_and_not_before(yard: Yard) -> None:
    yard.create("n")
    gang = Gang(yard)
    path = submit(gang)
    (replica,) = gang.sync()
    assert gang.specification(replica)["leaseSeconds"] == 0.6
    assert gang.points(replica, 1, 2).json()["leaseSeconds"] == 0.6
    _turn(yard, 0.5)
    assert yard.ok("GET", path)["state"] == "RUNNING"
    _turn(yard, 0.3)
    assert yard.ok("GET", path)["state"] == "RECOVERING"


class _Answers:
    """An API whose every answer names one lease."""

    def __init__(self, lease_seconds: float) -> None:
        self._lease_seconds = lease_seconds

    def call(self, _method: str, _path: str, _body: Any = None) -> dict[str, Any]:
        return {"fence": 1, "leaseSeconds": self._lease_seconds, "replicas": []}


@pytest.mark.parametrize(("lease", "period"), [(0.6, 0.2), (10.0, SYNC_SECONDS)])
def test_an_agent_syncs_three_times_in_a_lease_however_short(
    tmp_path: Path, lease: float, period: float
) -> None:
    api = cast(JsonClient, _Answers(lease))
    clock = ManualClock(START)
    registration = Registration(4, 4, "127.0.0.1", tmp_path, clock)
    agent = Agent("local", api, tmp_path, registration, ("true",), {}, clock)
    assert agent.sync()
    assert agent.sync_seconds == pytest.approx(period)


def test_an_agent_is_told_its_lease(yard: Yard) -> None:
    gang = Gang(yard)
    assert gang.lease_seconds == 0.5
    gang.sync()
    assert gang.lease_seconds == 0.5
