"""An issued invoice is what its kept records say, whatever becomes of events, labels and cards;
corrections say of
what they are; and months that an earlier version has closed get their records once."""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Callable

import pytest
from sqlalchemy import delete, text, update

from podyard import migrations
from podyard.base.clock import ManualClock
from podyard.base.errors import Code, PodyardError
from podyard.control.billing import bill_lines, commitments, exports, invoice_records, invoices
from podyard.control.billing.exports import ExportRequest
from podyard.control.billing.invoice_document import canonical, from_json, to_json
from podyard.control.checks import fsck
from podyard.db.billing import invoice_records as chunks
from podyard.db.store.unit_of_work import Database
from podyard.db.tables.billing import card_prices, usage_events
from podyard.db.tables.billing import invoice_records as table
from podyard.db.tables.billing import invoices as invoices_table
from podyard.domain.invoice import IssuedInvoice
from podyard.domain.principal import PLATFORM
from podyard.loop.closings import keep_older_records
from podyard.pricing.current_card import default_rate_card
from tests.builders import FLEET, PROJECT, Play
from tests.surfaces import check_books, check_month

DAY = 86_400
CARD = default_rate_card()
DEVICE = "tpu-v2-device/us-central1/on-demand"
SLICE = "tpu-v2-32/us-central1/on-demand"
CHIP = "tpu-v5e-chip/us-central1/on-demand"
FORMATS = ("csv", "json", "focus", "bigquery")


@pytest.fixture
def play(database: Database, clock: ManualClock) -> Play:
    return Play(database, clock)


def _file(play: Play, month: str, kind: str = "csv") -> bytes:
    request = ExportRequest(kind, month, month)
    found = play.database.read(lambda uow: exports.one_month(uow, CARD, PLATFORM, PROJECT, request))
    return exports.small_file(found, request)


def _issued(play: Play, month: str) -> IssuedInvoice:
    return play.database.read(lambda uow: invoices.get(uow, PLATFORM, PROJECT, month))


def _explained(play: Play, month: str, line: str) -> bill_lines.Explained:
    return play.database.read(
        lambda uow: bill_lines.explain(uow, CARD, PLATFORM, PROJECT, month, line)
    )


def _violations(play: Play) -> list[str]:
    return [one.detail for one in play.database.read(lambda uow: fsck.check(uow, play.fleet, CARD))]


def _three_months(play: Play) -> None:
    """Three closed months with a commitment, a label and a correction in the second."""
    play.create("n", "v2-32", labels={"team": "a"})
    play.create("m")
    wanted = commitments.CommitmentRequest(1, 1, sku_id=SLICE)
    play.database.run(lambda uow: commitments.buy(uow, CARD, PLATFORM, PROJECT, wanted))
    play.turn(31 * DAY)
    play.late_event("STOPPED", "2026-03-31T12:00:00Z", "m")
    play.turn(30 * DAY)
    play.turn(31 * DAY)


def test_everything_that_is_said_of_an_issued_month_comes_from_its_records(
    play: Play, clock: ManualClock
) -> None:
    _three_months(play)
    before = {
        (month, kind): _file(play, month, kind)
        for month in ("2026-03", "2026-04")
        for kind in FORMATS
    }
    line = from_json(_issued(play, "2026-03").document).lines[-1].id
    told = _explained(play, "2026-03", line)
    play.database.run(lambda uow: uow.execute(delete(usage_events)))
    assert {key: _file(play, *key) for key in before} == before
    assert _explained(play, "2026-03", line) == told
    assert {part.covered for part in _explained(play, "2026-03", f"{SLICE}@24.00").parts} >= {()}


def test_records_that_are_damaged_are_an_error_and_a_finding(
    play: Play, clock: ManualClock
) -> None:
    play.create("n")
    play.turn(31 * DAY)
    assert _violations(play) == []
    other = b"not what was kept"
    damages: list[tuple[dict[str, object], str]] = [
        ({"data": other}, "is not the one whose digest was kept"),
        ({"data": other, "sha256": hashlib.sha256(other).hexdigest()}, "cannot be read"),
    ]
    for values, said in damages:
        play.database.run(lambda uow, values=values: uow.execute(update(table).values(**values)))
        asks: list[Callable[[], object]] = [
            lambda: _file(play, "2026-03"),
            lambda: _explained(play, "2026-03", f"{DEVICE}@4.50"),
        ]
        for ask in asks:
            with pytest.raises(PodyardError) as raised:
                ask()
            assert raised.value.code is Code.DATA_LOSS
            assert said in raised.value.message
        assert any(said in detail for detail in _violations(play))


