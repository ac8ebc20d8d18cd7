"""A look into an object: text, JSON and images, with limits, and nothing of it runs."""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Iterator
from html import unescape
from pathlib import Path
from urllib.parse import quote

import httpx
import pytest

from podyard.http.guard import CSRF_FIELD, csrf_token
from podyard.web.front import pages
from podyard.web.storage.preview.content import IMAGE_BYTES_MAX, TEXT_BYTES_MAX, preview_of
from tests.yard import Yard, open_yard

BUCKET = "/console/demo/settings/storage/data-of-demo"


@pytest.fixture
def yard(tmp_path: Path) -> Iterator[Yard]:
    with open_yard(tmp_path, routers=(pages.router,)) as found:
        made = found.http.post("/console/demo/settings/storage", data={"name": "data-of-demo"})
        assert made.status_code == 303
        yield found


def put(yard: Yard, name: str, content: bytes) -> None:
    form = {CSRF_FIELD: csrf_token(yard.token), "name": name}
    sent = yard.http.post(f"{BUCKET}/upload", data=form, files={"file": ("x", content)})
    assert sent.status_code == 303, sent.text


def look(yard: Yard, name: str, part: str = "object") -> httpx.Response:
    return yard.call("GET", f"{BUCKET}/{part}?name={quote(name, safe='')}")


def png() -> bytes:
    """An image of one pixel."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        sum32 = struct.pack(">I", zlib.crc32(kind + data))
        return struct.pack(">I", len(data)) + kind + data + sum32

    head = struct.pack(">IIBBBBB", 1, 1, 8, 2, 0, 0, 0)
    body = zlib.compress(b"\0\xff\0\0")
    parts = (chunk(b"IHDR", head), chunk(b"IDAT", body), chunk(b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(parts)


def test_text_and_json_are_shown_from_the_list_on(yard: Yard) -> None:
    put(yard, "run/notes.txt", b"loss <script>alert(1)</script> fell")
    put(yard, "run/result.json", json.dumps({"accuracy": 0.9, "steps": [1, 2]}).encode())
    listed = yard.call("GET", f"{BUCKET}?prefix=run/").text
    assert f"{BUCKET}/object?name=run%2Fnotes.txt" in listed
    html = look(yard, "run/notes.txt").text
    assert "<script>alert" not in html and "<script>alert(1)</script> fell" in unescape(html)
    assert '"accuracy": 0.9,\n' in unescape(look(yard, "run/result.json").text), "indented"


def test_an_image_is_shown_with_the_type_that_it_has(yard: Yard) -> None:
    put(yard, "plot.txt", png())
    html = look(yard, "plot.txt").text
    assert f'<img src="{BUCKET}/image?name=plot.txt"' in html
    answer = look(yard, "plot.txt", "image")
    assert answer.headers["content-type"] == "image/png" and answer.content == png()
    assert "sandbox" in ", ".join(answer.headers.get_list("content-security-policy"))
    assert answer.headers["x-content-type-options"] == "nosniff"


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("page.png", b"<html><script>alert(1)</script>"),
        ("drawing.svg", b"<svg xmlns='http://www.w3.org/2000/svg'><script>1</script></svg>"),
    ],
)
def test_what_may_run_is_never_an_image(yard: Yard, name: str, content: bytes) -> None:
    put(yard, name, content)
    assert look(yard, name, "image").status_code == 404
    assert content.decode() in unescape(look(yard, name).text), "it is text"


def test_what_cannot_be_shown_says_so_and_large_text_is_cut(yard: Yard) -> None:
    put(yard, "weights.bin", b"\x00\x01\x02" * 100)
    assert "No preview of contents that are neither text nor" in look(yard, "weights.bin").text
    put(yard, "long.log", "\u00e9".encode() * TEXT_BYTES_MAX)
    html = look(yard, "long.log").text
    assert "The beginning only." in html and html.count("\u00e9") == TEXT_BYTES_MAX // 2
    assert preview_of("p.png", IMAGE_BYTES_MAX + 1, png()).why_not == "images of more than 5 MiB"
    assert preview_of("x.json", 7, b"{broken").kind == "text"
    assert preview_of("cut.txt", TEXT_BYTES_MAX * 2, b"a" * (TEXT_BYTES_MAX - 1) + b"\xc3").is_cut


def test_an_object_of_another_project_is_not_found(yard: Yard) -> None:
    put(yard, "a.txt", b"secret")
    yard.ok("POST", "/podyard/v1/projects", {"projectId": "other"})
    path = f"{BUCKET.replace('/demo/', '/other/')}/object?name=a.txt"
    answer = yard.call("GET", path)
    assert answer.status_code == 404 and "secret" not in answer.text
    assert look(yard, "missing.txt").status_code == 404
