"""What is said of a program that has failed."""

from __future__ import annotations

import pytest

from podyard.workers.program_host import SAID_CHARACTERS_MAX, error_line

TRACEBACK = [
    "Traceback (most recent call last):",
    '  File "train.py", line 3, in <module>',
    "    raise ValueError(42)",
]


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ([], ""),
        (["cannot open data.csv"], "cannot open data.csv"),
        ([*TRACEBACK, "ValueError: 42"], "ValueError: 42"),
        (
            [*TRACEBACK, "OpError: no host", "\t when reading gs://b/o", "W core.cc:17] leaving"],
            "OpError: no host",
        ),
        (
            [
                *TRACEBACK,
                "ValueError: 1",
                "During handling of it:",
                *TRACEBACK,
                "KeyError: 'a'",
                "[info] bye",
            ],
            "KeyError: 'a'",
        ),
        (["x" * 1000], "x" * (SAID_CHARACTERS_MAX - 1) + "\u2026"),
    ],
)
def test_the_exception_is_what_is_said(lines: list[str], said: str) -> None:
    assert error_line(lines) == said
