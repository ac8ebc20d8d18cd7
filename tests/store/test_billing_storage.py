"""What buckets hold: from a date of the rate card on it is billed, and every surface says the same
of it."""

from __future__ import annotations

import csv
import io
from fractions import Fraction

import pytest

from podyard import migrations
from podyard.base.clock import ManualClock, OsClock, PlatformTime
from podyard.base.contents import Content
from podyard.base.errors import PodyardError
from podyard.base.money import Amount
from podyard.control.billing import (
    bill_lines,
    budgets,
    card_prices,
    closing,
    costs,
    dashboard,
    exports,
    invoices,
    snapshots,
    spending,
    usages,
    what_if,
)
from podyard.control.billing.exports import ExportRequest
from podyard.control.billing.usages import StorageUsage
from podyard.control.compute import nodes, persistent_disks
from podyard.control.storage import buckets, objects
from podyard.db.billing import prices
from podyard.db.store.unit_of_work import Database
from podyard.domain.principal import PLATFORM
from podyard.domain.stored import Preconditions
from podyard.domain.usage import GIB, BilledKind
from podyard.pricing.cards import load_rate_card
from podyard.pricing.sku import RateCard
from tests.builders import PROJECT, ZONE, Play
from tests.store.test_billing_hosts import SHIPPED
from tests.surfaces import check_books, check_month, check_uses

DAY = 86_400
SKU = "object-standard/us/on-demand"
PER_GIB_SECOND = Fraction("0.026") / (730 * 3600)
ALWAYS = Preconditions()


def card_with_objects(objects_from: str = "2020-01-01T00:00:00Z") -> RateCard:
    return load_rate_card(f'objects_from: "{objects_from}"\n{SHIPPED}')


@pytest.fixture
def play(database: Database, clock: ManualClock) -> Play:
    return Play(database, clock)


