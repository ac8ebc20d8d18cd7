"""What one kernel costs: matrix products, convolutions, and everything that runs on the vector
unit."""

from __future__ import annotations

import dataclasses
import functools
import math
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from podyard.engine.program.ir import TensorType
from podyard.engine.timing.layout import LANES, compact_layout, nbytes_in_memory, padded_bytes
from podyard.hardware.cost_model import SUBLANES, CostModel

Bound = Literal["mxu", "hbm", "on-chip", "vpu", "overhead", "ici", "unpriced"]
# Passes over the matrix unit that a precision takes: counted in compiled machine code.
PASSES = {"DEFAULT": 1, "HIGH": 3, "HIGHEST": 6}
# Operations that are no arithmetic: they name, move or repeat numbers.
NO_ARITHMETIC = frozenset({
    "broadcast_in_dim", "constant", "reshape", "convert", "transpose", "slice", "iota", "copy",
    "broadcast", "pad",
    "concatenate", "bitcast_convert", "reverse", "dynamic_slice", "real", "imag",
    "dynamic_update_slice", "gather", "scatter",
})  # fmt: skip
# Instructions that one call takes on the vector unit, where it is more than one: polynomials and
# Newton steps.
INSTRUCTIONS = {
    "exponential": 6, "exponential_minus_one": 8, "log": 10, "log_plus_one": 12, "tanh": 12,
    "logistic": 10,
    "power": 24, "divide": 6, "sqrt": 6, "rsqrt": 4, "sine": 20, "cosine": 20, "erf": 20,
    "erf_inv": 24,
    "remainder": 10, "cbrt": 12,
    **dict.fromkeys(("asin", "acos", "atan", "asinh", "acosh", "atanh", "sinh", "cosh", "tan",
        "bessel_i1e"), 30),
    **dict.fromkeys(("lgamma", "digamma", "polygamma", "zeta"), 100),
}  # fmt: skip
# Vector kernels read and write about this much per window.
_VECTOR_WINDOW_BYTES = 4e6
_VECTOR_SMALL_WINDOW_BYTES = 0.75e6
_VECTOR_SMALL_WINDOWS = 4
# The least that a window costs, and from which size on it costs all.
_VECTOR_LEAST_WINDOW, _VECTOR_WHOLE_WINDOW_BYTES = 0.6, 0.4e6
# Tiles of a window of a sum of an array on the chip, and what its start takes.
_SUM_TILES, _SUM_WINDOW_CYCLES = 1024, 900
# What a core has for the windows of a product and its sums, and the least that is a window.
_ROOM_OF_CORE, _LEAST_KEPT_WINDOW = 2**24, 2**19
# Without a product, the most that is one.
_LARGEST_SUM_WINDOW = 2**22
# Tiles of a window that a kernel of one operation writes.
_SINGLE_WINDOW_TILES = 128
# Later windows hide their own start behind the traffic of the one before.
_VECTOR_WINDOWS_SEEN = 8
# Of what turning a tile takes, the share of one that is mostly padding and on the chip.
_PADDING_SHARE = 0.2
# Of the memory on the chip, what an array in another layout may take.
_SHARE_OF_COPY = 0.6
# Of the same, what taking features of groups apart takes: of 2, 4 and 8 or more groups on v2 and
# v3; on later chips of one core; of two. (60 compiled copies.)
_REGROUP_SHARES = ((0.59, 0.64, 0.88), (1.75, 1.75, 1.75), (0.72, 0.82, 1.04))
# Turning an array on v2 and v3: tiles of a window, read and written, and what its start takes; the
# second where what lay in sublanes is in no tile after that. (140 copies around compiled
# convolutions.)
_TURN_TILES, _TURN_WINDOW_CYCLES = 640, (470, 660)
# Of chips of two cores, the share of a turn where one end stays on the chip (60 such copies on v4).
_NEAR_TURN_SHARE = 0.69
# Of chips of one core, what a turn takes whose source is on the chip, for each tile that it writes
# elsewhere.
_NEAR_END_SHARE = 0.85
# The share of a whole turn that it takes where the axis that comes into lanes does not fill them.
_TURNED_FOR_GROUPS = 0.8
# What turning an array on the chip takes, and how many more axes one shape has than the other where
# it takes more.
_NEAR_TURN_CYCLES = 400
# Tables that an update has on the chip at one time: what is scattered, the table and the result.
# (60,000 rows of 64 were compiled there on v5e and v6e, 80,000 in HBM.)
UPDATED_TABLES = 3
_AXES_IN_ONE = 2


