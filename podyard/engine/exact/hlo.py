"""Reads the TPU compiler's optimised and scheduled HLO text: which operations run, how often, in
how many cycles.

Pure Python, no JAX. The cycles are the compiler's own (`estimated_cycles` of an operation's
`window_config`). What it gives no cycles (collectives, asynchronous copies, scalars) carries None
and adds nothing to a total. The text does not name the trip count of every loop, so it is also
derived from the loop's counter: start, step, limit, comparison.
"""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Mapping
from typing import Any

from podyard.engine.exact.hlo_text import (
    OPERAND,
    ROOT,
    Computation,
    Instruction,
    only_names,
    parse,
    unreadable,
)

_GROUPS = re.compile(
    r"replica_groups=(\{\{[\d,]*|\[\d+,\d+\]|mesh\[([^\]]*)\](?:,? device_ids=\S+)? \{([^}]*)\})"
)
_MESH_AXIS = re.compile(r"('[^']+')(?:=(\d+)|:\(\d+\)(\d+))?")
_CHANNEL = re.compile(r"channel_id=(\d+)")
_PARTITIONS = re.compile(r"^HloModule .*num_partitions=(\d+)")
_ARRAY = re.compile(r"\b(pred|[a-z]+?(\d+)\w*)\[([\d,]*)\]")
_STRATEGY = re.compile(r"colors:(\d+) phases:(\d+) cores:(\{[^}]*\}(?:,\{[^}]*\})*)")

_COLLECTIVES = frozenset(
    {
        "all-gather",
        "all-reduce",
        "all-to-all",
        "collective-broadcast",
        "collective-permute",
        "reduce-scatter",
    }
)
_SAME_NUMBER = frozenset({"copy", "bitcast", "reshape", "convert"})
_INTEGER = re.compile(r"[su]\d+\[\]")


@dataclasses.dataclass(frozen=True, slots=True)
class ExactOp:
    """One operation that runs. `cycles` are those of one execution, None where the compiler gave
    none; `count` is how often it runs in one call of the program. `where` is the operation's name
    in the source program."""

    name: str
    kind: str
    shape: str
    cycles: int | None
    count: int
    where: str


@dataclasses.dataclass(frozen=True, slots=True)
class ExactCollective:
    """One collective and the algorithm that the compiler chose: `colors` rings at once over
    `phases` dimensions;
    `rings` is the compiler's text of the cores per color and phase, `debug` all that it says.
    `group_size`: how many devices exchange (1 for a permute, 0 where that is not said); `nbytes`:
    of one device's larger side."""

    name: str
    kind: str
    shape: str
    count: int
    group_size: int
    nbytes: int
    emitter: str
    strategy: str
    colors: int
    phases: int
    rings: str
    debug: str


@dataclasses.dataclass(frozen=True, slots=True)
class HloSummary:
    """The work of one device in one call. Loops in `unknown_trip_loops` are counted once; of a
    conditional in `conditionals` only the branch with most cycles is counted. `fetched_bytes`: what
    asynchronous copies move between the chip and its memory, which has no cycles."""

    ops: tuple[ExactOp, ...]
    collectives: tuple[ExactCollective, ...]
    unknown_trip_loops: tuple[str, ...]
    conditionals: tuple[str, ...]
    fetched_bytes: int

    @property
    def cycles(self) -> int:
        return sum((op.cycles or 0) * op.count for op in self.ops)


def summarise(text: str) -> HloSummary:
    """Raises PodyardError INTERNAL when `text` is not HLO as known here."""
    computations, entry = parse(text)
    partitions = _PARTITIONS.match(text)
    walk = _Walk(computations, 1 if partitions is None else int(partitions[1]))
    walk.run(computations[entry], 1, {})
    collectives, loops = tuple(walk.collectives), tuple(walk.unknown_trip_loops)
    return HloSummary(
        tuple(walk.ops), collectives, loops, tuple(walk.conditionals), walk.fetched_bytes
    )


@dataclasses.dataclass(frozen=True, slots=True)
class _Number:
    """A scalar that is element `element` of the loop's state plus `offset`; with None, the constant
    `offset`."""

    element: int | None
    offset: int


