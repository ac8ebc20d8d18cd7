"""Ten tasks by the keyboard alone: each element is reached with Tab, its focus is seen, and nothing
holds it fast."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.keys import Keys

from tests.browser.conftest import Browser
from tests.stack import Stack

ZONE = "us-central1-f"
TABS_MAX = 120  # more than any of these pages has to pass to the last of its elements
# "" where the focus is seen: drawn by the browser or the style sheet, inside the window, and
# nothing lies over it.
UNSEEN = """
const here = document.activeElement;
if (here === document.body || here.id === 'main') return '';
const name = `${here.tagName} ${here.id} ${here.className} ${here.textContent.slice(0, 40)}`;
const style = getComputedStyle(here);
if (style.outlineStyle === 'none' || parseFloat(style.outlineWidth) === 0) return `${name}: no outline`;
const box = here.getBoundingClientRect();
if (box.width === 0 || box.height === 0) return `${name}: no size`;
if (box.bottom < 1 || box.top > innerHeight - 1) return `${name}: outside of the window`;
const x = Math.min(Math.max(box.left + box.width / 2, 1), innerWidth - 1);
const y = Math.min(Math.max(box.top + box.height / 2, 1), innerHeight - 1);
const top = document.elementFromPoint(x, y);
const isFree = top === null || here.contains(top) || top.contains(here);
return isFree ? '' : `${name}: ${top.tagName}.${top.className} over it`;
"""  # noqa: E501


class Keyboard:
    """Two hands on a keyboard. Nothing is focused by script, and no pointer moves."""

    def __init__(self, browser: Browser) -> None:
        self.browser = browser

    def press(self, *keys: str) -> None:
        hands = ActionChains(self.browser.driver)
        for key in keys:
            hands.send_keys(key)
        hands.perform()

    def to(self, selector: str) -> None:
        """Tab until the focus is there. It must be seen on the way."""
        for _ in range(TABS_MAX):
            self.press(Keys.TAB)
            assert (unseen := self.browser.script(UNSEEN)) == "", unseen
            if self.is_at(selector):
                return
        raise AssertionError(f"Tab does not come to {selector} on {self.browser.path()}")

    def is_at(self, selector: str) -> bool:
        return bool(self.browser.script(f"return document.activeElement.matches({selector!r})"))

    def follow(self, selector: str, path: str) -> None:
        """The link or button, and the page behind it."""
        self.to(selector)
        self.press(Keys.ENTER)
        self.comes_to(path)

    def comes_to(self, path: str) -> None:
        self.browser.until(lambda: self.browser.path().endswith(path), 10, f"the page {path}")

    def skip(self) -> None:
        """Past the navigation, as the first link of every page offers."""
        self.to("a.skip")
        self.press(Keys.ENTER)
        assert self.is_at("#main")


@pytest.fixture
def keys(browser: Browser) -> Iterator[Keyboard]:
    browser.open("/console/demo/overview")
    yield Keyboard(browser)
    assert browser.errors() == []


@pytest.fixture(scope="module", autouse=True)
def node(stack: Stack) -> Iterator[None]:
    stack.create_node("by-hand", "v2-8", ZONE)
    yield
    stack.delete_node("by-hand", ZONE)


def test_a_node_is_created_from_the_overview(stack: Stack, keys: Keyboard) -> None:
    keys.skip()
    keys.follow('a[href$="/create"]', "/create")
    keys.browser.open("/console/demo/nodes/new")
    keys.skip()
    keys.to("#node_id")
    keys.press("typed")
    keys.to("#zone")
    keys.press(*ZONE)
    keys.to("#usage")
    keys.press("p")
    keys.to("[data-submit]")
    keys.press(Keys.ENTER)
    keys.comes_to(f"/nodes/{ZONE}/typed")
    stack.delete_node("typed", ZONE)


def test_the_list_is_sorted_and_a_row_is_selected_and_stopped(keys: Keyboard) -> None:
    keys.follow('nav a[href$="/nodes"]', "/nodes")
    keys.skip()
    keys.to('th a[href*="sort=-price"]')
    keys.press(Keys.ENTER)
    keys.browser.until(lambda: "sort=-price" in keys.browser.driver.current_url, 10, "the order")
    # The address is there before the page is: keys pressed until then are the old page's.
    is_loaded = "return document.readyState === 'complete'"
    keys.browser.until(lambda: keys.browser.script(is_loaded), 10, "the page in its new order")
    keys.press("j", "x")
    assert keys.browser.script(
        f"return document.querySelector('[value=\"{ZONE}/by-hand\"]').checked"
    )
    keys.to('button[value="stop"]')
    keys.press(Keys.ENTER)
    keys.browser.until(lambda: keys.browser.text("h1").startswith("Stop"), 10, "the question")
    keys.to('a.button[href$="/nodes"], a.button[href*="/nodes?"]')  # leaves it as it is
    keys.press(Keys.ENTER)
    keys.comes_to("/nodes")


def test_a_dialog_takes_the_focus_and_escape_gives_it_back(keys: Keyboard) -> None:
    keys.browser.open(f"/console/demo/nodes/{ZONE}/by-hand")
    keys.skip()
    keys.to('[data-dialog="confirm-delete"]')
    keys.press(Keys.ENTER)
    is_open = "return document.querySelector('#confirm-delete').open"
    keys.browser.until(lambda: keys.browser.script(is_open), 5, "the dialog")
    for _ in range(6):  # it goes round inside, past the browser's own controls
        keys.press(Keys.TAB)
        inside = (
            "document.activeElement === document.body || "
            "document.activeElement.closest('#confirm-delete') !== null"
        )
        assert keys.browser.script(f"return {inside}")
    keys.press(Keys.ESCAPE)
    assert not keys.browser.script(is_open)
    assert keys.is_at('[data-dialog="confirm-delete"]')


def test_the_connect_panel_opens_and_closes(keys: Keyboard) -> None:
    keys.to("[data-panel]")
    keys.press(Keys.ENTER)
    is_open = "return document.getElementById('panel').open"
    keys.browser.until(lambda: keys.browser.script(is_open), 10, "the panel")
    keys.press(Keys.ESCAPE)
    assert not keys.browser.script(is_open)
    assert keys.is_at("[data-panel]")


def test_the_menu_of_projects_opens_and_escape_closes_it(keys: Keyboard) -> None:
    keys.to("details.menu > summary")
    keys.press(Keys.ENTER)
    keys.press(Keys.TAB)
    assert keys.is_at("details.menu a")
    keys.press(Keys.ESCAPE)
    assert not keys.browser.script("return document.querySelector('details.menu').open")
    assert keys.is_at("details.menu > summary")


def test_a_node_is_found(keys: Keyboard) -> None:
    keys.press("/")
    keys.press("by-ha")
    keys.browser.until(lambda: "by-hand" in keys.browser.text("[data-hits]"), 10, "the hit")
    keys.press(Keys.ARROW_DOWN, Keys.ENTER)
    keys.comes_to(f"/nodes/{ZONE}/by-hand")


def test_a_job_is_submitted(stack: Stack, keys: Keyboard) -> None:
    keys.browser.open(f"/console/demo/nodes/{ZONE}/by-hand")
    keys.skip()
    keys.follow('a[href*="/jobs/new?node="]', "/jobs/new")
    keys.skip()
    keys.to("#job_id")
    keys.press("by-keys")
    keys.to("#steps")
    keys.press("1", Keys.ENTER)
    keys.comes_to(f"/jobs/{ZONE}/by-keys")
    assert (
        stack.wait_job(f"/podyard/v1/projects/demo/locations/{ZONE}/jobs/by-keys")["state"]
        == "SUCCEEDED"
    )


def test_a_log_is_opened_and_searched(keys: Keyboard, finished_job: str) -> None:
    keys.browser.open(f"/console/demo/{finished_job}")
    keys.skip()
    keys.follow('a[href$="/lines"]', "/lines")
    keys.skip()
    keys.to("#search")
    keys.press("compiled", Keys.ENTER)
    keys.browser.until(
        lambda: "search=compiled" in keys.browser.driver.current_url, 10, "the lines"
    )
    keys.browser.until(lambda: "compiled" in keys.browser.text("pre.log"), 10, "the lines")
    keys.skip()
    keys.follow("#first-error", "/lines")
    assert "No line looks like an error" in keys.browser.text("main")


def test_a_budget_is_set(stack: Stack, keys: Keyboard) -> None:
    keys.follow('nav a[href$="/billing"]', "/billing")
    keys.skip()
    keys.follow('nav a[href$="/billing/budgets"]', "/billing/budgets")
    keys.skip()
    keys.to('input[name="name"]')
    keys.press("by-hand")
    keys.to('input[name="amount"]')
    keys.press("12", Keys.ENTER)
    keys.browser.until(
        lambda: "Budget by-hand is set" in keys.browser.text("main"), 10, "the budget"
    )
    assert (
        stack.call("GET", "/podyard/v1/projects/demo/budgets/by-hand")["amount"] == "12.000000000"
    )


def test_a_webhook_is_set_tested_and_deleted(stack: Stack, keys: Keyboard) -> None:
    keys.follow('nav a[href$="/settings"]', "/settings/access")
    keys.skip()
    keys.follow('a[href$="/settings/webhooks"]', "/settings/webhooks")
    keys.skip()
    keys.to("#name")
    keys.press("by-hand")
    keys.to("#url")
    keys.press(f"{stack.url}/healthz")
    keys.to('input[name="event.node.ready"]')
    keys.press(Keys.SPACE)
    keys.to("#set-webhook")
    keys.press(Keys.ENTER)
    keys.browser.until(lambda: "Secret of by-hand" in keys.browser.text("main"), 10, "the secret")
    keys.skip()
    keys.to('[aria-label="Test by-hand"]')
    keys.press(Keys.ENTER)
    keys.browser.until(
        lambda: "Deliveries to by-hand" in keys.browser.text("main"), 10, "the deliveries"
    )
    (hook,) = stack.call("GET", "/podyard/v1/projects/demo/webhooks")["webhooks"]
    assert hook["events"] == ["job.recovering", "job.succeeded", "job.failed", "node.ready"]
    keys.skip()
    keys.to('[aria-label="Delete by-hand"]')
    keys.press(Keys.ENTER)
    keys.browser.until(lambda: "No webhooks" in keys.browser.text("main"), 10, "the empty list")
