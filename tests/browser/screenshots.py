"""`python -m tests.browser.screenshots FOLDER`: a picture of each kind of page of a busy project,
to be looked at.

    --looks 1280-light 1920-dark 390-light     widths and colour schemes; all four pages of a
    project without use, too --only overview nodes                      only pages whose address
    contains one of these

Each picture shows the whole page, up to `HEIGHT_MAX`. Prints each page that is wider than its
window.
"""

from __future__ import annotations

import argparse
import base64
import re
import tempfile
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import urlsplit

from selenium import webdriver

from tests.browser import busy_project, walk
from tests.browser.conftest import Browser, open_browser
from tests.stack import open_stack

LOOKS = ("1280-light", "1280-dark", "1920-light", "1920-dark", "390-light", "390-dark")
HEIGHT = 1000
HEIGHT_MAX = 6000  # a longer page repeats itself
EMPTY_PAGES = (
    "overview",
    "nodes",
    "jobs",
    "queue",
    "billing",
    "settings/storage",
    "settings/access",
)
_WIDER = "return document.documentElement.scrollWidth - window.innerWidth"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--looks", nargs="*", default=LOOKS)
    parser.add_argument("--only", nargs="*", default=())
    given = parser.parse_args()
    with (
        tempfile.TemporaryDirectory() as scratch,
        open_stack(Path(scratch) / "data", busy_project.CLOCK) as stack,
    ):
        first = busy_project.fill(stack)
        with open_browser(stack) as browser:
            take(browser, given.folder, given.looks, given.only, first)


def take(
    browser: Browser, folder: Path, looks: Sequence[str], only: Sequence[str], first: Sequence[str]
) -> None:
    """Writes FOLDER/LOOK/PAGE.png of each page whose address contains one of `only` (none: of
    each)."""
    empty = [f"{browser.url}/console/{busy_project.EMPTY}/{page}" for page in EMPTY_PAGES]
    found = [*walk.pages(browser.driver, browser.url, first), *empty]
    for address in found:
        if only and not any(part in address for part in only):
            continue
        name = re.sub(
            r"[^A-Za-z0-9.-]+", "_", urlsplit(address).path.removeprefix("/console/")
        ).strip("_")
        for look in looks:
            width, scheme = look.split("-")
            (folder / look).mkdir(parents=True, exist_ok=True)
            walk.open_at(browser.driver, address, int(width), HEIGHT, scheme)
            (folder / look / f"{name}.png").write_bytes(_picture(browser.driver, int(width)))
            if (over := browser.driver.execute_script(_WIDER)) > 0:
                print(f"{address} is {over} px wider than a window of {width} px", flush=True)


def _picture(driver: webdriver.Chrome, width: int) -> bytes:
    height = min(driver.execute_script("return document.documentElement.scrollHeight"), HEIGHT_MAX)
    clip = {"x": 0, "y": 0, "width": width, "height": height, "scale": 1}
    asked = {"format": "png", "captureBeyondViewport": True, "clip": clip}
    return base64.b64decode(driver.execute_cdp_cmd("Page.captureScreenshot", asked)["data"])


if __name__ == "__main__":
    main()
