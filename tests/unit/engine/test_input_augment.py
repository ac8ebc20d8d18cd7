from __future__ import annotations

import math

import numpy as np
import pytest

from podyard.base.errors import Code, PodyardError
from podyard.engine.training.input import augment
from podyard.engine.training.input.augment import (
    Geometry,
    Normalise,
    affine_maps,
    flip_maps,
    sample,
)
from podyard.engine.training.input.chance import Chance

RNG = np.random.default_rng(0)
SIZES = [(5, 5), (6, 6), (1, 1), (4, 7), (1, 3), (3, 1)]


def images(count: int, height: int, width: int, channels: int, dtype: str) -> np.ndarray:
    values = RNG.integers(0, 256, (count, height, width, channels), np.uint8)
    return values if dtype == "uint8" else (values / 255 - 0.4).astype(np.float32)


def chance(step: int = 1, count: int = 64) -> Chance:
    return Chance(0, "0", step, 0, count, count)


def maps(
    height: int, width: int, angle: float = 0.0, down: float = 0.0, right: float = 0.0
) -> np.ndarray:
    return affine_maps(np.array([angle]), np.array([down]), np.array([right]), (height, width))


@pytest.mark.parametrize("dtype", ["uint8", "float32"])
@pytest.mark.parametrize("size", [1, 2, 5, 6, 33])
@pytest.mark.parametrize("quarters", [-2, -1, 1, 2, 4])
def test_quarter_turns_are_rot90(dtype: str, size: int, quarters: int) -> None:
    image = images(1, size, size, 3, dtype)
    turned = sample(image, maps(size, size, angle=quarters * math.pi / 2))
    expected = np.rot90(image, -quarters, axes=(1, 2))
    if dtype == "uint8":
        assert np.array_equal(turned, expected)
    else:
        assert np.allclose(turned, expected, rtol=0, atol=1e-4)


@pytest.mark.parametrize("dtype", ["uint8", "float32"])
@pytest.mark.parametrize("shift", [(1, 0), (0, -2), (-1, 2), (9, 9)])
def test_shifts_by_whole_pixels_are_exact_and_repeat_the_edge(
    dtype: str, shift: tuple[int, int]
) -> None:
    image = images(2, 5, 6, 3, dtype)
    shifted = sample(image, np.repeat(maps(5, 6, down=shift[0], right=shift[1]), 2, axis=0))
    rows, columns = np.clip(np.arange(5) + shift[0], 0, 4), np.clip(np.arange(6) + shift[1], 0, 5)
    assert np.array_equal(shifted, image[:, rows][:, :, columns])


def test_a_shift_by_half_a_pixel_is_the_mean_of_two() -> None:
    image = np.array([0, 10, 40, 20], np.float32).reshape(1, 1, 4, 1)
    assert sample(image, maps(1, 4, right=0.5)).ravel().tolist() == [5, 25, 30, 20]
    assert sample(image.astype(np.uint8), maps(1, 4, right=0.25)).ravel().tolist() == [
        2,
        18,
        35,
        20,
    ]


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("dtype", ["uint8", "float32"])
def test_flips_are_exact_and_of_the_chosen_alone(size: tuple[int, int], dtype: str) -> None:
    image = images(3, *size, 2, dtype)
    identity = np.tile(np.eye(2, 3), (3, 1, 1))
    flipped = sample(image, flip_maps(identity, np.array([True, False, True]), size[1]))
    assert np.array_equal(flipped, np.stack([image[0, :, ::-1], image[1], image[2, :, ::-1]]))


@pytest.mark.parametrize("size", SIZES)
def test_a_rotation_and_shift_is_that_of_scipy(size: tuple[int, int]) -> None:
    ndimage = pytest.importorskip("scipy.ndimage")
    image = images(8, *size, 3, "float32")
    angles, down, right = RNG.uniform(-3, 3, (3, 8))
    ours = sample(image, affine_maps(angles, down, right, size))
    middle = (np.array(size) - 1) / 2
    for index, (angle, *shift) in enumerate(zip(angles, down, right, strict=True)):
        turn = np.array([[math.cos(angle), -math.sin(angle)], [math.sin(angle), math.cos(angle)]])
        offset = turn @ (np.array(shift) - middle) + middle
        for channel in range(3):
            plane = image[index, :, :, channel]
            expected = ndimage.affine_transform(plane, turn, offset, order=1, mode="nearest")
            assert np.allclose(ours[index, :, :, channel], expected, rtol=0, atol=1e-5)