@dataclasses.dataclass(frozen=True, slots=True)
class KernelPrice:
    """`bound` is what takes longest; `mxu_cycles` of `cycles` the matrix units work."""

    cycles: float
    bound: Bound
    mxu_cycles: float = 0.0
    vpu_cycles: float = 0.0
    hbm_cycles: float = 0.0


@dataclasses.dataclass(frozen=True, slots=True)
class Product:
    """A matrix product as the unit sees it: `batch` times [m, k] x [k, n]; bytes of both operands
    and the result as
    they lie in memory, the result's already weighted. `mxu_cycles` overrides what the sizes say
    (convolutions)."""

    batch: int
    m: int
    k: int
    n: int
    left_bytes: float
    right_bytes: float
    result_bytes: float
    passes: float = 1
    mxu_cycles: float | None = None
    # From v4 on: how much of a kernel's fixed cost its far ends cause (0 to 1).
    fixed_share: float = 1.0
    reads_far: bool = False
    # What is done to its operands on the vector unit, where the matrix units wait for that.
    before_cycles: float = 0.0


def tile_bytes(type_: TensorType, costs: CostModel) -> float:
    """Bytes that moving `type_` takes: a tile of fewer than 8 sublanes takes as long as a whole
    one."""
    layout = compact_layout(type_, costs.tiling)
    if layout.lane_axis is None or layout.sublane_axis is None:
        return nbytes_in_memory(type_, costs.tiling)
    shape = type_.shape
    major = type_.size // max(1, shape[layout.lane_axis] * shape[layout.sublane_axis])
    tiles = (
        major * -(-shape[layout.lane_axis] // LANES) * -(-shape[layout.sublane_axis] // SUBLANES)
    )
    return tiles * LANES * SUBLANES * type_.itemsize


def tiles_of(type_: TensorType, costs: CostModel) -> float:
    """Tiles of 8 x 128 numbers that an element-wise operation on `type_` works on."""
    return tile_bytes(type_, costs) / (LANES * SUBLANES * max(type_.itemsize, 0.5))


def result_bytes(type_: TensorType, costs: CostModel) -> float:
    """Bytes that producing `type_` takes: narrower types are computed in 4 bytes and converted."""
    moved = tile_bytes(type_, costs)
    if type_.itemsize >= 4:
        return moved
    if type_.itemsize == 2:
        return moved * costs.narrow_result_factor
    return moved + tiles_of(type_, costs) * LANES * SUBLANES * 4


@functools.lru_cache(maxsize=4096)
def _splits(extent: int) -> NDArray[np.int64]:
    """Window sizes worth trying along an axis of `extent` tiles: the whole, and about every 1.4th
    part of it."""
    sizes, parts = {extent}, 1
    while parts < extent:
        parts = max(parts + 1, int(parts * 1.41))
        sizes.add(-(-extent // min(parts, extent)))
    return np.array(sorted(sizes), dtype=np.int64)


@functools.lru_cache(maxsize=65536)
def matrix_price(
    product: Product, extra_bytes: float, vpu_cycles: float, costs: CostModel
) -> KernelPrice:
    """The cheapest way to cut the product into windows that fit the chip's memory. `extra_bytes`:
    further operands and results of the element-wise work fused into it."""
    candidates = [
        _price_oriented(product, swapped, extra_bytes, vpu_cycles, costs)
        for swapped in (False, True)
    ]
    return min(candidates, key=lambda price: price.cycles)


def _price_oriented(
    product: Product, swapped: bool, extra_bytes: float, vpu_cycles: float, costs: CostModel
) -> KernelPrice:
    """Weights stay, rows stream; swapped, the two operands change roles."""
    m, n = (product.n, product.m) if swapped else (product.m, product.n)
    left_total, right_total = product.left_bytes, product.right_bytes
    if swapped:
        left_total, right_total = right_total, left_total
    edge = costs.mxu_edge
    rows, depth, columns = -(-m // SUBLANES), -(-product.k // edge), -(-n // edge)
    row_window = _splits(rows)[:, None, None, None]
    depth_window = _splits(depth)[None, :, None, None]
    column_window = _splits(columns)[None, None, :, None]
    group = _splits(product.batch)[None, None, None, :]
    row_steps, depth_steps, column_steps = (
        -(-rows // row_window),
        -(-depth // depth_window),
        -(-columns // column_window),
    )
    windows = row_steps * depth_steps * column_steps * -(-product.batch // group)
    left_resident, right_resident = (
        (False, False) if product.reads_far else _prefetch(left_total, right_total, costs)
    )
    share = group / product.batch
    left_window = left_total * share * (row_window * depth_window) / (rows * depth)
    right_window = right_total * share * (depth_window * column_window) / (depth * columns)
    out_total = product.result_bytes + extra_bytes
    out_window = out_total * share * (row_window * column_window) / (rows * columns)
    partial = group * row_window * column_window * (4.0 * SUBLANES * edge)
    fits = (
        2 * (left_window + right_window + out_window) + partial * (depth_steps > 1)
        <= costs.window_bytes
    )
    left_again = (
        np.where(depth_steps == 1, 1, column_steps),
        np.where(depth_steps * row_steps == 1, 1, column_steps),
    )
    right_again = (
        np.where(depth_steps * column_steps == 1, 1, row_steps),
        np.where(depth_steps == 1, 1, row_steps),
    )
    in_bytes = np.minimum(
        left_again[0] * left_total * (not left_resident)
        + right_again[0] * right_total * (not right_resident),
        left_again[1] * left_total * (not left_resident)
        + right_again[1] * right_total * (not right_resident),
    )
    traffic = (in_bytes + out_total) / costs.bytes_per_cycle
    edges = (
        left_window * (not left_resident) + right_window * (not right_resident) + out_window
    ) / costs.bytes_per_cycle
    if product.mxu_cycles is None:
        least = np.full_like(row_window, costs.weight_load_rows, dtype=float)
        if costs.loads_used_rows:
            used = -(-min(product.k, n) // SUBLANES) * SUBLANES
            least = np.minimum(least, used + row_window * (SUBLANES / 2))
        loads = row_steps * np.maximum(row_window * SUBLANES, least)
        mxu = loads * (
            depth * columns * product.batch * product.passes / costs.mxu_count * costs.mxu_stretch
        )
    else:
        mxu = np.full_like(traffic, product.mxu_cycles * product.passes)
    unhidden = costs.unhidden_share * (product.mxu_cycles is None)
    mxu = mxu + product.before_cycles
    compute = np.maximum(mxu, vpu_cycles) + unhidden * np.minimum(mxu, vpu_cycles)
    after = out_total / costs.bytes_per_cycle if _is_flushed(product, depth, costs) else 0.0
    streamed = np.maximum(traffic - edges - after, 0)
    cycles = (
        after
        + costs.matrix_kernel_cycles * product.fixed_share
        + (costs.near_kernel_cycles if product.fixed_share < 1 else 0.0)
        + costs.matrix_window_cycles * product.fixed_share * windows
        + edges
        + np.maximum(compute, streamed)
        + costs.exposed_share * np.minimum(compute, streamed) / windows
    )
    cycles = np.where(fits, cycles, np.inf)
    best = np.unravel_index(int(np.argmin(cycles)), cycles.shape)
    if not np.isfinite(cycles[best]):
        best = np.unravel_index(0, cycles.shape)
        cycles = np.where(
            np.isfinite(cycles), cycles, costs.matrix_kernel_cycles + compute + traffic + edges
        )
    at = tuple(int(index) for index in best)
    best_mxu, best_traffic = _at(mxu, cycles, at), _at(traffic, cycles, at)
    return KernelPrice(
        float(cycles[at]),
        _bound(best_mxu, vpu_cycles, best_traffic, float(cycles[at])),
        best_mxu,
        vpu_cycles,
        best_traffic,
    )


def _is_flushed(product: Product, depth: int, costs: CostModel) -> bool:
    """Return whether what a product writes, and what is done with it, waits for its last window.
    The compiler cuts the depth where both operands are in HBM: sums stay on the chip until it is
    done, and nothing is multiplied while they leave (29 compiled products on v5p)."""
    is_far = min(product.left_bytes, product.right_bytes) > costs.prefetch_bytes
    return (
        is_far
        and depth > 1
        and product.batch == 1
        and costs.vector_cores > 1
        and not costs.results_stay
    )


def _at(values: NDArray[Any], like: NDArray[Any], index: tuple[int, ...]) -> float:
    return float(np.broadcast_to(values, like.shape)[index])


def _prefetch(left: float, right: float, costs: CostModel) -> tuple[bool, bool]:
    """Return which operands are on the chip before the kernel starts: both if they fit together,
    else the smaller."""
    if left + right <= costs.prefetch_bytes:
        return True, True
    if min(left, right) > costs.prefetch_bytes:
        return False, False
    return left <= right, right < left


def without_matrix_unit(
    product: Product, read: float, written: float, vpu: float, padding: float, costs: CostModel
) -> KernelPrice:
    """A product with a vector: the compiler multiplies and adds on the vector unit."""
    tiles = product.batch * product.m * product.k * product.n * padding / (LANES * SUBLANES)
    summed = tiles * LANES * SUBLANES * 4 if product.k > 1 else 0.0
    return vector_price(read, written + summed, vpu + tiles * costs.vector_cycles_per_tile, costs)


def read_before(product: Product, costs: CostModel) -> float:
    """Cycles of reading what the gradient of a kernel of each feature is made from, where that is
    not hidden. Where no results stay on the chip, the larger array is fetched ahead, if it fits."""
    if not costs.own_reads_before:
        return 0.0
    small, large = sorted((product.left_bytes, product.right_bytes))
    is_ahead = not costs.results_stay and large <= costs.prefetch_bytes
    return (small + large * (not is_ahead)) / costs.bytes_per_cycle


def vector_price(
    read_bytes: float, written_bytes: float, vpu_cycles: float, costs: CostModel
) -> KernelPrice:
    """A kernel without a matrix product: bytes, or arithmetic where there is a lot of it."""
    moved = read_bytes + written_bytes
    windows = max(
        math.ceil(moved / _VECTOR_WINDOW_BYTES),
        min(_VECTOR_SMALL_WINDOWS, math.ceil(moved / _VECTOR_SMALL_WINDOW_BYTES)),
        1,
    )
    traffic = moved / costs.bytes_per_cycle
    seen = min(
        windows, _VECTOR_WINDOWS_SEEN, _VECTOR_LEAST_WINDOW + moved / _VECTOR_WHOLE_WINDOW_BYTES
    )
    overhead = costs.vector_kernel_cycles + costs.vector_window_cycles * seen
    cycles = overhead + max(traffic, vpu_cycles)
    return KernelPrice(cycles, _bound(0.0, vpu_cycles, traffic, cycles), 0.0, vpu_cycles, traffic)


def single_price(moved: float, tiles: float, costs: CostModel) -> KernelPrice:
    """A kernel of one operation that does not fit into one window: it is cut into small ones, and
    none hides the start of the next."""
    traffic = moved * costs.clock_hz / costs.hbm_bytes_per_second
    cycles = (
        costs.vector_kernel_cycles
        + math.ceil(tiles / _SINGLE_WINDOW_TILES) * costs.single_window_cycles
        + traffic
    )
    return KernelPrice(cycles, _bound(0.0, 0.0, traffic, cycles), hbm_cycles=traffic)


def moving_price(moved: float, type_: TensorType, costs: CostModel) -> KernelPrice:
    """A kernel that only writes or converts an array of `type_`, and moves so many bytes."""
    is_large = moved > costs.window_bytes / 2
    return (
        single_price(moved, tiles_of(type_, costs), costs)
        if is_large
        else vector_price(moved, 0.0, 0.0, costs)
    )


def with_sum_windows(price: KernelPrice, tiles: float) -> KernelPrice:
    """The price of a sum of an array of so many tiles on the chip: there the start of each window
    is not hidden."""
    return dataclasses.replace(
        price, cycles=price.cycles + math.ceil(tiles / _SUM_TILES) * _SUM_WINDOW_CYCLES
    )


def with_kept_sums(
    price: KernelPrice, product: Product, moved: float, kept: float, costs: CostModel
) -> KernelPrice:
    """The price of a product of operands in HBM that sums up its result, where no window hides the
    start of the next: `kept` bytes of sums stay in the room of each core until all is done (if they
    fit), and a window has a quarter of what is left."""
    if (
        not 0 < kept < _ROOM_OF_CORE
        or not costs.kept_window_cycles
        or min(product.left_bytes, product.right_bytes) <= costs.prefetch_bytes
    ):
        return price
    window = max(_LEAST_KEPT_WINDOW, (_ROOM_OF_CORE - kept) / 4)
    cycles = (
        moved * costs.clock_hz / costs.hbm_bytes_per_second
        + moved / window * costs.kept_window_cycles
    )
    return (
        price if cycles <= price.cycles else dataclasses.replace(price, cycles=cycles, bound="hbm")
    )


def sum_price(
    moved: float, summed: float, kept: float, vpu_cycles: float, costs: CostModel
) -> KernelPrice:
    """A kernel of sums whose windows do not hide their start: `summed` bytes in 4-byte words;
    `kept` bytes of sums stay on the chip until all is done, and a window has a third of what is
    left."""
    window = max(_LEAST_KEPT_WINDOW, min(_LARGEST_SUM_WINDOW, (_ROOM_OF_CORE - kept) / 3))
    traffic = moved * costs.clock_hz / costs.hbm_bytes_per_second
    starts = costs.sum_window_cycles * summed / window
    cycles = costs.vector_kernel_cycles + starts + max(traffic, vpu_cycles)
    return KernelPrice(cycles, _bound(0.0, vpu_cycles, traffic, cycles), 0.0, vpu_cycles, traffic)


def transpose_price(type_: TensorType, costs: CostModel) -> KernelPrice:
    """Moves an array into another order of its minor axes. Where what stays on the chip costs
    nothing to write, one of its ends does."""
    moved = tile_bytes(type_, costs)
    vpu = tiles_of(type_, costs) * costs.transpose_cycles_per_tile
    near = costs.keeps_for_nothing and moved <= costs.prefetch_bytes / 2
    price = vector_price(moved, 0.0 if near else moved, vpu, costs)
    return dataclasses.replace(price, bound="vpu" if vpu > price.hbm_cycles else price.bound)


def is_made_of_three(source: TensorType, result: TensorType) -> bool:
    """Return whether a reshape cuts an axis in three, or joins three."""
    few, many = sorted(sum(extent > 1 for extent in type_.shape) for type_ in (source, result))
    return many - few >= _AXES_IN_ONE


def near_turn_price(source: TensorType, result: TensorType, costs: CostModel) -> KernelPrice:
    """Moves an array on the chip into another shape. Two axes change places for next to nothing.
    Where an axis is made of three, as queries, keys and values of all heads are, others than those
    in a tile change places: window by window, as a kernel of one operation."""
    if not is_made_of_three(source, result):
        return KernelPrice(_NEAR_TURN_CYCLES, "overhead")
    tiles = max(tiles_of(source, costs), tiles_of(result, costs))
    return single_price(tiles * LANES * SUBLANES * 4, tiles, costs)


def relayout_price(
    type_: TensorType,
    minor: tuple[int, ...],
    costs: CostModel,
    is_far: bool = False,
    is_again: bool = False,
) -> KernelPrice:
    """Moves an array between its compact layout and one with `minor`: the axes in lanes and in
    sublanes. With the same axis in lanes that is traffic, else as many tiles as either has with its
    padding go through the transpose unit (on chips of one core both ends). On v2 and v3 both ends
    are moved twice, whatever lies in lanes. From v5e on, what lies in the other layout stays on the
    chip if it fits, unless it `is_far`: little is paid for its padding then. What `is_again` copied
    is on the chip in its own layout."""
    area = LANES * SUBLANES * max(type_.itemsize, 0.5)
    own, other = tile_bytes(type_, costs), laid_bytes(type_, minor)
    factor = costs.narrow_result_factor if type_.itemsize < 4 else 1.0
    near = is_laid_near(type_, minor, costs) and not is_far
    compact = compact_layout(type_, costs.tiling)
    if not costs.prefetch_bytes:
        if compact.lane_axis == minor[0]:
            moved = own + padded_bytes(type_, minor[0], minor[1], costs.tiling)
            return vector_price((factor + 1) / 2 * moved, 0.0, 0.0, costs)
        window = _TURN_WINDOW_CYCLES[compact.sublane_axis not in minor]
        price = vector_price((factor + 1) / 2 * (own + other), 0.0, 0.0, costs)
        cycles = (
            costs.vector_kernel_cycles
            + price.hbm_cycles
            + window * max(1.0, (own + other) / area / _TURN_TILES)
        )
        return dataclasses.replace(price, cycles=cycles, bound="vpu")
    if compact.lane_axis == minor[0]:
        return vector_price(0.0 if near else other, factor * own, 0.0, costs)
    ends = 2 if costs.vector_cores == 1 else 1
    tiles = (own + other) / area / 2 * ends
    if near:
        tiles = (own + _PADDING_SHARE * max(0.0, other - own)) / area
    elif ends == 2 and is_again:
        tiles = _NEAR_END_SHARE * other / area
    elif ends == 1 and is_laid_on_chip(type_, minor, costs) and not is_far:
        tiles *= _NEAR_TURN_SHARE
    vpu = tiles * costs.transpose_cycles_per_tile
    return vector_price(factor * own, 0.0 if near else other, vpu, costs)


def table_price(type_: TensorType, is_back: bool, costs: CostModel) -> KernelPrice:
    """Moves a table so that its rows lie along the lanes, or back. In HBM both ends count, with
    their padding. What SparseCores move has no cycles from the compiler."""
    last = len(type_.shape) - 1
    if is_turned_by_sparse_cores(type_, costs):
        return KernelPrice(0.0, "unpriced")
    padded = padded_bytes(type_, last, last - 1, costs.tiling)
    # On chips of one core nothing is moved while tiles are turned, and a table comes back from HBM
    # but for small ones.
    is_alone = costs.keeps_for_nothing
    if has_room_near(padded, costs) and not (
        is_alone and is_back and padded > costs.prefetch_bytes / UPDATED_TABLES
    ):
        return transpose_price(type_, costs)
    area = LANES * SUBLANES * max(type_.itemsize, 0.5)
    moved = tile_bytes(type_, costs) + _tiles_with(type_, last, last - 1) * area
    if is_alone:
        price = transpose_price(type_, costs)
        return dataclasses.replace(price, cycles=price.cycles + moved / costs.bytes_per_cycle)
    return vector_price(0.0, moved, moved / area / 2 * costs.transpose_cycles_per_tile, costs)


def is_turned_by_sparse_cores(type_: TensorType, costs: CostModel) -> bool:
    return tile_bytes(type_, costs) >= costs.sparse_core_table_bytes


def laid_bytes(type_: TensorType, minor: tuple[int, ...]) -> float:
    """As `tile_bytes`, of an array with the `minor` axes in lanes and sublanes."""
    return _tiles_with(type_, minor[0], minor[1]) * LANES * SUBLANES * max(type_.itemsize, 0.5)


def is_laid_near(type_: TensorType, minor: tuple[int, ...], costs: CostModel) -> bool:
    """Return whether an array that is moved into another layout stays on the chip there, and costs
    little for that."""
    return not costs.near_write_share and is_laid_on_chip(type_, minor, costs)


def is_laid_on_chip(type_: TensorType, minor: tuple[int, ...], costs: CostModel) -> bool:
    nbytes = padded_bytes(type_, minor[0], minor[1], costs.tiling)
    return costs.results_stay and nbytes <= costs.prefetch_bytes


def is_kept_near(type_: TensorType, costs: CostModel) -> bool:
    """Return whether an array that is only made for the next kernel stays on the chip."""
    return has_room_near(nbytes_in_memory(type_, costs.tiling), costs)


def has_room_near(nbytes: int, costs: CostModel) -> bool:
    return costs.results_stay and nbytes <= _SHARE_OF_COPY * costs.prefetch_bytes


def better_order(type_: TensorType, minor: tuple[int, ...]) -> tuple[int, int]:
    """(lane, sublane) of both orders of two axes the one with fewer tiles."""
    first, second = minor
    return min(((first, second), (second, first)), key=lambda pair: _tiles_with(type_, *pair))


def for_groups_price(
    source: TensorType, result: TensorType, turned: bool, near: bool, costs: CostModel
) -> KernelPrice:
    """Copies an array so that it can be cut into groups: traffic, or with another axis in lanes
    (`turned`) the work of the transpose unit on all tiles of the result, padding included. On the
    chip it is next to nothing from v5e on, and on v4 what is turned costs half of its padded
    bytes."""
    if near and not costs.near_write_share:
        return KernelPrice(_NEAR_TURN_CYCLES, "overhead")
    read, written = tile_bytes(source, costs), tile_bytes(result, costs)
    if near and turned:
        written /= 2
    share = 0.0 if costs.prefetch_bytes else _TURNED_FOR_GROUPS
    vpu = tiles_of(result, costs) * costs.transpose_cycles_per_tile * share if turned else 0.0
    return vector_price(read, written, vpu, costs)


def regroup_price(type_: TensorType, groups: int, costs: CostModel) -> KernelPrice:
    """Moves an array from so many groups in major axes to groups in sublanes."""
    moved = tile_bytes(type_, costs)
    full = min(groups, SUBLANES).bit_length() - 2
    share = _REGROUP_SHARES[costs.vector_cores if costs.results_stay else 0][max(0, full)]
    vpu = tiles_of(type_, costs) * costs.transpose_cycles_per_tile * share
    return vector_price(
        0.0 if costs.results_stay else moved, 0.0 if costs.results_stay else moved, vpu, costs
    )


def _tiles_with(type_: TensorType, lane: int, sublane: int) -> int:
    lanes, sublanes = type_.shape[lane], type_.shape[sublane]
    return type_.size // (lanes * sublanes) * -(-lanes // LANES) * -(-sublanes // SUBLANES)


def _bound(mxu: float, vpu: float, hbm: float, cycles: float) -> Bound:
    largest = max(mxu, vpu, hbm)
    if largest < cycles / 2:
        return "overhead"
    return "mxu" if largest == mxu else "vpu" if largest == vpu else "hbm"
