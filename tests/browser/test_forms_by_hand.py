"""Forms as people use them: they type and click at once, press Enter, and pick from a list by its
first letters."""

from __future__ import annotations

import pytest
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import Select

from tests.browser.conftest import Browser
from tests.browser.people import Person, slow_processor
from tests.stack import Stack

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("browser")]

ZONE = "us-central1-f"
REPETITIONS = 3


@pytest.mark.parametrize("rate", [1, 6])
def test_the_first_click_after_typing_creates_the_node(
    browser: Browser, stack: Stack, rate: int
) -> None:
    for turn in range(REPETITIONS):
        name = f"clicked-{rate}-{turn}"
        browser.open("/console/demo/nodes/new")
        with slow_processor(browser, rate):
            Person(browser).type_and_click("#node_id", name, "[data-submit]")
            browser.until(
                lambda name=name: browser.path() == f"/console/demo/nodes/{ZONE}/{name}",
                10,
                "the node's page",
            )
        stack.delete_node(name, ZONE)
    assert browser.errors() == []


@pytest.mark.parametrize("rate", [1, 6])
def test_enter_in_a_text_field_creates_the_node(browser: Browser, stack: Stack, rate: int) -> None:
    for field in ("#node_id", "#description"):
        name = f"entered-{rate}-{field[1:5]}"
        browser.open(
            "/console/demo/nodes/new" + ("" if field == "#node_id" else f"?node_id={name}")
        )
        with slow_processor(browser, rate):
            Person(browser).type_and_enter(field, name)
            browser.until(
                lambda name=name: browser.path() == f"/console/demo/nodes/{ZONE}/{name}",
                10,
                "the node's page",
            )
        stack.delete_node(name, ZONE)
    assert browser.errors() == []


@pytest.mark.parametrize("rate", [1, 6])
@pytest.mark.parametrize("zone", ["us-central1-f", "us-central2-b", "europe-west4-b"])
def test_letters_typed_into_the_zone_pick_that_zone(browser: Browser, zone: str, rate: int) -> None:
    browser.open("/console/demo/nodes/new?zone=us-east1-d")
    with slow_processor(browser, rate):
        Person(browser).type_ahead("#zone", zone)
    assert Select(browser.one("#zone")).first_selected_option.text == zone
    browser.until(
        lambda: f"--zone={zone}" in browser.text(".code pre"), 10, "the commands of that zone"
    )
    assert browser.one("#zone").get_property("value") == zone
    assert browser.script("return document.activeElement.id") == "zone"


@pytest.mark.parametrize("rate", [1, 6])
def test_a_job_is_submitted_by_the_first_click_and_by_enter(
    browser: Browser, stack: Stack, rate: int
) -> None:
    node = f"for-hands-{rate}"
    stack.create_node(node, "v2-8", ZONE)
    for way in ("clicked", "entered"):
        job = f"{way}-{rate}"
        browser.open(f"/console/demo/jobs/new?node={ZONE}/{node}&steps=1")
        person = Person(browser)
        with slow_processor(browser, rate):
            if way == "clicked":
                person.type_and_click("#job_id", job, "[data-submit]")
            else:
                person.type_and_enter("#job_id", job)
            browser.until(
                lambda job=job: browser.path() == f"/console/demo/jobs/{ZONE}/{job}",
                10,
                "the job's page",
            )
    stack.delete_node(node, ZONE)
    assert browser.errors() == []


def test_a_keyboard_alone_creates_a_node(browser: Browser, stack: Stack) -> None:
    """Name, Tab to the zone, its letters, Tab, the usage class by a letter, and Enter in the
    description."""
    browser.open("/console/demo/nodes/new")
    browser.script("document.querySelector('#node_id').focus()")
    person = Person(browser)
    person.keys(
        "by-keys",
        Keys.TAB,
        *ZONE,
        Keys.TAB,
        Keys.TAB,
        "sp",
        Keys.TAB,
        Keys.TAB,
        Keys.TAB,
        "typed",
        Keys.ENTER,
    )
    browser.until(
        lambda: browser.path() == f"/console/demo/nodes/{ZONE}/by-keys", 10, "the node's page"
    )
    node = stack.call("GET", f"/v2/projects/demo/locations/{ZONE}/nodes/by-keys")
    assert node["schedulingConfig"] == {"spot": True} and node["description"] == "typed"
    stack.delete_node("by-keys", ZONE)


def test_controls_stay_the_same_elements_while_the_preview_changes(browser: Browser) -> None:
    browser.open("/console/demo/nodes/new")
    controls = (
        "#node_id",
        "#zone",
        "#accelerator_type",
        "#usage",
        "#runtime_version",
        "[data-submit]",
        "[data-copy]",
    )
    before = {selector: browser.one(selector) for selector in controls}
    Select(before["#usage"]).select_by_value("spot")
    browser.until(lambda: "--spot" in browser.text(".code pre"), 5, "the commands of the choice")
    Select(before["#zone"]).select_by_value("europe-west4-a")
    browser.until(
        lambda: "--zone=europe-west4-a" in browser.text(".code pre"), 5, "the commands of the zone"
    )
    for selector, element in before.items():
        assert element == browser.one(selector), f"{selector} is another element"
        assert element.is_displayed(), selector
    assert before["[data-submit]"].is_enabled()
