"""One Podyard and one signed-in Chromium for all tests of the console."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from selenium import webdriver
from selenium.webdriver.chrome.options import Options
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By

from tests.stack import Stack, open_stack
from tests.waiting import patient

CHROMIUM_FLAGS = (
    "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
    "--window-size=1280,1000",
)  # fmt: skip
NAMES = ("chromium", "chromium-browser", "google-chrome")


class Browser:
    """A driver, and waiting for what a page comes to show."""

    def __init__(self, driver: webdriver.Chrome, url: str) -> None:
        self.driver = driver
        self.url = url

    def open(self, path: str) -> None:
        self.driver.get(self.url + path)

    def path(self) -> str:
        """The path of the page that is open."""
        return urlsplit(self.driver.current_url).path

    def one(self, selector: str) -> Any:
        return self.driver.find_element(By.CSS_SELECTOR, selector)

    def all(self, selector: str) -> list[Any]:
        return self.driver.find_elements(By.CSS_SELECTOR, selector)

    def script(self, code: str) -> Any:
        return self.driver.execute_script(code)

    def text(self, selector: str) -> str:
        """The text of an element that a live page may replace at any time, so it is read in one
        step."""
        found = self.script(f"return document.querySelector({selector!r})?.textContent ?? ''")
        return str(found).strip()

    def click(self, selector: str) -> None:
        """Clicks an element of a live part, found and clicked in one step."""
        self.script(f"document.querySelector({selector!r}).click()")

    def until(self, test: Callable[[], Any], seconds: float, what: str) -> Any:
        deadline = time.monotonic() + patient(seconds)
        while not (found := test()):
            assert time.monotonic() < deadline, (
                f"{what}: not within {patient(seconds)} s; the page is {self.text('main')[:500]}"
            )
            time.sleep(0.05)
        return found

    def errors(self) -> list[str]:
        """Return what the page complained of since the last call: scripts, the content security
        policy, missing files."""
        entries = self.driver.get_log("browser")  # type: ignore[no-untyped-call]
        return [entry["message"] for entry in entries if entry["level"] == "SEVERE"]


@pytest.fixture(scope="session")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    with open_stack(Path(tmp_path_factory.mktemp("console"))) as found:
        yield found


@pytest.fixture(scope="session")
def finished_job(stack: Stack) -> str:
    """The path of a job's page, with a curve and logs; the job's node is gone again."""
    stack.create_node("for-pages", "v2-8", "us-central1-c")
    job = stack.submit("for-pages", "us-central1-c", node="for-pages", steps=5)
    assert stack.wait_job(job)["state"] == "SUCCEEDED"
    stack.delete_node("for-pages", "us-central1-c")
    return "jobs/us-central1-c/for-pages"


@pytest.fixture(scope="session")
def browser(stack: Stack) -> Iterator[Browser]:
    with open_browser(stack) as found:
        yield found


@contextlib.contextmanager
def open_browser(stack: Stack) -> Iterator[Browser]:
    """A separate Chromium, signed in: cookies are of an address, whatever the port."""
    chromium = next((path for name in NAMES if (path := shutil.which(name))), None)
    chromedriver = shutil.which("chromedriver")
    if chromium is None or chromedriver is None:
        reason = "the browser tests need chromium and chromedriver on PATH"
        if os.environ.get("PODYARD_TEST_REQUIRE") == "all":
            pytest.fail(reason)
        pytest.skip(reason)
    profile = tempfile.mkdtemp(prefix="podyard-chromium-")
    options = Options()
    options.binary_location = chromium
    for flag in (*CHROMIUM_FLAGS, f"--user-data-dir={profile}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(chromedriver))
    try:
        found = Browser(driver, stack.url)
        found.open("/")
        assert driver.current_url.endswith("/login")
        found.one("#token").send_keys(stack.token)
        found.one("button.primary").click()
        found.until(
            lambda: driver.current_url.endswith("/console/demo/overview"),
            10,
            "the first page after sign-in",
        )
        yield found
    finally:
        driver.quit()
        shutil.rmtree(profile, ignore_errors=True)
