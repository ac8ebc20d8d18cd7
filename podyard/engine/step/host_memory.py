"""Arrays that a program keeps in the memory of the host (`pinned_host`, `unpinned_host`), and their
copies over PCIe.

JAX marks arguments and results with `mhlo.memory_kind`, and values inside by the custom call
`annotate_device_placement`, which readers turn into a barrier with the attribute PLACE. XLA follows
such values through operations that move them: into the stack of a loop and out of it, all stays on
the host (openxla/xla, hlo/transforms/host_offloader.cc).

A copy runs next to the kernels of its body: one to the device may start with the body and ends
before its first reader, one to the host may start when its value is made and ends with the body.
What does not fit into that is waited for; in a loop, next to the turns before and after.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable, Sequence

from podyard.engine.program.ir import (
    DEVICE,
    HOST,
    PLACE,
    Body,
    HloOperation,
    Program,
    TensorType,
    walk,
)
from podyard.hardware.accelerator_types import AcceleratorType

# copies from the host and to it; they read and write HBM, too
LOAD, STORE = "host_load", "host_store"
_MOVES = frozenset({
    "broadcast_in_dim", "copy", "dynamic_slice", "dynamic_update_slice", "get_tuple_element",
    "optimization_barrier", "reshape", "shard", "slice", "transpose", "unshard",
})  # fmt: skip


@dataclasses.dataclass(frozen=True, slots=True)
class HostCopy:
    """`at`: when its first reader starts (of a load), when its value is made (of a store); seconds
    from the start of the body. `after`: when values are made that the host needs before it can
    answer with this load, and how many bytes they have; None: the load waits for nothing."""

    is_load: bool
    nbytes: int
    at: float
    after: tuple[float, int] | None = None


def waited_seconds(
    copies: Sequence[HostCopy], body_seconds: float, kind: AcceleratorType, turns: int = 1
) -> float:
    """Return how much longer than its kernels a body takes because of its copies, in all `turns` of
    a loop. A link moves one array after the other, and both directions at once.

    Nothing in a turn changes what another one copies, so a turn's copies run next to its neighbours
    as well: XLA pipelines them. Then the loop waits for the ends, and for what a link does not
    move in the time of a turn. An answer of the host is waited for in its own turn.
    """
    rate = kind.generation.pcie_bytes_per_second / kind.generation.devices_per_chip
    alone = _alone_seconds(copies, body_seconds, rate)
    if any(copy.after is not None for copy in copies):
        return alone * turns
    loads, stores = (
        sum(copy.nbytes for copy in copies if copy.is_load == is_load) / rate
        for is_load in (True, False)
    )
    behind = max(0.0, loads - body_seconds, stores - body_seconds)
    return min(alone * turns, alone + behind * (turns - 1))


def _alone_seconds(copies: Sequence[HostCopy], body_seconds: float, rate: float) -> float:
    """Return what a body waits that runs once. What is made after a load's reader is as late as
    that."""
    late = end = 0.0
    delays: list[tuple[float, float]] = []
    for copy in sorted((one for one in copies if one.is_load), key=lambda one: one.at):
        if copy.after is not None:
            sent_at, nbytes = copy.after
            end = max(end, sent_at + late + nbytes / rate)
        end += copy.nbytes / rate
        late = max(late, end - copy.at)
        delays.append((copy.at, late))
    end = 0.0
    for copy in sorted((one for one in copies if not one.is_load), key=lambda one: one.at):
        delay = max((late for at, late in delays if at < copy.at), default=0.0)
        end = max(end, copy.at + delay) + copy.nbytes / rate
    return max(late, end - body_seconds)


def keep_on_host(program: Program, arguments: Collection[int], results: Collection[int]) -> Program:
    """Return the program without what lies on the host, with a copy where a value comes from there
    or goes there.

    `arguments`: values, `results`: indexes, that lie on the host. Of one device's program.
    """
    if (
        not arguments
        and not results
        and not any(PLACE in one.attributes for one in walk(program.body))
    ):
        return program
    return _Placer(program, arguments).program_for(results)


class _Placer:
    def __init__(self, program: Program, arguments: Collection[int]) -> None:
        self._program = program
        self._types = list(program.types)
        self._host = set(arguments)
        self._producers = {value: one for one in walk(program.body) for value in one.results}

    def program_for(self, results: Collection[int]) -> Program:
        before = -1
        while len(self._host) != before:
            before = len(self._host)
            self._follow(self._program.body)
        body = self._rewrite(self._program.body)
        places = [
            place
            for place, value in enumerate(self._program.body.results)
            if value not in self._host
        ]
        on_device = [place for place in places if place not in results]
        stored = [
            self._store(self._program.body.results[place]) for place in places if place in results
        ]
        body.operations += stored
        body.results = [self._program.body.results[place] for place in on_device]
        donated = {
            value: on_device.index(place)
            for value, place in self._program.donated.items()
            if place in on_device and value not in self._host
        }
        return dataclasses.replace(
            self._program, body=body, types=self._types, donated=donated,
            donors=self._program.donors - self._host,
            result_shardings={},
        )  # fmt: skip

    def _follow(self, body: Body) -> None:
        """One step further: what moves arrays of the host has its result there."""
        for operation in body.operations:
            place = operation.attributes.get(PLACE)
            if place == HOST:
                self._host.update(operation.results)
            elif operation.opcode == "while":
                self._follow_loop(operation)
            elif operation.opcode == "optimization_barrier" and place is None:
                pairs = zip(operation.operands, operation.results, strict=True)
                self._host.update(result for operand, result in pairs if operand in self._host)
            elif operation.opcode == "dynamic_update_slice" and self._host.intersection(
                operation.operands[:2]
            ):
                self._host.update((operation.operands[0], *operation.results))
                self._follow_back(operation.operands[0])
            elif (
                operation.opcode in _MOVES
                and place is None
                and self._host.intersection(operation.operands[:1])
            ):
                self._host.update(operation.results)
            for inner in operation.bodies:
                self._follow(inner)

    def _follow_back(self, value: int) -> None:
        """The room that a stack of the host starts with is there, too."""
        maker = self._producers.get(value)
        if maker is not None and maker.opcode in ("broadcast_in_dim", "constant"):
            self._host.add(value)

    def _follow_loop(self, operation: HloOperation) -> None:
        condition, body = operation.bodies[0], operation.bodies[-1]
        for place, result in enumerate(operation.results):
            own = {
                operation.operands[place], result, condition.parameters[place],
                body.parameters[place],
                body.results[place],
            }  # fmt: skip
            if own & self._host:
                self._host |= own
                self._follow_back(operation.operands[place])

    def _rewrite(self, body: Body) -> Body:
        operations: list[HloOperation] = []
        for operation in body.operations:
            operations += self._rewrite_operation(operation)
        return dataclasses.replace(
            body,
            parameters=[value for value in body.parameters if value not in self._host],
            operations=operations,
            results=[value for value in body.results if value not in self._host],
        )

    def _rewrite_operation(self, operation: HloOperation) -> Iterable[HloOperation]:
        place = operation.attributes.get(PLACE)
        if place == HOST:
            new = [value for value in operation.operands if value not in self._host]
            return [self._store(value) for value in new]
        if place == DEVICE and operation.operands[0] in self._host:
            return [dataclasses.replace(operation, opcode=LOAD, operands=(), attributes={})]
        if operation.opcode == "while":
            return [self._loop(operation)]
        if operation.opcode == "optimization_barrier" and place is None:
            return self._barrier(operation)
        if operation.results and self._host.issuperset(operation.results):
            return []
        return self._with_loads(operation.with_bodies(self._rewrite))

    def _loop(self, operation: HloOperation) -> HloOperation:
        on_device = [
            place for place, value in enumerate(operation.results) if value not in self._host
        ]
        return dataclasses.replace(
            operation.with_bodies(self._rewrite),
            operands=tuple(operation.operands[place] for place in on_device),
            results=tuple(operation.results[place] for place in on_device),
        )

    def _barrier(self, operation: HloOperation) -> Iterable[HloOperation]:
        pairs = [
            two
            for two in zip(operation.operands, operation.results, strict=True)
            if two[1] not in self._host
        ]
        operands, results = (tuple(two[place] for two in pairs) for place in (0, 1))
        return [dataclasses.replace(operation, operands=operands, results=results)] if pairs else []

    def _with_loads(self, operation: HloOperation) -> Iterable[HloOperation]:
        """An operation that computes with an array of the host gets a copy of it."""
        loads: dict[int, HloOperation] = {}
        for value in operation.operands:
            if value in self._host and value not in loads:
                loads[value] = HloOperation(
                    LOAD, (), (self._new(self._types[value]),), {}, where=operation.where
                )
        operands = tuple(
            loads[value].results[0] if value in loads else value for value in operation.operands
        )
        return [
            *loads.values(),
            dataclasses.replace(operation, operands=operands) if loads else operation,
        ]

    def _store(self, value: int) -> HloOperation:
        return HloOperation(STORE, (value,), (self._new(TensorType((), "pred")),), {"keeps": True})

    def _new(self, type_: TensorType) -> int:
        self._types.append(type_)
        return len(self._types) - 1
