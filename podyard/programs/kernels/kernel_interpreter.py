"""Runs a Pallas kernel as operations of XLA: a loop over the grid, with the discharged body inside.

As JAX's interpreter (jax/_src/pallas/hlo_interpreter.py), whose parts it uses, but what a kernel
only reads stays out of the loop: JAX's loop copies every operand at each step. Blocks past the end
of an array read padding, and what they write there is dropped, as on a TPU.
"""

from __future__ import annotations

import importlib
import math
from typing import Any

import jax
import jax.numpy as jnp

_core: Any = importlib.import_module("jax._src.core")
_hlo: Any = importlib.import_module("jax._src.pallas.hlo_interpreter")
_pallas: Any = importlib.import_module("jax._src.pallas.core")
WORD_BYTES = 4
NAMES = (
    (_core, "eval_jaxpr"),
    (
        _hlo,
        (
            "kernel_to_hlo_jaxpr _initialize_output_vals _pad_to_block_dimension _dynamic_slice "
            "_dynamic_update_slice"
        ),
    ),
    (_hlo, "_get_next_indices primitives"),
    (_pallas, "grid_env GridAxis _get_block_shape Element Squeezed DynamicGridDim"),
)


def run(
    *args: Any,
    jaxpr: Any,
    grid_mapping: Any,
    input_output_aliases: tuple[tuple[int, int], ...],
    **_: Any,
) -> list[Any]:
    """The results of a kernel. Parameters are those of JAX's primitive `pallas_call`."""
    mapping = grid_mapping
    bounds, operands = (
        iter(args[: mapping.num_dynamic_grid_bounds]),
        args[mapping.num_dynamic_grid_bounds :],
    )
    grid = tuple(
        next(bounds) if isinstance(one, _pallas.DynamicGridDim) else one for one in mapping.grid
    )
    body, constants, scratch_avals = _hlo.kernel_to_hlo_jaxpr(jaxpr, (), mapping)
    outputs = _hlo._initialize_output_vals(
        mapping.block_mappings_output, operands, input_output_aliases
    )
    scalars = operands[mapping.slice_index_ops]
    inputs = operands[len(scalars) :]
    shapes = [_pallas._get_block_shape(one.block_shape) for one in mapping.block_mappings]
    thin_dims = [
        tuple(isinstance(d, _pallas.Squeezed) for d in one.block_shape)
        for one in mapping.block_mappings
    ]
    dtypes = [array.dtype for array in (*inputs, *outputs)]
    arrays = [
        _as_bits(_hlo._pad_to_block_dimension(_with_edges(array, block), shape))
        for array, block, shape in zip(
            (*inputs, *outputs), mapping.block_mappings, shapes, strict=True
        )
    ]
    scratch = [
        _hlo.primitives.uninitialized_value(aval.shape, aval.dtype) for aval in scratch_avals
    ]
    first = len(scalars)
    # an input's array -> the result's
    outward = {i - first: len(inputs) + o for i, o in input_output_aliases}
    writes = _writes(jaxpr)
    carries = [
        place >= len(inputs) or (first + place in writes and place not in outward)
        for place in range(len(arrays))
    ]

    def step(carry: Any) -> Any:
        number, place, carried, memory = carry
        rest = iter(carried)
        current = [
            next(rest) if is_carried else array
            for is_carried, array in zip(carries, arrays, strict=True)
        ]
        for argument, result in outward.items():
            current[argument] = current[result]
        with _pallas.grid_env(_grid_env(mapping, place, grid)):
            starts = [
                one.compute_start_indices_interpret(place, *scalars)
                for one in mapping.block_mappings
            ]
            blocks = [
                _as_numbers(_hlo._dynamic_slice(start, shape, array, thin), dtype)
                for start, shape, array, thin, dtype in zip(
                    starts, shapes, current, thin_dims, dtypes, strict=True
                )
            ]
            results = _core.eval_jaxpr(body, constants, *scalars, *blocks, *memory)
        new_blocks = results[first : first + len(arrays)]
        for argument, result in outward.items():
            if first + argument in writes and first + result not in writes:
                new_blocks[result] = new_blocks[argument]
        parts = zip(carries, starts, shapes, current, new_blocks, thin_dims, strict=True)
        after = [
            _hlo._dynamic_update_slice(start, shape, array, _as_bits(block), thin)
            for is_carried, start, shape, array, block, thin in parts
            if is_carried
        ]
        return (
            number + 1,
            _hlo._get_next_indices(grid, place),
            after,
            list(results[first + len(arrays) :]),
        )

    steps = (
        math.prod(grid) if all(isinstance(one, int) for one in grid) else jnp.prod(jnp.stack(grid))
    )
    carried = [array for is_carried, array in zip(carries, arrays, strict=True) if is_carried]
    start: Any = (jnp.int32(0), (jnp.int32(0),) * len(grid), carried, scratch)
    _, _, carried, _ = jax.lax.while_loop(lambda carry: carry[0] < steps, step, start)
    results = [
        _as_numbers(array, dtype)
        for array, dtype in zip(
            carried[len(carried) - len(outputs) :], dtypes[len(inputs) :], strict=True
        )
    ]
    return [
        _inside(array, one)
        for array, one in zip(results, mapping.block_mappings_output, strict=True)
    ]


def _writes(jaxpr: Any) -> set[int]:
    """Arguments of a kernel that it writes to, anywhere in its body."""
    places = {variable: place for place, variable in enumerate(jaxpr.invars)}
    places_written = set()
    for effect in jaxpr.effects:
        if type(effect).__name__ in ("WriteEffect", "AccumEffect"):
            index = getattr(effect, "input_index", None)  # from JAX 0.11 on the variable itself
            places_written.add(places.get(effect.input, -1) if index is None else index)
    return places_written


def _as_bits(array: Any) -> Any:
    """Narrow floats as integers: XLA's compiler for CPUs would convert the whole array wherever a
    block is cut out."""
    itemsize = getattr(array.dtype, "itemsize", WORD_BYTES)
    if not jnp.issubdtype(array.dtype, jnp.floating) or itemsize >= WORD_BYTES:
        return array
    return jax.lax.bitcast_convert_type(array, jnp.dtype(f"uint{8 * itemsize}"))


def _as_numbers(array: Any, dtype: Any) -> Any:
    return array if array.dtype == dtype else jax.lax.bitcast_convert_type(array, dtype)


def _grid_env(mapping: Any, place: Any, grid: Any) -> Any:
    if mapping.local_grid_env is not None:
        return mapping.local_grid_env(place, grid)
    return tuple(
        _pallas.GridAxis(index, extent)
        for axis, (index, extent) in enumerate(zip(place, grid, strict=True))
        if axis not in mapping.vmapped_dims
    )


def _edges(block: Any) -> list[tuple[int, int]]:
    """Padding that the program asks for around an array, which its element offsets count."""
    return [
        one.padding if isinstance(one, _pallas.Element) else (0, 0) for one in block.block_shape
    ]


def _with_edges(array: Any, block: Any) -> Any:
    edges = _edges(block)
    if not any(map(any, edges)):
        return array
    empty = _hlo.primitives.uninitialized_value(shape=(), dtype=array.dtype)
    return jax.lax.pad(array, empty, [(low, high, 0) for low, high in edges])


def _inside(array: Any, block: Any) -> Any:
    """Without the padding."""
    starts = [low for low, _ in _edges(block)]
    ends = [start + extent for start, extent in zip(starts, block.array_aval.shape, strict=True)]
    return array if array.shape == block.array_aval.shape else jax.lax.slice(array, starts, ends)
