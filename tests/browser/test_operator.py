"""Pods, queue, clock and faults in a real Chromium, on a whole Podyard whose clock is virtual."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from selenium.webdriver.support.ui import Select

from podyard.base import boxes
from podyard.base.clock import PlatformTime
from podyard.web.nodes.torus import CELL
from tests.browser.conftest import Browser, open_browser
from tests.browser.people import CLICKS_MAX, ClickCounter
from tests.browser.test_console import CONTRAST_PROBE, LABELS_PROBE
from tests.stack import Stack, open_stack, until

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("browser")]

ZONE = "us-central1-a"
POD = f"/console/demo/pods/{ZONE}-v2-0"
OPERATOR = "/console/demo/operator"
EVIL = "<img src=x onerror=document.body.dataset.hit=1>"


@pytest.fixture(scope="module")
def virtual(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    with open_stack(
        Path(tmp_path_factory.mktemp("operator")), {"PODYARD_CLOCK": "virtual"}
    ) as found:
        found.create_node("mine", "v2-32", ZONE)
        found.create_node("spotty", "v2-8", ZONE, schedulingConfig={"spot": True})
        node = {"acceleratorType": "v2-512", "runtimeVersion": "tpu-vm-base"}
        spec = {"parent": f"projects/demo/locations/{ZONE}", "nodeId": "whole", "node": node}
        path = f"/v2/projects/demo/locations/{ZONE}/queuedResources?queuedResourceId=whole"
        found.call("POST", path, {"tpu": {"nodeSpec": [spec]}, "spot": {}})
        yield found


@pytest.fixture(scope="module")
def console(virtual: Stack) -> Iterator[Browser]:
    with open_browser(virtual) as found:
        yield found


def test_a_map_shows_each_slice_with_its_letter_and_what_would_have_to_move(
    console: Browser,
) -> None:
    console.open(f"{POD}?type=v2-512")
    assert (
        console.text("svg.pod desc")
        == "20 of 256 chips are held, 16 chips by mine, 4 chips by spotty"
    )
    drawn = [_chips(path.get_attribute("d")) for path in console.all("svg.pod path[class^=chip-s]")]
    assert sorted(drawn) == [4, 16]
    assert [letter.text for letter in console.all("svg.pod text")] == ["A", "B"]
    assert "mine" in console.text("table") and "spotty" in console.text("table")
    assert "too few chips are free" in console.text("main")
    console.open(f"{POD}?type=v2-8")
    assert "v2-8 fits now" in console.text("main")
    console.open(f"{POD}?type={EVIL}")
    assert EVIL in console.text(".error") and not console.all("main img")


def _chips(path: str) -> int:
    """Of its bars."""
    return sum(int(width) // CELL for width in re.findall(r"h(\d+)v", path))


def test_the_queue_says_why_something_waits(console: Browser) -> None:
    console.open("/console/demo/queue")
    row = console.text("tbody tr")
    assert "whole" in row and "queued resource" in row and "v2-512" in row
    assert "236 of 256 v2 chips are free" in row


def test_the_clock_is_advanced_paused_and_let_go_on(console: Browser, virtual: Stack) -> None:
    def now() -> PlatformTime:
        return PlatformTime.from_rfc3339(virtual.call("GET", "/podyard/v1/clock")["platformTime"])

    before = now()
    console.open(OPERATOR)
    console.one("#duration").send_keys("2d")
    console.one("form[action$='/advance'] button.primary").click()
    console.until(lambda: now().seconds_since(before) >= 2 * 86_400, 20, "the target")
    assert now().seconds_since(before) < 2 * 86_400 + 600
    console.open(OPERATOR)
    console.one("button[name='rate'][value='0']").click()
    console.until(lambda: "paused" in console.text("main"), 10, "the pause")
    console.one("button[name='rate'][value='1']").click()
    console.until(lambda: "1 s per real second" in console.text("main"), 10, "going on")
    console.one("#duration").send_keys("soon")
    console.one("form[action$='/advance'] button.primary").click()
    console.until(lambda: "not a duration" in console.text(".error"), 10, "the reason")
    assert console.one("#duration").get_attribute("value") == "soon"


def test_the_clock_is_advanced_by_a_day_with_two_clicks(console: Browser, virtual: Stack) -> None:
    def now() -> PlatformTime:
        return PlatformTime.from_rfc3339(virtual.call("GET", "/podyard/v1/clock")["platformTime"])

    before, person = now(), ClickCounter(console)
    console.open("/console/demo/overview")
    person.click("nav a[href$='/operator']")
    console.until(lambda: console.all("button[name=duration]"), 10, "the clock")
    person.click("button[name=duration][value='1d']")
    console.until(lambda: now().seconds_since(before) >= 86_400, 20, "the next day")
    assert person.clicks <= CLICKS_MAX


def test_a_fault_is_added_takes_a_node_and_is_removed(console: Browser, virtual: Stack) -> None:
    console.open(OPERATOR)
    Select(console.one("#effect")).select_by_value("preempt")
    console.one("form.filter button").click()
    console.until(lambda: console.all("#p-notice"), 10, "the form of the effect")
    console.one("#m-resource").send_keys("spot*")
    console.one("#count").send_keys("1")
    console.one("#add-fault").click()
    console.until(lambda: "resource spot*" in console.text("table"), 10, "the rule")
    node = f"/v2/projects/demo/locations/{ZONE}/nodes/spotty"
    console.until(lambda: virtual.call("GET", node)["state"] == "PREEMPTED", 20, "the preemption")
    console.open(OPERATOR)
    assert "1 of 1" in console.text("table")
    console.one("button[name='fault']").click()
    console.until(lambda: "No fault rules" in console.text("main"), 10, "no rule")
    assert virtual.call("GET", "/podyard/v1/faults").get("faults", []) == []


def test_a_fault_is_one_click_away_on_the_page_of_a_node(console: Browser, virtual: Stack) -> None:
    page = f"/console/demo/nodes/{ZONE}/mine"
    console.open(page)
    console.one("button[name='fault'][value='metadata']").click()
    console.until(lambda: virtual.call("GET", "/podyard/v1/faults").get("faults"), 10, "the rule")
    (rule,) = virtual.call("GET", "/podyard/v1/faults")["faults"]
    node = f"projects/demo/locations/{ZONE}/nodes/mine"
    assert (rule["effect"], rule["match"]) == ("metadata", {"resource": node})
    console.until(
        lambda: console.script("return location.pathname") == page, 10, "the node's page again"
    )
    virtual.call("DELETE", f"/podyard/v1/faults/{rule['fault']}")


def test_a_broken_chip_is_crossed_on_the_map(console: Browser, virtual: Stack) -> None:
    rule = virtual.call(
        "POST", "/podyard/v1/faults", {"effect": "chip", "match": {"resource": "mine"}}
    )
    console.until(
        lambda: console.open(POD) or console.all("svg.pod path.chip-broken"), 20, "the broken chip"
    )
    assert "1 chip broken" in console.text("svg.pod desc")
    assert _chips(console.one("path.chip-broken").get_attribute("d")) == 1
    virtual.call("DELETE", f"/podyard/v1/faults/{rule['fault']}")


def test_a_viewer_sees_the_pods_and_is_refused_the_rest(virtual: Stack) -> None:
    body = {"email": "eve@example.com", "project": "demo", "roles": ["tpu.viewer"]}
    token = virtual.call("POST", "/podyard/v1/tokens", body)["token"]
    cookies = {"podyard_session": token}
    with httpx.Client(base_url=virtual.url, cookies=cookies, trust_env=False) as viewer:
        pods = viewer.get("/console/demo/pods")
        assert pods.status_code == 200 and "Operator" not in pods.text
        assert viewer.get(OPERATOR).status_code == 403
        assert viewer.post(f"{OPERATOR}/advance", data={"duration": "1d"}).status_code == 403
        assert (
            viewer.post(f"{OPERATOR}/node", data={"fault": "host", "resource": "mine"}).status_code
            == 403
        )
        assert "go wrong" not in viewer.get(f"/console/demo/nodes/{ZONE}/mine").text


@pytest.mark.parametrize("width", [390, 1280])
def test_pages_fit_have_labels_and_can_be_read(console: Browser, width: int) -> None:
    size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
    console.errors()  # of pages that earlier tests have asked for in vain
    console.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    for path in (
        "/console/demo/pods",
        POD,
        f"/console/demo/nodes/{ZONE}/mine",
        "/console/demo/queue",
        *(f"{OPERATOR}?effect={e}" for e in ("error", "jump")),
    ):
        console.open(path)
        assert console.script("return document.documentElement.scrollWidth - innerWidth") <= 0, path
        assert console.script(LABELS_PROBE) == [], path
        assert console.script(CONTRAST_PROBE) == [], path
        assert len(console.driver.page_source) < 150_000
        assert console.errors() == []


def test_a_node_s_page_says_what_keeps_its_hosts_apart(browser: Browser, stack: Stack) -> None:
    stack.create_node("apart", "v2-8", "us-central1-f")
    path = "/podyard/v1/projects/demo/locations/us-central1-f/nodes/apart"
    stack.call("POST", f"{path}:materialise", {"workers": []})
    until(
        lambda: stack.call("GET", f"{path}/hosts")["hosts"][0]["isolation"] or None, 30, "the host"
    )
    browser.open("/console/demo/nodes/us-central1-f/apart")
    said = boxes.sentence(boxes.why_not(boxes.BOXES_AUTO))
    browser.until(lambda: said in browser.text("main") or None, 10, "the sentence")
    stack.delete_node("apart", "us-central1-f")
    assert browser.errors() == []


def test_machines_are_shown_drained_and_invited(console: Browser, virtual: Stack) -> None:
    until(lambda: virtual.call("GET", "/podyard/v1/agents")["agents"] or None, 30, "the agent")
    console.open("/console/demo/machines")
    assert console.text("td[data-label=State]") == "READY"
    assert not console.all("button[aria-label='Remove local']")  # the platform's own
    console.click("button[aria-label='Drain local']")
    assert console.text("td[data-label=State]") == "DRAINING"
    console.click("button[aria-label='Resume local']")
    assert console.text("td[data-label=State]") == "READY"
    console.click("form[action$='/machines/token'] button")
    assert re.fullmatch(
        rf"podyard agent join {virtual.url} --token pdj_\S{{40,}}", console.text("#join-command")
    )
    console.open("/console/demo/machines")
    assert not console.all("#join-command")
    assert console.script(LABELS_PROBE) == [] and console.script(CONTRAST_PROBE) == []
