"""The rest of what a user does every day, by mouse and keyboard from the overview, with the clicks
counted."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.browser.conftest import Browser
from tests.browser.people import CLICKS_MAX, ClickCounter
from tests.stack import Stack

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("browser")]

ZONE = "us-central1-f"


@pytest.fixture(scope="module", autouse=True)
def billed(stack: Stack) -> Iterator[None]:
    """A node, so that there is a bill."""
    stack.create_node("billed", "v2-8", ZONE)
    yield
    stack.delete_node("billed", ZONE)


@pytest.fixture
def person(browser: Browser) -> Iterator[ClickCounter]:
    browser.errors()
    browser.open("/console/demo/overview")
    hands = ClickCounter(browser)
    yield hands
    assert 0 < hands.clicks <= CLICKS_MAX
    assert browser.errors() == []


def _open_draft(browser: Browser, person: ClickCounter) -> None:
    person.click("nav a[href$='/billing']")
    browser.until(lambda: browser.all(".tabs a[href$='/invoices']"), 20, "the bill")
    person.click(".tabs a[href$='/invoices']")
    browser.until(lambda: browser.all("tbody th a[href*='/invoices/']"), 20, "the invoices")
    person.click("tbody th a[href*='/invoices/']")
    browser.until(lambda: browser.all("a[href$='/print']"), 20, "the draft")


def test_a_preemptible_v2_8_is_created(
    browser: Browser, person: ClickCounter, stack: Stack
) -> None:
    person.click("a[href$='/create']")
    browser.until(lambda: browser.all("table.zones"), 10, "the zones")
    person.click("a.pill[href*='usage=preemptible']")
    browser.until(lambda: "Preemptible" in browser.text("table.zones thead"), 10, "its prices")
    assert "$1.35" in browser.text("table.zones")
    person.click(f"a[aria-label='Create v2-8 in {ZONE}']")
    browser.until(lambda: browser.all("#node_id"), 10, "the form, filled in")
    person.type("#node_id", "first")
    person.click("[data-submit]")
    browser.until(lambda: browser.text("h1 .badge") == "READY", 20, "READY, without a reload")
    node = stack.call("GET", f"/v2/projects/demo/locations/{ZONE}/nodes/first")
    assert (node["acceleratorType"], node["schedulingConfig"]) == ("v2-8", {"preemptible": True})
    stack.delete_node("first", ZONE)


def test_the_zones_that_have_a_v3_32_are_found(browser: Browser, person: ClickCounter) -> None:
    person.click("a[href$='/create']")
    browser.until(lambda: browser.all("a.gen[href*='type=v3-8']"), 10, "the generations")
    person.click("a.gen[href*='type=v3-8']")
    browser.until(lambda: browser.all("a.pill[href*='type=v3-32']"), 10, "the sizes")
    person.click("a.pill[href*='type=v3-32']")
    browser.until(lambda: "for v3-32 now" in browser.text(".verdict"), 10, "the answer")
    zones = {row.text.split()[0]: row.text for row in browser.all("table.zones tbody tr")}
    assert set(zones) == {"europe-west4-a", "us-east1-d"}
    assert "$32.00" in zones["us-east1-d"] and "1,024 of 1,024 chips" in zones["us-east1-d"]


def test_gcloud_is_connected_from_any_page(
    browser: Browser, person: ClickCounter, stack: Stack
) -> None:
    person.click("[data-panel]")
    browser.until(
        lambda: browser.script("return document.querySelector('dialog#panel').open"),
        10,
        "the panel",
    )
    labels = [one.text for one in browser.all("#panel section:nth-of-type(1) summary")]
    row = f"#panel details:nth-of-type({labels.index('gcloud, without podyard installed') + 1})"
    person.click(f"{row} summary")
    person.click(f"{row} [data-copy]")
    browser.until(lambda: browser.text(f"{row} [data-copy]") == "Copied", 10, "the copy")
    text = browser.text(f"{row} code")
    assert f'CLOUDSDK_API_ENDPOINT_OVERRIDES_TPU="{stack.url}/"' in text and stack.token not in text
    assert browser.path() == "/console/demo/overview", "the page is still there"


def test_an_invoice_is_downloaded_as_pdf(
    browser: Browser, person: ClickCounter, tmp_path: Path
) -> None:
    pytest.importorskip("reportlab", reason="PDFs need the extra podyard[pdf]")
    behaviour = {"behavior": "allow", "downloadPath": str(tmp_path)}
    browser.driver.execute_cdp_cmd("Page.setDownloadBehavior", behaviour)
    _open_draft(browser, person)
    person.click("a[href$='/pdf']")
    files = browser.until(lambda: list(tmp_path.glob("*.pdf")), 20, "the file")
    browser.until(lambda: files[0].read_bytes().startswith(b"%PDF"), 10, "its content")


def test_a_cent_is_explained(browser: Browser, person: ClickCounter) -> None:
    _open_draft(browser, person)
    person.click("a[title='Explain this line']")
    browser.until(lambda: browser.all("#exact"), 20, "the explanation")
    assert browser.one("#exact").get_attribute("title").endswith(" exactly")
    assert browser.all("#parts tbody tr") and browser.all("tbody th code"), (
        "seconds, and the events that they are of"
    )


def test_a_reservation_is_made(browser: Browser, person: ClickCounter, stack: Stack) -> None:
    person.click("nav a[href$='/queue']")
    browser.until(lambda: browser.all(".tabs a[href$='/queue/reservations']"), 10, "the queue")
    person.click(".tabs a[href$='/queue/reservations']")
    browser.until(lambda: browser.all("#create-reservation"), 10, "the form")
    person.type("#name", "by-hand")
    person.type("#size", "8")
    person.click("#create-reservation")
    browser.until(lambda: "by-hand" in browser.text("table.cards tbody th"), 10, "the reservation")
    zone = browser.text("table.cards td[data-label=Zone]")
    stack.call("DELETE", f"/podyard/v1/projects/demo/locations/{zone}/reservations/by-hand")
