"""Attributes of operations by one set of names, whether they were printed prettily, generically, or come from JAX.

| operation | attributes |
|---|---|
| dot_general | lhs_contracting, rhs_contracting, lhs_batching, rhs_batching, precision |
| convolution | lhs_dims, out_dims (batch, feature, spatial...), kernel_dims (in, out, spatial...), strides, padding (flat: low, high, ...), lhs_dilation, rhs_dilation, feature_group_count, batch_group_count, precision |
| broadcast_in_dim, transpose, reverse, reduce | dims |
| reduce_window, select_and_scatter | window, strides, padding |
| slice | starts, limits, strides; dynamic_slice, gather, scatter (its windows in the operand): sizes; scatter: moving (axes along which its windows lie at places) |
| concatenate, iota, sort, all_gather, all_to_all, reduce_scatter | dim |
| constant | value, when it is one number |
| compare | direction |
| custom_call | target, kernel (what it does, where the module says so) |
"""  # noqa: E501

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from podyard.base.errors import Code, PodyardError
from podyard.engine.cost.custom_call import KERNEL, read_kernel_cost
from podyard.engine.program.custom_calls import host_call_names
from podyard.engine.program.ir import HloOperation, TensorType

_RENAMED = {
    "broadcast_in_dim": {"dims": "dims", "broadcast_dimensions": "dims"},
    "transpose": {"dims": "dims", "permutation": "dims"},
    "reverse": {"dims": "dims", "dimensions": "dims"},
    "reduce": {"dimensions": "dims", "dims": "dims"},
    "reduce_window": {
        "window_dimensions": "window",
        "window_strides": "strides",
        "base_dilations": "base_dilation",
    },
    "select_and_scatter": {"window_dimensions": "window", "window_strides": "strides"},
    "concatenate": {"dim": "dim", "dimension": "dim"},
    "iota": {"dim": "dim", "iota_dimension": "dim"},
    "sort": {"dimension": "dim"},
    "all_gather": {"all_gather_dim": "dim"},
    "all_to_all": {"split_dimension": "dim"},
    "reduce_scatter": {"scatter_dimension": "dim"},
    "dynamic_slice": {"sizes": "sizes", "slice_sizes": "sizes"},
    "gather": {"slice_sizes": "sizes"},
    "pad": {
        "low": "low",
        "edge_padding_low": "low",
        "high": "high",
        "edge_padding_high": "high",
        "interior_padding": "interior",
    },
}

_LISTS = frozenset({"dims", "sizes", "low", "high", "interior", "padding", "window", "strides"})


def normalise(
    operation: HloOperation, positional: Sequence[object], operands: Sequence[TensorType]
) -> dict[str, object]:
    """The attributes of the table above, from those that were read."""
    given = operation.attributes
    opcode = operation.opcode
    if opcode == "dot_general":
        return _dot(given)
    if opcode in ("convolution", "dynamic_conv"):
        return _convolution(given, operands)
    if opcode == "slice":
        return _slice(given, positional, len(operands[0].shape) if operands else 0)
    if opcode == "constant":
        value = positional[0] if positional else given.get("value")
        return {"value": value} if isinstance(value, int | float) else {}
    if opcode == "compare":
        direction = positional[0] if positional else given.get("comparison_direction")
        return {"direction": str(direction).strip("<>").rpartition(" ")[2]}
    if opcode == "custom_call":
        target = next(
            (str(item)[1:] for item in positional if str(item).startswith("@")),
            given.get("call_target_name"),
        )
        cost = read_kernel_cost(given, str(target))
        kernel = {} if cost is None else {KERNEL: cost}
        return {"target": str(target)} | host_call_names(given, str(target)) | kernel
    if opcode == "scatter":
        return _scatter(given, operands)
    names = _RENAMED.get(opcode, {})
    result = {names.get(name, name): value for name, value in given.items()}
    rank = len(operands[0].shape) if operands else 0
    for name in _LISTS & result.keys():
        count = 1 if name == "dims" else 2 * rank if name == "padding" else rank
        result[name] = _spread(flat_ints(result[name]), count)
    if opcode == "reduce" and (by := _reducer(operation, positional)):
        result["by"] = by
    return result


