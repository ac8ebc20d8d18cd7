"""Meshes of devices for SPMD. Those of several slices follow jax.experimental.mesh_utils, as
torch_xla's do: axes between slices are major."""

from __future__ import annotations

import itertools
import math
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any

import numpy as np
from torch_xla import _process, _spmd

from podyard.programs.slice import devices_of
from podyard.programs.torch_graph.shardings import LogicalMesh, TensorSharding

_Axis = int | str
_Split = _Axis | tuple[_Axis, ...] | None
PartitionSpec = tuple[_Split, ...]


class XlaMesh:
    """`device_ids`: all devices of the slice, in the mesh's order, major axis first."""

    def __init__(
        self,
        device_ids: Any,
        mesh_shape: Sequence[int],
        axis_names: Sequence[str] | None = None,
    ) -> None:
        ids, shape = np.asarray(device_ids), tuple(int(size) for size in mesh_shape)
        count = _spmd.device_count()
        if len(ids) != count:
            raise AssertionError(
                f"Number of device IDs ({len(ids)}) must match the global number of devices "
                f"({count})"
            )
        if axis_names is not None and len(shape) != len(axis_names):
            raise AssertionError(
                f"Number of axis names ({len(axis_names)}) must match mesh dimensions "
                f"({len(shape)})"
            )
        if axis_names is not None and len(set(axis_names)) != len(axis_names):
            raise AssertionError(f"Axis names must be unique, got: {axis_names}")
        if len(ids) != math.prod(shape):
            raise AssertionError(
                f"Number of device IDs ({len(ids)}) must match mesh size ({math.prod(shape)})"
            )
        if sorted(ids.tolist()) != list(range(count)):
            raise AssertionError(
                f"Device IDs must be the numbers from 0 to {count - 1}, each once, got: {ids}"
            )
        self.device_ids = ids
        self.mesh_shape = shape
        self.axis_names = None if axis_names is None else tuple(axis_names)

    def size(self) -> int:
        return math.prod(self.mesh_shape)

    def shape(self) -> OrderedDict[Any, int]:
        names = self.axis_names or range(len(self.mesh_shape))
        return OrderedDict(zip(names, self.mesh_shape, strict=True))

    def get_logical_mesh(self) -> Any:
        return self.device_ids.reshape(self.mesh_shape)

    def get_axis_name_idx(self, name: str) -> int | None:
        names = self.axis_names or ()
        return names.index(name) if name in names else None

    def sharding(self, partition_spec: PartitionSpec) -> TensorSharding:
        """The spec with the names of this mesh."""
        names = tuple(str(name) for name in self.shape())
        dims = tuple(
            tuple(names[place] for place in self._places(split)) for split in partition_spec
        )
        used = [name for split in dims for name in split]
        if len(set(used)) != len(used):
            raise AssertionError(
                "Each device mesh dimension should appear at most once in partition_spec "
                f"{partition_spec}."
            )
        order = tuple(int(one) for one in self.device_ids)
        return TensorSharding(
            LogicalMesh(tuple(zip(names, self.mesh_shape, strict=True)), order), dims
        )

    def _places(self, split: _Split) -> list[int]:
        """Of the axes that split a dimension."""
        if split is None:
            return []
        if isinstance(split, tuple):
            return [place for one in split for place in self._places(one)]
        place = self.get_axis_name_idx(split) if isinstance(split, str) else split
        if not isinstance(place, int):
            if isinstance(split, str):
                raise ValueError(f"Axis name {split} is not defined in the given mesh")
            raise ValueError(f"Spec type {type(split)} is not supported in partition spec")
        if not 0 <= place < len(self.mesh_shape):
            raise AssertionError(
                f"partition_spec ({split}) contains out of bound index into mesh_shape."
            )
        return [place]

    def __str__(self) -> str:
        return (
            f"{{'device_ids': {self.device_ids.tolist()}, 'mesh_shape': {self.mesh_shape}, "
            f"'axis_names': {self.axis_names}}}"
        )


