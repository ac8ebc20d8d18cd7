"""Budgets: thresholds once per period, refusal of new nodes, and the stop at the end of the exact
second; on both databases."""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest
from sqlalchemy import select

from podyard.base.clock import ClockMode, ManualClock, PlatformTime
from podyard.base.errors import Code, PodyardError
from podyard.base.money import Amount
from podyard.control.billing import accounts, bills, budgets, commitments, spending, usages
from podyard.control.compute import nodes
from podyard.control.platform import clock as clock_control
from podyard.control.platform import webhooks
from podyard.db.billing import usage_events
from podyard.db.compute import nodes as node_rows
from podyard.db.store import outbox, platform_clock
from podyard.db.store.unit_of_work import Database
from podyard.domain.budget import Budget, BudgetScope
from podyard.domain.principal import PLATFORM
from podyard.domain.usage import parts_within
from podyard.pricing.bill import resource_of
from podyard.pricing.current_card import default_rate_card
from tests.builders import FLEET, PROJECT, ZONE, Play, node_spec, request

DAY = 86_400
URL = "http://127.0.0.1:9/hook"


def _set(play: Play, name: str = "b", **fields: Any) -> Any:
    wanted = budgets.BudgetRequest(**{"amount": "10", **fields})
    return play.database.run(
        lambda u: budgets.set_budget(u, play.fleet, PLATFORM, PROJECT, name, wanted)
    )[0]


def _events(play: Play) -> list[Any]:
    return play.database.read(lambda uow: budgets.events(uow, PLATFORM, PROJECT, 0, 100))


def _kinds(play: Play) -> list[tuple[str, str, str]]:
    return [(row.period, row.kind, row.detail.partition(" ")[0]) for row, _ in _events(play)]


def _usage(play: Play) -> usages.ProjectUsage:
    return play.database.read(lambda uow: usages.usage(uow, default_rate_card(), PLATFORM, PROJECT))


def _refused(code: Code, body: Any) -> str:
    with pytest.raises(PodyardError) as raised:
        body()
    assert raised.value.code is code, raised.value.message
    return raised.value.message


@pytest.mark.parametrize(
    ("amount", "seconds"),
    [("10", 8000), ("10.001", 8001), ("0.00125", 1), ("0.001250001", 2), ("0", 1)],
)
def test_a_node_is_stopped_at_the_end_of_the_second_in_which_the_amount_is_reached(
    play: Play, amount: str, seconds: int
) -> None:
    _set(play, amount=amount, actions=["stop"])
    play.run(nodes.create, "n", node_spec())
    play.turn()
    play.turn(DAY)  # the loop was away all the while: what was due happens at its own time
    assert play.states() == {"n": "STOPPED"}
    (line,) = _usage(play).nodes
    assert line.seconds == seconds
    assert "budget b is used up since" in play.node().state_reason
    stop = PlatformTime.from_rfc3339("2026-03-01T00:00:10Z").plus_seconds(seconds).rfc3339()
    assert ("2026-03", "threshold", "1") in _kinds(play)
    assert ("2026-03", "stop", stop) in _kinds(play)


def test_on_a_virtual_clock_the_walk_does_not_pass_the_second(play: Play) -> None:
    play.database.run(lambda uow: platform_clock.set_up(uow, ClockMode.VIRTUAL))
    play.loop.round()
    _set(play, actions=["stop"])
    play.run(nodes.create, "one", node_spec())
    play.loop.round()
    target = PlatformTime.from_rfc3339("2026-03-01T00:33:30Z")  # 2000 s of the first
    play.database.run(lambda uow: clock_control.advance(uow, PLATFORM, to=target))
    for _ in range(20):
        play.loop.round()
    play.run(nodes.create, "two", node_spec())
    play.loop.round()
    play.database.run(lambda uow: clock_control.advance(uow, PLATFORM, by_nanos=5 * DAY * 10**9))
    for _ in range(40):
        play.loop.round()
    used = _usage(play)
    assert used.as_of == PlatformTime.from_rfc3339("2026-03-06T00:33:30Z")
    # 2010 s alone, then both: 2010 + 2 x 2995 = 8000.
    assert {node.name.rpartition("/")[2]: node.seconds for node in used.nodes} == {
        "one": 5005,
        "two": 2995,
    }
    assert used.amount.text(12) == "10.000000000000"
    assert play.states() == {"one": "STOPPED", "two": "STOPPED"}


