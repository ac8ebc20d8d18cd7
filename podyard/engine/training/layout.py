"""Trees of tensors as one flat vector: what is summed, moved and saved is one array."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import jax
import numpy as np
from numpy.typing import NDArray

from podyard.base.errors import invalid
from podyard.engine.collectives.transport import Vector

if TYPE_CHECKING:
    from podyard.engine.training.optimizers import Optimizer


@dataclasses.dataclass(frozen=True)
class ParameterLayout:
    """The place of each tensor in the vector: `shapes` by name ("conv1/kernel"), in order; `tree`
    puts them together."""

    shapes: Mapping[str, tuple[int, ...]]
    tree: Any

    @classmethod
    def of(cls, tree: Any) -> ParameterLayout:
        """Raises PodyardError INVALID_ARGUMENT for a leaf that is not float32, and for two of one
        name."""
        leaves, structure = jax.tree_util.tree_flatten_with_path(tree)
        shapes: dict[str, tuple[int, ...]] = {}
        for path, leaf in leaves:
            name = _name(path)
            if leaf.dtype != np.float32:
                raise invalid(
                    f"{name} is {leaf.dtype}: parameters and statistics are float32", name
                )
            if name in shapes:
                raise invalid(f"two tensors are called {name}", name)
            shapes[name] = tuple(leaf.shape)
        return cls(shapes, structure)

    @property
    def length(self) -> int:
        return sum(math.prod(shape) for shape in self.shapes.values())

    def flatten(self, tree: Any) -> Vector:
        """A tree of numpy arrays -> one vector [length]."""
        parts = [np.asarray(leaf, np.float32).reshape(-1) for leaf in jax.tree.leaves(tree)]
        return np.concatenate([*parts, np.empty(0, np.float32)])

    def by_name(self, vector: Any) -> dict[str, Any]:
        """A vector, numpy's or JAX's, -> views (slices) by name."""
        tensors, start = {}, 0
        for name, shape in self.shapes.items():
            stop = start + math.prod(shape)
            tensors[name] = vector[start:stop].reshape(shape)
            start = stop
        return tensors

    def unflatten(self, vector: Any) -> Any:
        """A vector -> the tree."""
        return jax.tree.unflatten(self.tree, list(self.by_name(vector).values()))

    def of_named(self, tensors: Mapping[str, NDArray[Any]]) -> Vector:
        """The vector of tensors by name. Raises PodyardError INVALID_ARGUMENT when they are not
        this layout's."""
        found = {name: tuple(tensor.shape) for name, tensor in tensors.items()}
        if found != dict(self.shapes):
            other = sorted(
                name for name in {*found, *self.shapes} if found.get(name) != self.shapes.get(name)
            )
            raise invalid(f"tensors do not fit the model: {', '.join(other[:4])}", other[0])
        return self.flatten([tensors[name] for name in self.shapes])


@dataclasses.dataclass(frozen=True)
class SlotLayout:
    """Of an optimizer's state, which is `tree` over `leaves` (name -> an array of this shape and
    type). Leaves that are as long as the vector of all parameters are trees of tensors to others:
    they are saved tensor by tensor."""

    params: ParameterLayout
    leaves: Mapping[str, Any]
    tree: Any

    @classmethod
    def of(cls, optimizer: Optimizer, params: ParameterLayout) -> SlotLayout:
        given = (
            abstract((params.length,), np.float32)
            if optimizer.is_elementwise
            else abstract_tree(params)
        )
        leaves, structure = jax.tree_util.tree_flatten_with_path(
            jax.eval_shape(optimizer.start, given)
        )
        return cls(params, {_name(path): leaf for path, leaf in leaves}, structure)

    def by_name(self, state: Any) -> dict[str, Any]:
        """The state -> tensors by name, "first/conv1/kernel"."""
        tensors: dict[str, Any] = {}
        for slot, leaf in zip(self.leaves, jax.tree.leaves(state), strict=True):
            if leaf.shape == (self.params.length,):
                tensors |= {
                    f"{slot}/{name}": part
                    for name, part in self.params.by_name(np.asarray(leaf)).items()
                }
            else:
                tensors[slot] = np.asarray(leaf)
        return tensors

    def of_named(self, tensors: Mapping[str, NDArray[Any]]) -> Any:
        """The state of tensors by name. Raises PodyardError INVALID_ARGUMENT when they are not this
        layout's."""
        values, left = [], dict(tensors)
        for slot, leaf in self.leaves.items():
            if leaf.shape == (self.params.length,):
                own = {
                    name: left.pop(f"{slot}/{name}")
                    for name in self.params.shapes
                    if f"{slot}/{name}" in left
                }
                values.append(self.params.of_named(own))
                continue
            value = left.pop(slot, None)
            if value is None or (value.shape, value.dtype) != (leaf.shape, leaf.dtype):
                raise invalid(f"the optimizer's {slot} is {leaf.dtype} {leaf.shape}", slot)
            values.append(value)
        if left:
            raise invalid(f"the optimizer has no {', '.join(sorted(left)[:4])}", next(iter(left)))
        return jax.tree.unflatten(self.tree, values)


def abstract_tree(layout: ParameterLayout) -> Any:
    """The layout's tree, of shapes and types alone."""
    return jax.tree.unflatten(
        layout.tree, [abstract(shape, np.float32) for shape in layout.shapes.values()]
    )


def abstract(shape: tuple[int, ...], dtype: Any) -> Any:
    """An array's shape and type."""
    struct: Any = jax.ShapeDtypeStruct
    return struct(shape, np.dtype(dtype))


def _name(path: Any) -> str:
    return jax.tree_util.keystr(path, simple=True, separator="/")
