"""Shims for users' own programs.

The hook and the shims run in their processes: late, without a token, on the standard library and
what the program has imported, since their Python need not have Podyard. Where a shim fails, the
program runs as on a plain machine. The estimator, the summary and the launcher run in processes of
Podyard's.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

SITE_HOOK = Path(__file__).parent / "site_hook"


def hook_environment(inherited: Mapping[str, str]) -> dict[str, str]:
    """Return what has the hook run at the start of every Python: it goes first on PYTHONPATH.

    A program may be started with another PYTHONPATH. Python then finds the hook by
    PODYARD_SITE_HOOK if Podyard is installed in its environment: `podyard_programs.pth`, at the top
    of site-packages, reads it.
    """
    path = os.pathsep.join(filter(None, (str(SITE_HOOK), inherited.get("PYTHONPATH"))))
    return {"PYTHONPATH": path, "PODYARD_SITE_HOOK": str(SITE_HOOK)}
