"""Trees of tensors as one flat vector: what is summed, moved and saved is one array."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np
from numpy.typing import NDArray

from podyard.base.errors import invalid
from podyard.engine.collectives.transport import Vector


@dataclasses.dataclass(frozen=True)
class Layout:
    """Where each tensor lies in the vector: `shapes` by name ("conv1/kernel"), in order; `tree` puts them together."""

    shapes: Mapping[str, tuple[int, ...]]
    tree: Any

    @classmethod
    def of(cls, tree: Any) -> Layout:
        """Raises PodyardError INVALID_ARGUMENT for a leaf that is not float32, and for two of one name."""
        leaves, structure = jax.tree_util.tree_flatten_with_path(tree)
        shapes: dict[str, tuple[int, ...]] = {}
        for path, leaf in leaves:
            name = jax.tree_util.keystr(path, simple=True, separator="/")
            if leaf.dtype != np.float32:
                raise invalid(f"{name} is {leaf.dtype}: parameters and statistics are float32", name)
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

    def named(self, vector: Any) -> dict[str, Any]:
        """A vector, numpy's or JAX's, -> views (slices) by name."""
        tensors, start = {}, 0
        for name, shape in self.shapes.items():
            stop = start + math.prod(shape)
            tensors[name] = vector[start:stop].reshape(shape)
            start = stop
        return tensors

    def unflatten(self, vector: Any) -> Any:
        """A vector -> the tree."""
        return jax.tree.unflatten(self.tree, list(self.named(vector).values()))

    def of_named(self, tensors: Mapping[str, NDArray[Any]]) -> Vector:
        """The vector of tensors by name. Raises PodyardError INVALID_ARGUMENT when they are not this layout's."""
        found = {name: tuple(tensor.shape) for name, tensor in tensors.items()}
        if found != dict(self.shapes):
            other = sorted(name for name in {*found, *self.shapes} if found.get(name) != self.shapes.get(name))
            raise invalid(f"tensors do not fit the model: {', '.join(other[:4])}", other[0])
        return self.flatten([tensors[name] for name in self.shapes])
