"""Operations of PyTorch in StableHLO, as the engine reads it; tests/clients compares their results
with PyTorch's."""

from __future__ import annotations

import pytest

from podyard import engine
from podyard.base.kernel_cost import KernelCost
from podyard.hardware.accelerator_types import parse
from podyard.programs.estimator import estimate
from podyard.programs.torch_graph.module_text import (
    ModuleBorder,
    device_module,
    partitioned_module,
)
from podyard.programs.torch_graph.parallel import PARALLEL, GroupExchange, KernelCall
from podyard.programs.torch_graph.shardings import LogicalMesh, TensorSharding
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
    exchange = GroupExchange((tuple(range(devices)),))
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


PAIRS = GroupExchange(((0, 1), (2, 3), (4, 5), (6, 7)))


@pytest.mark.parametrize(
    ("name", "exchange", "result", "size"),
    [
        ("all_reduce", PAIRS, (8, 64), 2048),
        ("all_gather", GroupExchange(PAIRS.groups, axis=1), (8, 128), 4096),
        ("reduce_scatter", PAIRS, (4, 64), 2048),
    ],
)
def test_exchanges_are_priced_by_their_groups(
    name: str, exchange: GroupExchange, result: tuple[int, ...], size: int
) -> None:
    w = Writer()
    (result_value,) = PARALLEL[name](w, [w.argument((8, 64), F32), exchange], (result, F32))
    text = device_module(w, ModuleBorder("m", [result_value], 8))
    priced = engine.analyze_stablehlo(text, accelerator_type="v5litepod-8")
    (line,) = priced.collectives
    assert 'over 4 groups of 2 ("i":2)' in line and f"of {size} bytes" in line
    assert priced.ici_bytes > 0 and priced.doubts == ()


MESH = LogicalMesh((("data", 4), ("model", 2)), tuple(range(8)))


def _sharded_step(marked: bool) -> str:
    """A product whose rows and columns are split, if the intermediate is marked so."""
    w = Writer()
    rows, weight = w.argument((512, 1024), F32), w.argument((1024, 2048), F32)
    (product,) = OPERATIONS["mm"](w, [rows, weight], ((512, 2048), F32))
    if marked:
        sharding = TensorSharding(MESH, (("data",), ("model",)))
        (product,) = PARALLEL["sharding_constraint"](w, [product, sharding], (product.shape, F32))
    shardings = {0: TensorSharding(MESH, (("data",), ()))}
    return partitioned_module(w, ModuleBorder("m", [product], 8, {}, shardings))


def test_a_marked_intermediate_splits_what_makes_it() -> None:
    product = 2 * 512 * 1024 * 2048
    for marked, parts in ((False, 4), (True, 8)):
        estimate_of_step = engine.analyze_stablehlo(
            _sharded_step(marked), accelerator_type="v5litepod-8"
        )
        assert estimate_of_step.flops == product / parts


def test_a_kernel_runs_on_the_shards_that_it_is_given() -> None:
    w = Writer()
    shape = (8, 4, 1024, 128)
    query = w.argument(shape, "bf16")
    sharding = TensorSharding(MESH, (("data",), ("model",), (), ()))
    cost = KernelCost("attend", flops=1e9, hbm_bytes=1e6)
    rows = (shape[:3], F32)
    call = KernelCall(cost, ((shape, "bf16"), rows), (), (1,), (sharding,), (sharding,) * 2)
    output, sums = PARALLEL["kernel"](w, [[query], call], (shape, "bf16"))
    assert (sums.shape, sums.element) == rows
    border = ModuleBorder("m", [output, sums], 8, {}, {0: sharding})
    priced = engine.analyze_stablehlo(partitioned_module(w, border), accelerator_type="v5litepod-8")
    assert priced.flops == pytest.approx(1e9, rel=1e-3) and priced.ici_bytes == 0


def test_what_is_written_in_place_takes_its_memory_once() -> None:
    w = Writer()
    weight = w.argument((1024, 1024), F32)
    (moved,) = OPERATIONS["mul"](w, [weight, 0.5], (weight.shape, F32))
    for aliases, size in (({}, 2 * 4 * 2**20), ({0: 0}, 4 * 2**20)):
        text = device_module(w, ModuleBorder("m", [moved], 1, aliases))
        priced = engine.analyze_stablehlo(text, accelerator_type="v3-8")
        assert priced.peak_hbm_bytes == pytest.approx(size, rel=0.01)
