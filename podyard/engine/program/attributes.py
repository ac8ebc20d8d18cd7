"""Attributes of operations by one set of names, whether they were printed prettily, generically, or come from JAX.

| operation | attributes |
|---|---|
| dot_general | lhs_contracting, rhs_contracting, lhs_batching, rhs_batching, precision |
| convolution | lhs_dims, out_dims (batch, feature, spatial...), kernel_dims (in, out, spatial...), strides, padding (flat: low, high, ...), lhs_dilation, rhs_dilation, feature_group_count, batch_group_count, precision |
| broadcast_in_dim, transpose, reverse, reduce | dims |
| reduce_window, select_and_scatter | window, strides, padding |
| slice | starts, limits, strides; dynamic_slice, gather: sizes |
| concatenate, iota, sort, all_gather, all_to_all, reduce_scatter | dim |
| constant | value, when it is one number |
| compare, custom_call | direction, target |
"""  # noqa: E501

from __future__ import annotations

from collections.abc import Sequence

from podyard.engine.program.ir import Operation, TensorType

_RENAMED = {
    "broadcast_in_dim": {"dims": "dims", "broadcast_dimensions": "dims"},
    "transpose": {"dims": "dims", "permutation": "dims"},
    "reverse": {"dims": "dims", "dimensions": "dims"},
    "reduce": {"dimensions": "dims", "dims": "dims"},
    "reduce_window": {"window_dimensions": "window", "window_strides": "strides", "base_dilations": "base_dilation"},
    "select_and_scatter": {"window_dimensions": "window", "window_strides": "strides"},
    "concatenate": {"dim": "dim", "dimension": "dim"},
    "iota": {"dim": "dim", "iota_dimension": "dim"},
    "sort": {"dimension": "dim"},
    "all_gather": {"all_gather_dim": "dim"},
    "all_to_all": {"split_dimension": "dim"},
    "reduce_scatter": {"scatter_dimension": "dim"},
    "dynamic_slice": {"sizes": "sizes", "slice_sizes": "sizes"},
    "gather": {"slice_sizes": "sizes"},
    "pad": {"low": "low", "edge_padding_low": "low", "high": "high", "edge_padding_high": "high"},
}


def normalised(operation: Operation, positional: Sequence[object], operands: Sequence[TensorType]) -> dict[str, object]:
    """The attributes of the table above, from those that were read."""
    given = operation.attributes
    opcode = operation.opcode
    if opcode == "dot_general":
        return _dot(given)
    if opcode in ("convolution", "dynamic_conv"):
        return _convolution(given, operands)
    if opcode == "slice":
        return _slice(given, positional)
    if opcode == "constant":
        value = positional[0] if positional else given.get("value")
        return {"value": value} if isinstance(value, int | float) else {}
    if opcode == "compare":
        direction = positional[0] if positional else given.get("comparison_direction")
        return {"direction": str(direction).strip("<>").rpartition(" ")[2]}
    if opcode == "custom_call":
        target = next(
            (str(item)[1:] for item in positional if str(item).startswith("@")), given.get("call_target_name")
        )
        return {"target": str(target)}
    names = _RENAMED.get(opcode, {})
    result = {names.get(name, name): value for name, value in given.items()}
    if "padding" in result:
        result["padding"] = flat_ints(result["padding"])
    return result


def flat_ints(value: object) -> tuple[int, ...]:
    """The whole numbers of nested lists, in order."""
    if isinstance(value, bool):
        return ()
    if isinstance(value, int):
        return (value,)
    if isinstance(value, tuple | list):
        return tuple(number for item in value for number in flat_ints(item))
    return ()


def _pair(value: object) -> tuple[tuple[int, ...], tuple[int, ...]]:
    if isinstance(value, tuple) and len(value) == 2 and all(isinstance(part, tuple) for part in value):
        return flat_ints(value[0]), flat_ints(value[1])
    return (), ()


def _precision(given: dict[str, object]) -> str:
    """The more exact of the two operands' precisions."""
    text = str(given.get("precision", given.get("precision_config", "")))
    return "HIGHEST" if "HIGHEST" in text else "HIGH" if "HIGH" in text else "DEFAULT"


def _dot(given: dict[str, object]) -> dict[str, object]:
    numbers = given.get("dot_dimension_numbers")
    if isinstance(numbers, dict):
        contracting = (
            flat_ints(numbers.get("lhs_contracting_dimensions")),
            flat_ints(numbers.get("rhs_contracting_dimensions")),
        )
        batching = flat_ints(numbers.get("lhs_batching_dimensions")), flat_ints(numbers.get("rhs_batching_dimensions"))
    else:
        contracting, batching = _pair(given.get("contracting_dims")), _pair(given.get("batching_dims"))
    return {
        "lhs_contracting": contracting[0], "rhs_contracting": contracting[1],
        "lhs_batching": batching[0], "rhs_batching": batching[1], "precision": _precision(given),
    }  # fmt: skip


def _axes(labels: object, first: str, second: str) -> tuple[int, ...]:
    """`[b, 0, 1, f]` -> the axes of b, f, 0, 1."""
    names = [str(label) for label in labels] if isinstance(labels, tuple) else []
    spatial = sorted((name for name in names if name.isdigit()), key=int)
    return tuple(names.index(name) for name in [first, second, *spatial] if name in names)


def _convolution(given: dict[str, object], operands: Sequence[TensorType]) -> dict[str, object]:
    labels = given.get("dim_numbers", given.get("dimension_numbers"))
    lhs, kernel, out = labels if isinstance(labels, tuple) and len(labels) == 3 else ((), (), ())
    window = given.get("window")
    window = window if isinstance(window, dict) else {}
    rank = max(0, len(operands[0].shape) - 2) if operands else 0

    def of(short: str, long: str, default: int) -> tuple[int, ...]:
        return flat_ints(window.get(short, given.get(long))) or (default,) * rank

    padding = flat_ints(window.get("pad", given.get("padding")))
    return {
        "lhs_dims": _axes(lhs, "b", "f"), "kernel_dims": _axes(kernel, "i", "o"), "out_dims": _axes(out, "b", "f"),
        "strides": of("stride", "window_strides", 1), "padding": padding or (0,) * (2 * rank),
        "lhs_dilation": of("lhs_dilate", "lhs_dilation", 1), "rhs_dilation": of("rhs_dilate", "rhs_dilation", 1),
        "feature_group_count": given.get("feature_group_count", 1),
        "batch_group_count": given.get("batch_group_count", 1), "precision": _precision(given),
    }  # fmt: skip


def _slice(given: dict[str, object], positional: Sequence[object]) -> dict[str, object]:
    if positional and isinstance(positional[0], tuple):
        bounds = [flat_ints(part) for part in positional[0]]
        return {
            "starts": tuple(part[0] for part in bounds), "limits": tuple(part[1] for part in bounds),
            "strides": tuple(part[2] if len(part) > 2 else 1 for part in bounds),
        }  # fmt: skip
    limits = flat_ints(given.get("limit_indices"))
    starts = flat_ints(given.get("start_indices")) or (0,) * len(limits)
    return {"starts": starts, "limits": limits, "strides": flat_ints(given.get("strides")) or (1,) * len(limits)}
