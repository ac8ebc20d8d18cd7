from __future__ import annotations

import dataclasses
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from podyard.base.errors import Code, PodyardError
from podyard.engine.timing.tpu_v1 import (
    TPU_V1,
    Activate,
    MatrixMultiply,
    ProgramBuilder,
    ReadHostMemory,
    ReadWeights,
    Timeline,
    TpuV1Machine,
    TpuV1Program,
    WeightBlock,
    WriteHostMemory,
    simulate,
)
from podyard.engine.timing.tpu_v1_apps import APPLICATIONS, run, speedups

TILE = 256 * 256


def machine(fetch_cycles: int, **sizes: float) -> TpuV1Machine:
    """One whose tiles take `fetch_cycles` each; a byte over PCIe takes a cycle."""
    plain = dataclasses.replace(
        TPU_V1,
        clock_hz=1e9,
        weight_bytes_per_second=TILE * 1e9 / fetch_cycles,
        host_bytes_per_second=1e9,
    )
    return dataclasses.replace(plain, **sizes)  # type: ignore[arg-type]


def product(rows: int, tiles: int, repeat: int = 1, waits: bool = True) -> WeightBlock:
    return WeightBlock(
        "product", (ReadWeights(tiles), MatrixMultiply(rows, tiles), Activate(rows)), repeat, waits
    )


def split(timeline: Timeline) -> tuple[int, int, int, int]:
    return timeline.matrix_active, timeline.weight_stall, timeline.weight_shift, timeline.non_matrix


def test_one_tile_is_fetched_shifted_multiplied_drained_and_activated() -> None:
    program = ProgramBuilder(100).fully_connected("layer", 256, 256).build()
    timeline = simulate(program)
    fetch = 1350  # 65536 bytes at 34 GB/s are 1349.3 cycles of 700 MHz
    assert TPU_V1.fetch_cycles == fetch
    assert split(timeline) == (100, fetch, 256, 512 + 100)
    assert timeline.cycles == fetch + 256 + 100 + 512 + 100
    assert (timeline.activation_busy, timeline.fetch_busy, timeline.host_busy) == (100, fetch, 0)
    assert timeline.tops == pytest.approx(2 * 100 * TILE / (timeline.cycles / 700e6) / 1e12)
    assert timeline.array_use == 1


def test_peak_is_the_published_one() -> None:
    assert TPU_V1.peak_ops_per_second == pytest.approx(92e12, rel=0.005)


def test_small_batches_wait_for_every_tile() -> None:
    timeline = simulate(TpuV1Program((product(8, 10),)), machine(1000))
    assert timeline.cycles == 10 * 1000 + 256 + 8 + 512 + 8
    # Between tiles: the next has arrived 1000 later, of which 8 were worked and 256 are the last
    # one's shift.
    assert split(timeline) == (80, 1000 + 9 * (1000 - 8 - 256), 10 * 256, 520)


def test_fetching_runs_ahead_as_far_as_the_queue_and_the_array_hold() -> None:
    blocks = (WeightBlock("read", (ReadHostMemory(10_000),), waits=False), product(8, 6))
    timeline = simulate(TpuV1Program(blocks), machine(1000))
    # While the array waits for the host, one tile is in it and four are in the queue: they are used
    # at the pace of shifting. The sixth was fetched only when the second had left the queue, at
    # 10256.
    fifth_ends = 10_000 + 4 * 256 + 8
    sixth_arrives = 10_256 + 1000
    assert timeline.cycles == sixth_arrives + 256 + 8 + 512 + 8
    assert timeline.weight_stall == 1000 + sixth_arrives - fifth_ends
    longer = simulate(TpuV1Program(blocks), machine(1000, queue_tiles=5))
    assert longer.cycles == 10_000 + 5 * 256 + 8 + 512 + 8


@pytest.mark.parametrize(
    ("rows", "shifts"), [(100, 256 + 9 * 156), (255, 256 + 9), (256, 256), (300, 256)]
)
def test_shifting_a_tile_hides_behind_a_product_of_256_rows(rows: int, shifts: int) -> None:
    timeline = simulate(TpuV1Program((product(rows, 10),)), machine(1))
    assert split(timeline) == (10 * rows, 1, shifts, 512 + rows)


def test_accumulators_are_written_again_only_when_they_are_read() -> None:
    full = simulate(TpuV1Program((product(2048, 1, repeat=3),)), machine(1))
    first_activated = 257 + 2048 + 512 + 2048
    assert full.cycles == first_activated + 2048 + 512 + 2048
    # With four halves as large, the third product follows the second at once.
    quarter = simulate(TpuV1Program((product(1024, 1, repeat=3),)), machine(1))
    assert quarter.cycles == 257 + 3 * 1024 + 512 + 1024


