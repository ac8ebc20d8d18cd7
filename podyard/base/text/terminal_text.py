"""Text that programs write for terminals: carriage returns, progress bars and colours (ECMA-48,
"Select Graphic Rendition")."""

from __future__ import annotations

import re
from collections.abc import Iterator

_SEQUENCE = re.compile(
    r"\x1b(?:\[(?P<codes>[0-9;]*)m|\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*\x07?|[@-_])"
)
# tqdm (`45%|####  | 45/100 [00:01<00:01]`, `7it [00:01, 5.0it/s]`), pip, rich and Keras.
_BAR = re.compile(
    r"\d{1,3}%\s*\||\d+(/\d+)?\s*\[\d\d:\d\d[<,]|\d+[a-zA-Z]* \[\d\d:\d\d,"
    r"|[━█▏▎▍▌▋▊▉╸╺]{2}|\[[=>. ]{8,}\]"
)
_COLOURS = ("black", "red", "green", "yellow", "blue", "magenta", "cyan", "white")
_BOLD, _NOT_BOLD, _PLAIN_COLOUR = 1, 22, 39
_FIRST_COLOUR, _FIRST_BRIGHT = 30, 90
_OF_A_PALETTE = (38, 48)


def last_frame(line: str) -> str:
    """Return the text that a terminal shows of a line at its end: of frames that begin with a
    carriage return, the last one that has text."""
    if "\r" not in line:
        return line
    frames = [frame for frame in line.split("\r") if frame.strip()]
    return frames[-1] if frames else ""


def is_progress_bar(line: str) -> bool:
    return _BAR.search(line) is not None


def without_colours(line: str) -> str:
    return _SEQUENCE.sub("", line)


def coloured_parts(line: str) -> Iterator[tuple[str, str]]:
    """Yield the parts of a line as (names, text): the names of colour and weight, such as
    `red bold`, or "". Other sequences and colours are left out."""
    colour, is_bold, start = "", False, 0
    for match in _SEQUENCE.finditer(line):
        if text := line[start : match.start()]:
            yield f"{colour} {'bold' if is_bold else ''}".strip(), text
        start = match.end()
        for code in map(int, filter(None, (match["codes"] or "0").split(";"))):
            if code in _OF_A_PALETTE:
                break  # the codes that follow are its parts
            if code == 0:
                colour, is_bold = "", False
            elif code in (_BOLD, _NOT_BOLD):
                is_bold = code == _BOLD
            elif code == _PLAIN_COLOUR:
                colour = ""
            elif 0 <= code - _FIRST_COLOUR < len(_COLOURS):
                colour = _COLOURS[code - _FIRST_COLOUR]
            elif 0 <= code - _FIRST_BRIGHT < len(_COLOURS):
                colour = _COLOURS[code - _FIRST_BRIGHT]
    if text := line[start:]:
        yield f"{colour} {'bold' if is_bold else ''}".strip(), text
