"""Operations on buckets: from a date of the rate card on they are billed, and every surface says
the same of them."""

from __future__ import annotations

import csv
import io
import itertools
from fractions import Fraction
from pathlib import Path

import pytest
from sqlalchemy import update

from podyard import migrations
from podyard.base.clock import ManualClock, PlatformTime
from podyard.base.errors import PodyardError
from podyard.base.operation_counts import OperationCounts
from podyard.control.billing import bill_lines, card_prices, closing, exports, spending, usages
from podyard.control.billing.exports import ExportRequest
from podyard.control.storage import buckets, operations
from podyard.db.storage import storage
from podyard.db.store.unit_of_work import Database
from podyard.db.tables.billing import usage_events
from podyard.domain.principal import PLATFORM
from podyard.domain.stored import OperationClass, Preconditions
from podyard.pricing.cards import load_rate_card
from podyard.pricing.sku import RateCard
from tests.builders import PROJECT, Play
from tests.store.test_billing_hosts import SHIPPED
from tests.store.test_billing_storage import make_bucket
from tests.surfaces import check_books, check_month, check_uses

DAY = 86_400
A, B = OperationClass.A, OperationClass.B
SKU_A, SKU_B = "operation-class-a-standard/us/on-demand", "operation-class-b-standard/us/on-demand"
_event_ids = itertools.count()


def card_with_operations(start: str = "2020-01-01T00:00:00Z") -> RateCard:
    return load_rate_card(f'operations_from: "{start}"\n{SHIPPED}')


@pytest.fixture
def play(database: Database, clock: ManualClock) -> Play:
    return Play(database, clock)


