"""The TPU compiler's HLO text as computations of instructions."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from podyard.base.errors import Code, PodyardError

_COMMENT = re.compile(r"/\*index=\d+\*/")
_HEADER = re.compile(r"(ENTRY )?%?([\w.\-]+) \(.*\{$")
_INSTRUCTION = re.compile(r"\s+(ROOT )?%?([\w.\-]+) = (.*?) ([a-z][\w\-]*)\(")
OPERAND = re.compile(r"%([\w.\-]+)")
_ATTRIBUTE = re.compile(r", (\w+)=(\{[^{}]*\}|%?[\w.\-]+)")
_BACKEND_CONFIG = ", backend_config="
# What the compiler writes for an operation that it found no way to cost.
_NO_ESTIMATE = 2**63 - 1
ROOT = "(root)"
# They name values; nothing runs.
_NAMES_ONLY = frozenset(
    {
        "parameter",
        "constant",
        "tuple",
        "get-tuple-element",
        "bitcast",
        "after-all",
        "partition-id",
        "replica-id",
    }
)


@dataclasses.dataclass(frozen=True, slots=True)
class Instruction:
    name: str
    shape: str
    opcode: str
    inside: str  # what stands between the parentheses
    attributes: Mapping[str, str]
    config: Mapping[str, Any]
    where: str
    rest: str = ""  # what stands behind the parentheses

    @property
    def operands(self) -> list[str]:
        return OPERAND.findall(self.inside)

    @property
    def cycles(self) -> int | None:
        text = self.config.get("window_config", {}).get("estimated_cycles")
        return None if text is None or int(text) == _NO_ESTIMATE else int(text)


class Computation(dict[str, Instruction]):
    """Instructions by name, in the order of the schedule, and under `ROOT` again the one that
    gives the result."""

    def schedule(self) -> Iterator[Instruction]:
        return (instruction for name, instruction in self.items() if name != ROOT)


def parse(text: str) -> tuple[dict[str, Computation], str]:
    computations: dict[str, Computation] = {}
    current: Computation | None = None
    entry = ""
    for raw in text.splitlines():
        line = _COMMENT.sub("", raw) if "/*" in raw else raw
        if line.startswith(" "):
            match = _INSTRUCTION.match(line)
            if match is None or current is None:
                continue
            instruction = _instruction(match, line)
            current[instruction.name] = instruction
            if match[1]:
                current[ROOT] = instruction
        elif (match := _HEADER.match(line)) is not None and not line.startswith("HloModule"):
            current = computations.setdefault(match[2], Computation())
            entry = match[2] if match[1] else entry
    if not entry:
        raise unreadable("it has no entry computation")
    return computations, entry


def _instruction(match: re.Match[str], line: str) -> Instruction:
    start, depth = match.end(), 1
    end = start
    while depth:
        if end == len(line):
            raise unreadable(f"a parenthesis of {match[2]} is not closed")
        depth += {"(": 1, ")": -1}.get(line[end], 0)
        end += 1
    rest, config = line[end:], {}
    at = rest.find(_BACKEND_CONFIG + "{")
    if at >= 0:
        try:
            config = json.JSONDecoder().raw_decode(rest, at + len(_BACKEND_CONFIG))[0]
        except ValueError as error:
            raise unreadable(f"the backend_config of {match[2]} is not JSON") from error
        rest = rest[:at]
    named = re.search(r'op_name="([^"]*)"', rest)
    attributes = dict(_ATTRIBUTE.findall(rest.split(", metadata=")[0]))
    return Instruction(
        match[2],
        match[3],
        match[4],
        line[start : end - 1],
        attributes,
        config,
        "" if named is None else named[1],
        rest,
    )


def only_names(instruction: Instruction) -> bool:
    """Return whether nothing runs: also a custom call without operands only names a buffer."""
    has_operands = bool(instruction.inside.strip())
    return instruction.opcode in _NAMES_ONLY or (
        instruction.opcode == "custom-call" and not has_operands
    )


def unreadable(why: str) -> PodyardError:
    return PodyardError(Code.INTERNAL, f"cannot read the compiler's HLO text: {why}")
