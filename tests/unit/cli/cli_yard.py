"""The command line against a yard in this process, as a user types it."""

from __future__ import annotations

import contextlib
import dataclasses
import io
import os
import shlex
import sys
from unittest import mock

from podyard.cli.kit import commands
from tests.yard import Yard

_LEFT_OUT = ("NO_COLOR", "COLUMNS", "LINES", "PODYARD_", "CLOUDSDK_")


@dataclasses.dataclass(frozen=True, slots=True)
class Answer:
    code: int
    out: str
    err: str

    @property
    def text(self) -> str:
        return self.out + self.err


def podyard(yard: Yard, line: str, typed: str = "", **variables: str) -> Answer:
    """Run `podyard LINE` without a terminal. `typed`: the text on standard input."""
    own = {name: text for name, text in os.environ.items() if not name.startswith(_LEFT_OUT)}
    own |= {"PODYARD_URL": yard.url, "PODYARD_TOKEN": yard.token, **variables}
    out, err, code = io.StringIO(), io.StringIO(), 0
    with (
        mock.patch.dict(os.environ, own, clear=True),
        mock.patch.object(sys, "stdin", io.StringIO(typed)),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
    ):
        try:
            commands.run(shlex.split(line))
        except SystemExit as end:
            code = int(end.code or 0)
    return Answer(code, out.getvalue(), err.getvalue())
