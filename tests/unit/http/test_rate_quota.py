"""Requests per minute, as Google refuses them."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from podyard import migrations
from podyard.base.clock import ClockMode, ManualClock, RealTime
from podyard.base.errors import Code, ErrorInfo, PodyardError, QuotaFailure
from podyard.control.access import identity
from podyard.control.platform import rate_quota
from podyard.db.store import platform_clock
from podyard.db.store.unit_of_work import Database, UnitOfWork
from podyard.domain.fleet import Fleet
from podyard.domain.fleet_file import instant_fleet, load_fleet

START = RealTime.from_rfc3339("2026-03-01T00:00:00Z")
FLEET = """
zones: {us-central1-f: {v2: {shape: 4x4}}}
quotas: {requests_per_minute: {default: 5, nodes.create: 2, queuedResources.list: 0}}
"""


@dataclasses.dataclass
class Parts:
    database: Database
    clock: ManualClock
    fleet: Fleet = dataclasses.field(default_factory=lambda: load_fleet(FLEET))

    def fits(self, method: str, project: str = "demo") -> bool:
        return self.refusal(method, project) is None

    def refusal(self, method: str, project: str = "demo") -> PodyardError | None:
        try:
            rate_quota.check(self, project, method)
        except PodyardError as error:
            return error
        return None


@pytest.fixture
def parts(tmp_path: Path) -> Iterator[Parts]:
    clock = ManualClock(START)
    database = Database(f"sqlite:///{tmp_path / 'podyard.db'}", clock)
    migrations.upgrade(database)

    def body(uow: UnitOfWork) -> None:
        platform_clock.set_up(uow, ClockMode.SYSTEM)
        identity.bootstrap(uow, "owner", "agent", "local")

    database.run(body)
    yield Parts(database, clock)
    database.close()


def test_a_method_of_its_own_and_the_rest_are_counted_apart(parts: Parts) -> None:
    assert [parts.fits("nodes.create") for _ in range(3)] == [True, True, False]
    assert [parts.fits(method) for method in ("nodes.get", "nodes.list") for _ in range(3)] == [
        True
    ] * 5 + [False]
    assert parts.fits("nodes.create", "other")
    assert not parts.fits("queuedResources.list")


def test_the_next_minute_begins_anew(parts: Parts) -> None:
    parts.clock.advance(59)
    assert [parts.fits("nodes.create") for _ in range(3)] == [True, True, False]
    parts.clock.advance(1)
    assert [parts.fits("tpu.projects.locations.nodes.create") for _ in range(3)] == [
        True,
        True,
        False,
    ]


def test_the_refusal_is_google_s(parts: Parts) -> None:
    error = [parts.refusal("nodes.create") for _ in range(3)][-1]
    assert error is not None
    number = parts.database.read(lambda uow: identity.project_row(uow, "demo").number)
    text = (
        "Quota exceeded for quota metric 'CreateNode requests' and limit 'CreateNode requests per "
        "minute' of service "
        f"'tpu.googleapis.com' for consumer 'project_number:{number}'."
    )
    assert (error.code, error.message) == (Code.RESOURCE_EXHAUSTED, text)
    info, failure = error.details
    assert isinstance(info, ErrorInfo)
    assert (info.reason, info.domain) == ("RATE_LIMIT_EXCEEDED", "googleapis.com")
    assert info.metadata == {
        "service": "tpu.googleapis.com",
        "consumer": f"projects/{number}",
        "quota_limit": "CreateNodeRequestsPerMinutePerProject",
        "quota_limit_value": "2",
        "quota_location": "global",
        "quota_metric": "tpu.googleapis.com/create_node_requests",
    }
    assert failure == QuotaFailure(f"project_number:{number}", text)


def test_names_are_those_of_google_s_quota_page() -> None:
    names = ("nodes.list", "queuedResources.create", "operations.get", "default")
    expected = [
        "ListNodes requests",
        "CreateQueuedResource requests",
        "GetOperation requests",
        "Requests",
    ]
    assert [rate_quota.metric_of(name) for name in names] == expected


def test_nothing_is_counted_unless_it_is_configured(parts: Parts) -> None:
    parts.fleet = instant_fleet()
    assert all(parts.fits("nodes.create") for _ in range(100))
    parts.fleet = load_fleet(FLEET.replace("default: 5, ", ""))
    assert all(parts.fits("nodes.get") for _ in range(100))


def test_threads_together_get_no_more_than_the_limit(parts: Parts) -> None:
    parts.fleet = dataclasses.replace(parts.fleet, requests_per_minute={"default": 150})
    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(lambda _: parts.fits("nodes.get"), range(400))) == 150


def test_two_platforms_do_not_share_their_counts(parts: Parts, tmp_path: Path) -> None:
    other = Parts(Database(f"sqlite:///{tmp_path / 'other.db'}", parts.clock), parts.clock)
    assert [parts.fits("nodes.create") for _ in range(2)] == [True, True]
    assert [other.fits("nodes.create") for _ in range(2)] == [True, True]
    other.database.close()


@pytest.mark.parametrize(
    "wrong", ["[1]", "{nodes: 3}", "{nodes.create: -1}", "{nodes.create: many}", "{default: true}"]
)
def test_a_wrong_line_of_the_fleet_file_is_named(wrong: str) -> None:
    text: Any = FLEET.split("requests_per_minute:")[0] + f"requests_per_minute: {wrong}" + "}"
    with pytest.raises(PodyardError, match=r"quotas\.requests_per_minute"):
        load_fleet(text)
