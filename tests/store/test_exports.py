"""Exports from the database, at once and in the background: what they sum to, and that a worker's
death changes no
byte; on both databases."""

from __future__ import annotations

import csv
import hashlib
import io
import json
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select

from podyard.base.clock import ManualClock
from podyard.base.errors import Code, PodyardError
from podyard.control.billing import accounts, catalogue, commitments, exports, listings
from podyard.control.billing.exports import ExportRequest
from podyard.control.compute import nodes
from podyard.db.tables.base import outbox
from podyard.db.tables.compute import nodes as table_of_nodes
from podyard.domain.export import Export
from podyard.domain.fleet import region_of
from podyard.domain.fleet_file import instant_fleet
from podyard.domain.node import UsageClass
from podyard.domain.principal import PLATFORM
from podyard.domain.usage import BilledResource
from podyard.hardware.accelerator_types import parse
from podyard.pricing.current_card import default_rate_card
from podyard.workers.tasks import exports as worker
from tests.builders import PROJECT, ZONE, Play

DAY = 86_400
MARCH = ExportRequest("csv", "2026-03", "2026-03")
CARD = default_rate_card()


def _used(play: Play, *, commit: bool = False) -> None:
    """Two nodes in March, in an account with euros and tax; one goes on."""
    changes = {"currency": "EUR", "tax": "0.19", "time_zone": "Europe/Berlin", "grace_hours": 1}
    rates = {"rates": {"2026-03": "0.9137", "2026-04": "0.92"}}
    play.database.run(lambda uow: accounts.patch(uow, PLATFORM, PROJECT, {**changes, **rates}))
    play.create("n", "v2-32" if commit else "v2-8", labels={"team": "a"})
    play.create("pod", "v5litepod-8")
    if commit:
        wanted = commitments.CommitmentRequest(1, 1, sku_id="tpu-v2-32/us-central1/on-demand")
        play.database.run(lambda uow: commitments.buy(uow, CARD, PLATFORM, PROJECT, wanted))
        play.database.run(
            lambda uow: commitments.add_credit(
                uow, PLATFORM, PROJECT, "12.345", None, "2026-12", "a gift"
            )
        )
    play.turn(3 * DAY)
    play.run(nodes.delete, "pod")
    play.turn(10)


def _small(play: Play, request: ExportRequest = MARCH) -> bytes:
    found = play.database.read(lambda uow: exports.one_month(uow, CARD, PLATFORM, PROJECT, request))
    return exports.small_file(found, request)


def _create(play: Play, request: ExportRequest = MARCH) -> str:
    row = play.database.run(lambda uow: exports.create(uow, PLATFORM, PROJECT, request))
    return str(row.export_id)


def _row(play: Play, export_id: str) -> Any:
    return play.database.read(lambda uow: exports.get(uow, PLATFORM, PROJECT, export_id))


def _make(play: Play, folder: Path, export_id: str) -> bool:
    return worker.make(play.database, folder, CARD, export_id)


def _lines(data: bytes) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(data.decode(), newline=""), strict=True))


def _sum(data: bytes, column: str = "amount") -> Decimal:
    return sum((Decimal(row[column]) for row in _lines(data)), Decimal(0))


def _refused(code: Code, body: Any) -> str:
    with pytest.raises(PodyardError) as raised:
        body()
    assert raised.value.code is code, raised.value.message
    return raised.value.message


