"""The map of a pod: a slice leads to its node, and the slider to what was there before."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.keys import Keys

from tests.browser.conftest import Browser
from tests.stack import Stack

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("browser")]

ZONE = "us-west1-c"
POD = f"/console/demo/pods/{ZONE}-v5e-0"


@pytest.fixture
def mapped(stack: Stack) -> Iterator[str]:
    stack.create_node("mapped", "v5litepod-16", ZONE, runtimeVersion="v2-alpha-tpuv5-lite")
    yield f"/console/demo/nodes/{ZONE}/mapped"
    stack.delete_node("mapped", ZONE)


def test_a_slice_on_the_map_leads_to_its_node(browser: Browser, mapped: str) -> None:
    browser.open(POD)
    slices = browser.all("#map svg a")
    assert len(slices) == 1
    said = slices[0].find_element("css selector", "title").get_attribute("textContent")
    assert said.splitlines()[:2] == ["Node mapped", "v5litepod-16, 16 chips"]
    ActionChains(browser.driver).move_to_element(slices[0]).click().perform()
    browser.until(lambda: browser.path() == mapped, 10, "the node's page")
    assert browser.errors() == []


def test_the_slider_shows_the_pod_as_it_was(browser: Browser, mapped: str) -> None:
    browser.open(POD)
    assert browser.text("#at") == "now" and browser.all("#map svg a")
    slider = browser.one("#ago")
    slider.send_keys(Keys.ARROW_LEFT)
    browser.until(lambda: not browser.all("#map svg a"), 10, "the map without the node")
    assert (
        browser.text("#at") != "now"
        and browser.text("#map-title") == f"Map at {browser.text('#at')}"
    )
    assert "ago=5" in browser.driver.current_url
    slider.send_keys(Keys.ARROW_RIGHT)
    browser.until(lambda: browser.all("#map svg a"), 10, "the node again")
    assert "ago" not in browser.driver.current_url
    assert browser.errors() == []
