"""Exports over REST and by the command line: at once, in the background, to print; and what is
refused."""

from __future__ import annotations

import concurrent.futures
import contextlib
import csv
import hashlib
import io
import json
import os
from collections.abc import Callable, Iterator
from decimal import Decimal
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import httpx
import pytest
from click.testing import CliRunner
from pypdf import PdfReader

from podyard.api.app import create_app, prepare
from podyard.api.exports import CHUNK_BYTES
from podyard.base.clock import ManualClock
from podyard.base.errors import PodyardError
from podyard.base.money import amount_text
from podyard.cli.kit.client import Client, Target
from podyard.cli.kit.commands import root
from podyard.cli.money import export
from podyard.control.billing import exports
from podyard.db.store.unit_of_work import Database
from podyard.domain.fleet_file import instant_fleet
from podyard.loop.steps import Loop
from podyard.pricing.current_card import default_rate_card
from podyard.settings import from_environment
from podyard.testing.server import serving, write_empty_database
from podyard.web.billing import invoice_print
from podyard.workers.tasks import exports as worker
from tests.listener import listening
from tests.yard import START, Yard

HERE = "/podyard/v1/projects/demo"
CONSOLE = "/console/demo/invoices"
SETTINGS = {
    "currency": "EUR",
    "tax": "0.19",
    "exchangeRates": {"2026-03": "0.9137", "2026-04": "0.92"},
}


@pytest.fixture(scope="module")
def yard(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Yard]:
    """March is issued, with a label, a commitment and a credit; April is open."""
    data = tmp_path_factory.mktemp("exports")
    settings = from_environment({"PODYARD_DATA": str(data), "PODYARD_CLOCK": "virtual"})
    clock = ManualClock(START)
    write_empty_database(data / "podyard.db")
    database = Database(settings.database_url, clock)
    prepare(settings, database)
    fleet = instant_fleet()
    loop = Loop(database, fleet, lambda *_: None, clock, "test")
    app = create_app(settings, database, fleet, clock, more=lambda: (invoice_print.router,))
    with contextlib.closing(database), serving(app) as url:
        found = Yard(url, database, loop, clock, data)
        loop.round()
        found.ok("PATCH", f"{HERE}/billingAccount", SETTINGS)
        found.ok(
            "POST", f"{HERE}/commitments", {"sku": "tpu-v2-32/us-central1/on-demand", "years": 1}
        )
        found.ok("POST", f"{HERE}/credits", {"amount": "12.345", "untilMonth": "2026-12"})
        found.create("n", labels={"team": "a"})
        found.ok("POST", "/podyard/v1/clock:advance", {"time": "2026-04-03T00:00:00Z"})
        for _ in range(100):
            loop.round()
            if found.ok("GET", "/podyard/v1/clock")["platformTime"] == "2026-04-03T00:00:00Z":
                break
        try:
            yield found
        finally:
            found.close()


def _file(yard: Yard, path: str) -> httpx.Response:
    answer = yard.call("GET", path)
    assert answer.status_code == 200, answer.text
    return answer


def _document(yard: Yard, month: str = "2026-03") -> dict[str, Any]:
    found: dict[str, Any] = yard.ok("GET", f"{HERE}/invoices/{month}")["invoice"]
    return found


def _sum(text: str, column: str) -> Decimal:
    return sum(
        (Decimal(row[column]) for row in csv.DictReader(io.StringIO(text, newline=""))), Decimal(0)
    )


def test_every_format_of_a_month_sums_to_its_invoice(yard: Yard) -> None:
    total = Decimal(_document(yard)["total"])
    answer = _file(yard, f"{HERE}/invoices/2026-03:export?format=csv&byJob=true")
    assert answer.headers["Content-Type"].startswith("text/csv")
    assert answer.headers["Content-Disposition"] == 'attachment; filename="demo-2026-03.csv"'
    assert _sum(answer.text, "amount") == total
    focus = _file(yard, f"{HERE}/invoices/2026-03:export?format=focus&granularity=hour")
    assert _sum(focus.text, "BilledCost") == total
    (month,) = _file(yard, f"{HERE}/invoices/2026-03:export?format=json").json()["months"]
    assert sum(Decimal(row["amount"]) for row in month["rows"]) == total
    lines = _file(yard, f"{HERE}/invoices/2026-03:export?format=bigquery").text.splitlines()
    rows = [json.loads(line, parse_float=Decimal) for line in lines]
    assert sum(row["cost"] + sum(c["amount"] for c in row["credits"]) for row in rows) == total


