"""The console in a real Chromium, on a whole Podyard."""

from __future__ import annotations

import re
import subprocess
from decimal import Decimal

import pytest
from selenium.webdriver.common.keys import Keys

from podyard.base.money import money_text
from tests.browser.conftest import Browser
from tests.browser.people import Person
from tests.stack import PODYARD, Stack
from tests.waiting import patient

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("browser")]

ZONE = "us-central1-f"
EVIL = "<img src=x onerror=document.body.dataset.hit=1>"
LABELS_PROBE = """
return [...document.querySelectorAll('input:not([type=hidden]), select')].filter((field) =>
  field.labels.length === 0 && !field.getAttribute('aria-label')).map((field) => field.outerHTML)"""
# Contrast of every piece of text against the nearest ground that is not transparent, by the formula
# of WCAG 2.
CONTRAST_PROBE = """
const rgb = (text) => text.match(/[\\d.]+/g).map(Number);
const light = ([r, g, b]) => [r, g, b].map((v) => (v /= 255) <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
  .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
const ground = (element) => {
  for (let at = element; at !== null; at = at.parentElement) {
    const colour = rgb(getComputedStyle(at).backgroundColor);
    if (colour.length === 3 || colour[3] === 1) return colour;
  }
  return [255, 255, 255];
};
const bad = [];
for (const element of document.querySelectorAll('body *')) {
  const own = [...element.childNodes].some((node) => node.nodeType === 3 && node.textContent.trim() !== '');
  if (!own || element.closest('svg') || element.getClientRects().length === 0) continue;
  const [a, b] = [light(rgb(getComputedStyle(element).color)), light(ground(element))].sort((x, y) => y - x);
  const ratio = (a + 0.05) / (b + 0.05);
  if (ratio < 4.5) bad.push(`${ratio.toFixed(2)} ${element.outerHTML.slice(0, 120)}`);
}
return bad;"""  # noqa: E501


def test_a_node_is_created_trained_on_deleted_and_billed(browser: Browser, stack: Stack) -> None:
    """The main path of a newcomer. One test: each step stands on the one before."""
    _create_by_form(browser)
    _submit_and_watch(browser, stack)
    _delete_by_dialog(browser)
    _check_bill(browser, stack)


def _create_by_form(browser: Browser) -> None:
    person = Person(browser)
    browser.open("/console/demo/nodes")
    assert "No nodes yet" in browser.text("main")
    person.click("a[href='/console/demo/create']")
    browser.until(lambda: browser.all("table.zones"), 10, "the zones")
    person.click(f"a[aria-label='Create v2-8 in {ZONE}']")
    browser.until(lambda: browser.all("#node_id"), 10, "the form")
    person.type("#node_id", "by-form")
    person.type_ahead("#usage", "sp")
    browser.until(lambda: "--spot" in browser.text(".code pre"), 5, "the commands of the choice")
    assert (
        browser.text("#node_id") == ""
        and browser.one("#node_id").get_attribute("value") == "by-form"
    )
    assert browser.text(".price").startswith("$1.35")
    assert "podyard tpu create by-form" in browser.text(".code pre")
    person.type_and_click("#description", EVIL, "[data-submit]")
    browser.until(lambda: browser.text("h1 .badge") == "READY", 10, "READY, without a reload")
    assert browser.driver.current_url.endswith(f"/console/demo/nodes/{ZONE}/by-form")
    assert EVIL in browser.text(".lead")
    assert not browser.all("main img") and not browser.script("return document.body.dataset.hit")
    assert "10.128." in browser.text("main") and browser.all("svg.pod .chip-own")
    assert browser.errors() == []


def _submit_and_watch(browser: Browser, stack: Stack) -> None:
    person = Person(browser)
    browser.until(lambda: stack.call("GET", "/podyard/v1/agents")["agents"], 30, "an agent")
    browser.open(f"/console/demo/jobs/new?node={ZONE}/by-form")
    person.type("#job_id", "short")
    person.type("#steps", "20")
    person.click(".card > details > summary")
    person.type("#labels", "note=onerror")
    person.click(".commands summary")  # closing and opening the commands keeps the page
    browser.until(
        lambda: "--steps=20" in browser.text(".code pre"), 5, "the commands of the choice"
    )
    browser.until(lambda: "onerror" in browser.text(".code pre"), 5, "the label in the commands")
    assert not browser.script("return document.querySelector('.commands details').open")
    person.click("[data-submit]")
    browser.until(
        lambda: browser.driver.current_url.endswith(f"/jobs/{ZONE}/short"), 10, "the job's page"
    )
    browser.until(
        lambda: browser.text("h1 .badge") == "SUCCEEDED", 120, "the end, without a reload"
    )
    assert "step 20 of 20" in browser.text(".progress")
    browser.until(lambda: "test accuracy" in browser.text(".log"), 10, "the last lines of the log")
    browser.until(lambda: browser.all("svg.chart polyline.line"), 10, "the curve")
    shown = browser.text("main")
    assert (
        "Elapsed" in shown
        and "v2-8 (tpu-model)" in shown
        and "note=onerror" in shown.replace(": ", "=")
    )
    assert not browser.all("main img") and not browser.script("return document.body.dataset.hit")
    assert browser.errors() == []


def _delete_by_dialog(browser: Browser) -> None:
    person = Person(browser)
    browser.open(f"/console/demo/nodes/{ZONE}/by-form")
    person.click("[data-dialog='confirm-delete']")
    dialog = browser.one("#confirm-delete")
    assert dialog.is_displayed() and browser.script(
        "return document.querySelector('dialog:modal') !== null"
    )
    person.click("#confirm-delete [data-close]")
    assert not dialog.is_displayed()
    person.click("[data-dialog='confirm-delete']")
    person.click("#confirm-delete button.danger")
    browser.until(lambda: "No nodes yet" in browser.text("main"), 10, "the empty list")