def _reducer(operation: HloOperation, positional: Sequence[object]) -> str:
    """Return what a reduction does with two numbers: `applies stablehlo.maximum`, or a body of one
    operation; else nothing."""
    named = [str(item) for item in positional]
    if "applies" in named[:-1]:
        return named[named.index("applies") + 1].rpartition(".")[2]
    done = [step.opcode for body in operation.bodies for step in body.operations]
    return done[0] if len(done) == 1 else ""


def _scatter(given: dict[str, object], operands: Sequence[TensorType]) -> dict[str, object]:
    numbers = given.get("scatter_dimension_numbers")
    if not isinstance(numbers, dict):
        return {}
    if len(operands) != 3:
        return {"dimension_numbers": numbers}
    dims = {name: flat_ints(value) for name, value in numbers.items()}
    narrow = (*dims.get("inserted_window_dims", ()), *dims.get("input_batching_dims", ()))
    shapes = operands[0].shape, operands[2].shape
    sizes = scattered_window(*shapes, dims.get("update_window_dims", ()), narrow)
    # Axes along which a window that is a part of the operand lies where the places say.
    moving = (axis for axis in dims.get("scatter_dims_to_operand_dims", ()) if axis not in narrow)
    own = tuple(
        axis for axis in moving if axis < len(sizes) and sizes[axis] < operands[0].shape[axis]
    )
    return {"sizes": sizes, "moving": own, "dimension_numbers": numbers}


def scattered_window(
    shape: Sequence[int],
    updates: Sequence[int],
    window_dims: Sequence[int],
    narrow_dims: Sequence[int],
) -> tuple[int, ...]:
    """The extents of what a scatter writes at one place; `narrow_dims` are axes of the operand that
    updates lack."""
    extents = iter([updates[axis] for axis in window_dims if axis < len(updates)])
    return tuple(1 if axis in narrow_dims else next(extents, 1) for axis in range(len(shape)))


def _spread(numbers: tuple[int, ...], count: int) -> tuple[int, ...]:
    """`dense<0>` is as many zeros as its type says."""
    return numbers * count if len(numbers) == 1 else numbers


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
    if (
        isinstance(value, tuple)
        and len(value) == 2
        and all(isinstance(part, tuple) for part in value)
    ):
        return flat_ints(value[0]), flat_ints(value[1])
    return (), ()


# Passes over bfloat16 parts, by the number of products that an algorithm names: what the compiler
# makes of them.
_PRECISION_OF_PASSES = {1: "DEFAULT", 3: "HIGH", 6: "HIGHEST"}
_ALGORITHM_TYPES = ("lhs_precision_type", "rhs_precision_type", "accumulation_type")
_ALGORITHM_FIELD = re.compile(r"(\w+)\s*=\s*(\w+)")


def algorithm_precision(types: Iterable[str], products: int) -> str:
    """The precision that a dot algorithm is: bfloat16 parts, float32 sums. Raises UNIMPLEMENTED for
    all others, as the TPU compiler does."""
    named = "_".join(types).upper()
    if named != "BF16_BF16_F32" or products not in _PRECISION_OF_PASSES:
        name = named + (f"_X{products}" if products > 1 else "")
        raise PodyardError(
            Code.UNIMPLEMENTED,
            f"the dot algorithm {name} does not exist on TPUs: use BF16_BF16_F32",
        )
    return _PRECISION_OF_PASSES[products]