def test_the_same_month_is_the_same_bytes(yard: Yard) -> None:
    for kind in exports.FORMATS:
        path = f"{HERE}/invoices/2026-03:export?format={kind}"
        assert _file(yard, path).content == _file(yard, path).content


def test_an_export_in_the_background_is_an_operation(yard: Yard) -> None:
    body = {
        "format": "bigquery",
        "fromMonth": "2026-03",
        "untilMonth": "2026-04",
        "granularity": "hour",
    }
    begun = yard.ok("POST", f"{HERE}/exports", body)
    assert (begun["done"], begun["metadata"]["rowsDone"]) == (False, 0)
    path = f"/podyard/v1/{begun['name']}"
    assert "not done" in yard.refused(400, "FAILED_PRECONDITION", "GET", f"{path}:download")
    export_id = begun["name"].rpartition("/")[2]
    assert worker.make(yard.database, yard.data / "objects", default_rate_card(), export_id)
    done = yard.ok("GET", path)
    assert done["done"]
    assert done["metadata"]["rowsDone"] == done["metadata"]["rowsAll"] > 743
    answer = _file(yard, f"{path}:download")
    assert len(answer.content) == done["response"]["bytes"]
    assert done["response"]["fileName"] in answer.headers["Content-Disposition"]
    assert done in yard.ok("GET", f"{HERE}/exports")["exports"]


@pytest.fixture(scope="module")
def large(yard: Yard) -> tuple[str, bytes]:
    """The path of an export that is done, and its bytes: more than go out at a time."""
    body = {
        "format": "bigquery",
        "fromMonth": "2026-03",
        "untilMonth": "2026-04",
        "granularity": "hour",
    }
    name = yard.ok("POST", f"{HERE}/exports", body)["name"]
    assert worker.make(
        yard.database, yard.data / "objects", default_rate_card(), name.rpartition("/")[2]
    )
    content = _file(yard, f"/podyard/v1/{name}:download").content
    assert len(content) > 2 * CHUNK_BYTES
    return f"/podyard/v1/{name}", content


