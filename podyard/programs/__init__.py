"""What Podyard adds to users' own programs on hosts. It runs in their processes: late, without a token, on the standard
library alone, since their Python need not have Podyard. Where it fails, the program runs as on a plain machine."""

from __future__ import annotations

from pathlib import Path

SITE_HOOK = Path(__file__).parent / "site_hook"  # goes first on PYTHONPATH