def test_rows_beyond_half_of_the_accumulators_fetch_their_weights_again() -> None:
    one = simulate(ProgramBuilder(2048).fully_connected("layer", 512, 256).build())
    two_program = ProgramBuilder(2049).fully_connected("layer", 512, 256).build()
    two = simulate(two_program)
    assert (one.tiles, two.tiles) == (2, 4)
    assert two.matrix_active == 2 * 2049
    assert two_program.macs == 2049 * 512 * 256
    assert two_program.weights == 512 * 256
    assert [block.instructions[1] for block in two_program.blocks] == [
        MatrixMultiply(1025, 2),
        MatrixMultiply(1024, 2),
    ]


def test_a_layer_waits_for_the_one_before_and_its_weights_do_not() -> None:
    timeline = simulate(
        ProgramBuilder(300, machine=machine(100))
        .fully_connected("a", 256, 256)
        .fully_connected("b", 256, 256)
        .build(),
        machine(100),
    )
    first_done = 100 + 256 + 300 + 512 + 300
    assert timeline.spans[0].end == timeline.spans[1].start == first_done
    assert timeline.cycles == first_done + 300 + 512 + 300


@pytest.mark.parametrize(
    ("activations", "weights", "slower"), [(8, 8, 1), (16, 8, 2), (8, 16, 2), (16, 16, 4)]
)
def test_sixteen_bits_run_at_half_and_at_a_quarter_of_the_speed(
    activations: int, weights: int, slower: int
) -> None:
    plain = simulate(ProgramBuilder(512).fully_connected("layer", 512, 512).build())
    wide = simulate(
        ProgramBuilder(512, activations, weights).fully_connected("layer", 512, 512).build()
    )
    assert wide.matrix_active == slower * plain.matrix_active
    assert wide.tiles == plain.tiles * weights // 8
    assert wide.array_use == pytest.approx(1 / slower)


def test_convolution_uses_a_tile_per_place_of_its_window() -> None:
    program = ProgramBuilder(8).convolution("conv", 49, 9, 64, 300).build()
    timeline = simulate(program)
    assert timeline.tiles == 9 * 2
    assert program.macs == 8 * 49 * 9 * 64 * 300
    assert timeline.array_use == pytest.approx(64 / 256 * 300 / 512)


def test_vector_and_pool_layers_keep_only_the_activation_unit_busy() -> None:
    timeline = simulate(ProgramBuilder(10).vector("v", 600, passes=2).pool("p", 49, 9, 256).build())
    assert timeline.cycles == timeline.activation_busy == 10 * 3 * 2 + 10 * 49 * 9
    assert (timeline.macs, timeline.tiles, timeline.tops, timeline.array_use) == (0, 0, 0, 0)


def test_the_host_writes_first_and_reads_last() -> None:
    program = ProgramBuilder(10, 16).read(7).fully_connected("layer", 7, 5).write(5).build()
    timeline = simulate(program, machine(10))
    assert isinstance(program.blocks[-1].instructions[0], WriteHostMemory)
    assert timeline.host_busy == 2 * 10 * (7 + 5)
    # The weights are there before 140 bytes are and shifted after them.
    assert timeline.cycles == 10 + 256 + 20 + 512 + 10 + 100


@settings(max_examples=60, deadline=None)
@given(
    fetch=st.integers(1, 3000),
    shapes=st.lists(
        st.tuples(st.integers(1, 2048), st.integers(1, 6), st.integers(1, 60), st.booleans()),
        max_size=4,
    ),
)
def test_repetitions_that_are_skipped_are_counted_as_if_they_had_run(
    fetch: int, shapes: list[tuple[int, int, int, bool]]
) -> None:
    blocks = [product(rows, tiles, repeat, waits) for rows, tiles, repeat, waits in shapes]
    one_by_one = [
        product(rows, tiles, 1, waits and turn == 0)
        for rows, tiles, repeat, waits in shapes
        for turn in range(repeat)
    ]
    skipped, run_all = (
        simulate(TpuV1Program(tuple(each)), machine(fetch)) for each in (blocks, one_by_one)
    )
    assert dataclasses.replace(skipped, spans=()) == dataclasses.replace(run_all, spans=())


def test_a_hundred_million_tiles_are_no_work() -> None:
    count = 100_000_000
    timeline = simulate(TpuV1Program((product(512, 1, repeat=count),)), machine(1000))
    assert timeline.cycles == 1000 * count + 256 + 512 + 512 + 512


