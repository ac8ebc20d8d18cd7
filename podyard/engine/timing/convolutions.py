"""What products and convolutions are to the matrix units."""

from __future__ import annotations

import math

from podyard.engine.program.ir import HloOperation, Program
from podyard.engine.timing.kernels import Product, tiles_of
from podyard.engine.timing.layout import LANES
from podyard.hardware.cost_model import SUBLANES, CostModel

# Rows that one tap of a kernel's gradient streams at least; for how many of its taps a turned kernel takes a pass.
_MIN_TAP_ROWS = 64
# bfloat16 numbers come in rows of pairs: 16 sublanes.
_PACKED = 16
_TURNED_SHARE = 0.85


def product_of(
    program: Program,
    anchor: HloOperation,
    left_bytes: float,
    right_bytes: float,
    result: float,
    passes: float,
    costs: CostModel,
    turned: bool = False,
) -> Product:
    """The matrix product that a dot or a convolution is."""
    left, right = (program.types[value].shape for value in anchor.operands[:2])
    if anchor.opcode == "dot_general":
        batch = math.prod(left[axis] for axis in anchor.ints("lhs_batching"))
        k = math.prod(left[axis] for axis in anchor.ints("lhs_contracting"))
        m = math.prod(left) // max(1, batch * k)
        n = math.prod(right) // max(1, batch * k)
        return Product(max(batch, 1), max(m, 1), max(k, 1), max(n, 1), left_bytes, right_bytes, result, passes)
    conv = Convolution.of(program, anchor, turned)
    return Product(
        1, conv.batch * conv.positions, max(1, round(conv.taps * conv.in_features)), conv.out_features,
        left_bytes, right_bytes, result, passes, conv.mxu_cycles(costs),
    )  # fmt: skip


def rows_read(program: Program, anchor: HloOperation) -> float:
    """The share of image rows that a convolution reads whose stride skips some."""
    kernel_dims, out_dims = anchor.ints("kernel_dims"), anchor.ints("out_dims")
    if anchor.opcode != "convolution" or len(kernel_dims) < 3:
        return 1.0
    taps = program.types[anchor.operands[1]].shape[kernel_dims[2]] / anchor.ints("strides")[0]
    # In the gradient of a kernel the stride is a dilation, and the taps are the result.
    own_taps = program.types[anchor.results[0]].shape[out_dims[2]] / anchor.ints("rhs_dilation")[0]
    return min(1.0, taps, own_taps)


def depthwise_taps(program: Program, anchor: HloOperation, costs: CostModel) -> float:
    """Tiles times taps of a convolution, or of its kernel's gradient, whose groups have one feature; else 0."""
    left, kernel = (program.types[value] for value in anchor.operands[:2])
    result = program.types[anchor.results[0]]
    kernel_dims, batch_groups = anchor.ints("kernel_dims"), anchor.int("batch_group_count", 1)
    if anchor.int("feature_group_count", 1) > 1 and kernel.shape[kernel_dims[0]] == 1:
        swept, window, dims = result, kernel, kernel_dims
    elif batch_groups > 1 and left.shape[anchor.ints("lhs_dims")[0]] == batch_groups:
        swept, window, dims = kernel, result, anchor.ints("out_dims")
    else:
        return 0.0
    return tiles_of(swept, costs) * math.prod(window.shape[axis] for axis in dims[2:])


def has_small_groups(program: Program, anchor: HloOperation) -> bool:
    """Whether a convolution, or the gradient of its kernel, has groups of fewer features than there are lanes, but not
    of one."""
    if anchor.opcode != "convolution":
        return False
    groups = max(anchor.int("feature_group_count", 1), anchor.int("batch_group_count", 1))
    left, kernel = (program.types[value].shape for value in anchor.operands[:2])
    if anchor.int("batch_group_count", 1) > 1:
        features = left[anchor.ints("lhs_dims")[0]] // groups
    else:
        features = kernel[anchor.ints("kernel_dims")[0]]
    return groups > 1 and 1 < features < LANES


