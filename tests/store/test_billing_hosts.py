"""Host VMs of TPU Nodes: from a date of the rate card on they are billed by a SKU of their own, on
every surface."""

from __future__ import annotations

import csv
import dataclasses
import io
from fractions import Fraction
from pathlib import Path

import pytest
from sqlalchemy import update

from podyard.base.clock import ManualClock
from podyard.base.errors import Code, PodyardError
from podyard.base.money import Amount
from podyard.control.billing import (
    budgets,
    card_prices,
    closing,
    costs,
    dashboard,
    exports,
    invoices,
    job_progress,
    snapshots,
    spending,
    usages,
    what_if,
)
from podyard.control.billing.exports import ExportRequest
from podyard.control.billing.usages import NodeUsage
from podyard.control.compute import nodes
from podyard.control.jobs import jobs
from podyard.db.billing import invoices as invoice_rows
from podyard.db.store.unit_of_work import Database
from podyard.db.tables.billing import usage_events as events_table
from podyard.domain.invoice import hosts_text
from podyard.domain.principal import PLATFORM
from podyard.domain.usage import PriceUnit
from podyard.pricing import cards
from podyard.pricing.cards import load_rate_card
from podyard.pricing.sku import RateCard
from tests.builders import PROJECT, Play
from tests.store.test_scheduling import Scheduling, _points
from tests.surfaces import check_books, check_month

DAY = 86_400
CHIP = "tpu-v5e-chip/us-central1/on-demand"
TPU, HOST = "tpu-v2-device/us-central1/on-demand", "host-n1-standard-2/us-central1/on-demand"
HOUR = Fraction("0.0949995")  # 2 x 0.031611 + 7.5 x 0.004237
SHIPPED = (Path(cards.__file__).parent / "rate_cards" / f"{cards.SHIPPED}.yaml").read_text(
    encoding="utf-8"
)
LONG_AGO = "2020-01-01T00:00:00Z"


def card_with_hosts(hosts_from: str) -> RateCard:
    return load_rate_card(f'hosts_from: "{hosts_from}"\n{SHIPPED}')


@pytest.fixture
def play(database: Database, clock: ManualClock) -> Play:
    return Play(database, clock)