def jax_precision(params: Mapping[str, Any]) -> str:
    """Of a primitive's parameters: a precision, the name of an algorithm, or an algorithm
    itself."""
    given: Any = params.get("precision")
    text = str(given).upper()
    if hasattr(given, "num_primitive_operations"):
        own = (given.lhs_precision_type, given.rhs_precision_type, given.accumulation_type)
        types = [np.dtype(one).name.replace("bfloat", "bf").replace("float", "f") for one in own]
        return algorithm_precision(types, given.num_primitive_operations)
    if "_F32" in text:
        named, _, products = text.partition("_X")
        return algorithm_precision([named], int(products or 1))
    return _named_precision(text)


def _named_precision(text: str) -> str:
    return "HIGHEST" if "HIGHEST" in text else "HIGH" if "HIGH" in text else "DEFAULT"


def _precision(given: dict[str, object]) -> str:
    """The more exact of the two operands' precisions, or what an algorithm says instead."""
    algorithm = given.get("algorithm", {})
    fields = (
        algorithm if isinstance(algorithm, dict) else dict(_ALGORITHM_FIELD.findall(str(algorithm)))
    )
    if fields:
        types = (str(fields.get(name, "")) for name in _ALGORITHM_TYPES)
        return algorithm_precision(types, int(fields.get("num_primitive_operations", 1)))
    return _named_precision(str(given.get("precision", given.get("precision_config", ""))))


def _dot(given: dict[str, object]) -> dict[str, object]:
    numbers = given.get("dot_dimension_numbers")
    if isinstance(numbers, dict):
        contracting = (
            flat_ints(numbers.get("lhs_contracting_dimensions")),
            flat_ints(numbers.get("rhs_contracting_dimensions")),
        )
        batching = (
            flat_ints(numbers.get("lhs_batching_dimensions")),
            flat_ints(numbers.get("rhs_batching_dimensions")),
        )
    else:
        contracting, batching = (
            _pair(given.get("contracting_dims")),
            _pair(given.get("batching_dims")),
        )
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
        return _spread(flat_ints(window.get(short, given.get(long))) or (default,), rank)

    padding = _spread(flat_ints(window.get("pad", given.get("padding"))) or (0,), 2 * rank)
    return {
        "lhs_dims": _axes(lhs, "b", "f"), "kernel_dims": _axes(kernel, "i", "o"),
        "out_dims": _axes(out, "b", "f"),
        "strides": of("stride", "window_strides", 1), "padding": padding,
        "lhs_dilation": of("lhs_dilate", "lhs_dilation", 1),
        "rhs_dilation": of("rhs_dilate", "rhs_dilation", 1),
        "feature_group_count": given.get("feature_group_count", 1),
        "batch_group_count": given.get("batch_group_count", 1), "precision": _precision(given),
    }  # fmt: skip


def _slice(given: dict[str, object], positional: Sequence[object], rank: int) -> dict[str, object]:
    if positional and isinstance(positional[0], tuple):
        bounds = [flat_ints(part) for part in positional[0]]
        if any(len(part) not in (2, 3) for part in bounds):
            return {}
        return {
            "starts": tuple(part[0] for part in bounds),
            "limits": tuple(part[1] for part in bounds),
            "strides": tuple(part[2] if len(part) > 2 else 1 for part in bounds),
        }  # fmt: skip
    names = {"starts": "start_indices", "limits": "limit_indices", "strides": "strides"}
    return {name: _spread(flat_ints(given.get(long)), rank) for name, long in names.items()}


def contradiction(
    operation: HloOperation, operands: Sequence[TensorType], results: Sequence[TensorType]
) -> str:
    """Return what makes an operation impossible: too few operands, axes that its arrays do not
    have, shapes that do not follow from each other. Empty where there is nothing; not all that a
    verifier knows, but all that the models rely on."""
    opcode = operation.opcode
    least = 0 if opcode in _WITHOUT_OPERANDS else _LEAST_OPERANDS.get(opcode, 1)
    if len(operands) < least or (opcode in _SAME_SHAPE and len(operands) > least):
        return f"has {len(operands)} operands"
    checked = (
        opcode in _SHAPE_RULES
        or opcode in _SAME_SHAPE
        or opcode in _SAME_RANK
        or opcode in ("reshape", "sort")
    )
    if checked and not results:
        return "has no result"
    return (
        ""
        if not checked or _fits(operation, operands, results[0])
        else "does not fit its operands and results"
    )