@pytest.fixture
def card(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> RateCard:
    found = card_with_operations(getattr(request, "param", "2020-01-01T00:00:00Z"))
    monkeypatch.setattr(closing, "default_rate_card", lambda: found)
    monkeypatch.setattr(spending, "default_rate_card", lambda: found)
    return found


def _count(play: Play, of_class: OperationClass, number: int) -> None:
    event_id = f"event-{next(_event_ids)}"
    play.database.run(lambda uow: storage.count_operations(uow, "b-1", of_class, number, event_id))


def _used(play: Play, card: RateCard) -> dict[str | None, tuple[int, Fraction]]:
    found = play.database.read(lambda uow: usages.usage(uow, card, PLATFORM, PROJECT)).storage
    return {one.sku_id: (one.operations, one.amount.fraction()) for one in found}


def _check(play: Play, card: RateCard) -> None:
    check_uses(play.database, card, [PROJECT])
    check_books(play.database, play.fleet, card)


def test_operations_are_lines_of_the_invoice(play: Play, card: RateCard) -> None:
    """1,000 of class A at 0.01 USD per 1,000, and 2,500 of class B at 0.0004."""
    make_bucket(play, labels={"team": "a"})
    play.turn(60)
    _count(play, A, 400)
    _count(play, A, 600)
    play.turn(60)
    _count(play, B, 2500)
    play.turn(60)
    assert _used(play, card) == {SKU_A: (1000, Fraction("0.01")), SKU_B: (2500, Fraction("0.001"))}
    document = check_month(play.database, card, PROJECT, "2026-03")
    assert document is not None
    told = [
        (line.sku, line.unit, line.unit_price, line.quantity, line.seconds)
        for line in document.lines
    ]
    assert told == [
        (SKU_A, "operation", "0.000010000", "1000.000000000000", 1),
        (SKU_B, "operation", "0.000000400", "2500.000000000000", 1),
    ]
    _check(play, card)
    asked = {
        "principal": PLATFORM,
        "project": PROJECT,
        "month": "2026-03",
        "line": document.lines[0].id,
    }
    told_line = play.database.read(lambda uow: bill_lines.explain(uow, card, **asked))  # type: ignore[arg-type]
    assert [(part.seconds, part.quantity) for part in told_line.parts] == [(1, 1000)]
    free = load_rate_card(SHIPPED)
    assert _used(play, free) == {}
    assert check_month(play.database, free, PROJECT, "2026-03") is None


@pytest.mark.parametrize("card", ["2026-03-02T00:00:00Z"], indirect=True)
def test_operations_of_a_clock_that_ran_backwards_follow_those_before(
    play: Play, card: RateCard
) -> None:
    """R4: an event is not before the one before it, so that the second one is after the date,
    too."""
    make_bucket(play)
    play.turn(DAY)
    _count(play, A, 10)
    _count(play, A, 20)
    late = update(usage_events).where(usage_events.c.operations == 20)
    play.database.run(
        lambda uow: uow.execute(late.values(at=PlatformTime(uow.now.nanos - DAY * 10**9)))
    )
    play.turn(1)
    assert _used(play, card)[SKU_A][0] == 30
    _check(play, card)


@pytest.mark.parametrize("card", ["2026-03-02T00:00:00Z"], indirect=True)
def test_operations_of_before_the_date_are_free(play: Play, card: RateCard) -> None:
    make_bucket(play)
    _count(play, A, 10)
    play.turn(DAY)
    _count(play, A, 20)
    assert _used(play, card)[SKU_A][0] == 0  # the moment is not over
    play.turn(1)
    assert _used(play, card)[SKU_A][0] == 20
    _check(play, card)
    play.turn(40 * DAY)
    for other in (load_rate_card(SHIPPED), card_with_operations("2026-03-01T00:00:00Z")):
        with pytest.raises(PodyardError, match="no longer has price operation-class-a-standard"):
            play.database.read(lambda uow, other=other: card_prices.check(uow, other))
    _check(play, card)


def test_operations_follow_the_class_and_the_labels_of_their_bucket(
    play: Play, card: RateCard
) -> None:
    make_bucket(play, labels={"team": "a"})
    play.turn(10)
    _count(play, B, 1)
    play.turn(10)
    changes: dict[str, object] = {"labels": {"team": "b"}}
    play.database.run(lambda uow: buckets.patch(uow, PLATFORM, "b-1", changes, Preconditions()))
    play.turn(10)
    _count(play, B, 2)
    play.turn(10)
    found = play.database.read(lambda uow: usages.usage(uow, card, PLATFORM, PROJECT)).storage
    assert [period.labels for period in found[0].labels] == [{"team": "a"}, {"team": "b"}]
    _check(play, card)
    changes = {"storage_class": "NEARLINE"}
    play.database.run(lambda uow: buckets.patch(uow, PLATFORM, "b-1", changes, Preconditions()))
    _count(play, B, 4)
    play.turn(10)
    assert {sku: number for sku, (number, _) in _used(play, card).items()} == {
        SKU_B: 3,
        "operation-class-b-nearline/us/on-demand": 4,
    }
    _check(play, card)


def test_a_count_that_is_written_again_is_one_count(
    play: Play, card: RateCard, tmp_path: Path
) -> None:
    """A process that was killed between its unit and the removal of the file leaves the file to the
    next one."""
    make_bucket(play)
    counts = OperationCounts(tmp_path / "counts")
    for _ in range(3):
        counts.count("b-1", A)
    counts.count("gone", A)
    (path,) = counts.close()
    text = path.read_text()
    for _ in range(2):
        path.write_text(text)
        operations.write_counts(play.database, [path])
        assert not path.exists()
    play.turn(1)
    assert _used(play, card)[SKU_A][0] == 3
    _check(play, card)


def test_exports_name_operations(play: Play, card: RateCard) -> None:
    make_bucket(play)
    play.turn(10)
    _count(play, A, 1500)
    play.turn(10)
    asked = ExportRequest("focus", "2026-03", "2026-03")
    source = play.database.read(lambda uow: exports.one_month(uow, card, PLATFORM, PROJECT, asked))
    row = next(csv.DictReader(io.StringIO(exports.small_file(source, asked).decode(), newline="")))
    told = [
        row[name]
        for name in ("SkuId", "ResourceType", "ServiceName", "SkuMeter", "RegionId", "PricingUnit")
    ]
    assert told == [SKU_A, "Bucket", "Cloud Storage", "Operations", "us", "Operations"]
    assert Fraction(row["PricingQuantity"]) == 1500
    asked = ExportRequest("bigquery", "2026-03", "2026-03")
    lines = exports.small_file(source, asked).decode().splitlines()
    assert '"amount":1500,"unit":"requests"' in lines[0]


def test_the_migration_goes_both_ways(play: Play, card: RateCard) -> None:
    make_bucket(play)
    _count(play, A, 7)
    migrations.migrate(play.database.engine, "0043")
    migrations.upgrade(play.database)
    assert _used(play, card) == {}
    _count(play, A, 5)
    play.turn(1)
    assert _used(play, card)[SKU_A][0] == 5
