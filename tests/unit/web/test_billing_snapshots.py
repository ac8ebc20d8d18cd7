"""What is kept between pages is never another bill than the one that everything is metered for; on
both databases."""

from __future__ import annotations

import itertools
import re
from typing import Any

import pytest
from sqlalchemy import delete, insert, select

from podyard.base.errors import Code, PodyardError
from podyard.control.billing import accounts, bills, commitments, dashboard, snapshots
from podyard.control.compute import nodes
from podyard.db.billing import usage_events as event_rows
from podyard.db.store.unit_of_work import UnitOfWork
from podyard.db.tables.billing import usage_events
from podyard.domain.node import UsageClass
from podyard.domain.principal import PLATFORM, Principal
from podyard.pricing.bill import resource_of
from podyard.pricing.current_card import default_rate_card
from podyard.web.billing import billing
from tests.builders import PROJECT, Play

CARD = default_rate_card()


def _kept(uow: UnitOfWork) -> snapshots.Snapshot:
    return snapshots.snapshot(uow, CARD, PLATFORM, PROJECT)


def _agrees(play: Play) -> snapshots.Snapshot:
    """The snapshot, after it was held against the bill of everything."""

    def body(uow: UnitOfWork) -> snapshots.Snapshot:
        found = _kept(uow)
        terms = bills.terms_of(uow, accounts.of(uow, PROJECT))
        resources = {
            key: resource_of(CARD, node) for key, node in event_rows.facts(uow, PROJECT).items()
        }
        whole = bills.compute(uow, [PROJECT], resources, terms, uow.now)

        def by_time(records: Any) -> list[Any]:
            return sorted(records, key=lambda r: (r.resource_id, r.start_second, r.quantity))

        assert by_time([*found.closed, *found.open]) == by_time(whole.records)
        assert by_time(found.charges) == by_time(whole.charges)
        assert sorted(found.suspense, key=repr) == sorted(whole.suspense, key=repr)
        assert (found.open_since, found.seconds, found.waived) == (
            whole.open_since,
            whole.seconds,
            whole.waived_seconds,
        )
        month = dashboard.month_to_date(uow, found)
        invoice = next((one for one in whole.invoices if one.month == found.month), None)
        billed = [] if invoice is None else invoice.lines
        assert month.spent.parts == sum(line.amount.parts for line in billed)
        return found

    return play.database.read(body)


@pytest.mark.slow
def test_a_page_meters_only_what_has_changed_and_says_the_same(play: Play) -> None:
    assert not _agrees(play).facts
    play.create("a")
    play.create("b", usage_class=UsageClass.SPOT)
    _agrees(play)
    play.turn(3600.5)
    play.run(nodes.delete, "a")
    play.turn()
    _agrees(play)
    play.turn(7.25)
    same = _agrees(play)
    play.turn(86_400)
    assert _agrees(play).closed is same.closed, "what is not in use was not metered again"
    play.create("a")
    play.create("c", "v5litepod-8")
    play.ask(nodes.preempt, "b")
    play.turn(20)
    _agrees(play)
    wanted = commitments.CommitmentRequest(1, 1, sku_id="tpu-v4-chip/us-central2/on-demand")
    play.database.run(lambda uow: commitments.buy(uow, CARD, PLATFORM, PROJECT, wanted))
    play.turn(100 * 86_400)
    assert len(_agrees(play).facts) == 4


@pytest.mark.slow
def test_an_event_that_is_committed_late_is_found(play: Play) -> None:
    """Its number is lower than one that was seen before."""
    play.create("a")
    play.create("b")
    play.turn(60)
    play.run(nodes.delete, "a")
    play.turn()
    play.turn(60)
    play.run(nodes.delete, "b")
    play.turn()
    rows = play.database.read(
        lambda uow: uow.all(select(usage_events).order_by(usage_events.c.seq))
    )
    ready = next(
        row for row in rows if row["resource_name"].endswith("/a") and row["state"] == "READY"
    )
    late = [
        row
        for row in rows
        if row["resource_key"] == ready["resource_key"] and row["seq"] > ready["seq"]
    ]
    assert late and late[-1]["seq"] < rows[-1]["seq"]
    gone = delete(usage_events).where(usage_events.c.seq.in_([row["seq"] for row in late]))
    play.database.run(lambda uow: uow.execute(gone))
    before = _agrees(play)
    play.database.run(lambda uow: uow.execute(insert(usage_events), late))
    after = _agrees(play)
    assert len(before.open_since) == 1 and not after.open_since


def test_only_who_may_see_the_bill_sees_it(play: Play) -> None:
    stranger = Principal(email="eve@example.com", roles={PROJECT: frozenset({"tpu.viewer"})})
    with pytest.raises(PodyardError) as refused:
        play.database.read(lambda uow: snapshots.snapshot(uow, CARD, stranger, PROJECT))
    assert refused.value.code is Code.PERMISSION_DENIED


def test_what_is_kept_of_views_has_a_limit(play: Play) -> None:
    play.create("a")
    found = play.database.read(_kept)
    for number in range(snapshots.VIEWS_KEPT + 5):
        assert found.keep(number, lambda number=number: number) == number  # type: ignore[misc]
    assert len(found.views) == snapshots.VIEWS_KEPT
    assert (
        found.keep(snapshots.VIEWS_KEPT, lambda: -1) == snapshots.VIEWS_KEPT
        and found.keep(0, lambda: -1) == -1
    )


def test_the_line_of_the_month_ends_at_this_moment_where_the_forecast_begins(play: Play) -> None:
    """A day that has just begun is not a whole day: the point stands at its part."""
    play.create("a")
    play.turn(2 * 86_400 + 6 * 3_600 - 10)

    def body(uow: UnitOfWork) -> tuple[snapshots.Snapshot, dashboard.MonthToDate]:
        found = _kept(uow)
        return found, dashboard.month_to_date(uow, found)

    found, month = play.database.read(body)
    assert len(month.days) == 3 and month.today == 0.25
    picture = str(billing._outlook(found, month))
    (line,) = re.findall(r'class="line s1" points="([^"]*)"', picture)
    (dashed,) = re.findall(r'class="line dashed s1" points="([^"]*)"', picture)
    points = [tuple(map(float, point.split(","))) for point in line.split()]
    assert line.split()[-1] == dashed.split()[0] and len(points) == 4
    x = [at for at, _ in points]
    assert x[3] - x[2] == pytest.approx((x[2] - x[1]) / 4, abs=0.2)
    slopes = [(b[1] - a[1]) / (b[0] - a[0]) for a, b in itertools.pairwise(points)]
    assert slopes == pytest.approx([slopes[0]] * 3, rel=0.3), "one node costs the same all the time"
