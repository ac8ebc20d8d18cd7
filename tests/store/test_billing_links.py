"""One billing account over several projects: one invoice, one explorer, one budget; on both
databases."""

from __future__ import annotations

import csv
import dataclasses
import io
import json
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import pytest

from podyard.base.clock import ManualClock, PlatformTime
from podyard.base.errors import Code, PodyardError
from podyard.base.money import Amount
from podyard.control.access import identity
from podyard.control.billing import (
    accounts,
    bill_lines,
    budgets,
    commitments,
    costs,
    dashboard,
    explorer,
    invoices,
    links,
    snapshots,
    usages,
)
from podyard.control.checks import fsck
from podyard.control.compute import nodes
from podyard.db.billing import budgets as budget_rows
from podyard.db.store.unit_of_work import Database
from podyard.domain.account import ALWAYS, BillingLink, PaidProject, paid_projects
from podyard.domain.principal import PLATFORM, Principal
from podyard.http import several_units
from podyard.pricing.current_card import default_rate_card
from tests.builders import FLEET, PROJECT, ZONE, Play, node_spec, request
from tests.surfaces import check_books, check_month, check_uses, exported

OTHER, THIRD = "other-project", "third-project"
PER_SECOND = Fraction("4.50") / 3600  # of a v2-8
MARCH = "2026-03"
DAY = 86_400


@pytest.fixture
def yard(play: Play) -> Play:
    """PROJECT has a node, and so has OTHER; all since 2026-03-01 00:00:10."""
    play.database.run(lambda uow: identity.create_project(uow, PLATFORM, OTHER, {}))
    _create(play, PROJECT, "mine")
    _create(play, OTHER, "theirs")
    play.turn()
    play.turn(10)
    return play


def _create(play: Play, project: str, name: str, kind: str = "v2-8") -> None:
    play.database.run(
        lambda uow: nodes.create(uow, play.fleet, PLATFORM, project, ZONE, name, node_spec(kind))
    )


def _link(play: Play, project: str, payer: str, principal: Principal = PLATFORM) -> BillingLink:
    return play.database.run(lambda uow: links.link(uow, principal, project, payer))


def _snapshot(play: Play, project: str) -> snapshots.Snapshot:
    return several_units.read_snapshot(
        play.database, lambda uow: snapshots.snapshot(uow, default_rate_card(), PLATFORM, project)
    )


def _ask(play: Play, project: str, **fields: str) -> dict[str, int]:
    """Net parts by group, of March."""
    found = _snapshot(play, project)
    where = [fields.pop("where")] if "where" in fields else []
    asked = explorer.to_question(
        found.account, found.as_of, {"from": "2026-03-01", "to": "2026-03-31"} | fields, where
    )
    return {
        row.name: row.net
        for row in play.database.read(lambda uow: explorer.ask(uow, found, asked)).rows
    }


def _seconds(seconds: int) -> int:
    return Amount.of_hourly(4_500_000_000, seconds).parts


def _refused(code: Code, body: Callable[[], Any]) -> str:
    with pytest.raises(PodyardError) as raised:
        body()
    assert raised.value.code is code, raised.value.message
    return raised.value.message


def _close(play: Play, project: str, month: str = MARCH) -> None:
    several_units.close(
        play.database, default_rate_card(), PLATFORM, project, month, hold_suspense=False
    )


def _check(play: Play, *months: str) -> None:
    card = default_rate_card()
    check_uses(play.database, card, [PROJECT, OTHER])
    check_books(play.database, play.fleet, card)
    for project in (PROJECT, OTHER):
        for month in months:
            check_month(play.database, card, project, month)


def test_each_second_is_paid_for_by_one_account() -> None:
    made = [
        BillingLink("a", 10, "b"),
        BillingLink("a", 20, "b"),
        BillingLink("a", 30, "a"),
        BillingLink("b", 15, "c"),
    ]
    assert paid_projects("a", made[:3]) == (PaidProject("a", (range(10), range(30, ALWAYS.stop))),)
    assert paid_projects("b", made) == (
        PaidProject("b", (range(15),)),
        PaidProject("a", (range(10, 30),)),
    )
    assert paid_projects("c", made[3:]) == (
        PaidProject("c", (ALWAYS,)),
        PaidProject("b", (range(15, ALWAYS.stop),)),
    )
    assert paid_projects("d", []) == (PaidProject("d", (ALWAYS,)),)


