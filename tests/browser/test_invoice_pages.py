"""An invoice in yen of an account in Los Angeles, as people read it: pages, print, PDF and command
line."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from pypdf import PdfReader

from podyard.base.money import amount_text, money_text, rate_text, without_zeros
from podyard.cli.kit.client import Client, Target
from podyard.cli.kit.commands import root
from podyard.cli.money import bill, bill_invoice, credit_note
from tests.browser.test_billing import HERE, Console, open_console
from tests.yard import ZONE

RATE = "1 USD = 151.37 JPY (rate of 2026-03)"
PERIOD = "1 March 2026 to 31 March 2026, America/Los_Angeles"
ISSUED = "2026-04-01 00:00:00 UTC-07:00"


@pytest.fixture(scope="module")
def tokyo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Console]:
    with open_console(Path(tmp_path_factory.mktemp("yen"))) as yard:
        rates = {f"2026-{month:02d}": "151.37" for month in range(2, 6)}
        account = {"timeZone": "America/Los_Angeles", "currency": "JPY", "exchangeRates": rates}
        yard.ok("PATCH", f"{HERE}/billingAccount", account)
        yard.create("big", "v2-32", "us-central1-a")
        yard.to("2026-04-03T00:00:00Z")
        yield yard


@pytest.fixture
def podyard(tokyo: Console, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., str]]:
    client = Client(Target(tokyo.url, tokyo.token, "demo", ZONE))
    for module in (bill, bill_invoice, credit_note):
        monkeypatch.setattr(module, "client_of", lambda *_: client)

    def run(*arguments: str) -> str:
        answer = CliRunner().invoke(root, arguments)
        assert answer.exit_code == 0, answer.output
        return answer.output

    yield run
    client.close()


def _document(yard: Console) -> dict[str, Any]:
    found: dict[str, Any] = yard.ok("GET", f"{HERE}/invoices/2026-03")["invoice"]
    return found


def test_amounts_and_rates_in_words() -> None:
    assert amount_text("14407.54", "USD") == "$14,407.54"
    assert amount_text("-0.50", "USD") == "-$0.50"
    assert amount_text("14407.54", "EUR") == "14,407.54 EUR"
    assert amount_text("-2181000", "JPY") == "-2,181,000 JPY"
    assert rate_text("15137/100", "JPY", "2026-03") == RATE
    assert rate_text("1/8", "KWD", "2026-03") == "1 USD = 0.125 KWD (rate of 2026-03)"
    assert rate_text("25400", "VND", "2026-03") == "1 USD = 25,400 VND (rate of 2026-03)"


def test_the_invoices_page_speaks_of_the_accounts_zone_and_currency(tokyo: Console) -> None:
    document = _document(tokyo)
    page = tokyo.page("/invoices/2026-03").text
    (line,) = document["lines"]
    dollars = f'title="${without_zeros(line["exactUsd"])} exactly">{money_text(line["exactUsd"])}<'
    total = amount_text(document["total"], "JPY")
    for text in (
        total,
        dollars,
        RATE,
        PERIOD,
        ISSUED,
        "Project demo",
        "1 May 2026, 30 days after its issue",
    ):
        assert text in page, text
    assert "an estimate" not in page
    listed = tokyo.page("/invoices").text
    assert ISSUED in listed
    assert amount_text(document["total"], "JPY") in listed
    explained = tokyo.page(f"/invoices/2026-03/line?id={line['id'].replace('/', '%2F')}").text
    assert "2026-03-01 00:00:00 UTC-08:00" in explained
    assert "2026-04-01 00:00:00 UTC-07:00" in explained
    assert " UTC<" not in explained.partition("<footer")[0]
    assert "an estimate" in tokyo.page("/invoices/2026-04").text


def test_print_and_pdf_name_issuer_customer_and_due_date(tokyo: Console) -> None:
    document = _document(tokyo)
    paper = tokyo.call("GET", "/console/demo/invoices/2026-03/print").text
    data = tokyo.call("GET", "/console/demo/invoices/2026-03/pdf").content
    pdf = "\n".join(page.extract_text() for page in PdfReader(io.BytesIO(data)).pages)
    for text in (
        "Podyard",
        "Project demo",
        PERIOD,
        ISSUED,
        RATE,
        "1 May 2026",
        amount_text(document["total"], "JPY"),
    ):
        assert text in paper, text
        assert text in pdf, text
    assert "stimate" not in paper + pdf


def test_the_command_line_writes_amounts_the_same(
    tokyo: Console, podyard: Callable[..., str]
) -> None:
    document = _document(tokyo)
    total = amount_text(document["total"], "JPY")
    shown = podyard("bill", "invoice", "2026-03")
    assert total in shown
    assert RATE in shown
    assert money_text(document["lines"][0]["exactUsd"]) in shown
    assert total in podyard("bill", "invoice", "--list")
    assert json.loads(podyard("bill", "invoice", "2026-03", "-o", "json"))["invoice"] == document
    made = podyard("bill", "credit-note", "create", "2026-03", "12000", "--reason", "a gift")
    assert "12,000 JPY" in made
    assert "12,000 JPY" in tokyo.page("/invoices/2026-03").text


def test_nothing_issued_is_marked_as_an_estimate(tokyo: Console) -> None:
    """The node is still in use, as it was when the month was closed."""
    assert [line["estimated"] for line in _document(tokyo)["lines"]] == [False]
    (line,) = _document(tokyo)["lines"]

    def export(kind: str) -> str:
        answer = tokyo.call("GET", f"{HERE}/invoices/2026-03:export?format={kind}")
        assert answer.status_code == 200, answer.text
        return answer.text

    rows = list(csv.DictReader(io.StringIO(export("csv"))))
    assert rows
    assert "true" not in {row["estimated"] for row in rows}
    (month,) = json.loads(export("json"))["months"]
    assert not any(row.get("estimated") for row in month["rows"])
    assert "stimate" not in export("focus")
    assert '"estimated": true' not in export("bigquery")
    explained = tokyo.ok("GET", f"{HERE}/invoices/2026-03:explain", params={"line": line["id"]})
    assert "stimate" not in json.dumps(explained)
    (open_line,) = tokyo.ok("GET", f"{HERE}/invoices:preview")["invoice"]["lines"]
    assert open_line["estimated"]
