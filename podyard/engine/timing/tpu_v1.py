"""The first TPU as four units that work side by side: its instructions, and when each of them would
be done.

Weights come from DDR3 into a queue of tiles, wait there, are shifted into the spare half of the
array's weights, and are multiplied with rows of activations; sums stay in the accumulators until
the activation unit has read them. What the model leaves out is in docs/internals/tpu_v1.md. All
times are whole cycles of the array's clock.

Sources: array and peak from the abstract of arXiv 1704.04760; the other sizes (clock, DDR3, PCIe,
queue, accumulators, buffers, speeds with 16 bits) are told from memory of the same paper and
unverified.
"""

from __future__ import annotations

import dataclasses
import math
from collections import deque
from collections.abc import Sequence

from podyard.base.errors import failed_precondition, invalid
from podyard.hardware.generations import GENERATIONS

_V1 = GENERATIONS["v1"]


@dataclasses.dataclass(frozen=True, slots=True)
class TpuV1Machine:
    """Sizes and speeds of one TPU v1, or of one that never was (`dataclasses.replace`)."""

    clock_hz: float = _V1.clock_hz
    weight_bytes_per_second: float = _V1.hbm_bytes_per_second
    host_bytes_per_second: float = 14e9
    array: int = _V1.mxu_rows
    queue_tiles: int = 4
    accumulator_rows: int = 4096
    buffer_bytes: int = 24 * 2**20

    def __post_init__(self) -> None:
        """Raises PodyardError INVALID_ARGUMENT where a part is missing."""
        if min(dataclasses.astuple(self)) <= 0 or self.accumulator_rows < 2:
            raise invalid(
                "every size and speed of a TPU v1 is positive, and the accumulators have two halves"
            )

    @property
    def peak_ops_per_second(self) -> float:
        """A multiplication and an addition per cell and cycle."""
        return 2 * self.array**2 * self.clock_hz

    @property
    def fetch_cycles(self) -> int:
        """Of one tile of array x array weights of 8 bits, from DDR3."""
        return self.transfer_cycles(self.array**2, self.weight_bytes_per_second)

    @property
    def drain_cycles(self) -> int:
        """Between a row's entering the array and its last sum's leaving it: once down, once
        across."""
        return 2 * self.array

    def transfer_cycles(self, nbytes: int, bytes_per_second: float) -> int:
        return math.ceil(nbytes * self.clock_hz / bytes_per_second)


TPU_V1 = TpuV1Machine()


@dataclasses.dataclass(frozen=True, slots=True)
class ReadHostMemory:
    """`nbytes` over PCIe into the unified buffer."""

    nbytes: int


@dataclasses.dataclass(frozen=True, slots=True)
class WriteHostMemory:
    """`nbytes` over PCIe out of the unified buffer, once everything before it is in there."""

    nbytes: int


@dataclasses.dataclass(frozen=True, slots=True)
class ReadWeights:
    """`tiles` of array x array weights of 8 bits from DDR3 into the queue: waits only for room
    there."""

    tiles: int


@dataclasses.dataclass(frozen=True, slots=True)
class MatrixMultiply:
    """Also Convolve: `rows` rows of the unified buffer through each of the next `tiles` tiles, into
    the same sums.

    Activations of 16 bits pass twice. Weights of 16 bits are two tiles of 8.
    """

    rows: int
    tiles: int
    activation_bits: int = 8


@dataclasses.dataclass(frozen=True, slots=True)
class Activate:
    """`rows` rows of as many values as the array is wide through the activation unit, `passes`
    cycles each, into the unified buffer. Reads the accumulators of the last multiplication, or
    (`from_buffer`) the unified buffer."""

    rows: int
    passes: int = 1
    from_buffer: bool = False


Instruction = ReadHostMemory | ReadWeights | MatrixMultiply | Activate | WriteHostMemory


@dataclasses.dataclass(frozen=True, slots=True)
class WeightBlock:
    """`instructions`, `repeat` times: what one layer does to one share of its rows. `waits`: not
    before all that was computed or read earlier is in the unified buffer. `macs` and `weights` are
    those of all repetitions."""

    name: str
    instructions: tuple[Instruction, ...]
    repeat: int = 1
    waits: bool = True
    macs: int = 0
    weights: int = 0


@dataclasses.dataclass(frozen=True, slots=True)
class TpuV1Program:
    blocks: tuple[WeightBlock, ...]

    @property
    def macs(self) -> int:
        return sum(block.macs for block in self.blocks)

    @property
    def weights(self) -> int:
        return sum(block.weights for block in self.blocks)