class Convolution:
    """Sizes of a convolution: `taps` is the mean number of kernel positions that meet an input at an output; `turned`:
    its kernel is a reversed one, as in the gradient of the input."""

    def __init__(
        self, batch: int, in_features: int, out_features: int, positions: int, window: int, taps: float, turned: bool,
        kernel_rows: int, groups: int,
    ) -> None:  # fmt: skip
        self.batch = batch
        self.in_features = in_features
        self.out_features = out_features
        self.positions = positions
        self.window = window
        self.taps = taps
        self.turned = turned
        self.kernel_rows = kernel_rows
        self.groups = groups

    @classmethod
    def of(cls, program: Program, anchor: HloOperation, turned: bool) -> Convolution:
        left, kernel = (program.types[value].shape for value in anchor.operands[:2])
        result = program.types[anchor.results[0]].shape
        lhs_dims, kernel_dims, out_dims = (anchor.ints(name) for name in ("lhs_dims", "kernel_dims", "out_dims"))
        window = math.prod(kernel[axis] for axis in kernel_dims[2:])
        dilation = math.prod(anchor.ints("lhs_dilation") or (1,))
        # Groups of one feature are run as one convolution of few features, others one after the other.
        groups = anchor.int("feature_group_count", 1) if kernel[kernel_dims[0]] > 1 else 1
        return cls(
            batch=left[lhs_dims[0]], in_features=kernel[kernel_dims[0]],
            out_features=result[out_dims[1]] // groups, groups=groups,
            positions=math.prod(result[axis] for axis in out_dims[2:]), window=window, taps=window / dilation,
            turned=turned, kernel_rows=kernel[kernel_dims[2]] if len(kernel_dims) > 2 else 1,
        )  # fmt: skip

    def mxu_cycles(self, costs: CostModel) -> float:
        """The better of two mappings. Either weights stay in the array and positions stream, or activations stay and
        weights stream (batch in lanes). A stationary tile takes `weight_load_rows` at least."""
        edge, load = costs.mxu_edge, max(costs.weight_load_rows, 1.0)
        if self.window > self.positions:
            cycles = self._of_kernel_gradient(edge, load)
        else:
            cycles = self._of_activations(edge, load)
        return self.groups * cycles / costs.mxu_count * costs.mxu_stretch

    def _of_activations(self, edge: int, load: float) -> float:
        depth = self.taps * self.in_features
        column_tiles, rows, out_rows = math.ceil(self.out_features / edge), _up(self.batch), _up(self.out_features)
        lane_tiles = math.ceil(self.batch / edge)
        if self.taps < self.window:
            # Every position of a dilated convolution meets other taps: weights change at every position.
            own_load = max(rows, _PACKED, min(load, 2 * out_rows))
            weights_stay = self.positions * (depth / edge) * column_tiles * own_load
            return min(weights_stay, self.positions * lane_tiles * max(1.0, depth / edge) * max(load, out_rows))
        passes = math.ceil(depth / edge)
        batch_in_lanes = self.positions * lane_tiles * passes * max(load, out_rows)
        if self.in_features < SUBLANES:
            # Few features are packed with their taps, row by row of the kernel; only activations can stay then.
            packed = self.kernel_rows * -(-self.window // self.kernel_rows * self.in_features // _PACKED) * _PACKED
            passes = math.ceil(packed / edge) if self.batch >= edge else max(1, round(depth / edge))
            own_load = load * min(1.0, packed / (passes * edge))
            return self.positions * lane_tiles * passes * max(own_load, out_rows)
        if self.turned:
            # Neighbouring taps of a turned kernel share no pass.
            passes = max(passes, round(_TURNED_SHARE * self.window * math.ceil(self.in_features / edge)))
        weights_stay = self.positions * passes * column_tiles * max(rows, load / self.positions)
        return min(weights_stay, batch_in_lanes)

    def _of_kernel_gradient(self, edge: int, load: float) -> float:
        """Here the batch axis is the input features, the in features are examples: the window runs over the image."""
        depth_tiles = max(1.0, self.in_features * self.window / edge)
        rows = self.positions * _up(self.batch)
        if self.batch < SUBLANES:
            rows = _up(self.positions * self.batch)
        elif self.in_features < edge:
            # Examples in sublanes: every tap streams by itself.
            rows = max(rows, self.positions * _MIN_TAP_ROWS)
        # A narrow stationary tile is loaded sooner.
        gradients_stay = math.ceil(self.out_features / edge) * max(load * min(1.0, self.out_features / edge), rows)
        inputs_stay = math.ceil(self.positions * self.batch / edge) * max(load, _up(self.out_features))
        return depth_tiles * min(gradients_stay, inputs_stay)


def _up(extent: int) -> int:
    return -(-extent // SUBLANES) * SUBLANES
