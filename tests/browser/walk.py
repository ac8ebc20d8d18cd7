"""Walks the console by its links: one page of each kind, in a given width and colour scheme."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterator
from urllib.parse import urlsplit

from selenium import webdriver

PAGES_MAX = 150
_NO_PAGES = re.compile(
    r"/static/|[.](csv|json|pdf|txt|gz|parquet)$|:download|:export|logs?[.]txt|/objects/"
)
_LINKS = """return [...document.querySelectorAll('a[href]:not([download])')]
  .map(link => new URL(link.getAttribute('href'), location.href).href)"""


def pages(browser: webdriver.Chrome, url: str, first: tuple[str, ...] = ()) -> Iterator[str]:
    """The address of one page of each kind, found by links from the overview; `first`: looked at
    before those that
    links lead to, so that a rich page stands for its kind. A page is open when its address is
    given."""
    starts = (
        f"{url}/console",
        *(url + path for path in first),
        f"{url}/login",
        f"{url}/sign-in?code=x",
    )
    waiting, kinds = deque(starts), set[str]()
    while waiting and len(kinds) < PAGES_MAX:
        browser.get(waiting.popleft())
        address = browser.current_url
        if (kind := kind_of(address)) in kinds:
            continue
        kinds.add(kind)
        waiting += [
            link
            for link in browser.execute_script(_LINKS)
            if _is_page(link, url) and kind_of(link) not in kinds
        ]
        yield address


def kind_of(address: str) -> str:
    """The path without names: pages that differ in them only are of one kind."""
    path = re.sub(r"^/console/[^/]+", "/console/PROJECT", urlsplit(address).path)
    path = re.sub(
        r"/(nodes|instances|instance-groups|jobs|queued-resources|reservations|pods|machines)"
        r"/([^/]+)/([^/]+)",
        r"/\1/ZONE/ID",
        path,
    )
    path = re.sub(r"/docs/.+", "/docs/PAGE", path)
    return re.sub(r"/(pods|machines|invoices|storage|reservations)/[^/]+", r"/\1/ID", path)


def open_at(browser: webdriver.Chrome, address: str, width: int, height: int, scheme: str) -> None:
    """Opens a page in a window of this size; `scheme`: light or dark."""
    size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    media = {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", media)
    browser.get(address)


def _is_page(link: str, url: str) -> bool:
    return link.startswith(f"{url}/console") and not _NO_PAGES.search(urlsplit(link).path)