class HybridMesh(XlaMesh):
    """Axes within slices (`ici_mesh_shape`) and between slices (`dcn_mesh_shape`), by growing
    traffic."""

    def __init__(
        self,
        *,
        ici_mesh_shape: Sequence[int],
        dcn_mesh_shape: Sequence[int] | None = None,
        axis_names: Sequence[str] | None = None,
    ) -> None:
        dcn = tuple(dcn_mesh_shape or (1,) * len(ici_mesh_shape))
        if len(ici_mesh_shape) != len(dcn):
            raise AssertionError(
                f"ici_mesh_shape {ici_mesh_shape} and dcn_mesh_shape {dcn} have different lengths"
            )
        of = _process.slice_of()
        if of.slice_count > 1 and math.prod(dcn) == 1:
            raise ValueError("Provide dcn_mesh_shape to create a mesh for multislice")
        if of.slice_count == 1 and math.prod(dcn) > 1:
            raise ValueError("Invalid dcn_mesh_shape for single slice mesh")
        if math.prod(dcn) != of.slice_count:
            raise ValueError(
                f"Number of slices {of.slice_count} must equal the product of dcn_mesh_shape {dcn}"
            )
        self.ici_mesh_shape, self.dcn_mesh_shape = tuple(ici_mesh_shape), dcn
        own = _arrange_slice(self.ici_mesh_shape)
        slices = np.arange(of.slice_count).reshape(dcn) * own.size
        rank = len(dcn)
        # Place (d, i) of each axis: slice d, device i of the slice.
        grid = slices.reshape(*dcn, *(1,) * rank) + own.reshape(*(1,) * rank, *own.shape)
        turn = [
            axis for pair in zip(range(rank), range(rank, 2 * rank), strict=True) for axis in pair
        ]
        shape = tuple(a * b for a, b in zip(dcn, own.shape, strict=True))
        super().__init__(grid.transpose(turn).reshape(-1), shape, axis_names)


def _arrange_slice(shape: tuple[int, ...]) -> Any:
    """Devices of one slice for a logical mesh: an axis lies along whole axes of the torus where
    their product is its size, those with the most traffic first; else by number."""
    of = _process.slice_of()
    devices = [one for one in devices_of(of) if one.slice_index in (None, 0)]
    if math.prod(shape) != len(devices):
        raise ValueError(
            f"Number of devices {len(devices)} must equal the product of mesh_shape {shape}"
        )
    numbers = np.arange(len(devices))
    places = [(*one.coords, one.core_on_chip) for one in devices]
    sizes = [max(place[axis] for place in places) + 1 for axis in range(len(places[0]))]
    chosen = _whole_axes(sizes, shape)
    if chosen is None or math.prod(sizes) != len(devices):
        return numbers.reshape(shape)
    torus = np.empty(sizes, dtype=int)
    for number, place in zip(numbers, places, strict=True):
        torus[place] = number
    rest = [axis for axis in range(len(sizes)) if not any(axis in one for one in chosen)]
    return torus.transpose([*itertools.chain(*chosen), *rest]).reshape(shape)


def _whole_axes(sizes: Sequence[int], shape: Sequence[int]) -> list[tuple[int, ...]] | None:
    """For each logical axis, the axes of the torus whose product it is."""
    free = {axis for axis, size in enumerate(sizes) if size > 1}
    chosen: list[tuple[int, ...]] = [()] * len(shape)
    for place in reversed(range(len(shape))):
        if shape[place] == 1:
            continue
        for count in range(min(3, len(free)), 0, -1):
            for axes in itertools.combinations(sorted(free), count):
                if not chosen[place] and math.prod(sizes[axis] for axis in axes) == shape[place]:
                    chosen[place] = axes
        if not chosen[place]:
            return None
        free -= set(chosen[place])
    return chosen


Mesh = XlaMesh  # its name in torch_xla
_global_mesh: list[XlaMesh] = []


def set_global_mesh(mesh: XlaMesh) -> None:
    _global_mesh[:] = [mesh]


def get_global_mesh() -> XlaMesh | None:
    return _global_mesh[0] if _global_mesh else None


def get_1d_mesh(axis_name: str | None = None) -> XlaMesh:
    """All devices along one axis."""
    count = _spmd.device_count()
    return XlaMesh(np.arange(count), (count,), None if axis_name is None else (axis_name,))
