"""The rest of what a user does every day, by mouse and keyboard from the overview, with the clicks
counted."""

from __future__ import annotations

import zipfile
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

from tests.browser.conftest import Browser
from tests.browser.people import CLICKS_MAX, ClickCounter
from tests.stack import Stack

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("browser")]

ZONE = "us-central1-f"
HERE = "/podyard/v1/projects/demo"


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


def test_a_budget_is_edited(browser: Browser, person: ClickCounter, stack: Stack) -> None:
    stack.call("PUT", f"{HERE}/budgets/watched", {"amount": "1000"})
    _open_budgets(browser, person)
    person.click("details[data-key='edit-watched'] summary")
    person.click("#amount-watched")
    person.keys(Keys.END, *[Keys.BACKSPACE] * 10, "250")
    person.click("details[data-key='edit-watched'] button.primary")
    browser.until(lambda: "Budget watched is set" in browser.text(".toast"), 10, "the notice")
    assert stack.call("GET", f"{HERE}/budgets/watched")["amount"] == "250.000000000"


def test_a_budget_is_removed_after_a_question(
    browser: Browser, person: ClickCounter, stack: Stack
) -> None:
    stack.call("PUT", f"{HERE}/budgets/watched", {"amount": "1000"})
    _open_budgets(browser, person)
    person.click("details[data-key='edit-watched'] summary")
    person.click("a[data-dialog='remove-watched']")
    browser.until(
        lambda: browser.script("return document.querySelector('#remove-watched').open"),
        10,
        "the question",
    )
    assert stack.call("GET", f"{HERE}/budgets/watched")["amount"] == "1000.000000000"
    person.click("#remove-watched button.danger")
    browser.until(lambda: "watched" in browser.text(".toast"), 10, "the notice")
    assert "watched" not in str(stack.call("GET", f"{HERE}/budgets").get("budgets", []))


def _open_budgets(browser: Browser, person: ClickCounter) -> None:
    person.click("nav a[href$='/billing']")
    browser.until(lambda: browser.all(".tabs a[href$='/billing/budgets']"), 10, "the bill")
    person.click(".tabs a[href$='/billing/budgets']")
    browser.until(lambda: browser.all("[data-key='edit-watched']"), 10, "the budget")


def test_the_node_that_cost_most_so_far_is_on_top(
    browser: Browser, person: ClickCounter, stack: Stack
) -> None:
    stack.create_node("newer", "v2-8", ZONE)
    person.click("nav a[href$='/nodes']")
    browser.until(lambda: browser.all("th a[href*='sort=-cost']"), 10, "the heading of costs")
    person.click("th a[href*='sort=-cost']")
    browser.until(lambda: browser.all("th[aria-sort=descending] a[href*='cost']"), 10, "the order")
    names = [cell.text for cell in browser.all("tbody th")]
    assert names.index("billed") < names.index("newer")
    stack.delete_node("newer", ZONE)


def test_a_queued_resource_beyond_quota_stays_in_the_list_with_its_reason(
    browser: Browser, person: ClickCounter, stack: Stack
) -> None:
    rule = {"effect": "quota", "match": {"zone": ZONE}, "limit": 0}
    fault = stack.call("POST", "/podyard/v1/faults", rule)
    try:
        person.click("nav a[href$='/queue']")
        browser.until(lambda: browser.all(".tabs a[href$='/resources']"), 10, "the queue")
        person.click(".tabs a[href$='/resources']")
        browser.until(lambda: browser.all(".head a[href$='/resources/new']"), 10, "the list")
        person.click(".head a[href$='/resources/new']")
        browser.until(lambda: browser.all("#name"), 10, "the form")
        person.type_ahead("#zone", ZONE)
        person.type("#name", "too-much")
        person.click("[data-submit]")
        browser.until(lambda: "too-much was refused" in browser.text(".toast"), 10, "the notice")
        row = browser.text("table.list tbody tr")
        assert "FAILED" in row and "has been exceeded. Limit: 0" in row
    finally:
        stack.call("DELETE", f"/podyard/v1/faults/{fault['name'].rpartition('/')[2]}")
        path = f"/v2/projects/demo/locations/{ZONE}/queuedResources/too-much"
        stack.call("DELETE", path)


def test_another_type_is_priced_for_what_was_used(browser: Browser, person: ClickCounter) -> None:
    person.click("nav a[href$='/billing']")
    browser.until(lambda: browser.all(".tabs a[href$='/what-if']"), 10, "the bill")
    person.click(".tabs a[href$='/what-if']")
    browser.until(lambda: browser.all("select#type"), 10, "the types")
    person.type_ahead("#type", "v3-8")
    person.click("form.ask button.primary")
    browser.until(lambda: browser.all("#changed"), 20, "the answer")
    row = browser.text("table.cards tbody tr")
    assert "v2-8 us-central1 on-demand" in row and "→ v3-8 us-central1 on-demand" in row
    assert "$4.50 per hour" in row and "→ $8.00 per hour" in row