def test_a_pod_slice_is_deleted_since_it_cannot_be_stopped(play: Play) -> None:
    _set(play, amount="24", actions=["stop"])
    play.create("n", "v2-32")
    play.turn(DAY)
    assert play.states() == {}
    assert _usage(play).seconds == 3600


def test_thresholds_are_recorded_once_in_each_period(play: Play) -> None:
    _set(play, thresholds=["1", "0.5"], actions=[f"notify:{URL}"])
    play.create("n")
    for _ in range(5):
        play.turn(3600)
    assert _kinds(play) == [("2026-03", "threshold", "0.5"), ("2026-03", "threshold", "1")]
    (half, _), (whole, _) = _events(play)
    assert (half.at.rfc3339(), half.cost.text(9)) == ("2026-03-01T01:06:50Z", "5.000000000")
    assert (whole.at.rfc3339(), whole.cost.text(9)) == ("2026-03-01T02:13:30Z", "10.000000000")
    assert play.states() == {"n": "READY"}
    play.turn(32 * DAY)
    assert _kinds(play)[2:] == [("2026-04", "threshold", "0.5"), ("2026-04", "threshold", "1")]


def test_what_is_expected_is_a_threshold_of_its_own(play: Play) -> None:
    _set(play, amount="3000", forecasts=["1"])
    play.create("n")
    play.turn(2 * DAY)
    ((period, kind, share),) = _kinds(play)
    assert (period, kind, share) == ("2026-03", "forecast", "1")
    assert "3,347." in _events(play)[0][0].text


def test_a_total_does_not_begin_again_with_the_month(play: Play) -> None:
    _set(play, amount="4000", period="total")
    play.create("n")
    play.turn(31 * DAY)
    assert _kinds(play) == []
    play.turn(31 * DAY)
    ((period, _, _),) = _kinds(play)
    assert period == "total"


@pytest.mark.parametrize("action", ["refuse-new-nodes", "stop"])
def test_a_budget_that_is_used_up_lets_no_new_node_in_until_the_next_month(
    play: Play, action: str
) -> None:
    play.create("n")
    play.turn(3 * 3600)
    _set(play, actions=[action])
    message = _refused(Code.RESOURCE_EXHAUSTED, lambda: play.run(nodes.create, "m", node_spec()))
    assert message == "budget b of projects/demo is used up: 13.50 of 10.00 USD in 2026-03"
    message = _refused(Code.RESOURCE_EXHAUSTED, lambda: play.queue(request("w")))
    assert "budget b of projects/demo is used up" in message
    play.run(nodes.delete, "n")
    play.turn(31 * DAY)
    play.create("m")
    assert play.states() == {"m": "READY"}


def _refused_as(play: Play, actor: str, name: str = "m") -> None:
    """As the edge does it: the refused unit, and one that keeps the refusal."""
    with pytest.raises(spending.Refused) as raised:
        play.run(nodes.create, name, node_spec())
    play.database.run(partial(spending.keep_refusal, refused=raised.value), actor=actor)


def test_a_refusal_is_on_record_once_for_each_budget_principal_and_minute(play: Play) -> None:
    play.create("n")
    play.turn(3 * 3600)
    _set(play, actions=["refuse-new-nodes"])
    before = len(_events(play))
    for _ in range(3):
        _refused_as(play, "ann@example.com")
    _refused_as(play, "bob@example.com", "other")
    play.turn(60)
    _refused_as(play, "ann@example.com")
    rows = [entry for entry, _ in _events(play)[before:]]
    assert [(row.kind, row.detail) for row in rows] == [
        ("refuse", "2026-03-01T03:00:00Z ann@example.com"),
        ("refuse", "2026-03-01T03:00:00Z bob@example.com"),
        ("refuse", "2026-03-01T03:01:00Z ann@example.com"),
    ]
    first, second, _ = rows
    assert (first.name, first.cost.text(2), first.amount.text(2)) == ("b", "13.50", "10.00")
    assert second.text == (
        "bob@example.com was refused other: budget b of projects/demo is used up: 13.50 of 10.00 "
        "USD in 2026-03"
    )
    assert play.states() == {"n": "READY"}


