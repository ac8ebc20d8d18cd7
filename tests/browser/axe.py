"""`python -m tests.browser.axe AXE_JS`: axe-core on every page of the console, light and dark, wide and narrow.

AXE_JS: a file axe.min.js, for example of the package axe-core-python, which is not part of this repository. A stack is
started and filled; pages are found by links from the overview, and of one kind (nodes, jobs, pods) one is looked at.
Prints what is wrong, and ends with 1 if anything is.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from collections import deque
from pathlib import Path
from urllib.parse import urlsplit

from selenium import webdriver

from tests.browser.conftest import open_browser
from tests.stack import PODYARD, Stack, open_stack

ZONE = "us-central1-f"
PAGES_MAX = 150
WIDTHS = (1280, 390)
SCHEMES = ("light", "dark")
_NO_PAGES = re.compile(r"/static/|[.](csv|json|pdf|txt|gz|parquet)$|:download|:export|logs?[.]txt|/objects/")
_LINKS = """return [...document.querySelectorAll('a[href]:not([download])')]
  .map(link => new URL(link.getAttribute('href'), location.href).href)"""
_RUN = """
const done = arguments[arguments.length - 1];
axe.run(document, {resultTypes: ['violations']}).then(found => done(found.violations.map(
  one => `${one.id} (${one.impact}): ${one.nodes.slice(0, 3).map(node => node.target.join(' ')).join(' | ')}`)));
"""


def main() -> int:
    axe = Path(sys.argv[1]).read_text(encoding="utf-8")
    with tempfile.TemporaryDirectory() as folder, open_stack(Path(folder) / "data") as stack:
        _fill(stack)
        with open_browser(stack) as browser:
            kinds, looks, wrong = _walk(browser.driver, axe, stack.url)
    print(f"{kinds} kinds of pages, {looks} looks, {wrong} violations")
    return 1 if wrong else 0


def _fill(stack: Stack) -> None:
    here = f"/podyard/v1/projects/demo/locations/{ZONE}"
    stack.create_node("slice", "v2-8", ZONE)
    stack.wait_job(stack.submit("job", ZONE, node="slice", steps=20))
    stack.call("POST", f"{here}/reservations?reservationId=room", {"generation": "v2", "size": 8})
    node = {"acceleratorType": "v3-8", "runtimeVersion": "tpu-vm-base"}
    spec = {"parent": f"projects/demo/locations/{ZONE}", "nodeId": "big", "node": node}
    path = f"/v2/projects/demo/locations/{ZONE}/queuedResources?queuedResourceId=big"
    stack.call("POST", path, {"tpu": {"nodeSpec": [spec]}})
    file = stack.data / "note.txt"
    file.write_text("text")
    for words in (
        "budget set team --amount 100",
        "storage mb gs://axe-objects",
        f"storage cp {file} gs://axe-objects/folder/note.txt",
        "auth token create ada@example.com --role tpu.viewer",
    ):
        subprocess.run([*PODYARD, *words.split(), "--data", str(stack.data)], check=True, stdout=subprocess.DEVNULL)


def _walk(browser: webdriver.Chrome, axe: str, url: str) -> tuple[int, int, int]:
    """How many kinds of pages, looks and violations there are."""
    looks, wrong = 0, 0
    waiting, kinds = deque([f"{url}/console", f"{url}/login", f"{url}/sign-in?code=x"]), set[str]()
    while waiting and len(kinds) < PAGES_MAX:
        browser.get(waiting.popleft())
        address = browser.current_url
        if (kind := _kind(address)) in kinds:
            continue
        kinds.add(kind)
        waiting += [link for link in browser.execute_script(_LINKS) if _is_page(link, url) and _kind(link) not in kinds]
        for width in WIDTHS:
            for scheme in SCHEMES:
                found = _look(browser, axe, address, width, scheme)
                looks, wrong = looks + 1, wrong + len(found)
                for line in found:
                    print(f"{urlsplit(address).path} {width} {scheme}: {line}", flush=True)
    return len(kinds), looks, wrong


def _kind(address: str) -> str:
    """The path without names: pages that differ in them only are of one kind."""
    path = urlsplit(address).path
    path = re.sub(r"/(nodes|jobs|queued-resources|reservations|pods|machines)/([^/]+)/([^/]+)", r"/\1/ZONE/ID", path)
    path = re.sub(r"/docs/.+", "/docs/PAGE", path)
    return re.sub(r"/(pods|machines|invoices|storage|reservations)/[^/]+", r"/\1/ID", path)


def _is_page(link: str, url: str) -> bool:
    return link.startswith(f"{url}/console") and not _NO_PAGES.search(urlsplit(link).path)


def _look(browser: webdriver.Chrome, axe: str, address: str, width: int, scheme: str) -> list[str]:
    size = {"width": width, "height": 1000, "deviceScaleFactor": 1, "mobile": False}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    media = {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", media)
    browser.get(address)
    browser.execute_script(axe)
    found: list[str] = browser.execute_async_script(_RUN)
    return found


if __name__ == "__main__":
    sys.exit(main())
