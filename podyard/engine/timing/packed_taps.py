"""Taps of few features that share a pass through the matrix unit: what puts them next to each
other."""

from __future__ import annotations

from podyard.engine.timing.layout import LANES
from podyard.hardware.cost_model import SUBLANES, CostModel

# Columns that taps are packed for before others are multiplied: with 256 all of it counts, with 768
# nothing. (Twenty compiled patch embeddings on v5e.)
_FIRST_COLUMNS = 256
# Images of up to 11 MB in bfloat16 were met without `large_image_cycles` on v4; all of eight from
# 26 MB on need them.
_LARGE_IMAGES = 8 * 2**20


def packing_cycles(
    examples: int, features: int, window: int, places: int, costs: CostModel
) -> float:
    """Return where features lie in lanes and fill less than half of a tile, every place of an image
    is moved to the lanes of its tap: one turn of a register. Places of one, two or four examples
    share one; others have rows of padding, and one each. Of more than eight examples nothing was
    seen. (Gradients of the kernels of 40 compiled patches and strided convolutions of one to 16
    channels, half of them on v5e, half on v6e.)"""
    if features >= LANES // 2 or examples > SUBLANES or window == 1:
        return 0.0
    is_full = SUBLANES % examples == 0
    share = examples / SUBLANES if is_full else 1.0
    return places * share * (costs.packing_cycles + costs.packing_feature_cycles * features)


def large_image_cycles(
    examples: int,
    features: int,
    columns: int,
    window: int,
    places: int,
    multiplied: float,
    costs: CostModel,
) -> float:
    """Return what the gradient of a kernel takes next to the `multiplied` cycles over large images
    (more numbers than `_LARGE_IMAGES`). `window`: places of what comes back. Up to 16 examples
    share the depth of a tile, and are put next to each other for it; columns fill whole tiles."""
    is_large = examples * features * places > _LARGE_IMAGES and SUBLANES <= examples <= 2 * SUBLANES
    if not is_large or costs.large_window_cycles == 0:
        return 0.0
    packed = costs.large_image_cycles * places + costs.large_window_cycles * window
    return features / (2 * LANES) * packed + multiplied * (
        -(-columns // LANES) * LANES / columns - 1
    )


def not_hidden(packing: float, multiplied: float, columns: int) -> float:
    """Of `packing` cycles those that are not hidden while all but the first columns are multiplied,
    in `multiplied`."""
    return max(0.0, packing - multiplied * max(0.0, 1 - _FIRST_COLUMNS / columns))