class _Walk:
    """Follows the schedule from the entry. `known` are elements of a loop's state that are
    constants throughout."""

    def __init__(self, computations: Mapping[str, Computation], partitions: int) -> None:
        self._computations = computations
        self._partitions = partitions
        self._channels: set[tuple[str, str, float]] = set()
        self.fetched_bytes = 0
        self.ops: list[ExactOp] = []
        self.collectives: list[ExactCollective] = []
        self.unknown_trip_loops: list[str] = []
        self.conditionals: list[str] = []

    def run(self, computation: Computation, count: int, known: Mapping[int, int]) -> None:
        for instruction in computation.schedule():
            if instruction.opcode == "while":
                self._loop(computation, instruction, count, known)
            elif instruction.opcode == "conditional":
                self._branches(instruction, count)
            elif instruction.opcode == "call":
                self.run(self._callee(instruction, "to_apply"), count, {})
            elif not only_names(instruction):
                self._execute(instruction, count)

    def _execute(self, instruction: Instruction, count: int) -> None:
        self.ops.append(
            ExactOp(
                instruction.name,
                instruction.opcode,
                instruction.shape,
                instruction.cycles,
                count,
                instruction.where,
            )
        )
        if instruction.opcode.endswith("-start") and _collective_kind(instruction) == "":
            moved = [nbytes for nbytes, scalar in _arrays(instruction.shape) if not scalar]
            self.fetched_bytes += count * min(moved, default=0)
        self._note_collectives(instruction, count, {}, False)

    def _note_collectives(
        self, instruction: Instruction, count: int, around: Mapping[str, Any], is_fused: bool
    ) -> None:
        """A collective may be fused, also piece by piece into several kernels: pieces of one have
        the same channel.
        (So have all that a program has itself, by shard_map.) `around`: what the compiler says of
        the fusion."""
        config = instruction.config.get("collective_algorithm_config", {}) or around
        if kind := _collective_kind(instruction):
            if not is_fused or self._is_first_piece(instruction, kind):
                self._note_collective(instruction, kind, count, config)
        elif "calls" in instruction.attributes:
            callee = self._callee(instruction, "calls")
            scatters = instruction.attributes["calls"].lstrip("%").startswith("all-reduce-scatter")
            for inner in callee.schedule():
                if scatters and inner.opcode == "all-reduce":
                    self._note_collective(inner, "reduce-scatter", count, config)
                else:
                    self._note_collectives(inner, count, config, True)

    def _is_first_piece(self, instruction: Instruction, kind: str) -> bool:
        channel = _CHANNEL.search(instruction.rest)
        piece = (
            None
            if channel is None
            else (channel[1], kind, sum(nbytes for nbytes, _ in _arrays(instruction.shape)))
        )
        is_first = piece is None or piece not in self._channels
        if piece is not None:
            self._channels.add(piece)
        return is_first

    def _note_collective(
        self, instruction: Instruction, kind: str, count: int, config: Mapping[str, Any]
    ) -> None:
        debug = str(config.get("debug", "")).strip()
        match = _STRATEGY.search(debug)
        colors, phases, rings = (
            (int(match[1]), int(match[2]), match[3]) if match is not None else (0, 0, "")
        )
        group_size = (
            0
            if kind.startswith("collective-permute")
            else _group_size(instruction.rest) or self._partitions
        )
        sizes = [nbytes for nbytes, _ in _arrays(instruction.shape)]
        # operands, results, and what tells that it is done
        if kind.endswith("-start") and kind != "all-reduce-start":
            sizes = [nbytes for nbytes, scalar in _arrays(instruction.shape) if not scalar]
            sizes = sizes[len(sizes) // 2 :]
        self.collectives.append(
            ExactCollective(
                name=instruction.name,
                kind=kind,
                shape=instruction.shape,
                count=count,
                group_size=group_size,
                nbytes=sum(sizes) * (group_size if instruction.opcode == "reduce-scatter" else 1),
                emitter=str(config.get("emitter", "")),
                strategy=str(config.get("strategy", "")),
                colors=colors,
                phases=phases,
                rings=rings,
                debug=debug,
            )
        )

    def _branches(self, instruction: Instruction, count: int) -> None:
        names = [
            instruction.attributes.get(key, "") for key in ("true_computation", "false_computation")
        ]
        names += OPERAND.findall(instruction.attributes.get("branch_computations", ""))
        walks = []
        for name in filter(None, names):
            walk = _Walk(self._computations, self._partitions)
            walk.run(self._computation(name.lstrip("%")), count, {})
            walks.append(walk)
        self.conditionals.append(instruction.name)
        longest = max(walks, key=lambda walk: sum((op.cycles or 0) * op.count for op in walk.ops))
        self.ops += longest.ops
        self.collectives += longest.collectives
        self.unknown_trip_loops += longest.unknown_trip_loops
        self.conditionals += longest.conditionals

    def _loop(
        self, around: Computation, loop: Instruction, count: int, known: Mapping[int, int]
    ) -> None:
        body, condition = self._callee(loop, "body"), self._callee(loop, "condition")
        start = self._constants_of_state(around, loop, known)
        stays = {element: value for element, value in start.items() if _is_unchanged(body, element)}
        trips = self._trip_count(loop, body, condition, start, stays)
        if trips is None:
            self.unknown_trip_loops.append(loop.name)
            trips = 1
        self.run(condition, count * (trips + 1), stays)
        self.run(body, count * trips, stays)

    def _trip_count(
        self,
        loop: Instruction,
        body: Computation,
        condition: Computation,
        start: Mapping[int, int],
        stays: Mapping[int, int],
    ) -> int | None:
        given = loop.config.get("known_trip_count", {}).get("n")
        if given is not None:
            return int(given)
        test = condition[ROOT]
        if test.opcode == "fusion":
            condition, test = _inline(condition, test, self._callee(test, "calls"))
        if test.opcode != "compare":
            return None
        left, right = (self._number(condition, name, stays) for name in test.operands)
        direction = test.attributes.get("direction", "")
        if left is not None and left.element is None:
            left, right, direction = right, left, _MIRRORED.get(direction, "")
        if left is None or left.element is None or left.element not in start:
            return None
        if right is None or right.element is not None:
            return None
        after = self._number(body, _state_operand(body, left.element), stays)
        if after is None or after.element != left.element:
            return None
        return _steps(start[left.element] + left.offset, after.offset, right.offset, direction)

    def _constants_of_state(
        self, around: Computation, loop: Instruction, known: Mapping[int, int]
    ) -> dict[int, int]:
        """The elements of the loop's first state that are constants."""
        state = around[loop.operands[0]]
        names = state.operands if state.opcode == "tuple" else []
        numbers = {element: self._number(around, name, known) for element, name in enumerate(names)}
        return {
            e: number.offset
            for e, number in numbers.items()
            if number is not None and number.element is None
        }

    def _number(
        self, computation: Computation, name: str, known: Mapping[int, int]
    ) -> _Number | None:
        """The scalar integer `name`, as far as constants, sums and the loop's state give it."""
        instruction = computation.get(name)
        if instruction is None or _INTEGER.match(instruction.shape) is None:
            return None
        operands = instruction.operands
        if instruction.opcode == "constant":
            return (
                _Number(None, int(instruction.inside))
                if re.fullmatch(r"-?\d+", instruction.inside)
                else None
            )
        if (
            instruction.opcode == "get-tuple-element"
            and computation[operands[0]].opcode == "parameter"
        ):
            element = int(instruction.attributes["index"])
            return _Number(None, known[element]) if element in known else _Number(element, 0)
        if instruction.opcode in _SAME_NUMBER and operands:
            return self._number(computation, operands[0], known)
        if instruction.opcode == "fusion":
            inner, root = _inline(computation, instruction, self._callee(instruction, "calls"))
            return self._number(inner, root.name, known)
        if instruction.opcode not in ("add", "subtract"):
            return None
        left, right = (self._number(computation, operand, known) for operand in operands)
        if left is None or right is None:
            return None
        if instruction.opcode == "subtract":
            return (
                None
                if right.element is not None
                else _Number(left.element, left.offset - right.offset)
            )
        if left.element is not None and right.element is not None:
            return None
        return _Number(
            right.element if left.element is None else left.element, left.offset + right.offset
        )

    def _callee(self, instruction: Instruction, attribute: str) -> Computation:
        return self._computation(instruction.attributes.get(attribute, "").lstrip("%"))

    def _computation(self, name: str) -> Computation:
        computation = self._computations.get(name)
        if computation is None or ROOT not in computation:
            raise unreadable(f"there is no computation {name!r}")
        return computation


def _collective_kind(instruction: Instruction) -> str:
    return instruction.opcode if instruction.opcode.removesuffix("-start") in _COLLECTIVES else ""


def _group_size(text: str) -> int:
    """Devices of a group: `{{0,2},{1,3}}`, `[groups,size]<=...` or `mesh['a'=2,'b'=4] {'b'}`, which
    may have the order of the devices (`device_ids`) in between; 0 for all of them."""
    match = _GROUPS.search(text)
    if match is None or match[1] == "{{":
        return 0
    if match[1].startswith("{{"):
        return len(match[1].split(","))
    if match[1].startswith("["):
        return int(match[1].strip("[]").split(",")[1])
    extents = {name: int(extent) for name, extent, _ in _MESH_AXIS.findall(match[2])}
    return math.prod(
        int(part) if part else extents[name] for name, _, part in _MESH_AXIS.findall(match[3])
    )


def _arrays(shape: str) -> list[tuple[int, bool]]:
    """(bytes without padding, whether it is a scalar) of each array of a shape, tuples
    flattened."""
    return [
        (math.prod(map(int, filter(None, dims.split(",")))) * int(bits or 8) // 8, not dims)
        for _, bits, dims in _ARRAY.findall(shape)
    ]


_MIRRORED = {"LT": "GT", "LE": "GE", "GT": "LT", "GE": "LE", "NE": "NE"}


def _steps(start: int, step: int, limit: int, direction: str) -> int | None:
    """Return how often `start, start + step, ...` passes `direction limit` before it first fails;
    None if never or unknown."""
    if direction in ("GT", "GE"):
        start, step, limit, direction = -start, -step, -limit, _MIRRORED[direction]
    if direction == "LE":
        limit, direction = limit + 1, "LT"
    if direction == "LT":
        if start >= limit:
            return 0
        return -((start - limit) // step) if step > 0 else None
    if direction != "NE":
        return None
    trips, rest = divmod(limit - start, step) if step else (0, limit - start)
    return trips if rest == 0 and trips >= 0 else None


def _state_operand(body: Computation, element: int) -> str:
    """The name of what the body leaves as element `element` of the state; empty where its root is
    not a tuple."""
    root = body[ROOT]
    return root.operands[element] if root.opcode == "tuple" and element < len(root.operands) else ""


def _is_unchanged(body: Computation, element: int) -> bool:
    left = body.get(_state_operand(body, element))
    return (
        left is not None
        and left.opcode == "get-tuple-element"
        and int(left.attributes["index"]) == element
        and body[left.operands[0]].opcode == "parameter"
    )


def _inline(
    outer: Computation, call: Instruction, callee: Computation
) -> tuple[Computation, Instruction]:
    """`callee` with the operands of `call` in place of its parameters, and its root."""
    prefix = call.name + ".."
    inlined = Computation(outer)
    for instruction in callee.schedule():
        if instruction.opcode == "parameter":
            bound = outer[call.operands[int(instruction.inside)]]
            inlined[prefix + instruction.name] = bound
        else:
            renamed = OPERAND.sub(lambda match: f"%{prefix}{match[1]}", instruction.inside)
            inlined[prefix + instruction.name] = dataclasses.replace(
                instruction, name=prefix + instruction.name, inside=renamed
            )
    return inlined, inlined[prefix + callee[ROOT].name]