def test_a_download_goes_out_in_chunks_with_its_length_and_hash(
    yard: Yard, large: tuple[str, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    path, content = large
    # Nobody reads the whole of it into memory.
    monkeypatch.setattr(Path, "read_bytes", lambda _: pytest.fail("the whole file was read"))
    answer = _file(yard, f"{path}:download")
    assert answer.content == content
    assert int(answer.headers["Content-Length"]) == len(content)
    assert answer.headers["ETag"] == f'"{hashlib.sha256(content).hexdigest()}"'
    assert answer.headers["Accept-Ranges"] == "bytes"


def test_a_part_of_a_download_can_be_asked_for(yard: Yard, large: tuple[str, bytes]) -> None:
    path, content = large
    begun = yard.call("GET", f"{path}:download", headers={"Range": "bytes=0-99999"})
    etag = begun.headers["ETag"]
    rest = yard.call(
        "GET", f"{path}:download", headers={"Range": "bytes=100000-", "If-Range": etag}
    )
    assert (begun.status_code, rest.status_code) == (206, 206)
    assert begun.content + rest.content == content
    assert rest.headers["Content-Range"] == f"bytes 100000-{len(content) - 1}/{len(content)}"
    other = yard.call(
        "GET", f"{path}:download", headers={"Range": "bytes=100000-", "If-Range": '"another"'}
    )
    assert (other.status_code, other.content) == (200, content)
    several = yard.call("GET", f"{path}:download", headers={"Range": "bytes=0-1,5-6"})
    assert (several.status_code, several.content) == (200, content)
    beyond = yard.call("GET", f"{path}:download", headers={"Range": f"bytes={len(content)}-"})
    assert beyond.status_code == 416


def test_an_export_whose_file_is_gone_is_not_found(
    yard: Yard, large: tuple[str, bytes], tmp_path: Path
) -> None:
    path, _ = large
    (found,) = (yard.data / "objects").rglob(f"{path.rpartition('/')[2]}-*")
    aside = found.rename(tmp_path / "aside")
    yard.refused(404, "NOT_FOUND", "GET", f"{path}:download")
    aside.rename(found)


def test_what_is_not_understood_is_refused(yard: Yard) -> None:
    month = f"{HERE}/invoices/2026-03:export"
    for query in ("", "?format=xml", "?format=csv&granularity=week", "?format=csv&byJob=yes"):
        yard.refused(400, "INVALID_ARGUMENT", "GET", month + query)
    yard.refused(404, "NOT_FOUND", "GET", f"{HERE}/invoices/2026-01:export?format=csv")
    for body in (
        {},
        {"format": "csv"},
        {"format": "csv", "month": "2026-03", "fromMonth": "2026-03"},
        {"format": "csv", "month": "2026-05"},
        {"format": "csv", "month": "2026-03", "granularity": "minute"},
    ):
        yard.refused(400, "INVALID_ARGUMENT", "POST", f"{HERE}/exports", body)
    yard.refused(404, "NOT_FOUND", "GET", f"{HERE}/exports/none")
    yard.refused(404, "NOT_FOUND", "GET", f"{HERE}/exports/none:download")


def test_only_who_may_see_the_bill_may_export_it(yard: Yard) -> None:
    token = yard.ok(
        "POST", "/podyard/v1/tokens", {"email": "v@e.x", "project": "demo", "roles": ["tpu.viewer"]}
    )
    headers = {"Authorization": f"Bearer {token['token']}"}
    for method, path in (
        ("GET", f"{HERE}/invoices/2026-03:export?format=csv"),
        ("GET", f"{HERE}/invoices/2026-03:export?format=wrong"),
        ("POST", f"{HERE}/exports"),
        ("GET", f"{HERE}/exports"),
        ("GET", f"{HERE}/exports/none"),
        ("GET", f"{HERE}/exports/none:download"),
    ):
        answer = yard.bare.request(method, path, headers=headers)
        assert answer.status_code == 403, (path, answer.text)
    assert yard.bare.get(f"{CONSOLE}/2026-03/print", headers=headers).status_code == 403


def test_the_printed_page_has_what_the_invoice_says(yard: Yard) -> None:
    document = _document(yard)
    html = _file(yard, f"{CONSOLE}/2026-03/print").text
    assert "<script" not in html
    assert '<html lang="en-GB">' in html
    assert html.count('scope="col"') == 6
    assert html.count('scope="row"') >= len(document["lines"]) + 5
    for amount in _amounts(document):
        assert f">{amount}<" in html, amount
    assert "two thousand" in html or "thousand" in html
    assert "†" in html  # the commitment's price is unverified
    assert "<style" not in html
    inline = _file(yard, f"{CONSOLE}/2026-03/print?style=inline").text
    style = _file(yard, f"{CONSOLE}/2026-03/print.css").text
    assert "@page" in style
    assert style.strip() in inline
    draft = _file(yard, f"{CONSOLE}/2026-04/print").text
    assert "Draft of an invoice" in draft
    assert "An estimate" in draft
    assert yard.call("GET", f"{CONSOLE}/2026-01/print").status_code == 404


def _amounts(document: dict[str, Any]) -> list[str]:
    found = [
        line["amount"]
        for line in (*document["lines"], *document["credits"], *document["adjustments"])
    ]
    found += [document[name] for name in ("roundingError", "subtotal", "tax", "total")]
    return [amount_text(amount, document["currency"]) for amount in found]


def test_the_pdf_can_be_read_and_is_the_same_each_time(yard: Yard) -> None:
    document = _document(yard)
    data = _file(yard, f"{CONSOLE}/2026-03/pdf").content
    assert data == _file(yard, f"{CONSOLE}/2026-03/pdf").content
    read = PdfReader(io.BytesIO(data))
    assert read.metadata is not None
    assert read.metadata.title == "Invoice demo-2026-03"
    assert read.metadata["/CreationDate"] == "D:20260401000000Z"
    assert read.trailer["/Root"]["/Lang"] == "en-GB"
    text = "\n".join(page.extract_text() for page in read.pages)
    for amount in _amounts(document):
        assert amount in text
    assert f"Total: {amount_text(document['total'], 'EUR')}" in text


def test_amounts_are_said_in_words() -> None:
    assert invoice_print.in_words("0.00") == "zero and 00/100"
    assert (
        invoice_print.in_words("-1234.50")
        == "minus one thousand two hundred and thirty-four and 50/100"
    )
    assert invoice_print.in_words("1000017") == "one million seventeen"
    assert invoice_print.in_words("6594560.1234").endswith("five hundred and sixty and 1234/10000")


@pytest.fixture
def run(yard: Yard, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., str]]:
    """`podyard bill export` with these words; what it prints."""
    client = Client(Target(yard.url, yard.token, "demo", "us-central1-f"))
    monkeypatch.setattr(export, "client_of", lambda *_: client)

    def call(*words: str) -> str:
        done = CliRunner().invoke(root, ["bill", "export", *words])
        if isinstance(done.exception, PodyardError):
            raise done.exception
        assert done.exit_code == 0, (words, done.output, done.exception)
        return done.output

    yield call
    client.close()


@pytest.mark.slow
def test_the_command_writes_each_format(
    yard: Yard, run: Callable[..., str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for kind in ("csv", "json", "focus", "bigquery"):
        run("2026-03", "--format", kind, "--out", str(tmp_path / kind))
        expected = _file(yard, f"{HERE}/invoices/2026-03:export?format={kind}").content
        assert (tmp_path / kind).read_bytes() == expected
    run("2026-03", "--format", "html", "--out", str(tmp_path / "html"))
    assert b"<style>" in (tmp_path / "html").read_bytes()
    run("--format", "pdf", "--out", str(tmp_path / "pdf"))  # of the current month
    assert (tmp_path / "pdf").read_bytes().startswith(b"%PDF")
    monkeypatch.setattr(exports, "SMALL_ROWS_MAX", 5)
    assert "in the background" in run("2026-03", "--out", str(tmp_path / "none"))
    assert not (tmp_path / "none").exists()
    create = exports.create

    def at_once(uow: Any, *arguments: Any) -> Any:
        row = create(uow, *arguments)
        made.append(row.export_id)
        return row

    made: list[str] = []
    monkeypatch.setattr(exports, "create", at_once)
    get = exports.get

    def make_first(uow: Any, *arguments: Any) -> Any:
        if made:  # a worker takes it while the command waits
            worker.make(yard.database, yard.data / "objects", default_rate_card(), made.pop())
        return get(uow, *arguments)

    monkeypatch.setattr(exports, "get", make_first)
    assert "rows" in run("2026-03", "--out", str(tmp_path / "waited"), "--wait")
    assert (tmp_path / "waited").read_bytes() == (tmp_path / "csv").read_bytes()
    with pytest.raises(PodyardError, match="current month"):
        run("2026-03", "--until-month", "2026-09", "--out", str(tmp_path / "none"))


@contextlib.contextmanager
def _broken_off() -> Iterator[Client]:
    """A server that breaks every answer off after some of what it has announced."""

    def answer(request: BaseHTTPRequestHandler, _: bytes) -> None:
        request.send_response(200)
        request.send_header("Content-Length", "1000000")
        request.end_headers()
        request.wfile.write(b"a" * 500_000)

    with (
        listening(answer) as url,
        contextlib.closing(Client(Target(url, "token", "demo", "us-central1-f"))) as client,
    ):
        yield client


def test_a_download_that_breaks_off_leaves_what_was_there(tmp_path: Path) -> None:
    there = tmp_path / "there"
    there.write_text("what was there")
    with _broken_off() as client:
        for path in (there, tmp_path / "new"):
            with pytest.raises(PodyardError, match="does not answer"):
                export._save(client, path, "/file")
    assert [path.name for path in tmp_path.iterdir()] == ["there"]
    assert there.read_text() == "what was there"


def test_a_download_is_written_through_links_and_into_pipes(
    yard: Yard, run: Callable[..., str], tmp_path: Path
) -> None:
    expected = _file(yard, f"{HERE}/invoices/2026-03:export?format=csv").content
    (tmp_path / "link").symlink_to(tmp_path / "target")
    run("2026-03", "--out", str(tmp_path / "link"))
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "target").read_bytes() == expected
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with concurrent.futures.ThreadPoolExecutor() as threads:
        read = threads.submit(pipe.read_bytes)
        run("2026-03", "--out", str(pipe))
        assert read.result() == expected
    assert sorted(path.name for path in tmp_path.iterdir()) == ["link", "pipe", "target"]