def test_from_the_next_second_on_the_other_account_pays(yard: Play) -> None:
    yard.turn(99.5)
    made = _link(yard, OTHER, PROJECT)
    assert made.from_second == PlatformTime.from_rfc3339("2026-03-01T00:01:50Z").nanos // 10**9
    yard.turn(900.5)
    assert _ask(yard, PROJECT, group="project") == {PROJECT: _seconds(1000), OTHER: _seconds(900)}
    assert _ask(yard, PROJECT, group="node", where=f"project={OTHER}") == {
        f"{OTHER}/{ZONE}/theirs": _seconds(900)
    }
    # Its own page has all that it has used, at list prices.
    assert _ask(yard, OTHER, group="node") == {f"{ZONE}/theirs": _seconds(1000)}
    _link(yard, OTHER, OTHER)
    yard.turn(50)
    assert _ask(yard, PROJECT, group="project") == {PROJECT: _seconds(1050), OTHER: _seconds(900)}
    # what its own account pays for
    assert _ask(yard, OTHER, group="project") == {OTHER: _seconds(150)}
    _check(yard, MARCH)


def test_one_invoice_for_both_and_what_comes_late_stays_where_it_was(yard: Play) -> None:
    yard.turn(1000)
    _link(yard, OTHER, PROJECT)
    yard.turn(1000)
    yard.database.run(lambda uow: nodes.stop(uow, yard.fleet, PLATFORM, OTHER, ZONE, "theirs"))
    yard.turn(33 * DAY)
    _check(yard, MARCH, "2026-04")
    _close(yard, PROJECT)
    _close(yard, OTHER)
    issued = {
        project: yard.database.read(
            lambda uow, project=project: invoices.get(uow, PLATFORM, project, MARCH)
        )
        for project in (PROJECT, OTHER)
    }
    (line,) = json.loads(issued[PROJECT].document)["lines"]
    month_left = 31 * DAY - 10
    assert int(line["parts"]) == _seconds(month_left + 1000)
    (line,) = json.loads(issued[OTHER].document)["lines"]
    assert int(line["parts"]) == _seconds(1000)
    (_, rows) = next(exported(yard.database, default_rate_card(), PROJECT, MARCH, ("csv",)))
    sums: dict[str, Fraction] = {}
    for row in csv.DictReader(io.StringIO(rows.decode(), newline="")):
        sums[row["project"]] = sums.get(row["project"], Fraction(0)) + Fraction(
            row["cost_usd"] or 0
        )
    assert sums[OTHER] == 1000 * PER_SECOND
    assert sums[PROJECT] == month_left * PER_SECOND
    for month_of, seconds in ((PROJECT, month_left + 1000), (OTHER, 1000)):
        found = yard.database.read(
            lambda uow, of=month_of: bill_lines.explain(
                uow, default_rate_card(), PLATFORM, of, MARCH, line["id"]
            )
        )
        assert found.seconds == seconds
    assert yard.database.read(lambda uow: fsck.check(uow, yard.fleet, default_rate_card())) == []


def test_what_comes_late_is_corrected_by_the_account_of_its_second(yard: Play) -> None:
    yard.turn(500)
    yard.database.run(lambda uow: nodes.stop(uow, yard.fleet, PLATFORM, OTHER, ZONE, "theirs"))
    yard.turn(500)
    _link(yard, OTHER, PROJECT)
    yard.turn(33 * DAY)
    _close(yard, PROJECT)
    _close(yard, OTHER)
    # A thousand seconds that nobody knew of: the link was made in the middle of them.
    yard.late_event("READY", "2026-03-01T00:11:50Z", "theirs")
    yard.late_event("STOPPED", "2026-03-01T00:28:30Z", "theirs")
    for project, seconds in ((PROJECT, 700), (OTHER, 300)):
        asked = {"principal": PLATFORM, "project": project, "month": "2026-04"}
        found = yard.database.read(
            lambda uow, asked=asked: invoices.preview(uow, default_rate_card(), **asked)
        )
        assert found.document is not None
        (correction,) = found.document.adjustments
        (item,) = correction.items
        assert (correction.corrects_month, item.seconds, item.name.split("/")[1]) == (
            MARCH,
            seconds,
            OTHER,
        )
    check_uses(yard.database, default_rate_card(), [PROJECT, OTHER])
    for project in (PROJECT, OTHER):
        for month in (MARCH, "2026-04"):
            check_month(yard.database, default_rate_card(), project, month)