@pytest.fixture
def card(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> RateCard:
    found = card_with_objects(getattr(request, "param", "2020-01-01T00:00:00Z"))
    monkeypatch.setattr(closing, "default_rate_card", lambda: found)
    monkeypatch.setattr(spending, "default_rate_card", lambda: found)
    return found


def make_bucket(play: Play, name: str = "b-1", **changes: object) -> None:
    play.database.run(lambda uow: buckets.create(uow, PLATFORM, PROJECT, name, **changes))  # type: ignore[arg-type]


def put(play: Play, size: int, name: str = "o", bucket: str = "b-1") -> None:
    content = Content(digest=f"{size:064x}", size=size, crc32c=0, md5="x")
    play.database.run(lambda uow: objects.put(uow, PLATFORM, bucket, name, content))


def _delete(play: Play, name: str = "o", bucket: str = "b-1") -> None:
    play.database.run(lambda uow: objects.delete(uow, PLATFORM, bucket, name, ALWAYS))


def _storage(play: Play, card: RateCard) -> list[StorageUsage]:
    return list(play.database.read(lambda uow: usages.usage(uow, card, PLATFORM, PROJECT)).storage)


def _check(play: Play, card: RateCard) -> None:
    check_uses(play.database, card, [PROJECT])
    check_books(play.database, play.fleet, card)


def _text(amount: Fraction) -> str:
    parts = amount * 2_628_000 * 10**9
    assert parts.denominator == 1
    return Amount(parts.numerator).text(12)


def test_half_a_gib_for_a_day_is_on_the_invoice(play: Play, card: RateCard) -> None:
    """From 2026-03-01T00:00:00Z: 2^29 bytes for 86,400 s are 43,200 GiB-seconds."""
    make_bucket(play, labels={"team": "a"})
    put(play, GIB // 2)
    play.turn(DAY)
    _delete(play)
    (one,) = _storage(play, card)
    assert (one.name, one.sku_id, one.gib_seconds) == (
        f"projects/{PROJECT}/buckets/b-1",
        SKU,
        43_200,
    )
    assert one.amount.fraction() == 43_200 * PER_GIB_SECOND
    document = check_month(play.database, card, PROJECT, "2026-03")
    assert document is not None
    (line,) = document.lines
    assert (line.sku, line.unit, line.unit_seconds, line.quantity) == (
        SKU,
        "gib_month",
        43_200,
        "0.016438356164",
    )
    _check(play, card)


def test_what_a_bucket_holds_is_billed_until_it_goes(play: Play, card: RateCard) -> None:
    make_bucket(play)
    play.turn(10)
    put(play, 3 * GIB)
    play.turn(100)
    put(play, 2 * GIB)  # instead
    play.turn(100)
    put(play, 5 * GIB, "p")
    play.turn(100)
    _delete(play)
    _delete(play, "p")
    play.turn(100)
    play.database.run(lambda uow: buckets.delete(uow, PLATFORM, "b-1", ALWAYS))
    play.turn(40 * DAY)
    (one,) = _storage(play, card)
    assert (one.gib_seconds, one.estimated) == (300 + 200 + 700, False)
    for month in ("2026-03", "2026-04"):
        check_month(play.database, card, PROJECT, month)
    _check(play, card)
    asked = {"principal": PLATFORM, "project": PROJECT, "month": "2026-03", "line": f"{SKU}@0.026"}
    told = play.database.read(lambda uow: bill_lines.explain(uow, card, **asked))  # type: ignore[arg-type]
    assert [(part.seconds, part.quantity) for part in told.parts] == [(100, 3), (100, 2), (100, 7)]


@pytest.mark.parametrize("card", ["2026-03-01T12:00:00Z"], indirect=True)
def test_odd_bytes_count_from_the_date_on(play: Play, card: RateCard) -> None:
    make_bucket(play)
    put(play, GIB // 2)
    play.turn(DAY)
    (one,) = _storage(play, card)
    assert one.gib_seconds == 21_600
    _check(play, card)


@pytest.mark.parametrize("card", ["2026-03-02T00:00:00Z"], indirect=True)
def test_nothing_before_the_date_is_billed(play: Play, card: RateCard) -> None:
    make_bucket(play)
    put(play, 2 * GIB)
    play.turn(DAY)
    assert check_month(play.database, card, PROJECT, "2026-03") is None
    play.turn(60)
    (one,) = _storage(play, card)
    assert one.amount.fraction() == 120 * PER_GIB_SECOND
    _check(play, card)
    plain = load_rate_card(SHIPPED)
    assert (
        play.database.read(lambda uow: usages.usage(uow, plain, PLATFORM, PROJECT)).amount
        == Amount()
    )
    assert check_month(play.database, plain, PROJECT, "2026-03") is None


@pytest.mark.parametrize("card", ["2026-03-03T00:00:00Z"], indirect=True)
def test_a_page_of_before_the_date_hides_nothing_after_it(play: Play, card: RateCard) -> None:
    """What a process keeps of a bucket that nobody changes is metered again once objects are
    charged."""
    make_bucket(play)
    put(play, GIB)
    play.turn(DAY)
    _check(play, card)
    assert _storage(play, card)[0].gib_seconds == 0
    play.turn(2 * DAY)
    _check(play, card)
    assert _storage(play, card)[0].gib_seconds == DAY


def test_objects_are_not_billed_of_issued_months(
    play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = load_rate_card(SHIPPED)
    monkeypatch.setattr(closing, "default_rate_card", lambda: plain)
    make_bucket(play)
    put(play, 2 * GIB)
    play.create("n")
    play.turn(33 * DAY)
    later = card_with_objects("2026-05-01T00:00:00Z")
    play.database.read(lambda uow: card_prices.check(uow, later))
    with pytest.raises(PodyardError, match="objects_from begins in the past"):
        play.database.read(
            lambda uow: card_prices.check(uow, card_with_objects("2026-03-15T00:00:00Z"))
        )
    monkeypatch.setattr(closing, "default_rate_card", lambda: later)
    play.turn(60 * DAY)
    starts = play.database.read(prices.charge_starts)
    assert starts == {BilledKind.BUCKET: PlatformTime.from_rfc3339("2026-05-01T00:00:00Z")}
    migrations.migrate(play.database.engine, "0042")  # kept prices only
    migrations.upgrade(play.database)
    assert play.database.read(prices.charge_starts) == starts
    play.database.read(lambda uow: card_prices.check(uow, later))
    for other in (plain, card_with_objects("2026-05-02T00:00:00Z")):
        with pytest.raises(PodyardError, match="no longer has price object-standard"):
            play.database.read(lambda uow, other=other: card_prices.check(uow, other))
    document = check_month(play.database, later, PROJECT, "2026-05")
    assert document is not None
    assert {line.sku: line.unit_seconds for line in document.lines}[SKU] == 2 * 31 * DAY
    _check(play, later)


def test_another_storage_class_is_another_price(play: Play, card: RateCard) -> None:
    make_bucket(play)
    put(play, GIB)
    play.turn(100)
    changes = {"storage_class": "NEARLINE"}
    play.database.run(lambda uow: buckets.patch(uow, PLATFORM, "b-1", changes, ALWAYS))
    play.turn(100)
    found = {one.sku_id: one.gib_seconds for one in _storage(play, card)}
    # The second in which it changes is touched by both.
    assert found == {SKU: 100, "object-nearline/us/on-demand": 100}
    put(play, 2 * GIB)
    play.turn(100)
    assert {one.sku_id: one.gib_seconds for one in _storage(play, card)}[
        "object-nearline/us/on-demand"
    ] == 300
    _check(play, card)


def test_a_location_without_a_price_is_held(play: Play, card: RateCard) -> None:
    make_bucket(play, location="EUROPE-NORTH1")
    put(play, GIB)
    play.turn(100)
    (one,) = _storage(play, card)
    assert (one.amount, one.gib_seconds) == (Amount(), 100)
    assert one.held_because is not None
    assert one.held_because.startswith(
        "no price of object-standard in europe-north1: it is priced in "
    )
    draft = play.database.read(lambda uow: invoices.preview(uow, card, PLATFORM, PROJECT, None))
    assert draft.held == (f"100 s of {one.name}: {one.held_because}",)


def test_the_pages_costs_what_if_and_budgets_say_the_same(play: Play, card: RateCard) -> None:
    make_bucket(play, labels={"team": "a"})
    play.create("n")
    put(play, 10 * GIB)
    play.turn(3600)
    play.database.run(
        lambda uow: buckets.patch(uow, PLATFORM, "b-1", {"labels": {"team": "b"}}, ALWAYS)
    )
    play.turn(3600)
    found = play.database.read(lambda uow: snapshots.snapshot(uow, card, PLATFORM, PROJECT))
    used = play.database.read(lambda uow: usages.usage(uow, card, PLATFORM, PROJECT))
    total = used.amount.fraction()
    assert used.storage[0].amount.fraction() == 10 * 7200 * PER_GIB_SECOND
    month = play.database.read(lambda uow: dashboard.month_to_date(uow, found))
    assert (
        month.spent.fraction()
        == total
        == sum((node.amount.fraction() for node in month.nodes), Fraction(0))
    )
    assert Amount(month.rate).fraction() == Fraction("4.5") / 3600 + 10 * PER_GIB_SECOND
    rows = play.database.read(lambda uow: dashboard.efficiency(uow, found, "2026-03"))
    assert [row.facts.short_name for row in rows] == ["n"]
    spent = play.database.read(lambda uow: costs.costs(uow, card, PLATFORM, PROJECT))
    assert (spent.total.fraction(), spent.storage) == (total, used.storage[0].amount)
    assert [node.name.rsplit("/")[-1] for node in spent.nodes] == ["n"]
    changed = play.database.read(
        lambda uow: what_if.what_if(
            uow, card, PLATFORM, PROJECT, None, what_if.TermsChange(accelerator_type="v2-32")
        )
    )
    assert changed.changed.fraction() - used.storage[0].amount.fraction() == 48
    for scope, wanted in {
        "project": total,
        "account": total,
        "label:team=a": 10 * 3600 * PER_GIB_SECOND,
        f"user:{PLATFORM.email}": total,
        "node:b-1": Fraction(0),
    }.items():
        request = budgets.BudgetRequest(amount="10", scope=scope)
        name = f"b{abs(hash(scope)) % 1000}"
        play.database.run(
            lambda uow, n=name, r=request: budgets.set_budget(
                uow, play.fleet, PLATFORM, PROJECT, n, r
            )
        )
        assert (
            play.database.read(
                lambda uow, n=name: budgets.get(uow, PLATFORM, PROJECT, n)
            ).spent.fraction()
            == wanted
        )
    states = play.database.read(lambda uow: dashboard.budgets_of(uow, found))
    assert len(states) == 5


def test_a_budget_learns_of_uploads_within_an_hour(play: Play, card: RateCard) -> None:
    make_bucket(play)
    # 400 GiB cost that in 1769 s
    request = budgets.BudgetRequest(amount="0.007", thresholds=("1",))
    play.database.run(
        lambda uow: budgets.set_budget(uow, play.fleet, PLATFORM, PROJECT, "b", request)
    )
    put(play, 400 * GIB)
    play.turn(3600)
    play.turn()
    told = play.database.read(lambda uow: budgets.events(uow, PLATFORM, PROJECT, 0, 10))
    assert [entry.at.rfc3339() for entry, *_ in told] == ["2026-03-01T00:29:29Z"]


def test_a_bucket_of_before_is_metered_from_the_migration_on(
    play: Play, card: RateCard, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(OsClock, "now", lambda _: clock.now())
    make_bucket(play, labels={"team": "a"})
    put(play, 3 * GIB)
    play.turn(1000)
    migrations.migrate(play.database.engine, "0041")
    migrations.upgrade(play.database)
    play.turn(100)
    put(play, 5 * GIB, "p")
    play.turn(100)
    (one,) = _storage(play, card)
    assert (one.gib_seconds, one.labels[0].labels) == (300 + 800, {"team": "a"})
    _check(play, card)


def test_exports_name_a_bucket(play: Play, card: RateCard) -> None:
    make_bucket(play)
    put(play, GIB)
    play.turn(DAY)
    asked = ExportRequest("focus", "2026-03", "2026-03")
    source = play.database.read(lambda uow: exports.one_month(uow, card, PLATFORM, PROJECT, asked))
    row = next(csv.DictReader(io.StringIO(exports.small_file(source, asked).decode(), newline="")))
    told = [
        row[name]
        for name in (
            "SkuId",
            "ResourceType",
            "ServiceName",
            "ServiceSubcategory",
            "SkuMeter",
            "RegionId",
        )
    ]
    assert told == [SKU, "Bucket", "Cloud Storage", "Object Storage", "Storage volume", "us"]
    assert (row["PricingUnit"], row["AvailabilityZone"]) == ("GiB-Months", "")


DISK = "disk-pd-ssd/us-central1/on-demand"
DISK_GIB_SECOND = Fraction("0.17") / (730 * 3600)


def card_with_disks(disks_from: str = "2020-01-01T00:00:00Z") -> RateCard:
    return load_rate_card(f'disks_from: "{disks_from}"\n{SHIPPED}')


def _disk(play: Play, name: str = "d", kind: str = "pd-ssd", **changes: object) -> None:
    request = persistent_disks.DiskRequest(name, kind, 100, **changes)  # type: ignore[arg-type]
    play.database.run(
        lambda uow: persistent_disks.create(uow, play.fleet, PLATFORM, PROJECT, ZONE, request)
    )


def test_a_disk_is_billed_from_its_creation_to_its_end(play: Play) -> None:
    """100 GiB for 1000 s, then 300 GiB for 500 s, whatever the node does that has it."""
    card = card_with_disks()
    _disk(play, labels={"team": "a"})
    play.create(
        "n", extras={"dataDisks": [{"sourceDisk": f"projects/{PROJECT}/zones/{ZONE}/disks/d"}]}
    )
    play.turn(490)
    play.run(nodes.stop, "n")
    play.turn(500)
    assert _storage(play, card)[0].gib_seconds == 100_000
    play.database.run(lambda uow: persistent_disks.resize(uow, PLATFORM, PROJECT, ZONE, "d", 300))
    play.run(nodes.delete, "n")
    play.turn(500)
    assert _storage(play, card)[0].estimated
    play.database.run(lambda uow: persistent_disks.delete(uow, PLATFORM, PROJECT, ZONE, "d"))
    play.turn(500)
    (one,) = _storage(play, card)
    assert (one.name, one.sku_id, one.gib_seconds) == (
        f"projects/{PROJECT}/zones/{ZONE}/disks/d",
        DISK,
        250_000,
    )
    assert one.amount.fraction() == 250_000 * DISK_GIB_SECOND
    document = check_month(play.database, card, PROJECT, "2026-03")
    assert document is not None
    assert {line.sku: line.unit_seconds for line in document.lines}[DISK] == 250_000
    _check(play, card)
    _check(play, load_rate_card(SHIPPED))


@pytest.mark.parametrize(
    ("kind", "told"),
    [("pd-balanced", "no price of disk-pd-balanced in us-central1: it is priced nowhere")],
)
def test_a_disk_without_a_price_is_held(play: Play, kind: str, told: str) -> None:
    _disk(play, kind=kind)
    play.turn(10)
    (one,) = _storage(play, card_with_disks())
    assert (one.held_because, one.amount) == (told, Amount())
    _check(play, card_with_disks())
