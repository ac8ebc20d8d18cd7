"""The shape of a slice, and which of its dimensions wrap around.

Sources: reference tables of cloud.google.com/tpu/docs/types-topologies and /v4. Below a full 4x4x4
cube a slice has no wrap-around links; from a cube on every dimension is a multiple of 4 and all of
them wrap. In two dimensions a dimension wraps where it spans the pod (scaling-book: no wrap-around
below 16 on v5e).
"""

from __future__ import annotations

import dataclasses
import math
import re

from podyard.base.errors import invalid
from podyard.hardware.generation import Generation

# A cube of the optical switches: the unit in which v4 and v5p slices get wrap-around links.
CUBE_EDGE_CHIPS = 4
CUBE_CHIPS = CUBE_EDGE_CHIPS**3
NO_TOPOLOGY = "none"  # of a machine without chips

Shape = tuple[int, ...]

_TEXT = re.compile(r"([1-9]\d{0,3}(?:x[1-9]\d{0,3})+)(_twisted|_untwisted)?")


@dataclasses.dataclass(frozen=True, slots=True)
class Topology:
    """Chips per dimension; `wrap` says which dimensions are rings; a twisted torus shifts the seam
    (see torus.py)."""

    shape: Shape
    wrap: tuple[bool, ...]
    twisted: bool = False

    @property
    def chip_count(self) -> int:
        return math.prod(self.shape)

    @property
    def text(self) -> str:
        """`4x4x8`, as the wire and TPU_TOPOLOGY write it (the twist is not part of it)."""
        return shape_text(self.shape) or NO_TOPOLOGY


def shape_text(shape: Shape) -> str:
    return "x".join(map(str, shape))


def is_twistable(shape: Shape) -> bool:
    """k x k x 2k or k x 2k x 2k, of full cubes (cloud.google.com/tpu/docs/v4)."""
    if len(shape) != 3 or any(extent % CUBE_EDGE_CHIPS for extent in shape):
        return False
    a, b, c = sorted(shape)
    return c == 2 * a and b in (a, c)


def topology_of(generation: Generation, shape: Shape, twisted: bool | None = None) -> Topology:
    """The topology of `shape` on its own. `twisted` None: twisted where the shape allows it (the
    default shapes
    marked T in the reference). Raises INVALID_ARGUMENT when a twist is asked of a shape that has
    none."""
    if len(shape) != generation.dimensions:
        raise invalid(
            f"topology {shape_text(shape)} has {len(shape)} dimensions: {generation.name} has "
            f"{generation.dimensions}",
            "topology",
        )
    if twisted and not is_twistable(shape):
        raise invalid(
            f"topology {shape_text(shape)} cannot be twisted: only k x k x 2k and k x 2k x 2k of "
            "full cubes can",
            "topology",
        )
    if generation.dimensions == 3:
        full_cubes = all(extent % CUBE_EDGE_CHIPS == 0 for extent in shape)
        wrap: tuple[bool, ...] = (full_cubes,) * 3
    else:
        spans = sorted(generation.pod_shape)
        wrap = tuple(extent == span > 1 for extent, span in zip(shape, spans, strict=True))
    return Topology(shape, wrap, is_twistable(shape) if twisted is None else twisted)


def parse_topology(generation: Generation, text: str) -> Topology:
    """Reads `4x4x8`, `4x4x8_twisted` or `4x4x8_untwisted`; raises INVALID_ARGUMENT, saying why.

    This checks the form only: `accelerator_types.from_config` says whether the shape is offered.
    """
    match = _TEXT.fullmatch(text)
    if match is None:
        example = "4x4" if generation.dimensions == 2 else "2x2x4"
        raise invalid(f"topology {text!r} is not a shape such as {example}", "topology")
    shape = tuple(int(part) for part in match[1].split("x"))
    twisted = {None: None, "_twisted": True, "_untwisted": False}[match[2]]
    return topology_of(generation, shape, twisted)
