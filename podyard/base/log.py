"""One line of JSON per event on stderr, with tokens taken out, and with the ids of the request that
it belongs to."""

from __future__ import annotations

import contextlib
import json
import logging
import re
import sys
from collections.abc import Iterator
from contextvars import ContextVar

# Bearer tokens, tokens in queries, and capability paths never reach a log.
_SECRET = re.compile(r"(Bearer\s+|access_token=|token=|/_t/)[^\s&\"'/]+", re.IGNORECASE)


# Threads that work for a request have a copy of its context, and so the same dict.
_FIELDS: ContextVar[dict[str, str] | None] = ContextVar("podyard_log_fields", default=None)


@contextlib.contextmanager
def fields(**found: str) -> Iterator[None]:
    """Adds fields to all lines that are written in this block; empty ones are left out."""
    before = _FIELDS.set(
        {**(_FIELDS.get() or {}), **{name: value for name, value in found.items() if value}}
    )
    try:
        yield
    finally:
        _FIELDS.reset(before)


def note(**found: str) -> None:
    """Adds what is only known in the middle of the block, such as an operation's id."""
    current = _FIELDS.get()
    if current is not None:
        current.update(found)


def redact(text: str) -> str:
    return _SECRET.sub(r"\1[redacted]", text)


class _JsonLines(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        entry = {
            "time": self.formatTime(record, "%Y-%m-%dT%H:%M:%S"),
            "level": record.levelname,
            "logger": record.name,
            "message": redact(record.getMessage()),
        }
        for name, value in (_FIELDS.get() or {}).items():
            entry.setdefault(name, redact(value))
        if record.exc_info:
            entry["traceback"] = redact(self.formatException(record.exc_info))
        return json.dumps(entry, ensure_ascii=False)


def configure(level: str = "INFO") -> None:
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_JsonLines())
    logging.basicConfig(level=level, handlers=[handler], force=True)