def test_crops_are_pieces_of_the_image_with_zeros_around() -> None:
    image = images(400, 4, 3, 2, "uint8") | 1
    cropped = Geometry(crop_padding=1)({"image": image}, chance(count=400))["image"]
    padded = np.pad(image, ((0, 0), (1, 1), (1, 1), (0, 0)))
    seen = []
    for own, source in zip(cropped, padded, strict=True):
        fits = [
            (r, c)
            for r in range(3)
            for c in range(3)
            if np.array_equal(source[r : r + 4, c : c + 3], own)
        ]
        assert len(fits) == 1
        seen += fits
    # 400 of 9 places: each about 44 times.
    assert min(seen.count((r, c)) for r in range(3) for c in range(3)) > 20


def test_a_crop_is_made_of_what_was_flipped_and_turned_before() -> None:
    image = images(64, 6, 6, 1, "uint8") | 1
    before = Geometry(40, 0.2, 0.2, True)({"image": image}, chance())["image"]
    after = Geometry(40, 0.2, 0.2, True, 2)({"image": image}, chance())["image"]
    padded = np.pad(before, ((0, 0), (2, 2), (2, 2), (0, 0)))
    exact = 0
    for own, source in zip(after, padded, strict=True):
        pieces = [source[r : r + 6, c : c + 6] for r in range(5) for c in range(5)]
        exact += any(np.array_equal(piece, own) for piece in pieces)
    assert exact == 64


@pytest.mark.parametrize("dtype", ["uint8", "float32"])
def test_zero_parameters_are_the_identity_bit_for_bit(dtype: str) -> None:
    image = images(64, 5, 4, 3, dtype)
    if dtype == "float32":
        image[0, 0, 0] = [-0.0, np.nan, np.inf]
    assert Geometry()({"image": image}, chance())["image"].tobytes() == image.tobytes()
    assert np.array_equal(sample(image[1:], np.repeat(maps(5, 4), 63, axis=0)), image[1:])


@pytest.mark.parametrize("dtype", ["uint8", "float32"])
def test_values_stay_inside_of_each_images_range(dtype: str) -> None:
    image = images(64, 9, 8, 3, dtype) // (3 if dtype == "uint8" else 1)
    image[0] = image[0, 0, 0, 0]
    if dtype == "float32":
        image = (image * np.float32(1.1) + np.float32(0.3)).astype(np.float32)
    for step in range(1, 6):
        changed = Geometry(180, 0.5, 0.5, True)({"image": image}, chance(step))["image"]
        axes = (1, 2, 3)
        assert (changed.min(axes) >= image.min(axes)).all() and (
            changed.max(axes) <= image.max(axes)
        ).all()
        assert changed.dtype == image.dtype and (changed[0] == image[0]).all()


