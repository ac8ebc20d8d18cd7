"""Changes of the TPU compiler to the collectives of a program that was split: found in compiled
programs.

Sums that are added up are summed over devices once. A sum over all devices of which a part is
wanted is on each. Gathers of one array are one where their readers are near (`shared_gathers.py`).
Values that only products in one pass read cross the links in bfloat16, as the products round them
anyway. Sums over the same axes that do not wait for each other are one collective of several
arrays: they get one `tuple` number.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence

from podyard.engine.program.combined_sums import SUMS, number_sums
from podyard.engine.program.ir import Body, HloOperation, Program, TensorType, all_operands, walk
from podyard.engine.program.loop_sums import sum_after_loops
from podyard.engine.program.rings import into_rings
from podyard.engine.program.shardings import Axes
from podyard.engine.program.shared_gathers import share_gathers

# A sum over all of at least so many devices, on a square or in three dimensions, is not scattered;
# another one is where each part has whole tiles, of 8 rows and 128 lanes (of 4 bytes where these
# are split), or needs less than half as much again to have them (compiled: a third is padded, 0.6
# is not). Parts of rows of one dimension are gathered where they have whole rows of a tile.
_WHOLE_DEVICES, _TILE_ROWS, _LANES, _LANE_BYTES, _PADDED_MOST = 8, 8, 128, 128 * 4, 1.5
# A gather over all of at least so many devices is a sum up to so many bytes, in three dimensions
# always.
_SUMMED_DEVICES, _SUMMED_BYTES = 64, 16 * 2**20
_PRODUCTS = ("dot_general", "convolution")
_MOVES = ("reshape", "transpose", "copy", "optimization_barrier")
_SENT = ("all_gather", "all_reduce", "all_to_all", "collective_permute", "reduce_scatter")


@dataclasses.dataclass(frozen=True, slots=True)
class Links:
    """The links that the compiler's choices depend on.

    `torus`: the chips of the slice in each dimension, none where the program does not take all of
    them. `ring_rows`: see `into_rings`. `joined_bytes`: scattered sums of n devices are joined
    below n / (n + 4) of it (compiled sums of 128 KiB each, of 2 to 16 devices); 0 where each is for
    itself. `piece_size`: so many numbers are scattered at once, times n / (n + 4). `is_square`:
    whether the devices along some axes are summed over as a square of 2 x 2.
    """

    torus: Sequence[int] = (1,)
    ring_rows: int = 0
    joined_bytes: float = 0
    piece_size: float = 3.75e6
    is_square: Callable[[Axes], bool] = lambda _axes: False


def improve(program: Program, links: Links) -> None:
    """Changes one device's program as the compiler does, in place."""
    bodies = [
        program.body,
        *(body for operation in walk(program.body) for body in operation.bodies),
    ]
    for body in reversed(bodies):  # those of loops before the ones around them
        sum_after_loops(program, body)
        _sum_once(program, body)
    for body in bodies:
        share_gathers(program, body)
    readers: dict[int, list[HloOperation]] = {}
    returned: set[int] = set()
    for body in bodies:
        returned.update(body.results)
        for operation in body.operations:
            if (
                operation.opcode == "convert"
                and program.types[operation.results[0]].dtype == "bf16"
            ):
                operation.attributes = {**operation.attributes, "narrow": True}
            for value in operation.operands:
                readers.setdefault(value, []).append(operation)
    for body in bodies:
        _narrow(program, body, readers, returned)
        into_rings(program, body, links.ring_rows)
        makers = {value: operation for operation in body.operations for value in operation.results}
        operations: list[HloOperation] = []
        for operation in body.operations:
            if operation.opcode == "all_gather" and "axes" in operation.attributes:
                operations += _gather_as_sum(program, operation, links.torus)
            operations.append(operation)
            if operation.opcode == "reduce_scatter" and "axes" in operation.attributes:
                by = readers.get(operation.results[0], [])
                order = by[0].ints("dims") if len(by) == 1 and by[0].opcode == "transpose" else ()
                operations += _scattered(program, operation, makers, links, order)
        body.operations = operations
        number_sums(program, body, links.joined_bytes)


def _sum_once(program: Program, body: Body) -> None:
    """sum(a) + sum(b) over the same devices is sum(a + b), where nothing else reads the sums."""
    makers = {operation.results[0]: operation for operation in body.operations if operation.results}
    reads: dict[int, int] = {}
    for value in [
        *body.results,
        *(value for operation in body.operations for value in all_operands(operation)),
    ]:
        reads[value] = reads.get(value, 0) + 1
    gone: set[int] = set()
    operations: list[HloOperation] = []
    for operation in body.operations:
        operations.append(operation)
        sums = [maker for value in operation.operands if (maker := makers.get(value)) is not None]
        if operation.opcode != "add" or len(sums) != 2 or sums[0] is sums[1]:
            continue
        if any(
            one.opcode not in SUMS or "given" in one.attributes or reads[one.results[0]] != 1
            for one in sums
        ):
            continue
        left, right = sums
        if left.opcode != right.opcode or left.attributes != right.attributes:
            continue
        # The first sum is made in place of the added value, behind it; its old value is the part of
        # the result.
        part, result = left.results[0], operation.results[0]
        operation.operands = (left.operands[0], right.operands[0])
        operation.results = (part,)
        gone |= {id(left), id(right)}
        program.types[part] = program.types[left.operands[0]]
        whole = HloOperation(
            left.opcode, (part,), (result,), dict(left.attributes), where=left.where
        )
        operations.append(whole)
        makers[result], makers[part] = whole, operation
    body.operations = [operation for operation in operations if id(operation) not in gone]