def test_an_export_sums_to_its_invoice_before_and_after_it_is_issued(play: Play) -> None:
    _used(play, commit=True)
    draft = _lines(_small(play))
    assert {row["kind"] for row in draft} >= {
        "usage",
        "commitment",
        "credit",
        "tax",
        "rounding_error",
    }
    assert "true" in {row["estimated"] for row in draft}
    play.turn(28 * DAY)
    request = ExportRequest("json", "2026-03", "2026-03", by_job=True)
    document = json.loads(_small(play, request))["months"][0]
    assert document["state"] == "ISSUED"
    assert _sum(_small(play)) == Decimal(document["total"])
    hourly = _small(play, ExportRequest("csv", "2026-03", "2026-03", "hour"))
    assert _sum(hourly) == Decimal(document["total"])
    assert _sum(
        _small(play, ExportRequest("focus", "2026-03", "2026-03")), "BilledCost"
    ) == Decimal(document["total"])
    usage = [row for row in document["rows"] if row["kind"] == "usage"]
    assert {row["estimated"] for row in usage} == {False}
    assert {row["job"] for row in usage} == {"idle"}
    node = next(row for row in usage if row["resource"].endswith("/n"))
    assert (node["labels"], node["service"], node["sku_id"]) == (
        '{"team":"a"}',
        "Cloud TPU",
        "318B-250C-DB30",
    )
    # it was READY before the commitment was bought
    assert node["covered_unit_seconds"] == node["unit_seconds"] - 10


def test_a_correction_is_a_row_of_the_month_that_it_is_booked_in(
    play: Play, clock: ManualClock
) -> None:
    play.create("n")
    play.turn(31 * DAY)
    play.late_event("STOPPED", "2026-03-31T12:00:00Z")
    before = _small(play)
    play.turn(30 * DAY)
    (row,) = [
        r
        for r in _lines(_small(play, ExportRequest("csv", "2026-04", "2026-04")))
        if r["kind"] == "adjustment"
    ]
    assert (row["corrects_month"], row["amount"]) == ("2026-03", "-54.000000000000")
    assert _small(play) == before  # the issued month stays what it knew of


def test_nothing_to_invoice_is_not_found(play: Play) -> None:
    _refused(Code.NOT_FOUND, lambda: _small(play))
    play.turn(40 * DAY)
    _refused(Code.NOT_FOUND, lambda: _small(play))


def test_an_export_in_the_background_is_the_one_that_is_made_at_once(
    play: Play, tmp_path: Path
) -> None:
    _used(play)
    at_once = _small(play)
    export_id = _create(play)
    (sent,) = play.database.read(
        lambda uow: uow.all(select(outbox).where(outbox.c.task == exports.TASK))
    )
    assert (sent["queue"], sent["args"]) == ("background", [export_id])
    assert "not done" in _refused(
        Code.FAILED_PRECONDITION,
        lambda: play.database.read(lambda uow: exports.result(uow, PLATFORM, PROJECT, export_id)),
    )
    play.turn(DAY)  # what is used meanwhile is not in it
    assert _make(play, tmp_path, export_id)
    row = _row(play, export_id)
    data = (tmp_path / row.object_name).read_bytes()
    assert data == at_once
    assert (row.bytes, row.sha256) == (len(data), hashlib.sha256(data).hexdigest())
    assert row.rows_done == row.rows_all == len(_lines(data))
    assert not _make(play, tmp_path, export_id)  # it is told again, and there is nothing to do


def test_several_months_are_one_file(play: Play, tmp_path: Path) -> None:
    _used(play)
    play.turn(45 * DAY)
    export_id = _create(play, ExportRequest("csv", "2026-01", "2026-04"))
    assert _make(play, tmp_path, export_id)
    data = (tmp_path / _row(play, export_id).object_name).read_bytes()
    april = _small(play, ExportRequest("csv", "2026-04", "2026-04"))
    assert _sum(data) == _sum(_small(play)) + _sum(april)
    assert {row["month"] for row in _lines(data)} == {"2026-03", "2026-04"}


def test_a_month_that_is_issued_before_a_worker_comes_is_exported_as_it_was_issued(
    play: Play, tmp_path: Path
) -> None:
    _used(play)
    export_id = _create(play)
    counted = play.database.run(lambda uow: exports.claim(uow, export_id))
    assert counted is not None
    # of what it was then
    assert play.database.run(lambda uow: exports.progress(uow, counted, 1, 2))
    play.turn(40 * DAY)
    assert _make(play, tmp_path, export_id)
    row = _row(play, export_id)
    data = (tmp_path / row.object_name).read_bytes()
    assert data == _small(play)
    assert row.rows_done == row.rows_all == len(_lines(data)) > 2


