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
    bounds_count = grid_mapping.num_dynamic_grid_bounds
    bounds, operands = iter(args[:bounds_count]), args[bounds_count:]
    grid = tuple(
        next(bounds) if isinstance(one, _pallas.DynamicGridDim) else one
        for one in grid_mapping.grid
    )
    return _GridLoop(jaxpr, grid_mapping, grid, operands, input_output_aliases).results()


class _GridLoop:
    """A kernel as a loop over its grid.

    `arrays`: the inputs, then the outputs, padded to whole blocks. `carries`: for each of them
    whether the loop carries it: outputs, and inputs that the kernel writes to. `outward`: of inputs
    that share memory with an output, its array for theirs.
    """

    def __init__(
        self,
        jaxpr: Any,
        mapping: Any,
        grid: tuple[Any, ...],
        operands: tuple[Any, ...],
        aliases: tuple[tuple[int, int], ...],
    ) -> None:
        self.mapping, self.grid = mapping, grid
        self.body, self.constants, self.scratch_avals = _hlo.kernel_to_hlo_jaxpr(jaxpr, (), mapping)
        outputs = _hlo._initialize_output_vals(mapping.block_mappings_output, operands, aliases)
        self.scalars = operands[mapping.slice_index_ops]
        self.first = len(self.scalars)
        inputs = operands[self.first :]
        self.inputs_count = len(inputs)
        blocks = mapping.block_mappings
        self.shapes = [_pallas._get_block_shape(one.block_shape) for one in blocks]
        self.thin_dims = [
            tuple(isinstance(d, _pallas.Squeezed) for d in one.block_shape) for one in blocks
        ]
        whole = (*inputs, *outputs)
        self.dtypes = [array.dtype for array in whole]
        self.arrays = [
            _as_bits(_hlo._pad_to_block_dimension(_with_edges(array, block), shape))
            for array, block, shape in zip(whole, blocks, self.shapes, strict=True)
        ]
        self.outward = {i - self.first: len(inputs) + o for i, o in aliases}
        self.writes = _writes(jaxpr)
        self.carries = [
            place >= len(inputs)
            or (self.first + place in self.writes and place not in self.outward)
            for place in range(len(self.arrays))
        ]

    def results(self) -> list[Any]:
        scratch = [
            _hlo.primitives.uninitialized_value(aval.shape, aval.dtype)
            for aval in self.scratch_avals
        ]
        steps = (
            math.prod(self.grid)
            if all(isinstance(one, int) for one in self.grid)
            else jnp.prod(jnp.stack(self.grid))
        )
        carried = [
            array for is_carried, array in zip(self.carries, self.arrays, strict=True) if is_carried
        ]
        start: Any = (jnp.int32(0), (jnp.int32(0),) * len(self.grid), carried, scratch)
        _, _, carried, _ = jax.lax.while_loop(lambda carry: carry[0] < steps, self._step, start)
        dtypes, blocks = self.dtypes[self.inputs_count :], self.mapping.block_mappings_output
        ends = carried[len(carried) - len(dtypes) :]
        return [
            _inside(_as_numbers(array, dtype), block)
            for array, dtype, block in zip(ends, dtypes, blocks, strict=True)
        ]

    def _step(self, carry: Any) -> Any:
        number, place, carried, memory = carry
        current = self._current(carried)
        with _pallas.grid_env(_grid_env(self.mapping, place, self.grid)):
            starts = [
                one.compute_start_indices_interpret(place, *self.scalars)
                for one in self.mapping.block_mappings
            ]
            blocks = [
                _as_numbers(_hlo._dynamic_slice(start, shape, array, thin), dtype)
                for start, shape, array, thin, dtype in zip(
                    starts, self.shapes, current, self.thin_dims, self.dtypes, strict=True
                )
            ]
            results = _core.eval_jaxpr(self.body, self.constants, *self.scalars, *blocks, *memory)
        end = self.first + len(self.arrays)
        new_blocks = self._new_blocks(results[self.first : end])
        parts = zip(
            self.carries, starts, self.shapes, current, new_blocks, self.thin_dims, strict=True
        )
        after = [
            _hlo._dynamic_update_slice(start, shape, array, _as_bits(block), thin)
            for is_carried, start, shape, array, block, thin in parts
            if is_carried
        ]
        return number + 1, _hlo._get_next_indices(self.grid, place), after, list(results[end:])

    def _current(self, carried: list[Any]) -> list[Any]:
        """Return all arrays as they are at a step."""
        rest = iter(carried)
        current = [
            next(rest) if is_carried else array
            for is_carried, array in zip(self.carries, self.arrays, strict=True)
        ]
        for argument, result in self.outward.items():
            current[argument] = current[result]
        return current

    def _new_blocks(self, blocks: list[Any]) -> list[Any]:
        """Return the blocks of a step with those that the kernel wrote by the name of an input."""
        for argument, result in self.outward.items():
            if self.first + argument in self.writes and self.first + result not in self.writes:
                blocks[result] = blocks[argument]
        return blocks


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