def test_an_open_line_of_an_account_that_pays_for_nothing_now_is_explained(yard: Play) -> None:
    yard.turn(100)
    _link(yard, OTHER, PROJECT)
    yard.turn(100)
    asked = {"principal": PLATFORM, "project": OTHER, "month": MARCH}
    line = yard.database.read(
        lambda uow: invoices.preview(uow, default_rate_card(), **asked)
    ).document
    assert line is not None
    found = yard.database.read(
        lambda uow: bill_lines.explain(uow, default_rate_card(), line=line.lines[0].id, **asked)
    )
    assert found.seconds == 100


def test_commitments_of_the_account_cover_all_of_its_projects(
    database: Database, clock: ManualClock
) -> None:
    yard = Play(database, clock, FLEET.replace("v2: {shape: 4x4}", "v2: {shape: 8x8}"))
    database.run(lambda uow: identity.create_project(uow, PLATFORM, OTHER, {}))
    _link(yard, OTHER, PROJECT)
    wanted = commitments.CommitmentRequest(2, 1, accelerator_type="v2-32", zone=ZONE)
    yard.database.run(
        lambda uow: commitments.buy(uow, default_rate_card(), PLATFORM, PROJECT, wanted)
    )
    for project, name in ((PROJECT, "mine"), (OTHER, "theirs")):
        _create(yard, project, name, "v2-32")
    yard.turn()
    yard.turn(10)
    yard.turn(1000)
    found = _snapshot(yard, PROJECT)
    assert sum(found.seconds.values()) == 2000
    assert not [
        charge for charge in found.charges if charge.resource_id in found.facts and charge.quantity
    ]
    # A project's own costs have list prices: what the commitments cover belongs to the account.
    assert _snapshot(yard, OTHER).plain
    for project in (PROJECT, OTHER):
        spent = yard.database.read(
            lambda uow, of=project: costs.costs(uow, default_rate_card(), PLATFORM, of, MARCH)
        )
        used = yard.database.read(
            lambda uow, of=project: usages.usage(uow, default_rate_card(), PLATFORM, of)
        )
        assert (spent.total, spent.commitments) == (used.amount, Amount())
        assert used.amount.parts
    _check(yard, MARCH)


def test_a_budget_of_the_account_counts_stops_and_refuses_in_all_projects(yard: Play) -> None:
    def set_budget(project: str, name: str, scope: str, *actions: str) -> None:
        wanted = budgets.BudgetRequest("10", scope, actions=actions)
        yard.database.run(
            lambda uow: budgets.set_budget(uow, yard.fleet, PLATFORM, project, name, wanted)
        )

    _link(yard, OTHER, PROJECT)
    set_budget(PROJECT, "both", "account", "stop", "refuse-new-nodes")
    set_budget(PROJECT, "one", "project")
    # of an account that pays for nothing now
    set_budget(OTHER, "own", "account", "stop", "refuse-new-nodes")
    yard.turn(1000)
    _create(yard, OTHER, "second")  # it is seen by the account's budget: three nodes from now on
    yard.turn()
    yard.turn(10)
    states = {one.budget.name: one.spent for one in dashboard_budgets(yard, PROJECT)}
    assert states == {"both": Amount(_seconds(2 * 1010)), "one": Amount(_seconds(1010))}
    yard.turn(DAY)
    # 2 nodes for 1010 s, then 3: (8000 - 2020) / 3 = 1993.3 s more.
    used = {
        node.name.rpartition("/")[2]: node.seconds
        for project in (PROJECT, OTHER)
        for node in yard.database.read(
            lambda uow, of=project: usages.usage(uow, default_rate_card(), PLATFORM, of)
        ).nodes
    }
    assert used == {"mine": 1010 + 1994, "theirs": 1010 + 1994, "second": 1994}
    said = {kind: text for _, kind, text in _log(yard)}
    assert f"{OTHER}/second" in said["stop"] and " mine" in said["stop"]
    text = _refused(Code.RESOURCE_EXHAUSTED, lambda: _create(yard, OTHER, "more"))
    assert text.startswith(f"budget both of projects/{PROJECT} is used up: 10.0")
    _link(yard, OTHER, OTHER)
    _create(yard, OTHER, "more")
    _refused(Code.RESOURCE_EXHAUSTED, lambda: _create(yard, PROJECT, "more"))


def dashboard_budgets(play: Play, project: str) -> Any:
    """As the console shows them, which is what the API says."""
    found = _snapshot(play, project)
    shown = play.database.read(lambda uow: dashboard.budgets_of(uow, found))
    assert shown == play.database.read(lambda uow: budgets.list_budgets(uow, PLATFORM, project))
    return shown


