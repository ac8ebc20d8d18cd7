"""Tasks of a user with instances: by real clicks, and by the keyboard alone."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from selenium.webdriver.common.keys import Keys

from tests.browser.conftest import Browser
from tests.browser.people import CLICKS_MAX, ClickCounter
from tests.browser.test_keyboard import Keyboard
from tests.stack import Stack

ZONE = "us-central1-b"
HERE = f"/compute/v1/projects/demo/zones/{ZONE}"
STATUS = "h1 .badge"


@pytest.fixture
def person(browser: Browser) -> Iterator[ClickCounter]:
    hands = ClickCounter(browser)
    browser.open("/console/demo/overview")
    yield hands
    assert browser.errors() == []


def _arrive(browser: Browser, path: str) -> None:
    browser.until(lambda: browser.path().endswith(path), 10, f"the page {path}")


def _becomes(browser: Browser, status: str) -> None:
    browser.until(lambda: browser.text(STATUS) == status, 20, f"status {status}")


def _gone(browser: Browser, stack: Stack, name: str) -> None:
    items = f"{HERE}/instances"
    browser.until(
        lambda: name not in [one["name"] for one in stack.call("GET", items).get("items", ())],
        20,
        f"the end of {name}",
    )


def test_an_instance_is_created_opened_stopped_and_deleted(
    browser: Browser, person: ClickCounter, stack: Stack
) -> None:
    person.click('nav a[href$="/instances"]')
    _arrive(browser, "/instances")
    person.click('.head a[href$="/instances/new"]')
    _arrive(browser, "/instances/new")
    person.type("#name", "by-hand")
    person.type_ahead("#machine_type", "ct6e-standard-4t")
    browser.until(lambda: "$10.80" in browser.text(".price"), 10, "the price of four chips")
    browser.until(lambda: "fit now" in browser.text("[data-swap=quote]"), 10, "the room")
    person.type("#startup_script", "echo started by a click")
    person.type("#labels", "team=a")
    browser.until(
        lambda: "started by a click" in browser.text("[data-swap=commands]"), 10, "the commands"
    )
    person.click("[data-submit]")
    _arrive(browser, f"/instances/{ZONE}/by-hand")
    assert person.clicks <= CLICKS_MAX
    _becomes(browser, "RUNNING")
    browser.until(
        lambda: "started by a click" in browser.text("[data-part=instance-serial]"),
        60,
        "the serial port, without a reload",
    )
    person.click('.crumbs a[href$="/instances"]')
    _arrive(browser, "/instances")
    person.click("tbody th a")
    _arrive(browser, f"/instances/{ZONE}/by-hand")
    for verb, status in (("stop", "TERMINATED"), ("start", "RUNNING")):
        person.click(f'[data-dialog="confirm-{verb}"]')
        browser.until(lambda verb=verb: browser.all(f"#confirm-{verb}[open]"), 10, "the question")
        person.click(f"#confirm-{verb}[open] form button")
        _becomes(browser, status)
    person.click('[data-dialog="confirm-delete"]')
    browser.until(lambda: browser.all("#confirm-delete[open]"), 10, "the question")
    person.click("#confirm-delete[open] form button")
    _arrive(browser, "/instances")
    _gone(browser, stack, "by-hand")


def test_an_instance_is_created_stopped_and_deleted_by_keys(browser: Browser, stack: Stack) -> None:
    keys = Keyboard(browser)
    browser.open("/console/demo/instances")
    keys.skip()
    keys.follow('a[href$="/instances/new"]', "/instances/new")
    keys.skip()
    keys.to("#name")
    keys.press("typed")
    keys.to("#machine_type")
    keys.press(*"e2-medium")
    keys.to("[data-submit]")
    keys.press(Keys.ENTER)
    browser.until(lambda: browser.path().endswith("/typed"), 10, "the page of the instance")
    _becomes(browser, "RUNNING")
    keys.skip()
    keys.to('[data-dialog="confirm-stop"]')
    keys.press(Keys.ENTER)
    browser.until(lambda: browser.all("#confirm-stop[open]"), 10, "the question")
    keys.press(Keys.ESCAPE)
    assert keys.is_at('[data-dialog="confirm-stop"]'), "Escape gives the focus back"
    keys.press(Keys.ENTER)
    keys.to("#confirm-stop button")
    keys.press(Keys.ENTER)
    _becomes(browser, "TERMINATED")
    keys.press("/", "typed")
    browser.until(lambda: browser.text("#find-dialog .hits a strong") == "typed", 10, "the hit")
    keys.press(Keys.ARROW_DOWN, Keys.ENTER)
    browser.until(lambda: not browser.all("#find-dialog[open]"), 10, "the page again")
    keys.skip()
    keys.to('[data-dialog="confirm-delete"]')
    keys.press(Keys.ENTER)
    keys.to("#confirm-delete button")
    keys.press(Keys.ENTER)
    _arrive(browser, "/instances")
    _gone(browser, stack, "typed")
    assert browser.errors() == []


def test_a_group_is_resized_to_nothing_and_deleted(
    browser: Browser, person: ClickCounter, stack: Stack
) -> None:
    url = "/compute/v1/projects/demo"
    template = {"name": "t", "properties": {"machineType": "ct6e-standard-1t"}}
    stack.call("POST", f"{url}/global/instanceTemplates", template)
    group = {"name": "pair", "instanceTemplate": f"{url}/global/instanceTemplates/t"}
    stack.call("POST", f"{HERE}/instanceGroupManagers", {**group, "targetSize": 2})
    person.click('nav a[href$="/instances"]')
    _arrive(browser, "/instances")
    person.click('.tabs a[href$="/instance-groups"]')
    _arrive(browser, "/instance-groups")
    person.click("tbody th a")
    _arrive(browser, "/pair")
    _becomes(browser, "STABLE")
    person.click('[data-dialog="confirm-resize"]')
    person.click("#confirm-resize[open] form button")
    browser.until(lambda: "target size of pair is 0" in browser.text(".toast"), 10, "the notice")
    browser.until(lambda: "None: the target" in browser.text("main"), 20, "no instances")
    person.click('[data-dialog="confirm-delete"]')
    person.click("#confirm-delete[open] form button")
    _arrive(browser, "/instance-groups")
    assert "No groups yet" in browser.text("main")