@dataclasses.dataclass(frozen=True, slots=True)
class TpuV1Span:
    """The cycles from a block's first wait to its last result."""

    name: str
    start: int
    end: int


@dataclasses.dataclass(frozen=True, slots=True)
class Timeline:
    """What each unit did, in cycles. The array is active, or waits for a tile to arrive
    (`weight_stall`), or for one
    to be shifted in (`weight_shift`), or for something else (`non_matrix`): the four add up to
    `cycles`."""

    machine: TpuV1Machine
    macs: int
    cycles: int
    matrix_active: int
    weight_stall: int
    weight_shift: int
    tiles: int
    activation_busy: int
    host_busy: int
    spans: tuple[TpuV1Span, ...]

    @property
    def non_matrix(self) -> int:
        return self.cycles - self.matrix_active - self.weight_stall - self.weight_shift

    @property
    def fetch_busy(self) -> int:
        return self.tiles * self.machine.fetch_cycles

    @property
    def seconds(self) -> float:
        return self.cycles / self.machine.clock_hz

    @property
    def tops(self) -> float:
        """10^12 operations per second; a multiplication with an addition counts as two."""
        return 2 * self.macs / self.seconds / 1e12 if self.cycles else 0.0

    @property
    def array_use(self) -> float:
        """Of what all cells could multiply while the array is active: below 1 where cells hold no
        weight of the model, and at most 1/2 or 1/4 with 16 bits on one side or both."""
        return (
            self.macs / (self.matrix_active * self.machine.array**2) if self.matrix_active else 0.0
        )


@dataclasses.dataclass(slots=True)
class _Counts:
    matrix_active: int = 0
    weight_stall: int = 0
    weight_shift: int = 0
    tiles: int = 0
    activation_busy: int = 0

    def values(self) -> tuple[int, ...]:
        return (
            self.matrix_active,
            self.weight_stall,
            self.weight_shift,
            self.tiles,
            self.activation_busy,
        )


class _Units:
    """When each unit is free again, and when what it made can be used."""

    def __init__(self, machine: TpuV1Machine) -> None:
        self.machine = machine
        self.fetched = 0  # the last tile is in the queue
        self.freed = deque([0] * machine.queue_tiles)  # the places of the queue are empty again
        # the array's last multiplication; its weights' spare half is free at `started`
        self.started = self.ended = 0
        self.activated = 0
        self.in_flight: deque[int] = deque()  # the accumulators in use are read
        self.host = 0
        self.host_busy = 0
        self.visible = 0  # all results are in the unified buffer
        self.operands = 0  # what this block works on is in there
        self.announced = 0  # tiles that were asked for and not multiplied
        self.counts = _Counts()

    def run(self, instruction: Instruction, groups: int) -> None:
        """`groups`: sums of this block that fit the accumulators side by side."""
        if isinstance(instruction, ReadWeights):
            self.announced += instruction.tiles
        elif isinstance(instruction, MatrixMultiply):
            self._multiply(instruction, groups)
        elif isinstance(instruction, Activate):
            begin = max(self.activated, self.operands)
            if not instruction.from_buffer:
                begin = max(begin, self.ended + self.machine.drain_cycles)
            cycles = instruction.rows * instruction.passes
            self.activated = begin + cycles
            self.counts.activation_busy += cycles
            self.visible = max(self.visible, self.activated)
            if not instruction.from_buffer:
                self.in_flight.append(self.activated)
        else:
            cycles = self.machine.transfer_cycles(
                instruction.nbytes, self.machine.host_bytes_per_second
            )
            begin = (
                self.host
                if isinstance(instruction, ReadHostMemory)
                else max(self.host, self.visible)
            )
            self.host = begin + cycles
            self.host_busy += cycles
            self.visible = max(self.visible, self.host)

    def _multiply(self, instruction: MatrixMultiply, groups: int) -> None:
        if instruction.tiles > self.announced:
            raise invalid(
                f"{instruction.tiles} tiles are multiplied where only {self.announced} were read"
            )
        self.announced -= instruction.tiles
        ready = self.operands
        while len(self.in_flight) >= groups:
            ready = max(ready, self.in_flight.popleft())
        fetch, shift, counts = self.machine.fetch_cycles, self.machine.array, self.counts
        cycles = instruction.rows * instruction.activation_bits // 8
        for _ in range(instruction.tiles):
            self.fetched = max(self.fetched, self.freed.popleft()) + fetch
            loaded = max(self.fetched, self.started) + shift
            self.freed.append(loaded)
            begin = max(self.ended, loaded, ready)
            stall = max(0, self.fetched - self.ended)
            counts.weight_stall += stall
            counts.weight_shift += max(0, loaded - self.ended) - stall
            self.started, self.ended = begin, begin + cycles
        counts.matrix_active += cycles * instruction.tiles
        counts.tiles += instruction.tiles

    def times(self) -> list[int]:
        """Of everything that a later instruction of the same block can wait for."""
        return [
            self.fetched,
            *self.freed,
            self.started,
            self.ended,
            self.activated,
            *self.in_flight,
        ]

    def skip(self, repeat: int, cycles: int, gained: Sequence[int]) -> None:
        """Goes on as before `repeat` times, each `cycles` later than the last and with counts
        `gained`."""
        later = repeat * cycles
        self.fetched += later
        self.freed = deque(time + later for time in self.freed)
        self.started += later
        self.ended += later
        self.activated += later
        self.in_flight = deque(time + later for time in self.in_flight)
        self.visible = max(self.visible, self.activated)
        self.counts = _Counts(
            *(now + repeat * more for now, more in zip(self.counts.values(), gained, strict=True))
        )


