"""Known values of a Pallas kernel, for all steps of its grid at once."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray


@dataclasses.dataclass(frozen=True, slots=True)
class ScalarTable:
    """A small array of integers that is known, in the memory of the scalar unit."""

    values: NDArray[Any]

    def at(self, tree: Any, indices: Sequence[Scalar]) -> Scalar:
        """Return the numbers that each step reads; None where they are more than one, or at a place
        that is not known. `tree`: of the indices of JAX's `get`."""
        transforms = tree.unflatten([_Index(one) for one in indices])
        if len(transforms) != 1 or not hasattr(transforms[0], "indices"):
            return None
        places = [one.value if isinstance(one, _Index) else one for one in transforms[0].indices]
        if len(places) != self.values.ndim or not all(
            isinstance(one, int | np.integer | np.ndarray) for one in places
        ):
            return None
        inside = [
            np.clip(np.asarray(place, int), 0, extent - 1)
            for place, extent in zip(places, self.values.shape, strict=True)
        ]
        return np.asarray(self.values[tuple(np.broadcast_arrays(*inside))])


@dataclasses.dataclass(frozen=True, slots=True)
class _Index:
    """An index, whole where JAX takes the tree of indices apart."""

    value: Any


@dataclasses.dataclass(frozen=True, slots=True)
class AxisPositions:
    """An array of integers that count along some axes: those of an iota, or LOADED for what is read
    from a block."""

    axes: frozenset[int]


LOADED = -1
# one number for each step, one for all, a table, positions, or not known
Scalar = NDArray[Any] | int | float | bool | ScalarTable | AxisPositions | None
Number = NDArray[Any] | int | float | bool


def numbers_of(values: Sequence[Scalar]) -> list[Number] | None:
    """Return the values, where all are known numbers."""
    numbers = [
        value for value in values if not isinstance(value, ScalarTable | AxisPositions | None)
    ]
    return numbers if len(numbers) == len(values) else None


def positions_of(equation: Any, inputs: Sequence[Scalar], size: int) -> AxisPositions | None:
    """Return along which axes the numbers of a result of `size` numbers count; None: along none, or
    it is not known."""
    name, result = equation.primitive.name, equation.outvars[0].aval
    if size <= 1 or np.dtype(result.dtype).kind not in "iu":
        return None
    if name == "iota":
        return AxisPositions(frozenset((equation.params["dimension"],)))
    if name == "get":
        return AxisPositions(frozenset((LOADED,)))
    axes = frozenset(
        axis for value in inputs if isinstance(value, AxisPositions) for axis in value.axes
    )
    if not axes or name not in _KEEPS_POSITIONS:
        return None
    if name == "broadcast_in_dim":
        dims = equation.params["broadcast_dimensions"]
        return AxisPositions(frozenset(axis if axis < 0 else dims[axis] for axis in axes))
    return AxisPositions(axes)


def orders_two_axes(equation: Any, inputs: Sequence[Scalar]) -> bool:
    """Return True for a comparison that says which of two positions comes first: a causal mask."""
    if equation.primitive.name not in ("lt", "le", "gt", "ge") or len(inputs) != 2:
        return False
    one, other = inputs
    return (
        isinstance(one, AxisPositions)
        and isinstance(other, AxisPositions)
        and one.axes != other.axes
    )


_KEEPS_POSITIONS = frozenset({
    "add", "sub", "mul", "max", "min", "rem", "div", "convert_element_type", "copy", "tile",
    "broadcast_in_dim", "bitcast_convert_type",
})  # fmt: skip