@settings(max_examples=40, deadline=None)
@given(
    batch=st.integers(1, 5000),
    widths=st.lists(st.integers(1, 2000), min_size=2, max_size=5),
    slow=st.floats(1e9, 1e12),
    factor=st.floats(1, 20),
)
def test_more_bandwidth_is_never_slower(
    batch: int, widths: list[int], slow: float, factor: float
) -> None:
    builder = ProgramBuilder(batch).read(widths[0])
    for index in range(len(widths) - 1):
        builder.fully_connected(f"fc{index}", widths[index], widths[index + 1])
    program = builder.write(widths[-1]).build()
    before, after = (
        simulate(program, dataclasses.replace(TPU_V1, weight_bytes_per_second=speed))
        for speed in (slow, slow * factor)
    )
    assert after.cycles <= before.cycles
    for timeline in (before, after):
        assert min(split(timeline)) >= 0
        assert timeline.tops * 1e12 <= TPU_V1.peak_ops_per_second
        assert timeline.cycles >= max(
            timeline.fetch_busy, timeline.activation_busy, timeline.host_busy
        )


@pytest.mark.parametrize(
    ("program", "code"),
    [
        (
            lambda: TpuV1Program((WeightBlock("b", (MatrixMultiply(1, 1), Activate(1))),)),
            Code.INVALID_ARGUMENT,
        ),
        (
            lambda: TpuV1Program((WeightBlock("b", (ReadWeights(2), MatrixMultiply(1, 1))),)),
            Code.INVALID_ARGUMENT,
        ),
        (lambda: TpuV1Program((product(2049, 1),)), Code.FAILED_PRECONDITION),
        (lambda: ProgramBuilder(0).build(), Code.INVALID_ARGUMENT),
        (lambda: ProgramBuilder(1, activation_bits=32).build(), Code.INVALID_ARGUMENT),
        (lambda: ProgramBuilder(1).fully_connected("fc", 0, 1).build(), Code.INVALID_ARGUMENT),
        (lambda: ProgramBuilder(1).vector("v", 1, passes=0).build(), Code.INVALID_ARGUMENT),
        (
            lambda: ProgramBuilder(32).convolution("c", 112 * 112, 9, 3, 64).build(),
            Code.FAILED_PRECONDITION,
        ),
        (lambda: ProgramBuilder(4096).vector("v", 4096).build(), Code.FAILED_PRECONDITION),
    ],
)
def test_what_cannot_run_is_refused(program, code: Code) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(PodyardError) as refused:
        simulate(program())
    assert refused.value.code == code


def test_a_machine_without_a_part_is_refused() -> None:
    with pytest.raises(PodyardError):
        dataclasses.replace(TPU_V1, weight_bytes_per_second=0)


@pytest.mark.parametrize("name", APPLICATIONS)
def test_application_meets_the_published_facts(name: str) -> None:
    application = APPLICATIONS[name]
    program = application.program()
    assert program.weights == pytest.approx(application.weights, rel=0.02)
    assert program.macs / program.weights == pytest.approx(application.macs_per_weight, rel=0.015)
    names = {block.name for block in program.blocks} - {"read", "write"}
    units = [next(b for b in program.blocks if b.name == each).instructions for each in names]
    matrix = sum(isinstance(instructions[0], ReadWeights) for instructions in units)
    layers = {kind: int(count) for count, kind in re.findall(r"(\d+) (\w+)", application.layers)}
    assert matrix == layers.get("FC", 0) + layers.get("conv", 0)
    assert len(units) - matrix == layers.get("vector", 0) + layers.get("pool", 0)


def test_five_of_six_applications_run_within_a_quarter_of_their_published_speed() -> None:
    ratios = {name: run(name).tops / application.tops for name, application in APPLICATIONS.items()}
    assert {name for name, ratio in ratios.items() if not 0.75 <= ratio <= 1.25} == {"LSTM1"}
    # The one that is missed is too fast: something that it waits for is not in the model.
    assert 1.25 < ratios["LSTM1"] < 1.45


def test_four_times_the_weight_bandwidth_is_about_three_times_as_fast_in_the_weighted_mean() -> (
    None
):
    faster = speedups(dataclasses.replace(TPU_V1, weight_bytes_per_second=136e9))
    assert faster.weighted_mean == pytest.approx(3, rel=0.1)
    assert 2 < faster.geometric_mean < faster.arithmetic_mean < faster.weighted_mean
    assert faster.each["CNN0"] == pytest.approx(1, abs=0.02)


def test_four_times_the_clock_helps_only_convolutions_and_those_more_with_more_accumulators() -> (
    None
):
    clock = speedups(dataclasses.replace(TPU_V1, clock_hz=2.8e9))
    both = speedups(dataclasses.replace(TPU_V1, clock_hz=2.8e9, accumulator_rows=4 * 4096))
    for name in ("MLP0", "MLP1", "LSTM0", "LSTM1"):
        assert 1 <= clock.each[name] < 1.05
        assert 1 <= both.each[name] < 1.05
    assert clock.each["CNN0"] < 1.25
    assert both.each["CNN0"] == pytest.approx(2, rel=0.15)


def test_an_application_that_is_none_of_the_six_is_not_found() -> None:
    with pytest.raises(PodyardError) as refused:
        run("MLP2")
    assert refused.value.code == Code.NOT_FOUND
