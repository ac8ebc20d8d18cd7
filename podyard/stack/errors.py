"""Failures of a start that the user can mend."""

from __future__ import annotations

from podyard.base.errors import Code, PodyardError

EXIT_SETUP = 2


class SetupError(PodyardError):
    """A fault that the user can mend: one line on stderr, exit code 2."""

    def __init__(self, message: str) -> None:
        super().__init__(Code.FAILED_PRECONDITION, message)