def test_a_correction_names_node_line_and_difference_and_states_it_once(
    play: Play, clock: ManualClock
) -> None:
    for name in ("a", "b", "c"):
        play.create(name)
    play.create("big", "v5litepod-8")
    play.turn(31 * DAY)
    march = _file(play, "2026-03")
    play.late_event("STOPPED", "2026-03-31T12:00:00Z", "a")
    play.late_event("STOPPED", "2026-03-30T00:00:00Z", "big")
    play.turn(30 * DAY)
    april = check_month(play.database, CARD, PROJECT, "2026-04")
    assert april is not None
    (correction,) = april.adjustments
    items = [
        (item.name.rpartition("/")[2], item.line, item.quantity, item.exact_usd)
        for item in correction.items
    ]
    assert sorted(items) == [
        ("a", f"{DEVICE}@4.50", "-12.000000000000", "-54.000000000000"),
        ("big", f"{CHIP}@1.20", "-384.000000000000", "-460.800000000000"),
    ]
    assert (correction.corrects_month, correction.amount) == ("2026-03", "-514.80")
    play.late_event("STOPPED", "2026-03-31T23:00:00Z", "b")
    play.turn(31 * DAY)
    may = check_month(play.database, CARD, PROJECT, "2026-05")
    assert may is not None
    # April, in which `b` was READY as far as was known, and March once more
    (first, second) = may.adjustments
    assert (first.corrects_month, first.amount) == ("2026-03", "-4.50")
    assert [(item.name[-1], item.seconds) for item in first.items] == [("b", -3600)]
    assert (second.corrects_month, [item.name[-1] for item in second.items]) == ("2026-04", ["b"])
    assert _file(play, "2026-03") == march
    for row in play.database.read(lambda uow: invoices.list_invoices(uow, PLATFORM, PROJECT)):
        assert play.database.read(lambda uow, row=row: invoices.is_reproduced(uow, CARD, row))


def test_use_that_moves_from_a_covered_node_to_another_is_itemised_for_both(
    database: Database, clock: ManualClock
) -> None:
    play = Play(database, clock, FLEET.replace("v2: {shape: 4x4}", "v2: {shape: 8x8}"))
    play.create("a", "v2-32")
    play.create("b", "v2-32")
    wanted = commitments.CommitmentRequest(1, 1, sku_id=SLICE)
    play.database.run(lambda uow: commitments.buy(uow, CARD, PLATFORM, PROJECT, wanted))
    play.turn(31 * DAY)
    key = {node: play.node(node).node_key for node in ("a", "b")}
    covered = min(key, key=lambda node: key[node])
    play.late_event("STOPPED", "2026-03-31T12:00:00Z", covered)
    play.turn(30 * DAY)
    april = check_month(play.database, CARD, PROJECT, "2026-04")
    assert april is not None
    items = {
        item.name.rpartition("/")[2]: (item.seconds, item.unit_seconds)
        for item in april.adjustments[0].items
    }
    other = "b" if covered == "a" else "a"
    assert items == {covered: (-43_200, 0), other: (0, -43_200)}  # who is left is covered instead


def _as_older(play: Play) -> dict[str, bytes]:
    """Takes away what earlier versions did not write: documents are of form 1, and there are no
    records."""
    documents = {}
    for row in play.database.read(lambda uow: invoices.list_invoices(uow, PLATFORM, PROJECT)):
        data = to_json(from_json(row.document))
        del data["form"]
        for line in data["lines"]:
            for name in ("id", "priceVersions", "quantity", "unitSeconds"):
                del line[name]
        for one in data["adjustments"]:
            del one["items"], one["exchangeRate"]
        documents[row.month] = json.dumps(
            data, sort_keys=True, separators=(",", ":"), ensure_ascii=False
        ).encode()
        values = {
            "document": documents[row.month],
            "sha256": hashlib.sha256(documents[row.month]).hexdigest(),
        }
        where = {"project": PROJECT, "month": row.month}
        play.database.run(
            lambda uow, where=where, values=values: uow.update(invoices_table, where, values)
        )
    play.database.run(lambda uow: uow.execute(delete(table)))
    return documents