@pytest.fixture
def card(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> RateCard:
    found = card_with_hosts(getattr(request, "param", LONG_AGO))
    monkeypatch.setattr(closing, "default_rate_card", lambda: found)
    return found


def _create(play: Play, name: str = "n", kind: str = "v2-8", **changes: object) -> None:
    play.create(name, kind, **{"api_version": "V1", "runtime_version": "2.12.0", **changes})


def _usage(play: Play, card: RateCard) -> list[NodeUsage]:
    return list(play.database.read(lambda uow: usages.usage(uow, card, PLATFORM, PROJECT)).nodes)


def _lines(play: Play, card: RateCard, month: str = "2026-03") -> dict[str, tuple[str, int]]:
    """Of the month, by SKU: (exact amount, seconds)."""
    found = check_month(play.database, card, PROJECT, month)
    return (
        {} if found is None else {line.sku: (line.exact_usd, line.seconds) for line in found.lines}
    )


def _text(amount: Fraction) -> str:
    parts = amount * 2_628_000 * 10**9
    assert parts.denominator == 1
    return Amount(parts.numerator).text(12)


def test_a_v1_node_of_an_hour_bills_its_host(play: Play, card: RateCard) -> None:
    _create(play)
    play.turn(3600)
    play.run(nodes.stop, "n")
    (node,) = _usage(play, card)
    assert (node.seconds, node.host_seconds, node.host_sku_id) == (3600, 3600, HOST)
    assert node.host_amount.fraction() == HOUR
    assert node.amount.fraction() == Fraction("4.5") + HOUR
    assert node.host_price_nanos_per_hour == 94_999_500
    assert _lines(play, card) == {TPU: ("4.500000000000", 3600), HOST: (_text(HOUR), 3600)}
    check_books(play.database, play.fleet, card)


def test_ten_seconds_are_a_minute_of_the_host_and_ten_seconds_of_the_tpu(
    play: Play, card: RateCard
) -> None:
    _create(play)
    play.turn(10)
    play.run(nodes.stop, "n")
    assert _lines(play, card) == {TPU: ("0.012500000000", 10), HOST: (_text(HOUR / 60), 60)}
    check_books(play.database, play.fleet, card)


def test_each_start_has_its_minute(play: Play, card: RateCard) -> None:
    _create(play)
    for _ in range(2):
        play.turn(10)
        play.run(nodes.stop, "n")
        play.turn()
        play.turn(600)
        assert play.states() == {"n": "STOPPED"}
        play.run(nodes.start, "n")
        play.turn()
        play.turn(10)
    play.run(nodes.stop, "n")
    (node,) = _usage(play, card)
    assert (node.host_seconds, node.host_amount.fraction()) == (180, HOUR * 180 / 3600)
    _lines(play, card)
    check_books(play.database, play.fleet, card)


def test_a_slice_has_a_vm_for_each_host_and_a_tpu_vm_includes_them(
    play: Play, card: RateCard
) -> None:
    _create(play, "n", "v2-32")
    play.create("m", "v5litepod-8")
    play.turn(3590)
    found = {node.name.rsplit("/")[-1]: node for node in _usage(play, card)}
    assert found["n"].host_amount.fraction() == 4 * HOUR
    assert (found["m"].has_hosts, found["m"].host_amount) == (False, Amount())
    document = check_month(play.database, card, PROJECT, "2026-03")
    assert document is not None
    words = {
        line.sku: hosts_text(line.hosts_included, line.quantity, PriceUnit(line.unit))
        for line in document.lines
    }
    assert words == {"tpu-v2-32/us-central1/on-demand": "", CHIP: "hosts included", HOST: ""}
    check_books(play.database, play.fleet, card)


def test_a_minimum_over_the_end_of_the_month_is_on_both_invoices(
    play: Play, card: RateCard, clock: ManualClock
) -> None:
    play.turn(31 * DAY - 20)
    _create(play)  # READY from 23:59:50 on
    play.turn(10)
    play.run(nodes.stop, "n")
    play.turn(2 * DAY)
    assert play.database.read(lambda uow: invoice_rows.find(uow, PROJECT, "2026-03")) is not None
    second = HOUR / 3600
    assert _lines(play, card) == {TPU: ("0.012500000000", 10), HOST: (_text(10 * second), 10)}
    assert _lines(play, card, "2026-04") == {HOST: (_text(50 * second), 50)}
    play.turn(31 * DAY)
    assert _lines(play, card, "2026-04") == {HOST: (_text(50 * second), 50)}
    check_books(play.database, play.fleet, card)


@pytest.mark.parametrize("card", ["2026-03-01T00:30:00Z"], indirect=True)
def test_what_was_used_before_the_date_is_as_it_was(play: Play, card: RateCard) -> None:
    _create(play)
    play.turn(900)
    assert _lines(play, card) == {TPU: (_text(Fraction("4.5") * 900 / 3600), 900)}
    assert _usage(play, card)[0].host_amount == Amount()
    play.turn(1190)  # READY since 00:00:10, now 00:35:00
    assert _lines(play, card)[HOST] == (_text(HOUR * 300 / 3600), 300)
    check_books(play.database, play.fleet, card)


@pytest.mark.parametrize("card", ["2026-04-01T00:00:00Z"], indirect=True)
def test_a_month_before_the_date_has_the_bytes_of_a_card_without_hosts(
    play: Play, card: RateCard, monkeypatch: pytest.MonkeyPatch
) -> None:
    _create(play)
    plain = load_rate_card(SHIPPED)
    play.turn(30 * DAY)
    drafts = [
        play.database.read(
            lambda uow, one=one: invoices.preview(uow, one, PLATFORM, PROJECT, "2026-03")
        )
        for one in (card, plain)
    ]
    assert drafts[0].document == drafts[1].document
    monkeypatch.setattr(closing, "default_rate_card", lambda: plain)
    play.turn(3 * DAY)
    issued = play.database.read(lambda uow: invoice_rows.find(uow, PROJECT, "2026-03"))
    assert issued is not None
    assert b"host" not in issued.document
    check_month(play.database, plain, PROJECT, "2026-03")
    # The month is closed as of the 2nd of April: a date after that is let in, an earlier one is
    # not.
    play.database.read(lambda uow: card_prices.check(uow, card_with_hosts("2026-04-02T12:00:00Z")))
    with pytest.raises(PodyardError) as raised:
        play.database.read(
            lambda uow: card_prices.check(uow, card_with_hosts("2026-03-15T00:00:00Z"))
        )
    assert raised.value.code is Code.FAILED_PRECONDITION
    assert "hosts_from begins in the past" in raised.value.message
    check_month(play.database, card_with_hosts("2026-04-02T12:00:00Z"), PROJECT, "2026-03")
    check_books(play.database, play.fleet, card_with_hosts("2026-04-02T12:00:00Z"))


def test_the_pages_the_costs_and_what_if_say_the_same(play: Play, card: RateCard) -> None:
    _create(play)
    play.create("m")
    play.turn(3600)
    found = play.database.read(lambda uow: snapshots.snapshot(uow, card, PLATFORM, PROJECT))
    total = sum((node.amount.fraction() for node in _usage(play, card)), Fraction(0))
    assert found.total_use.fraction() == total
    draft = play.database.read(
        lambda uow: invoices.preview(uow, card, PLATFORM, PROJECT, None)
    ).document
    assert draft is not None
    line = next(line for line in draft.lines if line.sku == TPU)
    hosts = hosts_text(line.hosts_included, line.quantity, PriceUnit(line.unit))
    assert hosts == "hosts included in 1 device-hour"
    month = play.database.read(lambda uow: dashboard.month_to_date(uow, found))
    assert [node.facts.name.rsplit("/")[-1] for node in month.nodes] == ["n", "m"]
    assert (
        sum((node.amount.fraction() for node in month.nodes), Fraction(0))
        == month.spent.fraction()
        == total
    )
    assert Amount(month.rate * 3600).fraction() == 9 + HOUR
    rows = play.database.read(lambda uow: dashboard.efficiency(uow, found, "2026-03"))
    assert {row.facts.name.rsplit("/")[-1]: row.idle for row in rows} == {"n": 3610, "m": 3600}
    spent = play.database.read(lambda uow: costs.costs(uow, card, PLATFORM, PROJECT))
    assert spent.total.fraction() == total
    assert {node.name.rsplit("/")[-1]: node.share.seconds for node in spent.nodes} == {
        "n": 3610,
        "m": 3600,
    }
    changed = play.database.read(
        lambda uow: what_if.what_if(
            uow, card, PLATFORM, PROJECT, None, what_if.TermsChange(accelerator_type="v2-32")
        )
    )
    assert changed.actual.fraction() == total
    assert changed.changed.fraction() == Fraction(24 * (3610 + 3600), 3600) + 4 * HOUR * 3610 / 3600


def test_nodes_of_before_include_their_hosts(play: Play, card: RateCard) -> None:
    _create(play)
    play.turn(10)
    play.database.run(lambda uow: uow.execute(update(events_table).values(bills_hosts=None)))
    (node,) = _usage(play, card)
    assert (node.has_hosts, node.amount.fraction()) == (False, Fraction("0.0125"))


def test_a_region_without_a_price_of_a_host_holds_its_seconds(play: Play, card: RateCard) -> None:
    """A card that has hosts in Europe only."""
    skus = {key: sku for key, sku in card.skus.items() if key != HOST}
    other = dataclasses.replace(card, skus=skus)
    _create(play)
    play.turn(10)
    (node,) = _usage(play, other)
    assert node.host_held_because == (
        "no on-demand price of a host VM in us-central1: host-n1-standard-2 has none there"
    )
    assert (node.held_because, node.amount.fraction()) == (None, Fraction("0.0125"))
    draft = play.database.read(lambda uow: invoices.preview(uow, other, PLATFORM, PROJECT, None))
    assert draft.held == (f"10 s of {node.name}: {node.host_held_because}",)


def test_a_job_has_the_hosts_of_its_node(
    database: Database, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    card = card_with_hosts(LONG_AGO)
    yard = Scheduling(database, clock)
    yard.register()
    _create(yard)
    yard.turn(600)
    yard.submit("j", "n")
    yard.turn(8)
    yard.report("SUCCEEDED", points=_points(1, 10))
    yard.exit_all()
    yard.turn(100)
    yard.run(nodes.stop, "n")
    found = database.read(lambda uow: costs.costs(uow, card, PLATFORM, PROJECT))
    (job,), (node,) = found.jobs, found.nodes
    assert job.share.amount.fraction() == (Fraction("4.5") + HOUR) * job.share.seconds / 3600 > 0
    assert node.share.amount == job.share.amount + node.idle.amount == found.total
    assert node.share.seconds == job.share.seconds + node.idle.seconds == 708
    shown = database.read(
        lambda uow: job_progress.of(uow, card, PLATFORM, jobs.get(uow, PLATFORM, PROJECT, "-", "j"))
    )
    assert shown.cost == job.share.amount
    monkeypatch.setattr(spending, "default_rate_card", lambda: card)
    request = budgets.BudgetRequest(amount="10", scope="job:j")
    database.run(lambda uow: budgets.set_budget(uow, yard.fleet, PLATFORM, PROJECT, "b", request))
    budget = database.read(lambda uow: budgets.get(uow, PLATFORM, PROJECT, "b"))
    assert budget.spent == job.share.amount
    snapshot = database.read(lambda uow: snapshots.snapshot(uow, card, PLATFORM, PROJECT))
    (state,) = database.read(lambda uow: dashboard.budgets_of(uow, snapshot))
    assert state.spent == job.share.amount


def test_exports_name_a_host_as_a_vm(play: Play, card: RateCard) -> None:
    _create(play)
    play.turn(3600)
    asked = ExportRequest("focus", "2026-03", "2026-03")
    source = play.database.read(lambda uow: exports.one_month(uow, card, PLATFORM, PROJECT, asked))
    rows = list(csv.DictReader(io.StringIO(exports.small_file(source, asked).decode(), newline="")))
    told = [
        (row["SkuId"], row["ResourceType"], row["ServiceName"], row["SkuMeter"]) for row in rows[:2]
    ]
    assert told == [
        (TPU, "TPU node", "Cloud TPU", "TPU time"),
        (HOST, "Host VM", "Compute Engine", "VM time"),
    ]
