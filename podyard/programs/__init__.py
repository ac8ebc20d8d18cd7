"""What Podyard adds to users' own programs.

The hook and the shims run in their processes: late, without a token, on the standard library and what the program has
imported, since their Python need not have Podyard. Where a shim fails, the program runs as on a plain machine. The
estimator, the summary and the launcher run in processes of Podyard's.
"""

from __future__ import annotations

from pathlib import Path

SITE_HOOK = Path(__file__).parent / "site_hook"  # goes first on PYTHONPATH