def test_a_refusal_by_a_budget_that_is_gone_is_not_kept(play: Play) -> None:
    play.create("n")
    play.turn(3 * 3600)
    _set(play, actions=["refuse-new-nodes"])
    before = len(_events(play))
    with pytest.raises(spending.Refused) as raised:
        play.run(nodes.create, "m", node_spec())
    play.database.run(lambda uow: budgets.remove(uow, PLATFORM, PROJECT, "b"))
    play.database.run(partial(spending.keep_refusal, refused=raised.value))
    assert len(_events(play)) == before


def _read_events(play: Play, monkeypatch: pytest.MonkeyPatch, row: Any) -> int:
    """Return how many usage events one look at a budget reads."""
    read = 0
    events = usage_events.events

    def counted(*arguments: Any, **options: Any) -> Iterator[Any]:
        nonlocal read
        for event in events(*arguments, **options):
            read += 1
            yield event

    with monkeypatch.context() as patched:
        patched.setattr(usage_events, "events", counted)
        play.database.run(lambda uow: budgets.look(uow, play.fleet, row))
    return read


def test_a_look_reads_what_its_period_and_scope_have_used(
    play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(5):
        play.create(f"old-{number}")
        play.turn(60)
        play.run(nodes.delete, f"old-{number}")
        play.turn(60)
    play.create("kept")
    play.turn(31 * DAY)
    play.create("new", labels={"team": "a"})
    whole = _set(play, amount="100000")
    assert _read_events(play, monkeypatch, whole) == 4  # CREATING and READY, of two nodes
    mine = _set(play, "mine", amount="100000", scope="label:team=a")
    assert _read_events(play, monkeypatch, mine) == 2
    ever = _set(play, "ever", amount="100000", period="total")
    assert _read_events(play, monkeypatch, ever) == 4 + 5 * 4


@pytest.mark.parametrize("commit", [False, True])
def test_what_a_look_leaves_out_would_change_nothing(
    database: Database, clock: ManualClock, commit: bool
) -> None:
    play = Play(database, clock, FLEET.replace("v2: {shape: 4x4}", "v2: {shape: 8x8}"))
    _mixed_use(play, commit)
    periods = [
        spending.Period(
            name,
            range(
                *(PlatformTime.from_rfc3339(f"{text}T00:00:00Z").nanos // 10**9 for text in ends)
            ),
        )
        for name, ends in {
            "2026-03": ("2026-03-01", "2026-04-01"),
            "2026-04": ("2026-04-01", "2026-05-01"),
            "2026-05": ("2026-05-01", "2026-06-01"),
        }.items()
    ]

    def body(uow: Any) -> None:
        account = accounts.of(uow, PROJECT)
        facts = usage_events.facts(uow, PROJECT)
        resources = {key: resource_of(default_rate_card(), node) for key, node in facts.items()}
        for period in periods:
            terms = bills.terms_of(uow, account)
            everything = bills.compute(uow, [PROJECT], resources, terms, period.end).charges
            wanted = list(parts_within(everything, period.seconds))
            scope = (BudgetScope.PROJECT, "", Amount(), "month", (), (), ())
            budget = Budget("key", PROJECT, "b", *scope, "secret", uow.now)
            found = spending.charges(uow, account, budget, period, period.end)
            assert spending.cost_until(found, period.end) == spending.cost_until(wanted, period.end)
            assert spending.cost_until(found, period.end).parts > 0

    play.database.read(body)


def _mixed_use(play: Play, commit: bool) -> None:
    """Nodes that begin, end, stop and start on both sides of two ends of months."""
    if commit:
        wanted = commitments.CommitmentRequest(
            quantity=1, years=1, accelerator_type="v2-32", zone=ZONE
        )
        play.database.run(
            lambda uow: commitments.buy(uow, default_rate_card(), PLATFORM, PROJECT, wanted)
        )
    play.create("all")
    play.create("chip", "v5litepod-1")
    play.create("gone", "v2-32")
    play.turn(10 * DAY)
    play.run(nodes.delete, "gone")
    play.run(nodes.stop, "chip")
    play.turn(15 * DAY)
    play.run(nodes.start, "chip")
    play.create("over", "v2-32")
    play.turn(10 * DAY)
    play.run(nodes.delete, "over")
    play.run(nodes.stop, "chip")
    play.turn(30 * DAY)
    play.create("last", "v2-32")
    play.turn(DAY)


def test_what_waits_in_the_queue_says_why_and_goes_on_when_the_budget_is_raised(play: Play) -> None:
    play.create("n", "v2-32")  # it fills the pod
    _set(play, amount="24", actions=["refuse-new-nodes"])
    play.queue(request("w"))
    play.turn(7200)
    play.run(nodes.delete, "n")
    play.turn()
    play.turn(60)
    row = play.queued()
    assert row.state == "WAITING_FOR_RESOURCES"
    assert "budget b of projects/demo is used up: 48" in row.wait_reason
    _set(play, amount="100", actions=["refuse-new-nodes"])
    play.turn()
    play.turn(10)
    assert play.queued().state == "ACTIVE"


def test_only_what_is_of_the_scope_counts_and_stops(play: Play) -> None:
    play.create("other")
    _set(play, scope="label:team=a", actions=["stop"])
    _set(play, "single", scope="node:x", amount="4.5", actions=["stop"])
    play.create("mine", labels={"team": "a"})
    play.create("x")
    play.turn(DAY)
    assert play.states() == {"other": "READY", "mine": "STOPPED", "x": "STOPPED"}
    seconds = {node.name.rpartition("/")[2]: node.seconds for node in _usage(play).nodes}
    assert (seconds["mine"], seconds["x"]) == (8000, 3600)
    assert "single" in _refused(Code.RESOURCE_EXHAUSTED, lambda: _again(play, "x"))
    play.create("free")


def _again(play: Play, name: str) -> None:
    play.run(nodes.delete, name)
    play.turn(10)
    play.run(nodes.create, name, node_spec())


def test_notice_comes_before_the_stop_and_is_withdrawn_when_it_will_not_come(play: Play) -> None:
    _set(play, actions=["stop"])
    for name in ("n", "m"):
        play.run(nodes.create, name, node_spec())
    play.turn()
    play.turn(10)
    play.turn(3980)  # both will have used up the amount after 4000 s

    def notice(name: str) -> Any:
        def read(uow: Any) -> Any:
            node = node_rows.find(uow, PROJECT, ZONE, name)
            return None if node is None else node.reclaim_at

        return play.database.read(read)

    assert notice("n") == PlatformTime.from_rfc3339("2026-03-01T01:06:50Z")
    play.run(nodes.delete, "m")
    play.turn()
    assert notice("n") == PlatformTime.from_rfc3339(
        "2026-03-01T01:07:10Z"
    )  # 40 s of one are left, instead of 20 of two
    _set(play, amount="100", actions=["stop"])
    assert notice("n") is None
    assert [kind for _, kind, _ in _kinds(play)] == ["notice", "notice"]


def test_a_node_that_starts_after_the_stop_costs_nothing(play: Play) -> None:
    _set(play, actions=["stop"])
    play.create("n")
    play.turn(8000)
    assert play.states() == {"n": "STOPPED"}
    play.run(nodes.start, "n")
    play.turn()
    play.turn(60)
    assert play.states() == {"n": "STOPPED"}
    assert _usage(play).amount.text(9) == "10.000000000"


def test_the_same_budget_again_changes_nothing_and_another_one_replaces_it(play: Play) -> None:
    first = _set(play)
    again = _set(play)
    assert again.budget_key == first.budget_key
    other = _set(play, amount="11")
    assert other.budget_key != first.budget_key
    assert other.secret == first.secret
    play.database.run(lambda uow: budgets.remove(uow, PLATFORM, PROJECT, "b"))
    assert play.database.read(lambda uow: budgets.list_budgets(uow, PLATFORM, PROJECT)) == []
    _refused(
        Code.NOT_FOUND,
        lambda: play.database.run(lambda uow: budgets.remove(uow, PLATFORM, PROJECT, "b")),
    )


def test_what_is_no_budget_is_refused_with_its_field(play: Play) -> None:
    cases: list[tuple[dict[str, Any], str]] = [
        ({"amount": "-1"}, "amount"),
        ({"amount": "1e9"}, "amount"),
        ({"amount": "0.0000000001"}, "nine decimals"),
        ({"scope": "folder:x"}, "scope"),
        ({"scope": "label:team"}, "KEY=VALUE"),
        ({"scope": "project:x"}, "scope"),
        ({"scope": "job:"}, "scope"),
        ({"period": "week"}, "period"),
        ({"period": "total", "forecasts": ["1"]}, "total"),
        ({"thresholds": ["0"]}, "thresholds"),
        ({"thresholds": ["11"]}, "thresholds"),
        ({"thresholds": ["half"]}, "thresholds"),
        ({"actions": ["reboot"]}, "reboot"),
        ({"actions": ["notify:ftp://x"]}, "ftp://x"),
        ({"actions": ["notify:http://user:secret@x/"]}, "address"),
        ({"actions": ["notify:http://x/\n"]}, "address"),
    ]
    for fields, text in cases:
        assert text in _refused(Code.INVALID_ARGUMENT, partial(_set, play, **fields))


def test_a_webhook_is_claimed_signed_and_its_result_written_under_the_fence(
    play: Play, clock: ManualClock
) -> None:
    row = _set(play, actions=[f"notify:{URL}"])
    play.create("n")
    play.turn(8000)
    ((hook,),) = [hooks for _, hooks in _events(play)]
    claimed = play.database.run(lambda uow: webhooks.claim(uow, hook.webhook_id))
    assert claimed is not None
    digest = hmac.new(row.secret.encode(), claimed.body.encode(), hashlib.sha256).hexdigest()
    assert webhooks.signature_of(claimed.secret, claimed.body.encode()) == f"sha256={digest}"
    body = json.loads(claimed.body)
    assert (body["budget"], body["kind"], body["detail"], body["cost"]) == (
        "b",
        "threshold",
        "1",
        "10.000000000",
    )
    # it is under way
    assert play.database.run(lambda uow: webhooks.claim(uow, hook.webhook_id)) is None
    clock.advance(webhooks.CLAIM_SECONDS)
    # its worker has died
    second = play.database.run(lambda uow: webhooks.claim(uow, hook.webhook_id))
    assert second is not None
    assert not play.database.run(lambda uow: webhooks.finish(uow, claimed, True, "late"))
    assert play.database.run(lambda uow: webhooks.finish(uow, second, False, "503"))
    waits = 0
    while True:
        clock.advance(webhooks.WAITS_SECONDS[-1])
        again = play.database.run(lambda uow: webhooks.claim(uow, hook.webhook_id))
        if again is None:
            break
        waits += 1
        play.database.run(lambda uow, again=again: webhooks.finish(uow, again, False, "503"))
    assert waits == webhooks.TRIES_MAX - 2
    ((hook,),) = [hooks for _, hooks in _events(play)]
    assert (hook.tries, hook.next_try) == (webhooks.TRIES_MAX, None)
    assert hook.outcome == "given up after 5 tries: 503"


def test_a_hint_that_was_lost_is_given_again(play: Play, clock: ManualClock) -> None:
    _set(play, actions=[f"notify:{URL}"])
    play.create("n")
    play.turn(8000)
    play.turn(webhooks.CLAIM_SECONDS)

    def hints(uow: Any) -> list[Any]:
        return [row for row in uow.all(select(outbox.outbox)) if row["task"] == webhooks.TASK]

    assert len(play.database.read(hints)) >= 2


def test_a_budget_of_another_zone_counts_its_own_month(play: Play) -> None:
    play.database.run(
        lambda uow: accounts.patch(uow, PLATFORM, PROJECT, {"time_zone": "Asia/Tokyo"})
    )
    _set(play, amount="4.5")
    play.create("n")
    play.turn(31 * DAY)
    found = [(row.period, row.at.rfc3339()) for row, _ in _events(play)]
    assert found == [("2026-03", "2026-03-01T01:00:10Z"), ("2026-04", "2026-03-31T16:00:00Z")]