def test_nodes_are_filtered_by_a_label(
    browser: Browser, person: ClickCounter, stack: Stack
) -> None:
    stack.create_node("labelled", "v2-8", ZONE, labels={"team": "vision"})
    person.click("nav a[href$='/nodes']")
    browser.until(lambda: browser.all("input[name=label]"), 10, "the list")
    person.type("input[name=label]", "team=vision")
    person.keys(Keys.ENTER)
    browser.until(lambda: "label=team" in browser.driver.current_url, 10, "the address")
    assert [cell.text for cell in browser.all("tbody th")] == ["labelled"]
    stack.delete_node("labelled", ZONE)


def test_an_object_of_a_bucket_is_looked_into(
    browser: Browser, person: ClickCounter, stack: Stack, tmp_path: Path
) -> None:
    file = tmp_path / "result.json"
    file.write_text('{"accuracy": 0.93}')
    for words in ("mb gs://looked-into", f"cp {file} gs://looked-into/result.json"):
        answer = stack.command("storage", *words.split(), "--data", str(stack.data))
        assert answer.returncode == 0, answer.stderr
    person.click("nav a[href$='/settings']")
    browser.until(lambda: browser.all(".tabs a[href$='/storage']"), 10, "the settings")
    person.click(".tabs a[href$='/storage']")
    browser.until(lambda: browser.all("a[href$='/looked-into']"), 10, "the bucket")
    person.click("a[href$='/looked-into']")
    browser.until(lambda: browser.all("tbody th a[href*='result.json']"), 10, "the object")
    person.click("tbody th a[href*='result.json']")
    browser.until(lambda: '"accuracy": 0.93' in browser.text("pre.log"), 10, "its content")


def test_a_token_is_added_and_revoked(browser: Browser, person: ClickCounter, stack: Stack) -> None:
    person.click("nav a[href$='/settings']")
    browser.until(lambda: browser.all("#token-email"), 10, "the form")
    person.click("#token-email")
    person.keys(Keys.END, *[Keys.BACKSPACE] * 40, "ada@example.com")
    person.type_ahead("#token-role", "tpu.v")
    person.click("#create-token")
    secret = browser.until(lambda: browser.text("#secret"), 10, "the token")
    headers = {"Authorization": f"Bearer {secret}"}
    nodes = f"{stack.url}/v2/projects/demo/locations/{ZONE}/nodes"
    assert httpx.get(nodes, headers=headers, verify=False).status_code == 200
    row = "//tr[td[normalize-space()='ada@example.com']]//button[normalize-space()='Revoke']"
    (button,) = browser.driver.find_elements(By.XPATH, row)
    label = button.get_attribute("aria-label")
    person.click(f"button[aria-label='{label}']")
    browser.until(
        lambda: httpx.get(nodes, headers=headers, verify=False).status_code == 401, 10, "the end"
    )


def test_time_memory_and_cost_stand_in_the_form_before_submit(
    browser: Browser, person: ClickCounter
) -> None:
    person.click("nav a[href$='/jobs']")
    browser.until(lambda: browser.all("a[href$='/jobs/new']"), 10, "the jobs")
    person.click("a[href$='/jobs/new']")
    estimate = "[data-swap=estimate]"
    browser.until(lambda: "Memory" in browser.text(estimate), 60, "the estimate")
    text = browser.text(estimate)
    assert "On a real v2-8" in text and "fits" in text and "Cost" in text and "$" in text


def test_a_zip_is_run_on_new_nodes(
    browser: Browser, person: ClickCounter, stack: Stack, tmp_path: Path
) -> None:
    archive = tmp_path / "program.zip"
    with zipfile.ZipFile(archive, "w") as made:
        made.writestr("start.py", "import os; print('worker', os.environ['TPU_WORKER_ID'])")
    person.click("nav a[href$='/jobs']")
    browser.until(lambda: browser.all("a[href$='/jobs/program']"), 10, "the jobs")
    person.click("a[href$='/jobs/program']")
    browser.until(lambda: browser.all("#file"), 10, "the form")
    browser.one("#file").send_keys(str(archive))  # of the file dialog, which is not the page's
    person.type_ahead("#node", "Make")
    person.keys(Keys.TAB)
    browser.until(lambda: browser.all("#accelerator_type"), 10, "the fields of the node")
    person.type_ahead("#zone", ZONE)
    person.type_ahead("#accelerator_type", "v2-8")
    person.type("#entry", "start.py")
    person.type("#num_nodes", "2")
    person.click("[data-submit]")
    browser.until(lambda: "/jobs/" in browser.path() and "program" not in browser.path(), 20, "job")
    zone, job = browser.path().split("/")[-2:]
    state = stack.wait_job(f"{HERE}/locations/{zone}/jobs/{job}")
    assert state["state"] == "SUCCEEDED" and state["numNodes"] == 2