def _is_all(program: Program, axes: object) -> bool:
    return isinstance(axes, tuple) and len(axes) == len(program.mesh.sizes)


def _gather_as_sum(
    program: Program, operation: HloOperation, torus: Sequence[int]
) -> list[HloOperation]:
    """A gather that the compiler makes a sum, in which each adds its part to zeros: of parts of
    rows of one dimension, and of all of many devices. Gives what comes before."""
    part, type_ = program.types[operation.operands[0]], program.types[operation.results[0]]
    dim, rank = operation.int("dim"), len(part.shape)
    is_line = sum(extent > 1 for extent in type_.shape) == 1 and part.size % _LANES > 0
    is_many = (
        _is_all(program, operation.attributes["axes"]) and program.mesh.devices >= _SUMMED_DEVICES
    )
    if is_line or (torus and is_many and (type_.nbytes <= _SUMMED_BYTES or len(torus) > 2)):
        operation.opcode = "all_reduce"
        operation.attributes = {**operation.attributes, "bytes": type_.nbytes}
        return [] if is_line or dim >= rank else _among_zeros(program, operation)
    return []


def _scattered(
    program: Program,
    operation: HloOperation,
    makers: dict[int, HloOperation],
    links: Links,
    order: Sequence[int],
) -> list[HloOperation]:
    """Return what the compiler makes of a scattered sum. It is a whole one, of which each then
    takes its part, over all of a square, of one dimension, and where parts are not whole in lanes
    or would be padded by half. Other parts that are not an even number of tiles are scattered with
    padding, and then moved between devices: gives these permutations. `order`: of the axes, where
    the sum is only read transposed; it lies as it is read, in two dimensions where both ways pad as
    much."""
    attributes, torus = operation.attributes, links.torus
    axes, part, dim = attributes["axes"], program.types[operation.results[0]], operation.int("dim")
    is_square = bool(torus) and (len(torus) > 2 or len(set(torus)) == 1)
    is_whole = is_square and _is_all(program, axes) and program.mesh.devices >= _WHOLE_DEVICES
    shape, rank, padded = part.shape, len(part.shape), 0
    if rank > 2 and order:
        shape, dim = tuple(shape[axis] for axis in order), list(order).index(dim)
    if rank == 3 and dim == 0 and _is_product(makers, operation.operands[0]):
        # The result of a product lies as it is compact: the split dimension and the last one have
        # tiles.
        shape, dim = (shape[1], shape[0], shape[2]), 1
    # Parts are counted in these: rows, or tiles where a dimension without tiles is split.
    size = shape[dim]
    if rank < 2:
        is_whole = True
    elif dim < rank - 2:
        size = math.prod(shape[:-2]) * _tiles(shape[-2], _TILE_ROWS) * _tiles(shape[-1], _LANES)
        padded = size + size % 2
    elif (dim == rank - 1) != (
        _is_turned(shape, tuple(order) == (1, 0)) and _is_free(makers, operation.operands[0])
    ):
        is_whole |= size * part.itemsize % _LANE_BYTES > 0
    elif isinstance(axes, tuple):
        is_odd = rank == 2 and _tiles(shape[1 - dim], _LANES) % 2 > 0
        padded = _up(size, _TILE_ROWS * (2 if is_odd or links.is_square(axes) else 1))
        is_whole |= padded > _PADDED_MOST * size
        row_size = part.size // size * _TILE_ROWS
        padded = (
            _in_pieces(padded // _TILE_ROWS, row_size, program.mesh.extent(axes), links)
            * _TILE_ROWS
        )
    if is_whole:
        operation.opcode = "all_reduce"
        operation.attributes = {**attributes, "bytes": program.types[operation.operands[0]].nbytes}
    elif padded > size and isinstance(axes, tuple):
        return _shifts(program, operation, axes, size, padded)
    return []


def _in_pieces(rows: int, row_size: int, devices: int, links: Links) -> int:
    """Rows of tiles of a part with those that fill up its last piece. Parts are scattered in the
    fewest pieces that are small enough, which have all the same rows, and an even number of tiles
    (230 compiled sums of 3 to 100 MB over 4 and 8 devices)."""
    most, step = (
        int(links.piece_size / (devices + 4) / row_size),
        1 + row_size // (_TILE_ROWS * _LANES) % 2,
    )
    pieces = _tiles(rows, max(step, most - most % step))
    return _tiles(rows, pieces) * pieces


def _is_free(makers: dict[int, HloOperation], value: int) -> bool:
    """Return whether the compiler chooses how a value lies: not what is scattered into, and not
    what is added up of an argument, which lies as that does."""
    maker = makers.get(value)
    while maker is not None and maker.opcode == "convert":
        maker = makers.get(maker.operands[0])
    if maker is None or maker.opcode != "reduce":
        return maker is None or maker.opcode != "scatter"
    while maker is not None and maker.opcode not in (
        *_PRODUCTS,
        *_SENT,
        "gather",
        "scatter",
        "while",
    ):
        maker = makers.get(maker.operands[0]) if maker.operands else None
    return maker is not None and maker.opcode != "while"


def _is_product(makers: dict[int, HloOperation], value: int) -> bool:
    maker = makers.get(value)
    while maker is not None and maker.opcode == "convert":
        maker = makers.get(maker.operands[0])
    return maker is not None and maker.opcode in _PRODUCTS


def _is_turned(shape: Sequence[int], otherwise: bool) -> bool:
    """Return whether an array has its last dimension in rows: where that needs less padding;
    `otherwise` where it is equal."""

    def padded(lanes: int, rows: int) -> int:
        return _up(lanes, _LANES) * _up(rows, _TILE_ROWS)

    turned, straight = padded(shape[-2], shape[-1]), padded(shape[-1], shape[-2])
    return otherwise if turned == straight else turned < straight


def _tiles(size: int, tile: int) -> int:
    return -(-size // tile)


def _up(size: int, tile: int) -> int:
    return _tiles(size, tile) * tile


def _shifts(
    program: Program, operation: HloOperation, axes: Axes, rows: int, padded: int
) -> list[HloOperation]:
    """Parts of `padded` in place of `rows`: a device then sends what belongs to others, as far as
    these are away."""
    last, devices = operation.results[0], program.mesh.extent(axes)
    far = {
        place - row // padded
        for place in range(devices)
        for row in (place * rows, place * rows + rows - 1)
    }
    moved: list[HloOperation] = []
    for distance in sorted(far - {0}):
        program.types.append(program.types[last])
        here = len(program.types) - 1
        (moved[-1] if moved else operation).results = (here,)
        pairs = tuple((place, place + distance) for place in range(devices - distance))
        attributes: dict[str, object] = {"axes": axes, "shifts": pairs}
        moved.append(
            HloOperation("collective_permute", (here,), (last,), attributes, where=operation.where)
        )
    nbytes = program.types[operation.operands[0]].nbytes
    operation.attributes = {**operation.attributes, "bytes": nbytes * padded // rows}
    return moved


def _among_zeros(program: Program, operation: HloOperation) -> list[HloOperation]:
    """Zeros as large as the result, and a device's part that is put among them."""
    part, type_ = operation.operands[0], program.types[operation.results[0]]
    zero, zeros, put = range(len(program.types), len(program.types) + 3)
    program.types += [TensorType((), type_.dtype), type_, type_]
    operation.operands = (put,)
    where = operation.where
    return [
        HloOperation("constant", (), (zero,), {"value": 0}, where=where),
        HloOperation("broadcast_in_dim", (zero,), (zeros,), {"dims": ()}, where=where),
        HloOperation(
            "dynamic_update_slice",
            (zeros, part, *[zero] * len(type_.shape)),
            (put,),
            {},
            where=where,
        ),
    ]


def _narrow(
    program: Program, body: Body, readers: dict[int, list[HloOperation]], returned: set[int]
) -> None:
    makers = {
        value: operation.opcode for operation in body.operations for value in operation.results
    }
    operations: list[HloOperation] = []
    for operation in body.operations:
        if operation.opcode in _SENT and program.types[operation.results[0]].dtype == "f32":
            is_narrowed = (
                operation.opcode not in SUMS or makers.get(operation.operands[0]) == "reduce"
            )
            chain = _only_products(operation.results[0], readers, returned, is_narrowed)
            if chain is not None and program.types[operation.operands[0]].dtype == "f32":
                given = operation.operands[0]
                program.types.append(_narrower(program.types[given]))
                narrow = len(program.types) - 1
                operations.append(
                    HloOperation("convert", (given,), (narrow,), {}, where=operation.where)
                )
                operation.operands = (narrow,)
                for value in chain:
                    program.types[value] = _narrower(program.types[value])
        operations.append(operation)
    body.operations = operations


def _narrower(type_: TensorType) -> TensorType:
    return TensorType(type_.shape, "bf16")


def _only_products(
    value: int, readers: dict[int, list[HloOperation]], returned: set[int], conversions: bool
) -> list[int] | None:
    """The value and what it is only moved into, if nothing but products in one pass reads them, and
    `conversions` into
    a narrower type."""
    chain, place = [value], 0
    while place < len(chain):
        one = chain[place]
        place += 1
        if one in returned or not readers.get(one):
            return None
        for reader in readers[one]:
            if reader.opcode in _MOVES or reader.opcode in (
                "all_gather",
                "all_to_all",
                "collective_permute",
            ):
                chain += [result for result in reader.results if result not in chain]
            elif conversions and reader.opcode == "convert" and reader.attributes.get("narrow"):
                continue
            elif reader.opcode not in _PRODUCTS or reader.text("precision") not in ("", "DEFAULT"):
                return None
    return chain