def simulate(program: TpuV1Program, machine: TpuV1Machine = TPU_V1) -> Timeline:
    """Runs `program` once, from its first byte in to its last byte out.

    Times are sums and maxima of earlier times, so once a repetition ends with every unit the same
    number of cycles later than the one before, all that follow do too, and are added up instead of
    run: the result is exact.
    Raises PodyardError INVALID_ARGUMENT for instructions that cannot run (see `Block`),
    FAILED_PRECONDITION where rows do not fit the accumulators.
    """
    units = _Units(machine)
    spans = []
    for block in program.blocks:
        start = units.visible if block.waits else units.ended
        _run_block(units, block)
        spans.append(TpuV1Span(block.name, start, max(units.visible, units.ended)))
    if units.announced:
        raise invalid(f"{units.announced} tiles are read and never multiplied")
    return Timeline(
        machine=machine,
        macs=program.macs,
        cycles=max(units.visible, units.ended),
        matrix_active=units.counts.matrix_active,
        weight_stall=units.counts.weight_stall,
        weight_shift=units.counts.weight_shift,
        tiles=units.counts.tiles,
        activation_busy=units.counts.activation_busy,
        host_busy=units.host_busy,
        spans=tuple(spans),
    )


def _run_block(units: _Units, block: WeightBlock) -> None:
    groups = _groups(block, units.machine)
    if block.waits:
        units.operands = units.visible
        units.in_flight.clear()
    alike = not any(
        isinstance(instruction, ReadHostMemory | WriteHostMemory)
        for instruction in block.instructions
    )
    before, counts = units.times(), units.counts.values()
    for done in range(1, block.repeat + 1):
        waiting = len(units.in_flight)
        for instruction in block.instructions:
            units.run(instruction, groups)
        # as long as the accumulators fill up, no two are alike
        if not alike or len(units.in_flight) != waiting:
            continue
        after, gained = (
            units.times(),
            [now - then for now, then in zip(units.counts.values(), counts, strict=True)],
        )
        pace = _common_delay(before, after)
        if pace is not None:
            units.skip(block.repeat - done, pace, gained)
            return
        before, counts = after, units.counts.values()


def _groups(block: WeightBlock, machine: TpuV1Machine) -> int:
    """Return how many sums of `block` the accumulators hold, two at least: one to write while the
    other is read."""
    rows = max((i.rows for i in block.instructions if isinstance(i, MatrixMultiply)), default=1)
    if 2 * rows > machine.accumulator_rows:
        raise failed_precondition(
            f"{block.name}: {rows} rows at a time, but half of the accumulators holds "
            f"{machine.accumulator_rows // 2}"
        )
    return machine.accumulator_rows // rows


def _common_delay(before: Sequence[int], after: Sequence[int]) -> int | None:
    if len(before) != len(after):
        return None
    delay = after[0] - before[0]
    return (
        delay if all(now - then == delay for then, now in zip(before, after, strict=True)) else None
    )


