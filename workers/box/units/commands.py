"""systemctl and journalctl as programs of a box: `python -I -S box/units/commands.py FOLDER NAME
ARGUMENT...`. FOLDER is where Podyard's package lies. Standard library only."""

from __future__ import annotations

import os
import sys
from pathlib import Path


def main(folder: str, name: str, *words: str) -> int:
    """Run the command that the last part of `name` names."""
    sys.path.append(folder)  # behind the standard library, whose names packages may have
    from podyard.base.clock import OsClock
    from podyard.workers.box.units import journalctl, systemctl

    os.umask(0o022)
    run = journalctl.run if Path(name).name == "journalctl" else systemctl.run
    try:
        return run(words, OsClock())
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # nobody reads on: Python must not complain
        return 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