def control_problem(operation: HloOperation, types: Sequence[TensorType]) -> str:
    """Return the problem with the bodies of a loop or a conditional, or an empty string. `types`:
    by value."""
    if operation.opcode not in ("while", "case", "if"):
        return ""

    def types_of(values: Sequence[int]) -> list[TensorType]:
        return [types[value] for value in values]

    bodies, results = operation.bodies, types_of(operation.results)
    if len(bodies) != 2 and (operation.opcode != "case" or not bodies):
        return f"has {len(bodies)} bodies"
    if operation.opcode == "while":
        carried = [types_of(body.parameters) for body in bodies] + [types_of(operation.operands)]
        if any(own != results for own in carried) or len(bodies[0].results) != 1:
            return "carries other values than it gives"
        bodies = bodies[1:]
    if any(types_of(body.results) != results for body in bodies):
        return "has a body that returns something else"
    return ""


def _fits(operation: HloOperation, operands: Sequence[TensorType], result: TensorType) -> bool:
    opcode = operation.opcode
    if opcode in _SAME_SHAPE:
        return all(one.shape == result.shape for one in operands)
    if opcode in _SAME_RANK:
        return len(operands[0].shape) == len(result.shape)
    if opcode == "reshape":
        return operands[0].size == result.size
    if opcode == "sort":
        return _axes_in((operation.int("dim"),), result)
    return _SHAPE_RULES[opcode](operation, operands, result)


_WITHOUT_OPERANDS = frozenset({
    "constant", "iota", "create_token", "after_all", "partition_id", "replica_id", "custom_call",
    "while", "tuple",
    "optimization_barrier", "manual_computation", "dynamic_iota", "composite", "get_dimension_size",
    "infeed", "recv",
})  # fmt: skip
_LEAST_OPERANDS = {
    "dot_general": 2, "convolution": 2, "compare": 2, "select": 3, "clamp": 3, "pad": 2,
    "reduce_window": 2,
    "select_and_scatter": 3, "gather": 2, "scatter": 3, "dynamic_update_slice": 2, "reduce": 2,
    **dict.fromkeys(("add", "subtract", "multiply", "divide", "maximum", "minimum", "power", "and",
        "or", "xor"), 2),
}  # fmt: skip
_SAME_SHAPE = frozenset({
    "add", "subtract", "multiply", "divide", "maximum", "minimum", "power", "and", "or", "xor",
    "exponential", "log",
    "tanh", "negate", "rsqrt", "sqrt", "convert", "compare", "abs", "logistic",
})  # fmt: skip
_SAME_RANK = frozenset({"pad", "dynamic_slice", "dynamic_update_slice", "reverse"})


def _axes_in(axes: Sequence[int], type_: TensorType) -> bool:
    return len(set(axes)) == len(axes) and all(0 <= axis < len(type_.shape) for axis in axes)


def _dot_fits(operation: HloOperation, operands: Sequence[TensorType], result: TensorType) -> bool:
    left, right = operands[:2]
    lhs = operation.ints("lhs_batching") + operation.ints("lhs_contracting")
    rhs = operation.ints("rhs_batching") + operation.ints("rhs_contracting")
    if len(lhs) != len(rhs) or not _axes_in(lhs, left) or not _axes_in(rhs, right):
        return False
    if [left.shape[axis] for axis in lhs] != [right.shape[axis] for axis in rhs]:
        return False
    batch = [left.shape[axis] for axis in operation.ints("lhs_batching")]
    free = [extent for axis, extent in enumerate(left.shape) if axis not in lhs]
    free += [extent for axis, extent in enumerate(right.shape) if axis not in rhs]
    return list(result.shape) == batch + free


