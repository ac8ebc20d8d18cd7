"""What a job says of itself while it runs and when it fails, and where it is found: on both
databases."""

from __future__ import annotations

import pytest

from podyard.api.job_answers import to_api_job
from podyard.base.clock import ClockMode, ManualClock, PlatformClock, PlatformTime
from podyard.base.errors import Code, PodyardError
from podyard.base.money import Amount
from podyard.control.billing import costs, job_progress
from podyard.control.billing.job_progress import JobProgress
from podyard.control.compute import nodes
from podyard.control.jobs import jobs
from podyard.control.jobs.log_reader import LineFilter
from podyard.db.store import platform_clock
from podyard.db.store.unit_of_work import Database, UnitOfWork
from podyard.domain.principal import PLATFORM, Principal
from podyard.domain.usage import PriceUnit
from podyard.pricing.current_card import default_rate_card
from podyard.pricing.machines import MachineCard
from podyard.pricing.sku import make_sku, make_version
from tests.builders import PROJECT, ZONE, node_spec
from tests.store.test_scheduling import Scheduling, _points

OTHER_ZONE = "us-central1-b"
FLEET = """
zones:
  us-central1-a: {v2: {shape: 4x4}}
  us-central1-b: {v2: {shape: 4x4}}
"""
VIEWER = Principal("viewer", {PROJECT: frozenset({"jobs.runner"})})


@pytest.fixture
def yard(database: Database, clock: ManualClock) -> Scheduling:
    found = Scheduling(database, clock, FLEET)
    found.register()
    found.create("n")
    return found


def progress(yard: Scheduling, job_id: str, caller: Principal = PLATFORM) -> JobProgress:
    card = default_rate_card()
    asked = (PROJECT, "-", job_id)
    return yard.database.read(
        lambda uow: job_progress.of(uow, card, caller, jobs.get(uow, caller, *asked))
    )


def log(yard: Scheduling, job_id: str) -> list[tuple[PlatformTime, str]]:
    page = yard.ask(jobs.logs, job_id, yard.files, LineFilter(), "", 100)
    return [(line.at, line.line) for line in page.lines]


def test_a_running_job_shows_time_speed_what_is_left_and_its_cost(yard: Scheduling) -> None:
    yard.submit("j", "n")
    assert progress(yard, "j").steps_per_second is None
    yard.report(points=_points(1, 4))  # of ten steps, 0.1 s each
    assert yard.job("j").state == "RUNNING"
    yard.turn(8)
    found = progress(yard, "j")
    assert found.wall_seconds == pytest.approx(8) and found.steps_per_second == pytest.approx(10)
    assert found.seconds_left == pytest.approx(0.6)
    assert found.is_estimated and found.cost is not None
    first, second = found.cost, yard.database.read(_cost_by_the_bill)
    assert first == second and first > Amount()
    yard.turn(8)
    assert progress(yard, "j").cost == yard.database.read(_cost_by_the_bill) > first
    assert progress(yard, "j", VIEWER).cost is None, "who may not see the bill sees no cost"
    yard.report("SUCCEEDED", points=_points(5, 10))
    yard.exit_all()
    ended = progress(yard, "j")
    assert yard.job("j").state == "SUCCEEDED" and not ended.is_estimated
    assert ended.steps_per_second is None and ended.seconds_left is None
    yard.turn(60)
    assert progress(yard, "j") == ended, "a job that has ended costs no more, though its node does"


def _cost_by_the_bill(uow: UnitOfWork) -> Amount:
    (job,) = costs.costs(uow, default_rate_card(), PLATFORM, PROJECT).jobs
    return job.share.amount


def test_a_job_that_waits_costs_nothing_and_is_in_nobody_s_way(yard: Scheduling) -> None:
    yard.submit("first", "n")
    yard.report(points=_points(1, 4))
    yard.submit("waits", "n")
    yard.turn(8)
    card = default_rate_card()
    found = yard.database.read(lambda uow: costs.costs(uow, card, PLATFORM, PROJECT))
    assert [job.name.split("/")[-1] for job in found.jobs] == ["first"]


def test_a_slow_compilation_does_not_count_as_speed(yard: Scheduling) -> None:
    yard.submit("j", "n")
    points = _points(1, 3)
    points[0]["wall_seconds"] = 30.0
    yard.report(points=points)
    assert progress(yard, "j").steps_per_second == pytest.approx(10)


def test_what_no_attempt_can_mend_fails_the_job_at_once(yard: Scheduling) -> None:
    yard.submit("j", "n")
    yard.report("FAILED", error="NOT_FOUND: no file fits /data/mnist/train*", is_permanent=True)
    yard.exit_all()
    job = yard.job("j")
    assert (job.state, job.attempt, job.failures) == ("FAILED", 1, 1)
    assert (job.error_code, job.error_message) == (
        Code.NOT_FOUND,
        "no file fits /data/mnist/train*",
    )
    yard.turn(60)
    assert yard.job("j").attempt == 1 and yard.outcomes("j") == ["FAILED"]


def test_what_another_attempt_may_mend_is_tried_again(yard: Scheduling) -> None:
    yard.submit("j", "n")
    yard.report("FAILED", error="UNAVAILABLE: a peer is lost")
    yard.exit_all()
    yard.turn(1)
    assert yard.job("j").attempt == 2