def test_a_yard_of_the_old_form_with_three_closed_months_is_migrated(
    play: Play, clock: ManualClock
) -> None:
    _three_months(play)
    told = {month: _file(play, month, "csv") for month in ("2026-03", "2026-05")}
    documents = _as_older(play)
    assert sorted(documents) == ["2026-03", "2026-04", "2026-05"]
    migrations.migrate(play.database.engine, "0014")
    migrations.upgrade(play.database)
    for month in documents:
        check_month(play.database, CARD, PROJECT, month)
    keep_older_records(play.database, "test")
    keep_older_records(play.database, "test")
    for month, document in documents.items():
        assert _issued(play, month).document == document
        assert play.database.read(lambda uow, month=month: chunks.chunks_of(uow, PROJECT, month))
        check_month(play.database, CARD, PROJECT, month)
    assert {month: _file(play, month, "csv") for month in told} == told
    for row in play.database.read(lambda uow: invoices.list_invoices(uow, PLATFORM, PROJECT)):
        assert play.database.read(lambda uow, row=row: invoices.is_reproduced(uow, CARD, row))


def test_records_that_are_not_those_of_an_older_document_are_not_kept(
    play: Play, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    play.create("n")
    play.turn(31 * DAY)
    play.database.run(lambda uow: uow.execute(delete(table)))
    found = from_json(_issued(play, "2026-03").document)
    lines = [found.lines[0]._replace(parts=str(int(found.lines[0].parts) + 1))]
    values = {"document": canonical(found._replace(lines=lines))}
    play.database.run(lambda uow: uow.update(invoices_table, {"project": PROJECT}, values))
    with caplog.at_level(logging.WARNING):
        keep_older_records(play.database, "test")
    assert f"the records of invoice {PROJECT}-2026-03 are not kept: {DEVICE}@4.50" in caplog.text
    assert play.database.read(lambda uow: chunks.chunks_of(uow, PROJECT, "2026-03")) == []


def test_labels_of_an_issued_month_stay_with_it(play: Play, clock: ManualClock) -> None:
    play.create("n", labels={"team": "a"})
    play.turn(31 * DAY)
    before = {kind: _file(play, "2026-03", kind) for kind in FORMATS}
    play.database.run(
        lambda uow: uow.execute(
            update(usage_events)
            .where(usage_events.c.labels.is_not(None))
            .values(labels={"team": "b"})
        )
    )
    assert {kind: _file(play, "2026-03", kind) for kind in FORMATS} == before
    assert b'""team"":""a""' in before["csv"]
    assert b'""team"":""b""' in _file(play, "2026-04")


def test_prices_of_older_data_are_one_table_and_survive_the_way_back(
    play: Play, clock: ManualClock
) -> None:
    play.create("n")
    play.turn(31 * DAY)
    kept = play.database.read(
        lambda uow: uow.all(card_prices.select().order_by(card_prices.c.version_id))
    )
    assert [row["sku_id"] for row in kept if row["first_used"]] == [DEVICE]
    assert len(kept) > 100
    migrations.migrate(play.database.engine, "0016")
    used = play.database.read(lambda uow: uow.all(text("SELECT sku_id FROM price_versions_used")))
    assert [row["sku_id"] for row in used] == [DEVICE]
    lost = {"version": next(row["version_id"] for row in kept if row["first_used"])}
    play.database.run(
        lambda uow: uow.execute(text("DELETE FROM card_prices WHERE version_id = :version"), lost)
    )
    migrations.upgrade(play.database)
    after = play.database.read(
        lambda uow: uow.all(card_prices.select().order_by(card_prices.c.version_id))
    )
    blank = {
        "generation": None,
        "accelerator_type": None,
        "region": None,
        "usage": None,
        "effective_from": None,
    }
    assert after == [{**row, **blank} if row["first_used"] else row for row in kept]
    check_books(play.database, play.fleet, CARD)


def test_records_are_written_once(play: Play, clock: ManualClock) -> None:
    play.create("n")
    play.turn(31 * DAY)
    before = play.database.read(lambda uow: chunks.chunks_of(uow, PROJECT, "2026-03"))
    play.database.run(lambda uow: invoice_records.keep_older(uow, PROJECT, "2026-03", (b"other",)))
    assert play.database.read(lambda uow: chunks.chunks_of(uow, PROJECT, "2026-03")) == before