class _Killed(BaseException):
    """What kill -9 is to a program: nothing of it runs any more."""


@pytest.mark.slow
# while rows are counted, before and while they are written
@pytest.mark.parametrize("at", [1, 4, 6])
def test_a_worker_that_dies_is_followed_by_another_with_the_same_bytes(
    play: Play, tmp_path: Path, clock: ManualClock, monkeypatch: pytest.MonkeyPatch, at: int
) -> None:
    monkeypatch.setattr(worker, "ROWS_TOLD", 3)
    _used(play)
    at_once = _small(play)
    export_id = _create(play)
    told = 0

    def killed(maker: Any) -> None:
        nonlocal told
        told += 1
        if told == at:
            raise _Killed
        tell(maker)

    tell = worker._Maker._tell
    with monkeypatch.context() as patched:
        patched.setattr(worker._Maker, "_tell", killed)
        patched.setattr(Path, "unlink", lambda *_, **__: None)  # its file stays half written
        with pytest.raises(_Killed):
            _make(play, tmp_path, export_id)
    half = _row(play, export_id)
    assert half.object_name is None
    assert not _make(play, tmp_path, export_id)  # its claim has not lapsed
    clock.advance(exports.CLAIM_SECONDS)
    play.database.run(exports.send_again)
    sent = play.database.read(
        lambda uow: uow.all(select(outbox).where(outbox.c.task == exports.TASK))
    )
    assert len(sent) == 2
    again = play.database.run(lambda uow: exports.claim(uow, export_id))
    assert again is not None
    assert again.rows_all == half.rows_all  # what has been counted is not counted again
    assert play.database.run(lambda uow: exports.progress(uow, again, 0, again.rows_all))
    kept = ("rows_done", "rows_all")
    assert [getattr(_row(play, export_id), name) for name in kept] == [
        getattr(half, name) for name in kept
    ]  # nor taken back
    clock.advance(exports.CLAIM_SECONDS)
    assert _make(play, tmp_path, export_id)
    row = _row(play, export_id)
    assert row.tries == 3
    assert (tmp_path / row.object_name).read_bytes() == at_once
    assert [path.name for path in (tmp_path / exports.folder_of(PROJECT)).iterdir()] == [
        f"{export_id}-3.csv"
    ]


def test_a_worker_that_was_thought_dead_writes_nothing(play: Play, clock: ManualClock) -> None:
    _used(play)
    export_id = _create(play)
    late = play.database.run(lambda uow: exports.claim(uow, export_id))
    assert late is not None
    clock.advance(exports.CLAIM_SECONDS)
    next_one = play.database.run(lambda uow: exports.claim(uow, export_id))
    assert next_one is not None
    _says_nothing(play, export_id, late)  # while the next one is at it
    assert play.database.run(lambda uow: exports.finish(uow, next_one, 2, 3, "0"))
    _says_nothing(play, export_id, late)
    _says_nothing(play, export_id, next_one)  # it has said how it ended


def _says_nothing(play: Play, export_id: str, claimed: Export) -> None:
    before = _row(play, export_id)
    assert not play.database.run(lambda uow: exports.progress(uow, claimed, 1, 2))
    assert not play.database.run(lambda uow: exports.finish(uow, claimed, 2, 3, "0"))
    play.database.run(lambda uow: exports.fail(uow, claimed, PodyardError(Code.ABORTED, "late")))
    assert _row(play, export_id) == before


def test_an_export_that_cannot_be_made_says_why(
    play: Play, tmp_path: Path, clock: ManualClock
) -> None:
    _used(play)
    play.turn(70 * DAY)  # there is no exchange rate of May
    export_id = _create(play, ExportRequest("csv", "2026-05", "2026-05"))
    assert not _make(play, tmp_path, export_id)
    assert "no exchange rate of EUR for 2026-05" in _row(play, export_id).error_message
    deadly = _create(play)
    for _ in range(exports.TRIES_MAX):
        assert play.database.run(lambda uow: exports.claim(uow, deadly)) is not None
        clock.advance(exports.CLAIM_SECONDS)
    assert not _make(play, tmp_path, deadly)
    assert "5 workers" in _row(play, deadly).error_message


