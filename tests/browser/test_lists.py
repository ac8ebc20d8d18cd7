"""Tasks of a user in lists, search and forms, with real events: clicks are counted, none takes more
than six."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from selenium.webdriver.common.keys import Keys

from tests.browser.conftest import Browser
from tests.browser.people import CLICKS_MAX, ClickCounter
from tests.browser.test_console import CONTRAST_PROBE, LABELS_PROBE
from tests.stack import Stack

ZONE = "us-central1-f"


@pytest.fixture
def person(browser: Browser) -> Iterator[ClickCounter]:
    hands = ClickCounter(browser)
    browser.open("/console/demo/overview")
    yield hands
    assert hands.clicks <= CLICKS_MAX
    assert browser.errors() == []


@pytest.fixture(scope="module", autouse=True)
def nodes(stack: Stack) -> Iterator[None]:
    stack.create_node("cheap-1", "v2-8", ZONE)
    stack.create_node("cheap-2", "v2-8", ZONE)
    stack.create_node("dearest", "v3-32", "europe-west4-a")
    yield
    for name, zone in (("cheap-1", ZONE), ("cheap-2", ZONE), ("dearest", "europe-west4-a")):
        stack.delete_node(name, zone)


def test_the_dearest_node_is_on_top_after_one_click(browser: Browser, person: ClickCounter) -> None:
    person.click('nav a[href$="/nodes"]')
    browser.until(lambda: browser.all('th a[href*="sort=-price"]'), 10, "the heading of prices")
    person.click('th a[href*="sort=-price"]')
    browser.until(
        lambda: browser.text("tbody tr:first-child th") == "dearest", 10, "the dearest node on top"
    )


def test_idle_nodes_are_selected_and_stopped(browser: Browser, person: ClickCounter) -> None:
    person.click('nav a[href$="/nodes"]')
    browser.until(lambda: browser.all('[name="idle"]'), 10, "the list")
    person.click('[name="idle"]')
    browser.until(lambda: "idle=1" in browser.driver.current_url, 10, "the idle nodes")
    person.click(f'[name="pick"][value="{ZONE}/cheap-1"]')
    person.click(f'[name="pick"][value="{ZONE}/cheap-2"]')
    browser.until(
        lambda: browser.text("[data-selected]") == "2 selected", 10, "the count of selected rows"
    )
    person.click('button[value="stop"]')
    browser.until(lambda: browser.text("h1") == "Stop 2 nodes?", 10, "the question")
    person.click('button[name="confirmed"]')
    browser.until(lambda: "2 nodes stopping." in browser.text(".toast"), 10, "the notice")


def test_a_node_is_found_by_keys_alone(browser: Browser, person: ClickCounter) -> None:
    person.keys("/")
    browser.until(
        lambda: browser.script("return document.getElementById('find-dialog').open"),
        10,
        "the search",
    )
    person.keys("deare")
    browser.until(lambda: browser.text("#find-dialog .hits a strong") == "dearest", 10, "the hit")
    person.keys(Keys.ARROW_DOWN, Keys.ENTER)
    browser.until(
        lambda: browser.path().endswith("/nodes/europe-west4-a/dearest"), 10, "the node's page"
    )
    assert person.clicks == 0


def test_a_list_is_walked_and_selected_by_keys(browser: Browser, person: ClickCounter) -> None:
    browser.open("/console/demo/nodes")
    assert not any(one.is_enabled() for one in browser.all("button[name=verb]")), (
        "nothing to act on"
    )
    person.keys("j", "j", "x")
    browser.until(lambda: browser.text("[data-selected]") == "1 selected", 10, "one selected row")
    assert all(one.is_enabled() for one in browser.all("button[name=verb]"))
    chosen = "return document.querySelector('[name=pick]:checked').value"
    assert browser.script(chosen) == f"{ZONE}/cheap-2"


def test_a_queued_resource_is_requested(
    browser: Browser, person: ClickCounter, stack: Stack
) -> None:
    person.click('nav a[href$="/queue"]')
    browser.until(lambda: browser.path().endswith("/queue"), 10, "the queue")
    person.click('.tabs a[href$="/queue/resources"]')
    browser.until(lambda: browser.path().endswith("/resources"), 10, "the queued resources")
    person.click('.head a[href$="/resources/new"]')
    browser.until(lambda: browser.path().endswith("/new"), 10, "the form")
    person.type("#name", "by-hand")
    person.click("[data-submit]")
    browser.until(lambda: "by-hand is requested" in browser.text(".toast"), 10, "the notice")
    stack.call("DELETE", f"/v2/projects/demo/locations/{ZONE}/queuedResources/by-hand?force=true")


def test_a_budget_is_set(browser: Browser, person: ClickCounter, stack: Stack) -> None:
    person.click('nav a[href$="/billing"]')
    browser.until(lambda: browser.path().endswith("/billing"), 10, "the bill")
    person.click('.tabs a[href$="/billing/budgets"]')
    browser.until(lambda: browser.all("#set-budget"), 10, "the form")
    person.type("#name", "by-hand")
    person.type("#amount", "1000")
    person.click("#set-budget")
    browser.until(lambda: "Budget by-hand is set" in browser.text(".toast"), 10, "the notice")
    stack.call("DELETE", "/podyard/v1/projects/demo/budgets/by-hand")


def test_lists_with_rows_and_an_open_search_are_readable_at_every_width(browser: Browser) -> None:
    emulate = browser.driver.execute_cdp_cmd
    try:
        for scheme in ("light", "dark"):
            emulate(
                "Emulation.setEmulatedMedia",
                {"features": [{"name": "prefers-color-scheme", "value": scheme}]},
            )
            for width in (390, 900, 1280):
                size = {
                    "width": width,
                    "height": 900,
                    "deviceScaleFactor": 1,
                    "mobile": width < 500,
                }
                emulate("Emulation.setDeviceMetricsOverride", size)
                browser.open("/console/demo/nodes")
                browser.script("document.querySelector('.columns').open = true")
                for _ in range(2):
                    assert browser.script(LABELS_PROBE) == browser.script(CONTRAST_PROBE) == [], (
                        scheme,
                        width,
                    )
                    wide = browser.script(
                        "return document.documentElement.scrollWidth - window.innerWidth"
                    )
                    assert wide <= 0, (scheme, width)
                    browser.script("document.querySelector('[data-search]').click()")
    finally:
        emulate("Emulation.clearDeviceMetricsOverride", {})


def test_long_entries_of_members_and_queues_fit_every_width(browser: Browser, stack: Stack) -> None:
    email = f"{'a-rather-long-name-' * 3}@{'department-of-' * 3}a-university.example.com"
    made = stack.call(
        "POST", "/podyard/v1/tokens", {"email": email, "project": "demo", "roles": ["tpu.viewer"]}
    )
    emulate = browser.driver.execute_cdp_cmd
    try:
        for width in (390, 1280):
            size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 500}
            emulate("Emulation.setDeviceMetricsOverride", size)
            for page in (
                "settings/access",
                "machines",
                "queue",
                "queue/resources",
                "queue/reservations",
            ):
                browser.open(f"/console/demo/{page}")
                assert browser.script(LABELS_PROBE) == [], (page, width)
                wide = browser.script(
                    "return document.documentElement.scrollWidth - window.innerWidth"
                )
                cut = browser.script(
                    "return [...document.querySelectorAll('.scroll')].map((one) => "
                    "one.scrollWidth - one.clientWidth)"
                )
                assert wide <= 0 and all(over <= 0 for over in cut), (page, width, wide, cut)
    finally:
        emulate("Emulation.clearDeviceMetricsOverride", {})
        stack.call("POST", f"/podyard/v1/tokens/{made['tokenId']}:revoke")
