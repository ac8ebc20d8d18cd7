"""`python -m tests.browser.axe AXE_JS`: axe-core on every page of the console, light and dark, wide
and narrow.

AXE_JS: a file axe.min.js, for example of the package axe-core-python, which is not part of this
repository. The pages are those of a busy project (`busy_project.py`), found by links from the
overview: of one kind (nodes, jobs, pods) one. Prints what is wrong, and ends with 1 if anything is.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from urllib.parse import urlsplit

from selenium import webdriver

from tests.browser import busy_project, walk
from tests.browser.conftest import open_browser
from tests.stack import open_stack

WIDTHS = (1280, 390)
HEIGHT = 1000
SCHEMES = ("light", "dark")
_RUN = """
const done = arguments[arguments.length - 1];
axe.run(document, {resultTypes: ['violations']}).then(found => done(found.violations.map(
  one => `${one.id} (${one.impact}): ${one.nodes.slice(0, 3).map(node => node.target.join(' ')).join(' | ')}`)));
"""  # noqa: E501


def main() -> int:
    axe = Path(sys.argv[1]).read_text(encoding="utf-8")
    with (
        tempfile.TemporaryDirectory() as folder,
        open_stack(Path(folder) / "data", busy_project.CLOCK) as stack,
    ):
        first = busy_project.fill(stack)
        with open_browser(stack) as browser:
            kinds, looks, wrong = _walk(browser.driver, axe, stack.url, first)
    print(f"{kinds} kinds of pages, {looks} looks, {wrong} violations")
    return 1 if wrong else 0


def _walk(
    browser: webdriver.Chrome, axe: str, url: str, first: tuple[str, ...]
) -> tuple[int, int, int]:
    """Return how many kinds of pages, looks and violations there are."""
    kinds, looks, wrong = 0, 0, 0
    for address in walk.pages(browser, url, first):
        kinds += 1
        for width in WIDTHS:
            for scheme in SCHEMES:
                found = _look(browser, axe, address, width, scheme)
                looks, wrong = looks + 1, wrong + len(found)
                for line in found:
                    print(f"{urlsplit(address).path} {width} {scheme}: {line}", flush=True)
    return kinds, looks, wrong


def _look(browser: webdriver.Chrome, axe: str, address: str, width: int, scheme: str) -> list[str]:
    walk.open_at(browser, address, width, HEIGHT, scheme)
    browser.execute_script(axe)
    found: list[str] = browser.execute_async_script(_RUN)
    return found


if __name__ == "__main__":
    sys.exit(main())