class ProgramBuilder:
    """Writes the program of a model layer by layer; each layer works on the whole result of the one
    before.

    `batch`: examples. Every method returns the builder. Layers raise PodyardError INVALID_ARGUMENT
    for a size below 1 and FAILED_PRECONDITION where what a layer reads and writes does not fit the
    unified buffer.
    """

    def __init__(
        self,
        batch: int,
        activation_bits: int = 8,
        weight_bits: int = 8,
        machine: TpuV1Machine = TPU_V1,
    ) -> None:
        if activation_bits not in (8, 16) or weight_bits not in (8, 16):
            raise invalid(
                f"TPU v1 multiplies integers of 8 and 16 bits, not {activation_bits} bits with "
                f"{weight_bits} bits"
            )
        self._batch = _positive("batch", batch)
        self._activation_bits = activation_bits
        self._weight_bits = weight_bits
        self._machine = machine
        self._blocks: list[WeightBlock] = []

    def read(self, values: int) -> ProgramBuilder:
        """`values` activations of each example come from the host."""
        return self._add(
            WeightBlock(
                "read", (ReadHostMemory(self._nbytes(_positive("values", values))),), waits=False
            )
        )

    def write(self, values: int) -> ProgramBuilder:
        """`values` activations of each example go to the host."""
        return self._add(
            WeightBlock("write", (WriteHostMemory(self._nbytes(_positive("values", values))),))
        )

    def fully_connected(
        self, name: str, inputs: int, outputs: int, parts: int = 1
    ) -> ProgramBuilder:
        """[batch, inputs] x [inputs, outputs], `parts` times with the same inputs: each part begins
        a new tile (the gates of an LSTM, which are then combined lane by lane)."""
        return self._product(name, self._batch, 1, inputs, outputs, parts)

    def convolution(
        self, name: str, positions: int, kernel: int, depth: int, filters: int
    ) -> ProgramBuilder:
        """`positions` places of the result per example, a window of `kernel` places, `depth`
        features in, `filters`
        out. Each place of the window is a separate product, with the features on the rows of the
        array: a depth
        that is not a multiple of the array's leaves the rest of its rows without work."""
        return self._product(
            name, self._batch * _positive("positions", positions), kernel, depth, filters, 1
        )

    def vector(self, name: str, width: int, passes: int = 1) -> ProgramBuilder:
        """`passes` element by element operations on [batch, width]."""
        return self._from_buffer(name, self._batch, width, width, passes)

    def pool(self, name: str, positions: int, window: int, depth: int) -> ProgramBuilder:
        """[batch, positions, depth], each from `window` values: the activation unit reads every one
        of them."""
        return self._from_buffer(
            name, self._batch * _positive("positions", positions), depth, depth, window
        )

    def build(self) -> TpuV1Program:
        return TpuV1Program(tuple(self._blocks))

    def _product(
        self, name: str, rows: int, kernel: int, depth: int, filters: int, parts: int
    ) -> ProgramBuilder:
        for what, size in (
            ("kernel", kernel),
            ("depth", depth),
            ("filters", filters),
            ("parts", parts),
        ):
            _positive(what, size)
        self._check_buffer(name, rows * (depth + parts * filters))
        array = self._machine.array
        tiles = kernel * -(-depth // array) * self._weight_bits // 8
        columns = parts * -(-filters // array)
        weights = kernel * depth * filters * parts
        # As even as possible: a rest of a few rows would not cover the fetching of its tiles.
        shares = -(-rows // (self._machine.accumulator_rows // 2))
        small, larger = divmod(rows, shares)
        waits = True
        for share, count in ((small + 1, larger), (small, shares - larger)):
            if count:
                product = (
                    ReadWeights(tiles),
                    MatrixMultiply(share, tiles, self._activation_bits),
                    Activate(share),
                )
                counted = 0 if not waits else weights
                self._add(
                    WeightBlock(
                        name, product, columns * count, waits, weights * share * count, counted
                    )
                )
                waits = False
        return self

    def _from_buffer(
        self, name: str, rows: int, depth: int, written: int, passes: int
    ) -> ProgramBuilder:
        _positive("width", depth)
        self._check_buffer(name, rows * (depth + written))
        rows *= -(-depth // self._machine.array)
        return self._add(
            WeightBlock(name, (Activate(rows, _positive("passes", passes), from_buffer=True),))
        )

    def _nbytes(self, values: int) -> int:
        return self._batch * values * self._activation_bits // 8

    def _check_buffer(self, name: str, values: int) -> None:
        nbytes = values * self._activation_bits // 8
        if nbytes > self._machine.buffer_bytes:
            raise failed_precondition(
                f"{name}: {nbytes} bytes of activations, but the unified buffer holds "
                f"{self._machine.buffer_bytes}"
            )

    def _add(self, block: WeightBlock) -> ProgramBuilder:
        self._blocks.append(block)
        return self


def _positive(what: str, size: int) -> int:
    if size < 1:
        raise invalid(f"{what} is at least 1, not {size}", what)
    return size