def _log(play: Play) -> list[tuple[str, str, str]]:
    log = play.database.read(lambda uow: budget_rows.log(uow, PROJECT, 0, 99))
    return [(one.name, one.kind, one.text) for one in log]


def test_what_waits_for_the_budget_of_an_account_comes_in_once_another_one_pays(yard: Play) -> None:
    wanted = budgets.BudgetRequest("0.1", "account", actions=["refuse-new-nodes"])
    yard.database.run(
        lambda uow: budgets.set_budget(uow, yard.fleet, PLATFORM, PROJECT, "b", wanted)
    )
    yard.queue(request(valid_after=yard.database.read(lambda uow: uow.now).plus_seconds(90)))
    yard.turn(100)
    yard.turn(10)
    assert yard.states() == {"mine": "READY"}
    assert "budget b of projects/" in str(yard.queued())
    yard.database.run(lambda uow: identity.create_project(uow, PLATFORM, THIRD, {}))
    _link(yard, PROJECT, THIRD)
    yard.turn()
    yard.turn(10)
    assert yard.states() == {"mine": "READY", "n": "READY"}


def test_who_may_link(yard: Play) -> None:
    ann = Principal("ann@x.org", {PROJECT: frozenset({"owner"})})
    bob = Principal(
        "bob@x.org", {OTHER: frozenset({"owner"}), PROJECT: frozenset({"billing.viewer"})}
    )
    both = Principal("eve@x.org", {OTHER: frozenset({"owner"}), PROJECT: frozenset({"owner"})})
    for caller in (ann, bob):
        _refused(Code.PERMISSION_DENIED, lambda caller=caller: _link(yard, OTHER, PROJECT, caller))
    assert (
        _refused(Code.NOT_FOUND, lambda: _link(yard, OTHER, "nobody"))
        == "Resource 'projects/nobody' was not found"
    )
    _refused(Code.NOT_FOUND, lambda: _link(yard, "nobody", PROJECT))
    made = _link(yard, OTHER, PROJECT, both)
    assert _link(yard, OTHER, PROJECT, both) == made  # once more: nothing changes
    yard.turn(10)
    # The owner of the account may end it alone, and so may the project's; each only to the
    # project's own account.
    _refused(Code.PERMISSION_DENIED, lambda: _link(yard, OTHER, THIRD, bob))
    assert _link(yard, OTHER, OTHER, ann).account == OTHER
    assert yard.database.read(lambda uow: links.get(uow, bob, OTHER)).account == OTHER


def test_an_account_pays_for_a_limited_number_of_projects(
    play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(links, "PROJECTS_MAX", 2)
    for name in (OTHER, THIRD):
        play.database.run(lambda uow, name=name: identity.create_project(uow, PLATFORM, name, {}))
    _link(play, OTHER, PROJECT)
    assert "already pays for 2 projects" in _refused(
        Code.RESOURCE_EXHAUSTED, lambda: _link(play, THIRD, PROJECT)
    )
    _link(play, OTHER, OTHER)
    play.turn(1)
    _link(play, THIRD, PROJECT)


def test_what_is_held_is_held_by_the_account_of_its_second(play: Play) -> None:
    play.database.run(lambda uow: identity.create_project(uow, PLATFORM, OTHER, {}))
    _create(play, OTHER, "unpriced", "v5litepod-8")
    play.turn()
    play.turn(10)
    card = default_rate_card()
    without = {key: sku for key, sku in card.skus.items() if sku.generation != "v5e"}
    bare = dataclasses.replace(card, skus=without)
    play.turn(100)
    _link(play, OTHER, PROJECT)
    play.turn(50)
    for project, seconds in ((PROJECT, 50), (OTHER, 100)):
        found = several_units.read_snapshot(
            play.database,
            lambda uow, of=project: snapshots.snapshot(uow, bare, PLATFORM, of, of_account=True),
        )
        assert sum(one.seconds for one in found.suspense) == seconds
        previewed = play.database.read(
            lambda uow, of=project: invoices.preview(uow, bare, PLATFORM, of, MARCH)
        )
        assert previewed.held[0].startswith(f"{seconds} s of projects/{OTHER}/")


def test_an_account_in_another_zone_begins_with_what_it_pays_for(yard: Play) -> None:
    yard.turn(100)
    _link(yard, OTHER, PROJECT)
    changed = yard.database.run(
        lambda uow: accounts.patch(uow, PLATFORM, PROJECT, {"time_zone": "America/Los_Angeles"})
    )
    assert (changed.first_month, changed.next_month) == ("2026-02", "2026-02")
    assert [one.project for one in changed.projects] == [PROJECT, OTHER]
