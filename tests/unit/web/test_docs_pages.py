"""The documents in the console: all of them, as text, with links that lead to pages that there
are."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote

import pytest

from podyard.web.front import docs, pages
from podyard.web.kit.render import SECTION_DOCS
from tests.yard import Yard, open_yard


@pytest.fixture(scope="module")
def yard(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Yard]:
    with open_yard(Path(tmp_path_factory.mktemp("docs")), routers=(pages.router,)) as found:
        found.create("search-me", "v2-8")
        yield found


def test_every_document_is_a_page_whose_links_lead_to_pages(yard: Yard) -> None:
    known = docs.documents()
    assert len(known) > 50 and set(SECTION_DOCS.values()) <= set(known)
    folders = {path.rpartition("/")[0] for path in known}
    for path, document in known.items():
        body = str(docs._render(document, "/console/demo/docs"))
        for link in re.findall(r'href="([^"]+)"', body):
            if "://" not in link and not link.startswith(("#", "mailto:")):
                target = unquote(link).removeprefix("/console/demo/docs/").partition("#")[0]
                assert target in known or target in folders, f"{path}: {link}"
    html = yard.call("GET", "/console/demo/docs/glossary.md").text
    assert "<article" in html and "<table" in html


def test_html_in_a_document_stays_text() -> None:
    text = "# T\n\n<img src=x onerror=alert(1)> [x](javascript:alert(1)) ![a](x.png) `<b>`"
    body = str(docs._render(docs.Document("t.md", "T", text, text), "/u"))
    assert (
        "<img" not in body
        and "&lt;img" in body
        and 'href="javascript' not in body
        and "<code>&lt;b&gt;" in body
    )


def test_code_that_is_wider_than_the_page_is_scrolled_by_keyboard(yard: Yard) -> None:
    text = yard.http.get("/console/demo/docs/howto/hosts.md").text
    assert '<pre tabindex="0"><code' in text and "<pre><code" not in text


def test_a_folder_is_a_list_and_an_unknown_document_is_not_found(yard: Yard) -> None:
    assert "0038-markdown" in yard.call("GET", "/console/demo/docs/decisions").text
    for path in ("no.md", "..%2fREADME.md", "%2fetc"):
        assert yard.call("GET", f"/console/demo/docs/{path}").status_code == 404


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("search-m", "/console/demo/nodes/us-central1-f/search-me"),
        ("budget", "/console/demo/billing/budgets"),
        ("idle nodes", "/console/demo/nodes?idle=1"),
        ("gcloud ssh", "/console/demo/docs/howto/hosts.md"),
        ("matrix unit", "/console/demo/docs/concepts/systolic-array.md"),
    ],
)
def test_search_finds_nodes_pages_and_documents(yard: Yard, text: str, found: str) -> None:
    for part in ("", "1"):
        html = yard.http.get("/console/demo/search", params={"q": text, "part": part}).text
        assert f'href="{found}"' in html, html


def test_every_page_that_the_search_knows_is_there(yard: Yard) -> None:
    html = "".join(
        yard.http.get("/console/demo/search", params={"q": letter}).text for letter in "aeiou"
    )
    urls = {url for url in re.findall(r'href="(/console/demo/[^"]+)"', html) if "/docs/" not in url}
    assert len(urls) > 15
    assert {url for url in urls if yard.call("GET", url).status_code not in (200, 303)} == set()