@pytest.mark.parametrize("dtype", ["uint8", "float32"])
def test_an_example_does_not_depend_on_its_neighbours(
    dtype: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    image = images(24, 9, 7, 3, dtype)
    geometry = Geometry(25, 0.2, 0.2, True, 2)
    whole = geometry({"image": image}, Chance(0, "0", 5, 0, 24, 24))["image"]
    for size in (1, 3, 8):
        parts = [
            geometry({"image": image[at : at + size]}, Chance(0, "0", 5, at, at + size, 24))[
                "image"
            ]
            for at in range(0, 24, size)
        ]
        assert np.concatenate(parts).tobytes() == whole.tobytes()
    monkeypatch.setattr(augment, "_PIXELS_AT_ONCE", 1)
    assert (
        geometry({"image": image}, Chance(0, "0", 5, 0, 24, 24))["image"].tobytes()
        == whole.tobytes()
    )


def test_parameters_are_drawn_over_their_whole_range_and_not_beyond() -> None:
    # The places of the pixels themselves: a ramp that is sampled says where.
    ramp = np.broadcast_to(np.arange(101, dtype=np.float32)[:, None], (2000, 101, 1)).reshape(
        2000, 101, 1, 1
    )
    shifted = Geometry(height_shift=0.1)({"image": ramp}, chance(count=2000))["image"]
    moved = shifted[:, 50, 0, 0] - 50
    assert -10.1 <= moved.min() < -10 and 10 < moved.max() <= 10.1 and abs(moved.mean()) < 0.5
    wide = np.zeros((2000, 1, 2, 1), np.uint8)
    wide[:, :, 1] = 255
    flipped = (
        Geometry(horizontal_flip=True)({"image": wide}, chance(count=2000))["image"][:, 0, 0, 0]
        == 255
    )
    assert 900 < flipped.sum() < 1100
    # Columns of a row far from the centre show the sine of the angle.
    row = np.broadcast_to(np.arange(41, dtype=np.float32), (2000, 41, 41))[..., None]
    turned = (
        Geometry(rotation_degrees=30)({"image": row}, chance(count=2000))["image"][:, 0, 20, 0] - 20
    )
    degrees = np.degrees(np.arcsin(-turned / 20))
    assert -30.01 <= degrees.min() < -29.5 and 29.5 < degrees.max() <= 30.01


def test_switching_one_change_on_leaves_the_others_as_they_are() -> None:
    image = images(64, 6, 6, 1, "uint8")
    flips = Geometry(horizontal_flip=True)({"image": image}, chance())["image"]
    both = Geometry(horizontal_flip=True, rotation_degrees=1e-9)({"image": image}, chance())[
        "image"
    ]
    assert np.array_equal(flips, both) and not np.array_equal(flips, image)


def test_the_batch_and_its_other_features_stay_as_they_are() -> None:
    image = images(64, 6, 6, 1, "float32")
    batch = {"image": image.copy(), "label": np.arange(64)}
    for transform in (Geometry(10, 0.1, 0.1, True, 1), Normalise(2)):
        changed = transform(batch, chance())
        assert changed["label"] is batch["label"] and changed["image"] is not batch["image"]
        assert np.array_equal(batch["image"], image) and set(batch) == {"image", "label"}


def test_normalise_scales_and_shifts_by_channel_or_all() -> None:
    image = images(2, 3, 3, 3, "uint8")
    scaled = Normalise(1 / 255, -0.5)({"image": image}, chance())["image"]
    assert scaled.dtype == np.float32 and np.allclose(scaled, image / 255 - 0.5, rtol=0, atol=1e-6)
    by_channel = Normalise((1, 2, 3), (0, 0, -1))({"image": image}, chance())["image"]
    assert np.array_equal(by_channel, image * np.array([1, 2, 3]) + np.array([0, 0, -1]))
    with pytest.raises(PodyardError, match="3 channels"):
        Normalise((1, 2))({"image": image}, chance())


@pytest.mark.parametrize(
    "arguments",
    [
        {"rotation_degrees": 181},
        {"rotation_degrees": math.nan},
        {"width_shift": -0.1},
        {"height_shift": 1.5},
        {"crop_padding": -1},
    ],
)
def test_parameters_out_of_range_are_refused(arguments: dict[str, float]) -> None:
    with pytest.raises(PodyardError) as caught:
        Geometry(**arguments)  # type: ignore[arg-type]
    assert caught.value.code is Code.INVALID_ARGUMENT


@pytest.mark.parametrize(
    "array",
    [
        np.zeros((64, 4, 4), np.uint8),
        np.zeros((64, 4, 4, 1), np.int64),
        np.zeros((64, 0, 4, 1), np.uint8),
    ],
)
def test_what_are_no_images_is_refused(array: np.ndarray) -> None:
    with pytest.raises(PodyardError, match="image ") as caught:
        Geometry(10)({"image": array}, chance())
    assert caught.value.code is Code.INVALID_ARGUMENT
    with pytest.raises(PodyardError, match="no feature picture"):
        Geometry(10, feature="picture")({"image": array}, chance())
