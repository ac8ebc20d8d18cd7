"""Google's discovery document of Compute Engine, as google-api-python-client ships it."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any


def google_document() -> dict[str, Any]:
    package = importlib.util.find_spec("googleapiclient")
    assert package is not None
    assert package.origin is not None
    path = Path(package.origin).parent / "discovery_cache" / "documents" / "compute.v1.json"
    document: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return document
