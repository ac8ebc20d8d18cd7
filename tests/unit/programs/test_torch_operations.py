"""Operations of PyTorch in StableHLO, as the engine reads it; tests/clients compares their results
with PyTorch's."""

from __future__ import annotations

import pytest

from podyard import engine
from podyard.hardware.accelerator_types import parse
from podyard.programs.estimator import estimate
from podyard.programs.torch_graph.module_text import ModuleBorder, device_module
from podyard.programs.torch_graph.parallel import PARALLEL, Exchange
from podyard.programs.torch_graph.stablehlo_writer import Value, Writer
from podyard.programs.torch_operations import OPERATIONS

F32 = "f32"


def _convolution_step(devices: int) -> str:
    w = Writer()
    image, kernel = w.argument((8, 3, 32, 32), F32), w.argument((16, 3, 3, 3), F32)
    (found,) = OPERATIONS["convolution"](
        w, [image, kernel, None, [1, 1], [1, 1], [1, 1], False, [0, 0], 1], ((8, 16, 32, 32), F32)
    )
    grads = OPERATIONS["convolution_backward"](
        w,
        [found, image, kernel, [16], [1, 1], [1, 1], [1, 1], False, [0, 0], 1, [False, True, True]],
        (kernel.shape, F32),
    )
    exchange = Exchange((tuple(range(devices)),))
    (total,) = PARALLEL["all_reduce"](w, [grads[1], exchange], (kernel.shape, F32))
    (moved,) = OPERATIONS["sub"](w, [kernel, total, 0.1], (kernel.shape, F32))
    notes = ["podyard: 1 of 9 operations are not in it: rand"]
    return device_module(w, ModuleBorder("step", [moved, grads[2]], devices, notes=notes))


@pytest.mark.parametrize("devices", [1, 8])
def test_the_engine_reads_what_is_written(devices: int) -> None:
    found = engine.analyze_stablehlo(_convolution_step(devices), accelerator_type="v3-8")
    products = 8 * 32 * 32 * 16 * 27
    # windows at the border are smaller
    assert 2 * 2 * products * 0.85 < found.flops < 2 * 2 * products * 1.1
    assert (found.ici_bytes > 0) == (devices > 1)


def test_what_is_not_covered_is_among_the_doubts() -> None:
    found = estimate(_convolution_step(8).encode(), parse("v3-8"))
    assert found.seconds and found.doubts == ("1 of 9 operations are not in it: rand",)


def _arguments(w: Writer, *shapes: tuple[int, ...]) -> list[Value]:
    return [w.argument(shape, F32) for shape in shapes]


@pytest.mark.parametrize(
    ("name", "shapes", "rest", "result"),
    [
        ("add", [(4, 5), (5,)], [2], (4, 5)),
        ("addmm", [(7,), (4, 5), (5, 7)], [1, 1], (4, 7)),
        ("bmm", [(2, 4, 5), (2, 5, 7)], [], (2, 4, 7)),
        ("sum", [(4, 5)], [[-1], True], (4, 1)),
        ("mean", [(4, 5)], [], ()),
        ("slice", [(4, 5)], [1, -3, 9, 2], (4, 2)),
        ("select", [(4, 5)], [0, -1], (5,)),
        ("transpose", [(4, 5, 6)], [-1, 0], (6, 5, 4)),
        ("expand", [(4, 1)], [[4, 5]], (4, 5)),
        ("clamp", [(4,)], [None, 1.0], (4,)),
        ("constant_pad_nd", [(4, 5)], [[1, 2, 3, 4], 0.0], (11, 8)),
        ("tril", [(2, 4, 4)], [0], (2, 4, 4)),
        ("avg_pool2d", [(1, 2, 8, 8)], [[2], [2], [0]], (1, 2, 4, 4)),
        ("max_pool2d_with_indices", [(1, 2, 8, 8)], [[3, 3], [2, 2], [1, 1]], (1, 2, 4, 4)),
        ("var", [(4, 5)], [[0], 1], (5,)),
        ("lerp", [(4,), (4,)], [0.1], (4,)),
        ("gt", [(4,)], [0.0], (4,)),
    ],
)
def test_an_operation_has_the_shape_that_pytorch_gives_it(
    name: str, shapes: list[tuple[int, ...]], rest: list[object], result: tuple[int, ...]
) -> None:
    w = Writer()
    found = OPERATIONS[name](
        w, [*_arguments(w, *shapes), *rest], (result, "i1" if name == "gt" else F32)
    )[0]
    assert found.shape == result
    assert (
        engine.analyze_stablehlo(
            device_module(w, ModuleBorder("m", [found], 1)), accelerator_type="v3-8"
        ).modelled_seconds
        > 0
    )
