"""Single convolutions and their gradients, of shapes that were drawn once: as in networks of
images, with few channels, in groups, and of each feature by itself."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator

from benchmarks.corpus import vision
from benchmarks.corpus.layout import Made
from podyard.base.rng import Streams

PREFIX = "single-"
_GRADIENTS = {"forward": "", "input": "input", "kernel": "kernel"}
# How many shapes of each kind; arrays of more numbers than this are not drawn.
_PLAIN, _OTHERS = 14, 5
_MOST = 60_000_000


def _drawn() -> Iterator[tuple[int, int, int, int, int, int, int]]:
    """(examples, size, features read, features of a group, features made, window, stride)."""
    draw = Streams(0).stream("benchmark.singles")
    for kind, count in (
        ("plain", _PLAIN),
        ("few", _OTHERS),
        ("groups", _OTHERS),
        ("each", _OTHERS),
    ):
        while count:
            batch = draw.choice((8, 16, 24, 32, 64, 96, 128, 200, 256))
            size, window = (
                draw.choice((7, 10, 14, 17, 28, 36, 56, 72, 96)),
                draw.choice((1, 3, 3, 3, 5, 7)),
            )
            stride = draw.choice((1, 1, 1, 2)) if window > 1 else 1
            before, after = (
                draw.choice((16, 32, 48, 64, 80, 128, 192, 256, 384, 512)) for _ in range(2)
            )
            own = before
            if kind == "few":
                before = own = draw.choice((1, 2, 3, 3, 4))
                after = min(after, 128)
            elif kind == "groups":
                before = after = max(128, before)
                own = draw.choice([one for one in (4, 8, 16, 32, 64) if before % one == 0])
            elif kind == "each":
                own, after, window = 1, before, max(3, window)
            if window <= size and batch * size * size * max(before, after) <= _MOST:
                count -= 1
                yield batch, size, before, own, after, window, stride


def _programs() -> Iterator[tuple[str, Callable[[], Made]]]:
    for batch, size, before, own, after, window, stride in _drawn():
        groups = f"-groups{before // own}" if own < before else ""
        for name, gradient in _GRADIENTS.items():
            title = f"{PREFIX}{name}-b{batch}-{size}-{before}-{after}-k{window}s{stride}{groups}"
            image, kernel = (batch, size, size, before), (window, window, own, after)
            yield title, functools.partial(vision.convolution, image, kernel, stride, gradient)


SINGLES: dict[str, Callable[[], Made]] = dict(_programs())
