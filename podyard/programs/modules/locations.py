"""Locations in the text of a StableHLO module: the name stacks of recomputation, and the lines of
the program."""

from __future__ import annotations

import itertools
import re

from podyard.programs.step.call_sites import file_line, is_of_program

REMATTED = "rematted_computation"  # as JAX calls it, in the name stack of an operation
_LOCATION = re.compile(r' loc\((#loc\d*|unknown|"[^"\n]*")\)')
# a frame of the program, or another location; inner ones come first
_FRAME_OR_ALIAS = re.compile(r'"([^"\n]+)":(\d+):\d+|(#loc\d*)')
_FUNCTION = re.compile(r"^  func\.func [^@]*@([\w.$-]+)\(")
_CALL = re.compile(r"= (?:func\.)?call @([\w.$-]+)\(")
_AT_END = re.compile(r' loc\((#loc\d*|"[^"\n]*")(?:\(#loc\d*\))?\)$')
_ALIAS = re.compile(r"^(#loc\d*) = loc\((.*)\)\n", re.MULTILINE)


def again_alone(text: str) -> str:
    """Return the module with the locations of operations that are computed again in the backward
    pass, and no other."""
    again = {name for name, location in _ALIAS.findall(text) if REMATTED in location}
    body = _LOCATION.sub(
        lambda match: match[0] if match[1] in again or REMATTED in match[1] else "",
        _ALIAS.sub("", text),
    )
    return body + "".join(f'{name} = loc("{REMATTED}")\n' for name in sorted(again))


def lines_of_program(text: str) -> list[str]:
    """Return for each line of `again_alone(text)` the line of the program that it comes from, such
    as `train.py:16`; empty where that is not known. An operation of a function without locations
    comes from where the function is called."""
    label = _Labels(dict(_ALIAS.findall(text))).label
    sources: list[str] = []
    opened: list[int] = []  # lines of operations whose regions are not closed yet
    functions: list[tuple[str, int]] = []  # name, and first line
    callers: dict[str, str] = {}
    for number, line in enumerate(_ALIAS.sub("", text).splitlines()):
        location = _AT_END.search(line)
        sources.append(label(location[1]) if location else "")
        if function := _FUNCTION.search(line):
            functions.append((function[1], number))
        elif call := _CALL.search(line):
            callers.setdefault(call[1], sources[number])
        start = opened.pop() if opened and line.lstrip().startswith("}") else number
        if line.endswith("{"):
            opened.append(start)
        elif start != number:  # the location of an operation stands behind its regions
            sources[start] = sources[start] or sources[number]
    bounds = [*(first for _, first in functions), len(sources)]
    for (name, _), (first, end) in zip(functions, itertools.pairwise(bounds), strict=True):
        caller = callers.get(name, "")
        sources[first:end] = [source or caller for source in sources[first:end]]
    return sources


class _Labels:
    """The lines of the program by the aliases of a module's locations."""

    def __init__(self, aliases: dict[str, str]) -> None:
        self._aliases = aliases
        self._known: dict[str, tuple[str, str]] = {}

    def label(self, name: str) -> str:
        own, nearest = self._frames(name)
        return own or nearest

    def _frames(self, name: str) -> tuple[str, str]:
        """Return the innermost frame of the program itself, and the innermost frame."""
        if name in self._known:
            return self._known[name]
        self._known[name] = ("", "")  # of a location within itself
        own = nearest = ""
        for file, line, other in _FRAME_OR_ALIAS.findall(self._aliases.get(name, "")):
            if other:
                inner_own, inner_nearest = self._frames(other)
            else:
                inner_nearest = file_line(file, int(line))
                inner_own = inner_nearest if is_of_program(file) else ""
            own, nearest = own or inner_own, nearest or inner_nearest
            if own:
                break
        self._known[name] = (own, nearest)
        return own, nearest
