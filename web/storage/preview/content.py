"""The preview of an object's content: text, JSON, or an image of a safe kind. Pure."""

from __future__ import annotations

import dataclasses
import json

TEXT_BYTES_MAX = 64 << 10  # of a page: more is read in an editor
JSON_BYTES_MAX = 256 << 10  # parsed as a whole; what is larger is shown as text
IMAGE_BYTES_MAX = 5 << 20  # sent to the browser: a plot has a hundredth of it
# By how they begin. SVG is text to us: it may hold scripts.
_IMAGES = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF87a", "image/gif"),
    (b"GIF89a", "image/gif"),
)


@dataclasses.dataclass(frozen=True, slots=True)
class Preview:
    """`kind`: text, json, image, or none. `is_cut`: the text is the beginning only. `why_not`: of
    kind none."""

    kind: str
    text: str = ""
    is_cut: bool = False
    why_not: str = ""


def image_type(start: bytes) -> str | None:
    """The media type of an image that begins so; None for all other contents."""
    if start[:4] == b"RIFF" and start[8:12] == b"WEBP":
        return "image/webp"
    return next((kind for magic, kind in _IMAGES if start.startswith(magic)), None)


def preview_of(name: str, size: int, start: bytes) -> Preview:
    """Return what is shown of an object. `start`: its first `JSON_BYTES_MAX` bytes, or all."""
    if image_type(start) is not None:
        if size <= IMAGE_BYTES_MAX:
            return Preview("image")
        return Preview("none", why_not=f"images of more than {IMAGE_BYTES_MAX >> 20} MiB")
    text = _text(start[:TEXT_BYTES_MAX], is_cut=size > TEXT_BYTES_MAX)
    if text is None:
        return Preview("none", why_not="contents that are neither text nor PNG, JPEG, GIF or WebP")
    if name.endswith(".json") and size == len(start):
        try:
            tidy = json.dumps(json.loads(start), indent=2, ensure_ascii=False)
        except (ValueError, RecursionError):
            tidy = ""
        if tidy:
            return Preview("json", tidy[:TEXT_BYTES_MAX], len(tidy) > TEXT_BYTES_MAX)
    return Preview("text", text, size > TEXT_BYTES_MAX)


def _text(start: bytes, *, is_cut: bool) -> str | None:
    """None: not UTF-8, or with NUL bytes. A character that the cut has split is left out."""
    if b"\0" in start:
        return None
    try:
        return start.decode("utf-8")
    except UnicodeDecodeError as error:
        if is_cut and error.start >= len(start) - 3:
            return start[: error.start].decode("utf-8")
        return None
