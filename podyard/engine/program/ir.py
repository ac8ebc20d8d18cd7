"""The program of one device as a graph of operations: what both front-ends produce and the models
read. No JAX.

Operation names, operand order and attributes are StableHLO's (openxla/stablehlo, docs/spec.md); a
jaxpr is brought to the same names. Values are numbered; a body (of a loop, a reduction, a
conditional) is a separate `Body` whose values share the numbering of the program.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable, Iterator, Mapping

from podyard.engine.program.doubts import Doubt
from podyard.engine.program.shardings import Mesh, Sharding

DTYPE_BYTES: Mapping[str, float] = {
    "pred": 1, "s4": 0.5, "u4": 0.5, "s8": 1, "u8": 1, "s16": 2, "u16": 2, "s32": 4, "u32": 4,
    "s64": 8, "u64": 8,
    "bf16": 2, "f16": 2, "f32": 4, "c64": 8, "token": 0, "f8e4m3fn": 1, "f8e5m2": 1,
    "f8e4m3b11fnuz": 1,
}  # fmt: skip


@dataclasses.dataclass(frozen=True, slots=True)
class TensorType:
    """A static shape and an element type by XLA's name (`f32`, `bf16`, `s32`, `pred`, ...)."""

    shape: tuple[int, ...]
    dtype: str

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    @property
    def itemsize(self) -> float:
        return DTYPE_BYTES[self.dtype]

    @property
    def nbytes(self) -> int:
        """Without padding."""
        return math.ceil(self.size * self.itemsize)

    def __str__(self) -> str:
        return f"{self.dtype}[{','.join(map(str, self.shape))}]"


@dataclasses.dataclass(slots=True)
class Body:
    """`parameters` and `results` are values; operations are in an order in which operands come
    first."""

    parameters: list[int]
    operations: list[HloOperation]
    results: list[int]


@dataclasses.dataclass(slots=True)
class HloOperation:
    """`where` says where it came from (a line of the text, a primitive), for error messages and
    reports. `call`: which call it comes from of a function that is called at several places (0: of
    none); the compiler simplifies such a function by itself before it puts it in place of its
    calls."""

    opcode: str
    operands: tuple[int, ...]
    results: tuple[int, ...]
    attributes: dict[str, object]
    bodies: tuple[Body, ...] = ()
    where: str = ""
    call: int = 0

    def ints(self, name: str) -> tuple[int, ...]:
        """A list attribute; empty when absent."""
        value = self.attributes.get(name, ())
        return tuple(value) if isinstance(value, tuple | list) else ()

    def int(self, name: str, default: int = 0) -> int:
        value = self.attributes.get(name, default)
        return value if isinstance(value, int) else default

    def text(self, name: str) -> str:
        value = self.attributes.get(name, "")
        return value if isinstance(value, str) else ""

    def with_bodies(self, rewrite: Callable[[Body], Body]) -> HloOperation:
        """The operation with its bodies rewritten; itself where that changes none of them."""
        bodies = tuple(map(rewrite, self.bodies))
        is_same = all(new is old for new, old in zip(bodies, self.bodies, strict=True))
        return self if is_same else dataclasses.replace(self, bodies=bodies)


@dataclasses.dataclass(slots=True)
class Program:
    """`types[value]`. `partitions` is how many devices it is written for (1: already one's own); of
    those, `mesh` is
    how they are numbered, `shardings` how arguments lie on them, `result_shardings` how results are
    to, by index."""

    body: Body
    types: list[TensorType]
    partitions: int = 1
    mesh: Mesh = dataclasses.field(default_factory=Mesh)
    shardings: dict[int, Sharding] = dataclasses.field(default_factory=dict)
    result_shardings: dict[int, Sharding] = dataclasses.field(default_factory=dict)
    # Arguments whose memory a result takes over: value -> index of the result.
    donated: dict[int, int] = dataclasses.field(default_factory=dict)
    # Arguments whose memory any result of their size may take over.
    donors: set[int] = dataclasses.field(default_factory=set)
    # Arguments (values) and results (indexes) that lie in the memory of the host.
    host_arguments: set[int] = dataclasses.field(default_factory=set)
    host_results: set[int] = dataclasses.field(default_factory=set)
    # Arguments that an infeed brings, laid out as the program reads them.
    infed: frozenset[int] = frozenset()
    doubts: list[Doubt] = dataclasses.field(default_factory=list)
    # What each argument can be called, its index among it; by index, those that nothing reads among
    # them.
    argument_names: tuple[tuple[str, ...], ...] = ()
    _producers: dict[int, HloOperation] | None = dataclasses.field(
        default=None, init=False, repr=False, compare=False
    )

    def type_of(self, value: int) -> TensorType:
        return self.types[value]

    def give_away(self) -> None:
        """Gives each donor's memory to the first free result of its type. Of one device's
        program."""
        taken = set(self.donated.values())
        free: dict[TensorType, list[int]] = {}
        for place in reversed(range(len(self.body.results))):
            if place not in taken:
                free.setdefault(self.types[self.body.results[place]], []).append(place)
        for value in self.body.parameters:
            if value in self.donors and value not in self.donated and free.get(self.types[value]):
                self.donated[value] = free[self.types[value]].pop()

    def producer(self, value: int) -> HloOperation | None:
        """Return what makes a value, in whatever body; None for parameters. Of a program that is
        complete."""
        if self._producers is None:
            self._producers = {made: step for step in walk(self.body) for made in step.results}
        return self._producers.get(value)