def _check_bill(browser: Browser, stack: Stack) -> None:
    browser.open("/console/demo/billing")
    usage = stack.call("GET", "/podyard/v1/projects/demo/usage")
    assert usage["seconds"] > 0 and Decimal(usage["amount"]) > 0
    assert browser.text("#total") == money_text(usage["amount"])
    assert browser.one("#total").get_attribute("title") == f"${usage['amount']}", "exactly"
    command = [*PODYARD, "bill", "show", "--data", str(stack.data)]
    printed = subprocess.run(
        command, capture_output=True, text=True, timeout=patient(60), check=True
    ).stdout
    assert f"{money_text(usage['amount'])} as of" in printed
    assert "by-form" in browser.text("table.cards") and browser.all("svg.chart rect.bar")
    assert browser.errors() == []


def test_an_error_stands_beside_the_form_with_what_was_entered(browser: Browser) -> None:
    browser.open("/console/demo/nodes/new?node_id=Bad_Name&labels=team%3Dvision")
    browser.one("[data-submit]").click()
    browser.until(lambda: "is not a valid id" in browser.text("[role=alert]"), 10, "the reason")
    assert browser.one("#node_id").get_attribute("value") == "Bad_Name"
    assert browser.one("#labels").get_attribute("value") == "team=vision"
    assert all("400" in message for message in browser.errors())


@pytest.mark.parametrize(
    ("width", "scheme"),
    [
        pytest.param(1280, "light", marks=pytest.mark.smoke),
        (1280, "dark"),
        (390, "light"),
        (390, "dark"),
    ],
)
def test_every_page_is_labelled_readable_and_fits(
    browser: Browser, finished_job: str, scheme: str, width: int
) -> None:
    feature = {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
    browser.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", feature)
    browser.driver.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride",
        {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 500},
    )
    browser.errors()  # those of the test before, which a slow machine reports late
    compared = f"compare?job={finished_job.removeprefix('jobs/')}"
    pages = [
        "overview",
        compared,
        "nodes",
        "nodes/new?usage=spot",
        "jobs",
        "jobs/new",
        finished_job,
    ]
    pages += ["create", "create?chips=16&usage=spot", "connect"]
    pages += [
        "instances",
        "instances/new",
        "instances/new?machine_type=e2-medium",
        "instance-groups",
    ]
    pages += ["billing", "pods", "queue/resources", "queue/resources/new", "queue/reservations"]
    pages += [
        "mxu?numbers=decimal",
        "all-reduce",
        "lesson",
        "digits?lesson=2",
        "generations?a=v1&b=v5p",
    ]
    pages += ["device?lesson=4", "tpu-v1"]
    pages += [
        "settings/access",
        "settings/keys",
        "settings/webhooks",
        f"{finished_job}/lines",
        f"{finished_job}/type",
        "settings/project",
        "settings/storage",
        "search?q=node",
        "docs",
        "docs/glossary.md",
        "billing/budgets",
    ]
    pages += ["billing/commitments", "nodes?q=no-such-node"]
    try:
        for page in ["/login", *(f"/console/demo/{page}" for page in pages)]:
            browser.open(page)
            assert browser.one("html").get_attribute("lang") == "en"
            assert (
                browser.driver.title.endswith("· Podyard")
                and len(browser.all("h1, .empty h2")) >= 1
            ), page
            assert browser.script(LABELS_PROBE) == [], page
            assert browser.script(CONTRAST_PROBE) == [], page
            wide = browser.script("return document.documentElement.scrollWidth - window.innerWidth")
            assert wide <= 0, f"{page} is {wide} pixels wider than the window"
            ids = browser.script(
                "return [...document.querySelectorAll('[id]')].map((one) => one.id)"
            )
            assert len(ids) == len(set(ids)), f"{page} has an id twice"
    finally:
        browser.driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
    assert browser.errors() == []


@pytest.mark.parametrize(
    ("page", "first", "second"),
    [
        ("mxu", "Cycle 0", "Cycle 1"),
        ("all-reduce?ranks=3", "Start", "Step 1 of 4"),
        ("all-reduce?accelerator_type=v4-128", "Start", "Step 1 of 12"),
    ],
)
def test_an_explanation_is_stepped_with_buttons_and_arrow_keys(
    browser: Browser, page: str, first: str, second: str
) -> None:
    browser.errors()
    browser.open(f"/console/demo/{page}")
    picture = "return document.querySelector('.film-picture').innerHTML"
    browser.until(lambda: browser.text(".film-now").startswith(first), 10, "the first frame")
    begin = browser.script(picture)
    browser.click("[data-go=on]")
    assert browser.text(".film-now").startswith(second) and browser.script(picture) != begin
    browser.one("body").send_keys(Keys.ARROW_LEFT)
    browser.until(lambda: browser.text(".film-now").startswith(first), 10, "the step back")
    assert browser.script(picture) == begin
    browser.one("body").send_keys(Keys.END)
    browser.until(lambda: not browser.one("[data-go=on]").is_enabled(), 10, "the last frame")
    slider = browser.one(".film input")
    assert slider.get_property("value") == slider.get_attribute("max")
    assert browser.errors() == []


def test_a_page_that_is_not_there_looks_like_the_console(browser: Browser) -> None:
    browser.open("/console/demo/nodes/us-central1-f/nobody")
    assert browser.text("h1") == "Not found" and browser.all("header.top")
    assert re.search("nobody.* was not found", browser.text("main"))
    assert all("404" in message for message in browser.errors())
