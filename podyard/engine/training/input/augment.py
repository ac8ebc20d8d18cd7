"""Random changes of images, each example's own, over the whole batch at once.

The changes of place (rotation, shift, flip, crop) are one affine map per example from pixels of the
result to places in the image, so an image is sampled once. Bits do not depend on how a batch is cut
into shards: all is element by element, and sines are of single numbers, because numpy's differ with
the length of an array.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from podyard.base.errors import invalid
from podyard.engine.training.input.chance import Chance
from podyard.engine.training.input.source import Arrays

Images = NDArray[Any]
Numbers = NDArray[np.float64]
_IMAGE_TYPES = (np.uint8, np.float32)
# Places are computed in float32: above, they would be off by more than a thousandth of a pixel.
SIDE_PIXELS_MAX = 8192
# Pieces of a batch whose arrays stay in the second-level cache.
_PIXELS_AT_ONCE = 1 << 14


class Transform(Protocol):
    """Makes a batch of another one and leaves that as it is. `draws` says whether chance has a part
    in it: such a transform has no place in evaluation."""

    @property
    def draws(self) -> bool: ...
    def __call__(self, batch: Arrays, chance: Chance) -> Arrays: ...


@dataclasses.dataclass(frozen=True, slots=True)
class Geometry:
    """For images [b, h, w, c] of uint8 or float32, in this order:

    - rotation by -`rotation_degrees` to `rotation_degrees`, about the centre, and shifts by up to
      the shares `width_shift` and `height_shift` of the size, to both sides; bilinear, outside is
      the nearest pixel of the edge (as Keras' ImageDataGenerator does both by default);
    - `horizontal_flip`: left and right change places for half of the examples;
    - `crop_padding`: so many zeros around, then a piece of the old size from anywhere (He et al.,
      arXiv 1512.03385, section 4.2).

    Raises PodyardError INVALID_ARGUMENT for parameters out of range, and when called for images
    that it cannot change.
    """

    rotation_degrees: float = 0.0
    width_shift: float = 0.0
    height_shift: float = 0.0
    horizontal_flip: bool = False
    crop_padding: int = 0
    feature: str = "image"

    def __post_init__(self) -> None:
        if not 0 <= self.rotation_degrees <= 180:
            raise invalid(
                f"a rotation is by 0 to 180 degrees, not {self.rotation_degrees}", "rotationDegrees"
            )
        for field, share in (("widthShift", self.width_shift), ("heightShift", self.height_shift)):
            if not 0 <= share <= 1:
                raise invalid(f"a shift is by a share of the size, 0 to 1, not {share}", field)
        if not 0 <= self.crop_padding <= SIDE_PIXELS_MAX:
            raise invalid(
                f"padding is 0 to {SIDE_PIXELS_MAX} pixels, not {self.crop_padding}", "cropPadding"
            )

    @property
    def draws(self) -> bool:
        return True

    def __call__(self, batch: Arrays, chance: Chance) -> Arrays:
        images = _images(batch, self.feature)
        turned = self.rotation_degrees or self.width_shift or self.height_shift
        if not (turned or self.horizontal_flip or self.crop_padding):
            return batch
        _, height, width, _ = images.shape
        # One column for each parameter, used or not: to switch one on does not change what the
        # others draw.
        angle, down, right, flip, crop_down, crop_right = chance.uniform(6).T
        if turned:
            maps = affine_maps(
                (2 * angle - 1) * math.radians(self.rotation_degrees),
                (2 * down - 1) * self.height_shift * height,
                (2 * right - 1) * self.width_shift * width,
                (height, width),
            )
        else:
            maps = np.tile(np.eye(2, 3), (len(images), 1, 1))
        if self.horizontal_flip:
            maps = flip_maps(maps, flip < 0.5, width)
        if not self.crop_padding:
            return batch | {self.feature: sample(images, maps)}
        choices = 2 * self.crop_padding + 1
        offsets = [
            np.floor(unit * choices).astype(np.int64) - self.crop_padding
            for unit in (crop_down, crop_right)
        ]
        return batch | {self.feature: sample(images, maps, np.stack(offsets, axis=1))}


@dataclasses.dataclass(frozen=True, slots=True)
class Normalise:
    """float32: values * `scale` + `offset`, numbers or one per channel (bytes / 255 - 0.5: 1 / 255
    and -0.5)."""

    scale: float | tuple[float, ...] = 1.0
    offset: float | tuple[float, ...] = 0.0
    feature: str = "image"

    @property
    def draws(self) -> bool:
        return False

    def __call__(self, batch: Arrays, chance: Chance) -> Arrays:  # noqa: ARG002
        values = _feature(batch, self.feature).astype(np.float32)
        scale, offset = (np.asarray(own, np.float32) for own in (self.scale, self.offset))
        if any(own.ndim and own.shape != values.shape[-1:] for own in (scale, offset)):
            raise invalid(
                f"{self.feature} has {values.shape[-1]} channels; scale and offset have "
                "other counts"
            )
        return batch | {self.feature: values * scale + offset}


@dataclasses.dataclass(frozen=True, slots=True)
class Resize:
    """Images [b, h, w, 1 or `channels`] as [b, side, side, channels], each pixel the nearest one;
    grey ones have their values in all channels."""

    side: int
    channels: int
    feature: str = "image"

    @property
    def draws(self) -> bool:
        return False

    def __call__(self, batch: Arrays, chance: Chance) -> Arrays:  # noqa: ARG002
        images = _images(batch, self.feature)
        _, height, width, channels = images.shape
        if channels not in (1, self.channels):
            raise invalid(
                f"{self.feature} has {channels} channels; the model takes 1 or {self.channels}"
            )
        rows, columns = (np.arange(self.side) * size // self.side for size in (height, width))
        resized = images[:, rows[:, None], columns]
        return batch | {self.feature: np.repeat(resized, self.channels // channels, axis=3)}


def affine_maps(angles: Numbers, down: Numbers, right: Numbers, size: tuple[int, int]) -> Numbers:
    """[b, 2, 3]: (row, column, 1) of the result -> (row, column) of the image of `size` pixels. By
    `angles` (radians, clockwise as seen) about the centre, after shifts of what is seen by -`down`
    and -`right` pixels: the signs
    and the order of Keras' apply_affine_transform."""
    sines, cosines = (
        np.array([of(angle) for angle in angles.tolist()]) for of in (math.sin, math.cos)
    )
    middle_row, middle_column = (size[0] - 1) / 2, (size[1] - 1) / 2
    rows, columns = down - middle_row, right - middle_column
    return np.stack(
        [
            np.stack([cosines, -sines, cosines * rows - sines * columns + middle_row], axis=1),
            np.stack([sines, cosines, sines * rows + cosines * columns + middle_column], axis=1),
        ],
        axis=1,
    )


def flip_maps(maps: Numbers, flipped: NDArray[np.bool_], width: int) -> Numbers:
    """`maps` [b, 2, 3] with the result's columns from right to left where `flipped` [b]."""
    by_row, by_column, constant = maps[:, :, 0], maps[:, :, 1], maps[:, :, 2]
    mirrored = np.stack([by_row, -by_column, constant + by_column * (width - 1)], axis=2)
    return np.where(flipped[:, None, None], mirrored, maps)


def sample(images: Images, maps: Numbers, crops: NDArray[np.int64] | None = None) -> Images:
    """`images` [b, h, w, c] at the places that `maps` [b, 2, 3] give, bilinear; outside is the
    nearest pixel of the edge. With `crops` [b, 2], example i is then moved up and left by crops[i]
    pixels, zeros following."""
    count, height, width, _ = images.shape
    rows = np.broadcast_to(np.arange(height), (count, height))
    columns = np.broadcast_to(np.arange(width), (count, width))
    if crops is not None:
        rows, columns = rows + crops[:, :1], columns + crops[:, 1:]
    result = np.empty_like(images)
    at_once = max(1, _PIXELS_AT_ONCE // max(1, height * width))
    for start in range(0, count, at_once):
        part = slice(start, start + at_once)
        row_places = _places(maps[part, 0], rows[part], columns[part], height)
        column_places = _places(maps[part, 1], rows[part], columns[part], width)
        result[part] = _bilinear(images[part], row_places, column_places)
    if crops is not None:
        inside = ((rows >= 0) & (rows < height))[:, :, None] & ((columns >= 0) & (columns < width))[
            :, None, :
        ]
        result[~inside] = 0
    return result


def _places(line: Numbers, rows: Any, columns: Any, size: int) -> NDArray[np.float32]:
    """[b, h, w]: one coordinate of the places, clamped to the image."""
    by_row = (line[:, :1] * rows + line[:, 2:]).astype(np.float32)
    by_column = (line[:, 1:2] * columns).astype(np.float32)
    places: NDArray[np.float32] = by_row[:, :, None] + by_column[:, None, :]
    np.clip(places, np.float32(0), np.float32(size - 1), out=places)
    return places


def _bilinear(images: Images, rows: NDArray[np.float32], columns: NDArray[np.float32]) -> Images:
    """[b, h, w, c] at the places inside of the image that `rows` and `columns` [b, h, w] give."""
    count, height, width, channels = images.shape
    pixels = count * height * width
    # A plane per channel: numpy is slow along an axis of three. Room behind, because a pixel at the
    # lower or right edge has a neighbour outside, without weight.
    planes = np.zeros((channels, pixels + width + 1), np.float32)
    planes[:, :pixels] = images.reshape(pixels, channels).T
    row, column = rows.astype(np.intp), columns.astype(np.intp)
    down, right = (
        (rows - row.astype(np.float32)).ravel(),
        (columns - column.astype(np.float32)).ravel(),
    )
    row *= width
    row += column
    row += np.arange(0, pixels, height * width)[:, None, None]
    index = row.ravel()
    result = np.empty((channels, pixels), np.float32)
    for plane, out in zip(planes, result, strict=True):
        upper = _between(plane, plane[1:], index, right)
        lower = _between(plane[width:], plane[width + 1 :], index, right)
        lower -= upper
        lower *= down
        np.add(upper, lower, out=out)
    if images.dtype == np.uint8:
        np.rint(result, out=result)
    return result.T.reshape(images.shape).astype(images.dtype)


def _between(
    left: NDArray[np.float32],
    right: NDArray[np.float32],
    index: NDArray[np.intp],
    share: NDArray[np.float32],
) -> NDArray[np.float32]:
    """`left` and `right` at `index`, mixed. In this form rounding does not leave the range of the
    two: a share is below 1, so the product is at most the number before the rounded difference, and
    that is not beyond the exact one."""
    # Indices are inside of the plane: "clip" saves numpy from looking at them all before.
    start, end = left.take(index, mode="clip"), right.take(index, mode="clip")
    end -= start
    end *= share
    end += start
    return end


def _feature(batch: Arrays, feature: str) -> NDArray[Any]:
    if feature not in batch:
        raise invalid(f"there is no feature {feature} to transform, but {sorted(batch)}")
    return batch[feature]


def _images(batch: Arrays, feature: str) -> Images:
    images = _feature(batch, feature)
    if images.ndim != 4 or images.dtype not in _IMAGE_TYPES:
        raise invalid(
            f"{feature} is {images.dtype} {images.shape}, not images [b, h, w, c] of "
            "uint8 or float32"
        )
    if not 1 <= min(images.shape[1:]) <= max(images.shape[1:3]) <= SIDE_PIXELS_MAX:
        raise invalid(
            f"{feature} has images {images.shape[1:]}; sides are 1 to {SIDE_PIXELS_MAX} pixels"
        )
    return images
