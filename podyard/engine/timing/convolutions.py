"""What products and convolutions are to the matrix units."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Sequence

from podyard.engine.program.ir import Body, HloOperation, Program, TensorType
from podyard.engine.timing.kernels import Product, tiles_of
from podyard.engine.timing.layout import LANES, compact_layout, padded_bytes
from podyard.engine.timing.packed_taps import large_image_cycles, not_hidden, packing_cycles
from podyard.hardware.cost_model import SUBLANES, CostModel, Tiling

# A convolution of each feature by itself runs on the vector unit: cycles of one core for each tap
# of a tile; dilated, how much dearer the taps are that meet an input.
_TAP_CYCLES, _DILATED_SHARE = 2.05, 1.5
# The gradient of its kernel where examples lie in lanes (v2 and v3; v4).
_LANES_TAP_CYCLES = (0.65, 0.2)
# How much larger an array may become by padding when groups come into sublanes.
_MOST_PADDING = 2
# The same where a row comes into lanes first.
_MOST_ROW_PADDING = 2.5
# bfloat16 numbers come in rows of pairs: 16 sublanes.
_PACKED = 16
# As many taps share a pass where features lie in lanes: of all, or of a row.
_TAPS_IN_LANES = 2
_TAPS_IN_ROW = 4
# Of the gradient of a kernel of few features: how much longer its rows take that are turned (v4
# last), and how many features of a tile of weights take as long to load as a whole one.
_FEW_ROWS, _LEAST_LOAD = (1.4, 2.0), 24
# Rows that stream at least where they have to be turned on their way.
_TURNED_ROWS = 64
# Of a matrix unit of two tiles (v6e): how much longer than its passes a convolution takes, and what
# loading a tile of weights (16 x 128) takes, next to what streams.
_WIDE_STRETCH, _TILE_LOAD_ROWS = 1.06, 5


def product_of(
    program: Program,
    anchor: HloOperation,
    left_bytes: float,
    right_bytes: float,
    result: float,
    passes: float,
    costs: CostModel,
) -> Product:
    """The matrix product that a dot or a convolution is."""
    left, right = (program.types[value].shape for value in anchor.operands[:2])
    if anchor.opcode == "dot_general":
        batch = math.prod(left[axis] for axis in anchor.ints("lhs_batching"))
        k = math.prod(left[axis] for axis in anchor.ints("lhs_contracting"))
        m = math.prod(left) // max(1, batch * k)
        n = math.prod(right) // max(1, batch * k)
        return Product(
            max(batch, 1), max(m, 1), max(k, 1), max(n, 1), left_bytes, right_bytes, result, passes
        )
    conv = Convolution.of(program, anchor, costs.tiling)
    packing, multiplied = 0.0, conv.mxu_cycles(costs)
    places = math.prod(left[axis] for axis in anchor.ints("lhs_dims")[2:])
    if conv.groups == 1 and conv.window > conv.positions:
        sizes = conv.in_features, conv.batch, conv.out_features, conv.window
        multiplied += large_image_cycles(*sizes, places, multiplied, costs)
    if (
        conv.keeps_weights
        and conv.has_features_in_lanes
        and conv.taps == conv.window
        and conv.groups == 1
    ):
        packing = packing_cycles(conv.batch, conv.in_features, conv.window, places, costs)
        packing = not_hidden(packing, multiplied, conv.out_features)
    return Product(
        1, conv.batch * conv.positions, max(1, round(conv.taps * conv.in_features)),
        conv.out_features,
        left_bytes, right_bytes, result, passes, multiplied + packing,
    )  # fmt: skip


def has_groups(anchor: HloOperation) -> bool:
    return anchor.int("batch_group_count", 1) > 1 or anchor.int("feature_group_count", 1) > 1


def has_small_groups(program: Program, anchor: HloOperation) -> bool:
    """Return whether a convolution, or the gradient of its kernel, has groups of fewer features
    than there are lanes; of those of one, whether all of them are fewer."""
    if anchor.opcode != "convolution":
        return False
    left, kernel = (program.types[value].shape for value in anchor.operands[:2])
    groups, axis = anchor.int("batch_group_count", 1), anchor.ints("lhs_dims")[0]
    features = left[axis] // groups
    if groups == 1:
        groups, features = (
            anchor.int("feature_group_count", 1),
            kernel[anchor.ints("kernel_dims")[0]],
        )
    return groups > 1 and (groups if features == 1 else features) < LANES


def image_axes(body: Body, types: Sequence[TensorType]) -> dict[tuple[int, ...], tuple[int, int]]:
    """The axes of examples and features of each shape that convolutions read and make, in a body
    and those inside."""
    found: dict[tuple[int, ...], tuple[int, int]] = {}
    for step in body.operations:
        for inner in step.bodies:
            found |= image_axes(inner, types)
        if step.opcode == "convolution":
            for value, name in ((step.operands[0], "lhs_dims"), (step.results[0], "out_dims")):
                examples, features = step.ints(name)[:2]
                found[types[value].shape] = (examples, features)
    return found


def copied_operands(program: Program, anchor: HloOperation, tiling: Tiling) -> Iterator[int]:
    """The operands of a convolution (0, 1) that lie otherwise than it reads them: they are copied,
    in the kernel or before, and having them on the chip when the program starts gains nothing.
    Weights are copied there, but for those of groups. (Compiled: what about 600 convolutions on
    four generations start with.)"""
    in_groups = ConvolutionGroups.of(program, anchor, tiling) is not None
    dims, others = (anchor.ints(name)[:2] for name in ("lhs_dims", "kernel_dims"))
    lies, other = (compact_layout(program.types[one], tiling) for one in anchor.operands[:2])
    in_lanes = (dims[anchor.int("batch_group_count", 1) > 1],) if in_groups else dims
    if lies.lane_axis not in in_lanes or lies.sublane_axis not in dims:
        yield 0
    if in_groups or other.lane_axis not in others:
        yield 1


def image_bytes(type_: TensorType, axes: tuple[int, int], tiling: Tiling) -> int:
    """Bytes of an array that convolutions make or read: examples and features are in its tiles, as
    pads less."""
    return min(padded_bytes(type_, *axes, tiling), padded_bytes(type_, *axes[::-1], tiling))


def rows_read(program: Program, anchor: HloOperation) -> float:
    """The share of image rows that a convolution reads whose stride skips some."""
    kernel_dims, out_dims = anchor.ints("kernel_dims"), anchor.ints("out_dims")
    if anchor.opcode != "convolution" or len(kernel_dims) < 3:
        return 1.0
    taps = program.types[anchor.operands[1]].shape[kernel_dims[2]] / anchor.ints("strides")[0]
    # In the gradient of a kernel the stride is a dilation, and the taps are the result.
    own_taps = program.types[anchor.results[0]].shape[out_dims[2]] / anchor.ints("rhs_dilation")[0]
    return min(1.0, taps, own_taps)


def row_cycles(program: Program, anchor: HloOperation, costs: CostModel) -> float:
    """Return what a convolution takes on the vector unit whose images come from outside with
    features in lanes, but a row in sublanes: their tiles and those of the result are put together
    of examples."""
    if anchor.opcode != "convolution" or not costs.row_cycles_per_tile:
        return 0.0
    conv = Convolution.of(program, anchor, costs.tiling)
    images, dims = program.types[anchor.operands[0]], anchor.ints("lhs_dims")
    lies = compact_layout(images, costs.tiling)
    is_apart = lies.lane_axis == dims[1] and lies.sublane_axis != dims[0]
    if (
        not is_apart
        or not conv.has_features_in_lanes
        or conv.groups > 1
        or conv.window >= conv.positions
    ):
        return 0.0
    made = TensorType(
        (conv.positions, conv.batch, conv.out_features), program.types[anchor.results[0]].dtype
    )
    return (tiles_of(images, costs) + tiles_of(made, costs)) * costs.row_cycles_per_tile


def depthwise_cycles(program: Program, anchor: HloOperation, costs: CostModel) -> float:
    """Return what a convolution, or the gradient of its kernel, whose groups have one feature takes
    on the vector unit; 0 for others. A convolution works on rows of features, also where examples
    lie in lanes."""
    left, kernel = (program.types[value] for value in anchor.operands[:2])
    result = program.types[anchor.results[0]]
    lhs_dims, kernel_dims, out_dims = (
        anchor.ints(name) for name in ("lhs_dims", "kernel_dims", "out_dims")
    )
    batch_groups = anchor.int("batch_group_count", 1)
    if anchor.int("feature_group_count", 1) > 1 and kernel.shape[kernel_dims[0]] == 1:
        taps: float = math.prod(kernel.shape[axis] for axis in kernel_dims[2:])
        if (dilation := math.prod(anchor.ints("lhs_dilation") or (1,))) > 1:
            taps = taps / dilation * _DILATED_SHARE
        rows = -(-result.shape[out_dims[0]] // SUBLANES) * math.prod(
            result.shape[axis] for axis in out_dims[2:]
        )
        pair = TensorType((result.shape[out_dims[0]], result.shape[out_dims[1]]), result.dtype)
        is_turned = padded_bytes(pair, 0, 1, costs.tiling) < padded_bytes(pair, 1, 0, costs.tiling)
        per_tap = _TAP_CYCLES if is_turned else costs.each_tap_cycles
        return rows * -(-result.shape[out_dims[1]] // LANES) * taps * per_tap / costs.vector_cores
    if batch_groups > 1 and left.shape[lhs_dims[0]] == batch_groups:
        taps = math.prod(result.shape[axis] for axis in out_dims[2:])
        pair = TensorType((left.shape[lhs_dims[1]], batch_groups), left.dtype)
        if padded_bytes(pair, 0, 1, costs.tiling) < padded_bytes(pair, 1, 0, costs.tiling):
            per_tap = _LANES_TAP_CYCLES[bool(costs.prefetch_bytes)] * taps
            return tiles_of(kernel, costs) * (costs.own_lanes_cycles or per_tap)
        rows, packed = pair.shape[0], 1.0
        if costs.own_lanes_cycles:
            packed = (1 + -(-rows // _PACKED) * _PACKED / (-(-rows // SUBLANES) * SUBLANES)) / 2
        return tiles_of(kernel, costs) * packed * taps * costs.own_tap_cycles
    return 0.0


@dataclasses.dataclass(frozen=True, slots=True)
class ConvolutionGroups:
    """Copies around a convolution in groups, or the gradient of its kernel. `turned`: arrays that
    are copied until this axis lies in lanes (examples, with the features of one group in sublanes).
    `apart`: what a result is copied to whose lanes have the features of one group: tiles of groups
    and features. `padded`: tiles of arrays that are copied once more, because a group has fewer
    features than a tile has rows. `crossed`: arrays with a row in sublanes: that comes into lanes
    first, then the features of one group do, with examples in sublanes (types, and axes in a
    tile)."""

    turned: dict[int, int]
    apart: TensorType | None = None
    padded: dict[int, TensorType] = dataclasses.field(default_factory=dict)
    crossed: dict[int, tuple[tuple[TensorType, tuple[int, int]], ...]] = dataclasses.field(
        default_factory=dict
    )

    @classmethod
    def of(cls, program: Program, anchor: HloOperation, tiling: Tiling) -> ConvolutionGroups | None:
        """None for a convolution that has no groups, or groups of one feature."""
        conv = Convolution.of(program, anchor, tiling)
        if conv.groups == 1 or (anchor.int("batch_group_count", 1) > 1 and conv.batch == 1):
            return None
        turned: dict[int, int] = {}
        padded: dict[int, TensorType] = {}
        lhs_dims, kernel_dims, out_dims = (
            anchor.ints(name) for name in ("lhs_dims", "kernel_dims", "out_dims")
        )
        result = program.types[anchor.results[0]]
        images, weights, made = anchor.operands[0], anchor.operands[1], anchor.results[0]
        crossed: dict[int, tuple[tuple[TensorType, tuple[int, int]], ...]] = {}
        if anchor.int("batch_group_count", 1) > 1:
            if conv.has_features_in_lanes:
                turned[anchor.operands[0]] = lhs_dims[1]
                padded |= _fill_up(program, anchor.operands[0], conv.batch, lhs_dims[1])
            if not conv.has_weights_in_order:
                turned[anchor.operands[1]] = kernel_dims[0]
                padded |= _fill_up(program, anchor.operands[1], conv.out_features, kernel_dims[0])
            for value, dims in ((images, (lhs_dims[1], lhs_dims[0])), (weights, kernel_dims)):
                if value not in turned:
                    crossed |= _cross(program, value, dims[0], dims[1], conv.groups, tiling)
            return cls(turned, None, padded, crossed)
        if not conv.has_features_in_lanes:
            turned[anchor.operands[0]] = lhs_dims[0]
            padded |= _fill_up(program, anchor.operands[0], conv.in_features, lhs_dims[0])
        else:
            crossed |= _cross(program, images, lhs_dims[0], lhs_dims[1], conv.groups, tiling)
        if not conv.keeps_weights:
            turned[anchor.results[0]] = out_dims[0]
            return cls(turned, None, padded, crossed)
        if leaving := _cross(program, made, out_dims[0], out_dims[1], conv.groups, tiling):
            return cls(turned, None, padded, crossed | leaving)
        rows = conv.batch * conv.positions * -(-conv.groups // SUBLANES) * SUBLANES
        return cls(
            turned,
            TensorType((rows, -(-conv.out_features // LANES) * LANES), result.dtype),
            {},
            crossed,
        )


def bytes_in_groups(
    program: Program, anchor: HloOperation, tiling: Tiling
) -> tuple[dict[int, int], int]:
    """Bytes of what a convolution in groups reads or makes with groups as an axis: the features of
    one in lanes, with groups in sublanes of what is read, and examples of what is made. Of arrays
    that are not copied otherwise. And bytes of what it has made with groups in sublanes, as that
    leaves."""
    groups = (
        ConvolutionGroups.of(program, anchor, tiling) if anchor.opcode == "convolution" else None
    )
    if groups is None:
        return {}, 0
    of_batch = anchor.int("batch_group_count", 1) > 1
    count = max(anchor.int("feature_group_count", 1), anchor.int("batch_group_count", 1))
    left, kernel, out = (anchor.ints(name)[:2] for name in ("lhs_dims", "kernel_dims", "out_dims"))
    found, leaving = dict[int, int](), 0
    values = ((anchor.operands[0], left[0 if of_batch else 1]), (anchor.operands[1], kernel[1]))
    for value, axis in values:
        if value not in groups.turned and value not in groups.crossed:
            type_ = program.types[value]
            rows = type_.size // type_.shape[axis]
            found[value] = padded_bytes(
                TensorType((rows, count, type_.shape[axis] // count), type_.dtype), 2, 1, tiling
            )
    if not of_batch and anchor.results[0] not in groups.turned:
        type_ = program.types[anchor.results[0]]
        shape = (
            type_.size // type_.shape[out[0]] // type_.shape[out[1]] * count,
            type_.shape[out[0]],
        )
        pair = TensorType((*shape, type_.shape[out[1]] // count), type_.dtype)
        found[anchor.results[0]] = padded_bytes(pair, 2, 1, tiling)
        apart = TensorType((pair.size // count // pair.shape[2], count, pair.shape[2]), type_.dtype)
        leaving = padded_bytes(apart, 2, 1, tiling)
    return found, leaving


def group_shares(
    program: Program, anchor: HloOperation, costs: CostModel
) -> tuple[float, float, float]:
    """Return how many times their own tiles both operands and the result have for a convolution in
    groups, where no copy with examples in lanes is made: the features of one group lie in lanes,
    and in sublanes groups of what is read, and examples of what was copied and of what is made.
    Later chips of one core do not pay for that."""
    if costs.prefetch_bytes and costs.vector_cores == 1:
        return 1.0, 1.0, 1.0
    groups = (
        ConvolutionGroups.of(program, anchor, costs.tiling)
        if anchor.opcode == "convolution"
        else None
    )
    if groups is None:
        return 1.0, 1.0, 1.0
    count, shares = Convolution.of(program, anchor, costs.tiling).groups, list[float]()
    of_batch = anchor.int("batch_group_count", 1) > 1
    lhs_dims, kernel_dims, out_dims = (
        anchor.ints(name) for name in ("lhs_dims", "kernel_dims", "out_dims")
    )
    values = (anchor.operands[0], anchor.operands[1], anchor.results[0])
    for place, (value, dims) in enumerate(
        zip(values, (lhs_dims, kernel_dims, out_dims), strict=True)
    ):
        type_ = program.types[value]
        if value in groups.turned or (of_batch and place == 2) or (not of_batch and place == 1):
            shares.append(1.0)
            continue
        examples, features = (dims[1], dims[0]) if of_batch and place == 0 else dims[:2]
        own, rows = (
            type_.shape[features] // count,
            type_.size // (type_.shape[examples] * type_.shape[features]),
        )
        lanes = -(-own // LANES)
        tiles = rows * type_.shape[examples] * -(-count // SUBLANES) * lanes
        if value in groups.crossed or place == 2:
            tiles = rows * -(-type_.shape[examples] // SUBLANES) * count * lanes
        shares.append(tiles / tiles_of(type_, costs))
    return shares[0], shares[1], shares[2]


def _cross(
    program: Program, value: int, examples: int, features: int, groups: int, tiling: Tiling
) -> dict[int, tuple[tuple[TensorType, tuple[int, int]], ...]]:
    """The copies of an array whose features lie in lanes, but in sublanes no examples, where groups
    in sublanes would
    be mostly padding; empty for others. (Compiled: 15 shapes of 2 to 8 groups on v3 and v4.)"""
    type_ = program.types[value]
    lies = compact_layout(type_, tiling)
    if lies.lane_axis != features or lies.sublane_axis in (None, examples) or examples > features:
        return {}
    shape = type_.shape
    parts = (groups, shape[features] // groups)
    pair = TensorType(parts, type_.dtype)
    row = shape[lies.sublane_axis or 0]
    is_short = -(-row // LANES) * LANES > _MOST_ROW_PADDING * row
    if is_short or padded_bytes(pair, 1, 0, tiling) <= _MOST_PADDING * pair.size * pair.itemsize:
        return {}
    apart = TensorType((*shape[:features], *parts, *shape[features + 1 :]), type_.dtype)
    return {value: ((type_, (lies.sublane_axis or 0, features)), (apart, (features + 1, examples)))}


def _fill_up(program: Program, value: int, features: int, lane_axis: int) -> dict[int, TensorType]:
    """The tiles of an array with these lanes, one for the features of each group; empty where
    groups fill tiles."""
    type_ = program.types[value]
    if features >= SUBLANES:
        return {}
    tiles = type_.size // (type_.shape[lane_axis] * features) * -(-type_.shape[lane_axis] // LANES)
    return {value: TensorType((tiles * SUBLANES, LANES), type_.dtype)}


@dataclasses.dataclass(frozen=True, slots=True)
class Convolution:
    """Sizes of a convolution, of one group where it has several. `window`: taps of the kernel,
    `taps` how many of them meet an input at an output; `row`: taps along the last axis.

    Which of its two axes an array has in lanes is what pads least. It says what stays in the unit:
    features of the result in lanes, and weights stay while positions stream; examples, and inputs
    stay while weights stream."""

    batch: int
    in_features: int
    out_features: int
    groups: int
    positions: int
    window: int
    taps: float
    row: int
    has_features_in_lanes: bool
    has_weights_in_order: bool
    keeps_weights: bool
    is_strided: bool

    @classmethod
    def of(cls, program: Program, anchor: HloOperation, tiling: Tiling) -> Convolution:
        left, kernel = (program.types[value] for value in anchor.operands[:2])
        result = program.types[anchor.results[0]]
        lhs_dims, kernel_dims, out_dims = (
            anchor.ints(name) for name in ("lhs_dims", "kernel_dims", "out_dims")
        )
        of_batch = anchor.int("batch_group_count", 1)
        # ConvolutionGroups of one feature are run as one convolution of few features.
        of_features = (
            anchor.int("feature_group_count", 1) if kernel.shape[kernel_dims[0]] > 1 else 1
        )
        groups = max(of_batch, of_features)
        batch, in_features = left.shape[lhs_dims[0]] // of_batch, kernel.shape[kernel_dims[0]]
        out_features = result.shape[out_dims[1]] // groups
        window = math.prod(kernel.shape[axis] for axis in kernel_dims[2:])

        # Of groups that do not fill a tile's rows (two, on v2 and v3) the axes have another order.
        is_grouped = groups > 1 and tiling.sublanes(groups, result.itemsize) <= groups
        in_order = kernel_dims[1] > kernel_dims[0] and (groups == 1 or is_grouped)

        def first_in_lanes(type_: TensorType, first: int, second: int, wins: bool) -> bool:
            """Of two axes, whether the first is in lanes; of equals the one that `wins`."""
            pair = TensorType((first, second), type_.dtype)
            own, other = padded_bytes(pair, 0, 1, tiling), padded_bytes(pair, 1, 0, tiling)
            return own < other or (own == other and wins)

        # What lies otherwise is copied anyway: features come into lanes.
        lies = (
            lhs_dims[1] > lhs_dims[0] or compact_layout(left, tiling).lane_axis not in lhs_dims[:2]
        )
        return cls(
            batch=batch, in_features=in_features, out_features=out_features, groups=groups,
            window=window,
            positions=math.prod(result.shape[axis] for axis in out_dims[2:]),
            taps=window / math.prod(anchor.ints("lhs_dilation") or (1,)),
            row=kernel.shape[kernel_dims[-1]] if len(kernel_dims) > 2 else 1,
            has_features_in_lanes=first_in_lanes(left, in_features, batch,
                is_grouped if groups > 1 else lies),
            has_weights_in_order=first_in_lanes(kernel, out_features, in_features, in_order),
            keeps_weights=first_in_lanes(
                result, out_features, batch, is_grouped if groups > 1 else out_dims[1] > out_dims[0]
            ),
            is_strided=any(step > 1 for step in anchor.ints("strides")),
        )  # fmt: skip

    def is_cut(self, tiling: Tiling) -> bool:
        """Return whether parts of the images are made more examples, because those alone do not
        fill a tile's rows."""
        is_image = SUBLANES * self.window < self.positions and self.window > 1
        return (
            is_image and self.has_few_examples(tiling) and self.groups == 1 and self.keeps_weights
        )

    def has_few_examples(self, tiling: Tiling) -> bool:
        return self.batch <= (1 if tiling.min_sublanes > 1 else SUBLANES - 1)

    def mxu_cycles(self, costs: CostModel) -> float:
        per_position = self._with_weights(costs) if self.keeps_weights else self._with_inputs(costs)
        is_wide = costs.mxu_edge > LANES and (self.keeps_weights or self.groups > 1)
        stretch = _WIDE_STRETCH if is_wide else costs.mxu_stretch
        return self.groups * self.positions * per_position / costs.mxu_count * stretch

    def _with_weights(self, costs: CostModel) -> float:
        """Rows are examples. Every position of a dilated convolution meets other taps: weights
        change every time."""
        edge, load = costs.mxu_edge, self._load_rows(costs)
        rows = _up(self.batch) if self.has_features_in_lanes else max(_TURNED_ROWS, _up(self.batch))
        if self.is_cut(costs.tiling):
            rows = self.batch
        if not self.has_weights_in_order:
            load *= min(1.0, self.out_features / edge)
        elif self.has_features_in_lanes or self.taps < self.window:
            shared = _TAPS_IN_LANES if self.taps == self.window else 1
            load *= min(1.0, shared * self.in_features / edge)
        times = self.positions if self.taps == self.window else 1
        if edge > LANES and self.has_features_in_lanes:
            columns = max(1.0, _tiles(self.out_features, edge))
            if not self.has_weights_in_order:
                return self._wide_passes(edge) * columns * max(rows, load / times)
            # Few rows: tiles of all columns but the first are loaded meanwhile.
            tiles = 1 if self.batch < SUBLANES else -(-self.out_features // LANES)
            loaded = -(-self.in_features // _PACKED) * tiles * _TILE_LOAD_ROWS
            return self._wide_passes(edge) * columns * rows + self.taps * loaded / times
        columns = math.ceil(self.out_features / edge)
        if self._has_few_rows(costs):
            if not self.has_weights_in_order:
                return self._passes(costs) * columns * _FEW_ROWS[costs.near_write_share > 0] * rows
            filled = min(
                1.0, self.in_features * min(LANES, self.out_features) / (_LEAST_LOAD * LANES)
            )
            loads = (
                self.taps
                * math.ceil(self.in_features / edge)
                * filled
                * self._load_rows(costs)
                / times
            )
            return columns * max(self._passes(costs) * rows, loads)
        return self._passes(costs) * columns * max(rows, load / times)

    def _has_few_rows(self, costs: CostModel) -> bool:
        """Return whether it is the gradient of a kernel of few features, from v4 to v5p: weights of
        every tap are loaded for few rows, also where taps share a pass."""
        is_later = costs.mxu_edge == LANES and costs.prefetch_bytes > 0
        is_few = self.batch < SUBLANES and self.window > self.positions and self.groups == 1
        return is_later and is_few and self.has_features_in_lanes

    def _wide_passes(self, edge: int) -> float:
        """The same of a unit of two tiles: a tap takes half of its depth or all of it. Where
        features of at most one tile lie in lanes, as many taps share a pass as there is room for,
        if each reads the row next to the last."""
        each = _tiles(self.in_features, edge)
        if self.taps < self.window:
            return self.taps * -(-self.in_features // edge)
        if self.is_strided or not self.has_weights_in_order or self.in_features > LANES:
            return self.taps * each
        own = 1 << (self.in_features - 1).bit_length()
        shared = edge // max(_PACKED, own)
        is_one = LANES // 2 < self.out_features <= LANES
        if (
            own == LANES
            and not is_one
            and self.in_features == LANES
            and self.window <= self.positions
        ):
            return float(self.window)
        passes = math.ceil(self.window / shared)
        return max(1.0, passes / 2) if is_one and own < LANES else passes

    def _passes(self, costs: CostModel) -> float:
        """Return how often a position goes through the unit. Taps share the depth of a tile where
        features lie in sublanes. Where few of them lie in lanes, they do so pair by pair, from v4
        on those of a row."""
        edge = costs.mxu_edge
        each = math.ceil(self.in_features / edge)
        if self.taps < self.window or (
            self.has_features_in_lanes and not self.has_weights_in_order
        ):
            return self.taps * each
        if not self.has_features_in_lanes:
            return math.ceil(self.taps * _up(self.in_features) / edge)
        if not costs.prefetch_bytes:
            # Of the gradient of a kernel of few features as many taps as from v4 on.
            is_few = self.batch < SUBLANES and self.window > self.positions
            shared = _TAPS_IN_ROW if is_few else _TAPS_IN_LANES
            pairs = math.ceil(self.taps * max(self.in_features, edge / shared) / edge)
            # Of a long row as many as there is room for.
            in_row = edge // max(self.in_features, _PACKED) or 1
            return (
                min(pairs, self.window / self.row * math.ceil(self.row / in_row))
                if each == 1
                else pairs
            )
        whole, left = divmod(self.in_features, edge)
        together = min(_TAPS_IN_ROW, edge // left) if left else math.inf
        return self.window * whole + self.window / self.row * math.ceil(self.row / together)

    def _load_rows(self, costs: CostModel) -> float:
        """Rows that loading a whole tile takes; a dilated convolution of several taps has other
        weights at every position."""
        is_changed = 1 < self.window > self.taps and costs.changed_load_rows > 0
        return costs.changed_load_rows if is_changed else costs.weight_load_rows

    def _with_inputs(self, costs: CostModel) -> float:
        """Columns are examples, rows are features of the result."""
        edge, load = costs.mxu_edge, self._load_rows(costs) / costs.mxu_edge
        lanes, rows = _tiles(self.batch, edge), -(-self.out_features // SUBLANES) * SUBLANES
        loaded = _up(self.in_features)
        if (
            not self.has_features_in_lanes
            and self.has_weights_in_order
            and self.taps == self.window
        ):
            if self.in_features < SUBLANES:
                packed = (
                    self.window / self.row * (-(-self.row * self.in_features // _PACKED) * _PACKED)
                )
                return math.ceil(lanes) * max(packed * load, math.ceil(packed / edge) * rows)
            if self.groups == 1 or self.window > self.positions:
                passes = self.window / self.row * _tiles(self.row * loaded, edge)
                return lanes * max(self.window * loaded * load, passes * rows)
            return lanes * self.taps * max(loaded * load, rows)
        tiles = _tiles(self.in_features, edge)
        if edge > LANES:
            return self.taps * max(self._loaded_rows(edge) * load, lanes * max(1.0, tiles) * rows)
        if self.has_features_in_lanes:
            loaded = min(edge, _up(self.batch))
        elif tiles > 1:
            loaded = edge
        return lanes * self.taps * tiles * max(loaded * load, rows)

    def _loaded_rows(self, edge: int) -> int:
        """Rows of inputs that a unit of two tiles loads for a tap, tile by tile; two at once where
        both fill it."""
        if self.has_features_in_lanes:
            return min(
                _up(self.batch) * -(-self.in_features // LANES),
                _up(self.in_features) * -(-self.batch // edge),
            )
        return _up(self.in_features) * -(
            -self.batch // (LANES if self.in_features % edge else edge)
        )


def _tiles(extent: int, edge: int) -> float:
    """Return how many tiles of a matrix unit an extent takes; where its edge is two tiles of the
    memory, half of one, too."""
    return -(-extent // LANES) * LANES / edge


def _up(extent: int) -> int:
    """Rows of whole tiles, or of half a tile where those are enough; one row comes as a pair."""
    half = SUBLANES // 2
    return -(-extent // SUBLANES) * SUBLANES if extent > half else min(half, 2 * extent)