def test_there_is_a_limit_of_exports_and_old_files_go(
    play: Play, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    play.create("n")
    monkeypatch.setattr(exports, "KEPT_MAX", 2)
    made = []
    for _ in range(4):
        made.append(_create(play))
        assert _make(play, tmp_path, made[-1])
        play.turn(1)
    kept = play.database.read(lambda uow: exports.list_exports(uow, PLATFORM, PROJECT))
    assert [row.export_id for row in kept] == [made[3], made[2]]
    there = sorted(path.name for path in (tmp_path / exports.folder_of(PROJECT)).iterdir())
    assert there == sorted(f"{export_id}-1.csv" for export_id in made[2:])
    for _ in range(exports.OPEN_MAX):
        _create(play)
    assert "wait until one is done" in _refused(Code.RESOURCE_EXHAUSTED, lambda: _create(play))


def test_what_cannot_be_exported_is_refused_with_its_field(play: Play) -> None:
    for bad, text in (
        (ExportRequest("xml", "2026-03", "2026-03"), "format 'xml'"),
        (ExportRequest("csv", "2026-3", "2026-03"), "fromMonth"),
        (ExportRequest("csv", "2026-03", "2026-02"), "untilMonth|from 2026-03 until"),
        (ExportRequest("csv", "2016-02", "2026-03"), "1 to 120 months"),
        (
            ExportRequest("csv", "2026-03", "2026-04"),
            "it must not be after the current month 2026-03",
        ),
        (ExportRequest("csv", "2026-03", "2026-03", "minute"), "granularity"),
    ):
        message = _refused(Code.INVALID_ARGUMENT, lambda bad=bad: _create(play, bad))
        assert any(part in message for part in text.split("|")), message


def test_a_month_with_very_many_rows_is_for_the_background(
    play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    _used(play)
    monkeypatch.setattr(exports, "SMALL_ROWS_MAX", 5)
    assert "more than 5 rows" in _refused(Code.FAILED_PRECONDITION, lambda: _small(play))


def test_reserved_nodes_name_their_reservation(play: Play) -> None:
    from podyard.control.compute import reservations

    play.run(reservations.create, "r", "v2", 4)
    play.create("n", usage_class=UsageClass.RESERVED)
    play.turn(3600)
    focus = _lines(_small(play, ExportRequest("focus", "2026-03", "2026-03")))
    found = {row["CapacityReservationId"] for row in focus if row["ResourceName"] == "n"}
    key = play.database.read(lambda uow: uow.first(select(table_of_nodes.c.reservation_key)))
    expected = (
        f"projects/{PROJECT}/locations/{ZONE}/reservations/r"
        if key and key["reservation_key"]
        else ""
    )
    assert found == {expected}
    assert expected


def _offers() -> Iterator[BilledResource]:
    fleet = instant_fleet()
    for zone in sorted(fleet.zones):
        for kind in fleet.offered_types(zone):
            for usage in UsageClass:
                yield BilledResource(
                    "k", f"projects/p/locations/{zone}/nodes/n", zone, kind.name, usage
                )


def test_every_offer_has_the_sku_of_the_catalogue_at_its_price() -> None:
    by_id = {
        sku.sku_id: sku
        for service in catalogue.SERVICES
        for sku in catalogue.skus_of(CARD, service)
    }
    compared = 0
    for node in _offers():
        try:
            sku, quantity = CARD.sku_for(node.type, region_of(node.zone), node.usage_class)
        except PodyardError:
            continue
        listed = listings.listing_of(CARD, node, sku.sku_id)
        found = by_id[listed.sku_id]
        chips = parse(node.type).chip_count
        unit_chips = (
            chips
            if found.description.partition("TPU slice")[1]
            else 1
            if "TpuV" in found.description
            else 4
        )
        whole = found.prices[-1][1] * chips
        assert whole == sku.versions[-1].nanos * quantity * unit_chips, (node, found.description)
        assert found.region == region_of(node.zone)
        compared += 1
    assert compared > 300
