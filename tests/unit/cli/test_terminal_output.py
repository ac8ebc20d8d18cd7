"""What a list looks like on a real terminal of 80 and 160 columns, and in a pipe."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios

import pytest

PROGRAM = """
from podyard.cli.kit.tables import columns_of, draw
columns = columns_of({"NAME": "name", "STATE": "state", "COST": "cost|usd", "REASON": "reason|text"})
rows = [
    {"name": "pod", "state": "READY", "cost": "1234.5", "reason": "ready"},
    {"name": "a-name-that-people-copy-and-that-is-never-cut-off", "state": "FAILED", "cost": "0.5",
     "reason": "no free 2x2x4 box in us-central2-b: the largest free box is 2x2x2"},
]
print(draw(columns, rows))
"""  # noqa: E501
ESCAPES = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
NAME = "a-name-that-people-copy-and-that-is-never-cut-off"
WHOLE = [
    f"{'NAME':49}  STATE        COST  REASON",
    f"{'pod':49}  READY   $1,234.50  ready",
    f"{NAME}  FAILED      $0.50  no free 2x2x4 box in us-central2-b: the largest free box is 2x2x2",
]
AT_80 = [WHOLE[0], WHOLE[1], f"{NAME}  FAILED      $0.50  no free 2x2…"]


def on_terminal(columns: int) -> str:
    """Return what the program writes to a pseudo terminal that is this wide."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
    environment = {
        name: text
        for name, text in os.environ.items()
        if name not in ("NO_COLOR", "COLUMNS", "LINES")
    }
    argv = [sys.executable, "-c", PROGRAM]
    with subprocess.Popen(argv, stdout=theirs, env={**environment, "TERM": "xterm"}) as process:
        os.close(theirs)
        chunks = []
        try:
            while chunk := os.read(ours, 65536):
                chunks.append(chunk)
        except OSError:  # Linux ends a terminal whose other side is closed with EIO
            pass
        finally:
            os.close(ours)
    assert process.returncode == 0
    return b"".join(chunks).decode().replace("\r\n", "\n")


@pytest.mark.parametrize(("columns", "expected"), [(80, AT_80), (160, WHOLE)])
def test_a_table_fits_the_terminal_and_has_colours(columns: int, expected: list[str]) -> None:
    seen = on_terminal(columns)
    assert ESCAPES.sub("", seen).splitlines() == expected
    assert "\x1b[32mREADY\x1b[0m" in seen
    assert "\x1b[31mFAILED\x1b[0m" in seen


def test_a_pipe_gets_everything_and_no_colours() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines() == WHOLE
