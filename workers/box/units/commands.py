"""systemctl and journalctl as programs of a box: isolated, with the standard library only."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from podyard.base.clock import OsClock


def main() -> int:
    """Run what the first argument is called; the others are its own."""
    os.umask(0o022)
    name, words = Path(sys.argv[1]).name, sys.argv[2:]
    try:
        if name == "journalctl":
            from podyard.workers.box.units import journalctl

            return journalctl.run(words, OsClock())
        from podyard.workers.box.units import systemctl

        return systemctl.run(words, OsClock())
    except BrokenPipeError:
        os.dup2(
            os.open(os.devnull, os.O_WRONLY), 1
        )  # nobody reads on, and Python must not complain
        return 1
