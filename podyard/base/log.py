"""One line of JSON per event on stderr, with tokens taken out."""

from __future__ import annotations

import json
import logging
import re
import sys

# Bearer tokens, tokens in queries, and capability paths never reach a log.
_SECRET = re.compile(r"(Bearer\s+|access_token=|token=|/_t/)[^\s&\"'/]+", re.IGNORECASE)


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
        if record.exc_info:
            entry["traceback"] = redact(self.formatException(record.exc_info))
        return json.dumps(entry, ensure_ascii=False)


def configure(level: str = "INFO") -> None:
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_JsonLines())
    logging.basicConfig(level=level, handlers=[handler], force=True)