def test_the_error_of_a_failed_job_is_in_its_log(yard: Scheduling) -> None:
    yard.submit("j", "n", max_failures=1)
    yard.report(lines=[(0, yard.clock.now(), "rank 0 of 1")])
    yard.report("FAILED", error="ABORTED: step 3: loss is not a finite number")
    yard.exit_all()
    yard.turn(1)
    yard.exit_all()  # without a word: the process was killed
    assert yard.job("j").state == "FAILED"
    assert [line for _, line in log(yard, "j")] == [
        "rank 0 of 1",
        "attempt 1 failed: ABORTED: step 3: loss is not a finite number",
        "attempt 2 failed: gone",
    ]


def test_log_lines_have_platform_time(yard: Scheduling) -> None:
    """Here platform time is an hour ahead of the machine's."""
    yard.database.run(_an_hour_ahead)
    yard.submit("j", "n")
    yard.turn(1)
    written = yard.clock.now()
    for _ in range(3):
        yard.turn(1)  # a loop that is away for longer lets the clock stand still
    yard.report(lines=[(0, written, "first"), (1, written.plus_seconds(2), "second")])
    now = yard.database.read(lambda uow: uow.now)
    assert now.nanos > yard.clock.now().nanos + 3_000 * 10**9
    assert [at for at, _ in log(yard, "j")] == [now.plus_seconds(-3), now.plus_seconds(-1)]
    yard.report(lines=[(2, written.plus_seconds(-100), "a machine's clock that was set back")])
    assert [line for _, line in log(yard, "j")] == [
        "first",
        "second",
        "a machine's clock that was set back",
    ]


def _an_hour_ahead(uow: UnitOfWork) -> None:
    ahead = PlatformTime(uow.real_now.plus_seconds(3600).nanos)
    platform_clock.write(uow, PlatformClock(ClockMode.LOCAL, ahead, uow.real_now))


def test_a_job_is_found_in_any_zone(yard: Scheduling) -> None:
    yard.submit("j", "n")
    assert yard.database.read(lambda uow: jobs.get(uow, PLATFORM, PROJECT, "-", "j")).zone == ZONE
    with pytest.raises(PodyardError, match="locations/-/jobs/other' was not found"):
        yard.database.read(lambda uow: jobs.get(uow, PLATFORM, PROJECT, "-", "other"))
    yard.database.run(
        lambda u: nodes.create(u, yard.fleet, PLATFORM, PROJECT, OTHER_ZONE, "n", node_spec())
    )
    yard.turn()
    yard.turn(30)
    asked = jobs.JobRequest(recipe="digits-cnn", steps=10)
    yard.database.run(
        lambda u: jobs.create(u, yard.fleet, PLATFORM, PROJECT, OTHER_ZONE, "j", asked, "n")
    )
    with pytest.raises(
        PodyardError, match=r"job j exists in 2 zones: specify one of us-central1-a, us-central1-b"
    ):
        yard.database.run(lambda uow: jobs.cancel(uow, PLATFORM, PROJECT, "-", "j"))
    stranger = Principal("stranger", {})
    with pytest.raises(PodyardError) as refused:
        yard.database.read(lambda uow: jobs.get(uow, stranger, PROJECT, "-", "j"))
    assert refused.value.code is Code.PERMISSION_DENIED


MACHINES = MachineCard(
    *(
        make_sku(name, unit, [make_version(name, "2026-01-01T00:00:00Z", usd, "a bill")])
        for name, unit, usd in (
            ("cpu_hour", PriceUnit.VCPU_HOUR, "3.6"),
            ("gib_hour", PriceUnit.GIB_HOUR, "0.36"),
        )
    )
)


def test_what_a_job_takes_of_this_machine_is_shown_where_there_is_a_card(
    yard: Scheduling, monkeypatch: pytest.MonkeyPatch
) -> None:
    yard.submit("j", "n")
    yard.report(used=(2_500_000, 3 << 20))
    assert progress(yard, "j").machine is None
    monkeypatch.setattr(job_progress, "machine_card", lambda: MACHINES)
    found = progress(yard, "j").machine
    assert found is not None and found.amount is not None
    assert (found.cpu_seconds, found.gib_seconds, found.amount.text(9)) == (3, 3, "0.003300000")
    yard.report("FAILED", error="UNAVAILABLE: a peer is lost", used=(4_000_000, 5 << 20))
    yard.exit_all()
    yard.turn(1)
    yard.report(used=(1, 1))  # of the second attempt
    found = progress(yard, "j").machine
    assert found is not None and (found.cpu_seconds, found.gib_seconds) == (5, 6)
    assert progress(yard, "j", VIEWER).machine is None, "who may not see the bill sees no cost"
    yard.turn(8)
    (job,) = yard.database.read(
        lambda uow: costs.costs(uow, default_rate_card(), PLATFORM, PROJECT).jobs
    )
    assert job.machine == found
    (job,) = yard.database.read(
        lambda uow: costs.costs(uow, default_rate_card(), PLATFORM, PROJECT, "2026-03").jobs
    )
    assert job.machine == found
    assert to_api_job(yard.job("j"), progress(yard, "j"))["machine"] == {
        "cpuSeconds": 5,
        "gibSeconds": 6,
        "cost": "0.005600000000",
    }