def _convolution_fits(
    operation: HloOperation, operands: Sequence[TensorType], result: TensorType
) -> bool:
    rank = len(result.shape)
    pairs = (("lhs_dims", operands[0]), ("kernel_dims", operands[1]), ("out_dims", result))
    if rank < 2 or any(
        len(operation.ints(name)) != rank or not _axes_in(operation.ints(name), t)
        for name, t in pairs
    ):
        return False
    lengths = {
        name: len(operation.ints(name))
        for name in ("strides", "lhs_dilation", "rhs_dilation", "padding")
    }
    if lengths != {
        "strides": rank - 2,
        "lhs_dilation": rank - 2,
        "rhs_dilation": rank - 2,
        "padding": 2 * (rank - 2),
    }:
        return False
    counts = [operation.int(name, 1) for name in ("feature_group_count", "batch_group_count")]
    steps = [
        *operation.ints("strides"),
        *operation.ints("lhs_dilation"),
        *operation.ints("rhs_dilation"),
    ]
    return len(operands[0].shape) == len(operands[1].shape) == rank and min([*counts, *steps]) >= 1


def _broadcast_fits(
    operation: HloOperation, operands: Sequence[TensorType], result: TensorType
) -> bool:
    source, dims = operands[0].shape, operation.ints("dims")
    if len(dims) != len(source) or not _axes_in(dims, result):
        return False
    return all(extent in (1, result.shape[dim]) for extent, dim in zip(source, dims, strict=True))


def _transpose_fits(
    operation: HloOperation, operands: Sequence[TensorType], result: TensorType
) -> bool:
    source, dims = operands[0].shape, operation.ints("dims")
    return (
        sorted(dims) == list(range(len(source)))
        and tuple(source[dim] for dim in dims) == result.shape
    )


def _reduce_fits(
    operation: HloOperation, operands: Sequence[TensorType], result: TensorType
) -> bool:
    dims = operation.ints("dims")
    kept = tuple(extent for axis, extent in enumerate(operands[0].shape) if axis not in dims)
    return _axes_in(dims, operands[0]) and kept == result.shape


def _window_fits(
    operation: HloOperation, operands: Sequence[TensorType], result: TensorType
) -> bool:
    rank = len(operands[0].shape)
    window, strides, padding = (operation.ints(name) for name in ("window", "strides", "padding"))
    if len(window) != rank or len(strides) not in (0, rank) or len(padding) not in (0, 2 * rank):
        return False
    return len(result.shape) == rank and min([*window, *strides, 1]) >= 1


def _slice_fits(
    operation: HloOperation, operands: Sequence[TensorType], result: TensorType
) -> bool:
    bounds = zip(*(operation.ints(name) for name in ("starts", "limits", "strides")), strict=False)
    if {len(operation.ints(name)) for name in ("starts", "limits", "strides")} != {
        len(operands[0].shape)
    }:
        return False
    taken = [-((start - limit) // step) if step > 0 else -1 for start, limit, step in bounds]
    return tuple(taken) == result.shape


def _concatenation_fits(
    operation: HloOperation, operands: Sequence[TensorType], result: TensorType
) -> bool:
    dim = operation.int("dim")
    if any(len(one.shape) != len(result.shape) for one in operands) or not _axes_in((dim,), result):
        return False
    return sum(one.shape[dim] for one in operands) == result.shape[dim]


_SHAPE_RULES: dict[str, Callable[[HloOperation, Sequence[TensorType], TensorType], bool]] = {
    "dot_general": _dot_fits, "convolution": _convolution_fits, "broadcast_in_dim": _broadcast_fits,
    "transpose": _transpose_fits, "reduce": _reduce_fits, "reduce_window": _window_fits,
    "select_and_scatter": _window_fits, "slice": _slice_fits, "concatenate": _concatenation_fits,
}  # fmt: skip
