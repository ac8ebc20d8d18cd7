"""What is said of a program that has failed."""

from __future__ import annotations

import io

import pytest

from podyard.workers.replica.program_host import (
    LINE_CHARACTERS_MAX,
    SAID_CHARACTERS_MAX,
    error_line,
    lacks_module,
    whole_lines,
)

TRACEBACK = [
    "Traceback (most recent call last):",
    '  File "train.py", line 3, in <module>',
    "    raise ValueError(42)",
]


BAR = "  7%|▋         | 7/100 [00:00<00:01, 76.6it/s]"


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
        ([*TRACEBACK, "\x1b[31mValueError\x1b[0m: 42", BAR], "ValueError: 42"),
        (["cannot open data.csv", BAR, " 12it [00:01,  9.98it/s]"], "cannot open data.csv"),
        ([BAR], ""),
        (["x" * 1000], "x" * (SAID_CHARACTERS_MAX - 1) + "\u2026"),
    ],
)
def test_the_exception_is_what_is_said(lines: list[str], said: str) -> None:
    assert error_line(lines) == said


def test_frames_of_a_progress_bar_are_one_line() -> None:
    frames = [f"\r{done:3d}%|{'#' * done}| {done}/100 [00:00<00:01]" for done in range(101)]
    written = "".join(["begin\n", *frames, "\n", "end\r\n"])
    lines = list(whole_lines(io.StringIO(written, newline="\n")))
    assert lines == ["begin", frames[-1].removeprefix("\r"), "end"]


def test_a_program_that_ends_in_the_middle_of_a_bar_leaves_its_last_frame() -> None:
    frames = "".join(f"\r{done}% of the file" for done in range(3000))
    assert len(frames) > 3 * LINE_CHARACTERS_MAX
    lines = list(whole_lines(io.StringIO(frames, newline="\n")))
    assert lines == ["2999% of the file"]


def test_a_long_line_without_frames_is_cut_and_complete() -> None:
    text = "x" * (2 * LINE_CHARACTERS_MAX + 5)
    assert "".join(whole_lines(io.StringIO(text + "\n", newline="\n"))) == text


def test_a_failed_import_is_known_from_its_traceback() -> None:
    assert lacks_module([*TRACEBACK, "ModuleNotFoundError: No module named 'einops'", BAR])
    assert lacks_module([*TRACEBACK, "ImportError: cannot import name 'x' from 'y'"])
    assert not lacks_module([*TRACEBACK, "ValueError: ImportError"])
    assert not lacks_module([])
