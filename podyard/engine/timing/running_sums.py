"""Running sums: windows as long as their axis, which the compiler works out in several passes."""

from __future__ import annotations

from podyard.engine.timing.layout import LANES
from podyard.hardware.cost_model import SUBLANES, CostModel

# Longer windows are running sums; those take this many passes over an array of whole tiles, and
# over others.
WINDOW_OF_POOLING = 32
_PASSES = (6, 9)
# Where the numbers stay on the chip between them; at least so many kernels do that.
_NEAR_PASSES = (2.2, 5)
NEAR_KERNELS = 4


def passes_of_window(window: tuple[int, ...], shape: tuple[int, ...], costs: CostModel) -> float:
    """Return how often a window takes a pass over an array of this shape; 1 for pooling."""
    ends = zip(window, shape, strict=False)
    if not any(extent > WINDOW_OF_POOLING and extent == axis for extent, axis in ends):
        return 1
    passes = _NEAR_PASSES if costs.results_stay else _PASSES
    tile = (SUBLANES, LANES)[-len(shape[-2:]) :]
    return passes[any(extent % full for extent, full in zip(shape[-2:], tile, strict=True))]