def walk(body: Body) -> Iterator[HloOperation]:
    """All operations, those of bodies after the operation that has them."""
    for operation in body.operations:
        yield operation
        for inner in operation.bodies:
            yield from walk(inner)


# In the name stack of an operation that JAX computes again in the backward pass, and among its
# attributes.
REMATTED = "rematted_computation"
# Of arrays in the memory of the host (`mhlo.memory_kind`); of a barrier, where its result lies from
# there on.
HOST_KINDS = ("pinned_host", "unpinned_host")
PLACE, HOST, DEVICE = "memory", "host", "device"
_COUNTED = ("dot_general", "convolution", "custom_call")


def mark_rematted(operations: Iterable[HloOperation]) -> None:
    """Mark products and kernels as computed again, also those in bodies."""
    for operation in operations:
        if operation.opcode in _COUNTED:
            operation.attributes[REMATTED] = True
        for body in operation.bodies:
            mark_rematted(body.operations)


def mark_call(operations: Iterable[HloOperation], call: int) -> None:
    """Notes which call operations come from, but for those that a call inside of that function has
    brought."""
    for operation in operations:
        operation.call = operation.call or call
        for body in operation.bodies:
            mark_call(body.operations, call)


def matrix_flops(program: Program, operation: HloOperation) -> int:
    """Multiply-adds of a dot or a convolution, counted as two; zeros that dilation puts in are no
    work."""
    result = program.type_of(operation.results[0])
    left, right = (program.type_of(value) for value in operation.operands[:2])
    if operation.opcode == "dot_general":
        return (
            2
            * result.size
            * math.prod(left.shape[axis] for axis in operation.ints("lhs_contracting"))
        )
    kernel_features = operation.ints("kernel_dims")[1]
    dilation = math.prod(operation.ints("lhs_dilation") or (1,))
    return 2 * result.size * (right.size // max(1, right.shape[kernel_features])) // dilation


def live_operations(body: Body) -> set[int]:
    """Operations (by identity) whose results reach a result of the body; edges that neighbours send
    each other do."""
    producer = {value: operation for operation in body.operations for value in operation.results}
    live: set[int] = set()
    stack = list(body.results)
    for operation in body.operations:
        if (
            operation.opcode in ("custom_call", "while", "send", "outfeed")
            or "keeps" in operation.attributes
        ):
            stack += operation.results
    while stack:
        made_by = producer.get(stack.pop())
        if made_by is None or id(made_by) in live:
            continue
        live.add(id(made_by))
        stack += made_by.operands
        for inner in made_by.bodies:
            stack += outer_values(inner)
    return live


def all_operands(operation: HloOperation) -> list[int]:
    """Operands, and what its bodies read from outside."""
    return [
        *operation.operands,
        *(value for inner in operation.bodies for value in outer_values(inner)),
    ]


def outer_values(body: Body) -> list[int]:
    """Values that a body takes from outside."""
    own = set(body.parameters)
    outer: list[int] = []
    for operation in body.operations:
        outer += [value for value in operation.operands if value not in own]
        own.update(operation.results)
        for inner in operation.bodies:
            outer += [value for value in outer_values(inner) if value not in own]
    return outer + [value for value in body.results if value not in own]


def values_read(body: Body) -> set[int]:
    """Values that a result of the body depends on."""
    live = live_operations(body)
    read = set(body.results)
    for operation in body.operations:
        if id(operation) in live:
            read.update(operation.operands)
            for inner in operation.bodies:
                read.update(outer_values(inner))
    return read
