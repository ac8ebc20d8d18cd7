from __future__ import annotations

import pytest

from podyard.base.errors import Code, PodyardError
from podyard.engine.timing.edge import EDGE_TPU, analyze_int8
from podyard.engine.timing.energy import (
    COMPARISONS,
    device_joules,
    efficiencies,
    energy_joules,
    power_note,
)
from podyard.hardware.accelerator_types import parse
from podyard.hardware.generations import GENERATIONS


def test_energy_is_a_straight_line_from_idle_to_busy() -> None:
    assert energy_joules("v3", 4, 10, 0) == 4 * 10 * 123
    assert energy_joules("v3", 4, 10, 1) == 4 * 10 * 262
    assert energy_joules("v4", 1, 2, 0.5) == 2 * (90 + 192) / 2
    assert energy_joules("v4", 8, 0, 0.5) == 0
    assert energy_joules("v1", 1, 100, 0.25) == 100 * (28 + 12 * 0.25)


def test_a_device_has_its_share_of_the_slice() -> None:
    assert device_joules(parse("v3-8"), 8, 10, 1) == 4 * 10 * 262 / 8
    assert device_joules(parse("v4-8"), 4, 10, 1) == 10 * 192
    assert device_joules(parse("v2-8"), 8, 10, 1) is None


@pytest.mark.parametrize("generation", ["v2", "v5e", "v5p", "v6e"])
def test_no_energy_is_given_where_power_is_not_published(generation: str) -> None:
    assert energy_joules(generation, 4, 10, 0.5) is None
    assert power_note(generation).startswith(f"no energy for {generation}")


def test_notes_say_what_was_not_verified() -> None:
    assert "unverified" in power_note("v1")
    assert "unverified" not in power_note("v3")
    assert "123 W idle to 262 W busy" in power_note("v3")
    assert "https://cloud.google.com/tpu/docs/v4" in power_note("v4")


def test_every_generation_has_a_row_in_order() -> None:
    for power in (generation.power for generation in GENERATIONS.values()):
        known = [
            watts
            for watts in (power.idle, power.mean, power.busy, power.limit)
            if watts is not None
        ]
        assert known == sorted(known)
        assert not power.verified or power.source.startswith("https://")


@pytest.mark.parametrize(
    ("generation", "chips", "seconds", "share", "code"),
    [
        ("v9", 1, 1, 0.5, Code.NOT_FOUND),
        ("v3", 0, 1, 0.5, Code.INVALID_ARGUMENT),
        ("v3", 1, -1, 0.5, Code.INVALID_ARGUMENT),
        ("v3", 1, float("nan"), 0.5, Code.INVALID_ARGUMENT),
        ("v3", 1, 1, 1.01, Code.INVALID_ARGUMENT),
        ("v3", 1, 1, -0.01, Code.INVALID_ARGUMENT),
        ("v5e", 0, 1, 0.5, Code.INVALID_ARGUMENT),
    ],
)
def test_energy_of_nonsense_is_refused(
    generation: str, chips: int, seconds: float, share: float, code: Code
) -> None:
    with pytest.raises(PodyardError) as refused:
        energy_joules(generation, chips, seconds, share)
    assert refused.value.code == code


def test_efficiency_is_peak_by_the_most_a_chip_draws() -> None:
    rows = {row.generation: row for row in efficiencies()}
    assert list(rows) == ["v1", "v3", "v4"]
    assert (rows["v1"].operations, rows["v1"].verified) == ("int8", False)
    assert rows["v1"].ops_per_second_per_watt == 92e12 / 40
    assert rows["v4"].operations == "bf16"
    # Published for whole applications is 2.7 times; the ratio of the peaks is near it.
    ratio = rows["v4"].ops_per_second_per_watt / rows["v3"].ops_per_second_per_watt
    published = next(
        c for c in COMPARISONS if c.system == "TPU v4" and c.what == "performance per watt"
    )
    assert ratio == pytest.approx(published.low, rel=0.2)
    assert not published.verified


def test_first_tpu_is_compared_in_the_published_ranges() -> None:
    rows = {
        (c.against.split()[0], c.what): (c.low, c.high) for c in COMPARISONS if c.system == "TPU v1"
    }
    for against in ("Intel", "Nvidia"):
        assert rows[against, "speed"] == (15, 30)
        assert rows[against, "performance per watt"] == (30, 80)
    assert all(c.low <= c.high and c.source for c in COMPARISONS)


def test_edge_model_in_the_cache_is_bound_by_compute() -> None:
    estimate = analyze_int8(macs=300_000_000, weight_bytes=4_000_000, activation_bytes=1000)
    assert estimate.bound == "compute"
    assert estimate.seconds == estimate.compute_seconds == 2 * 300e6 / 4e12
    assert estimate.streamed_weight_bytes == 0
    assert estimate.joules == pytest.approx(2 * estimate.compute_seconds)


def test_edge_weights_beyond_the_cache_come_over_the_link() -> None:
    estimate = analyze_int8(
        macs=1_000_000, weight_bytes=EDGE_TPU.sram_bytes + 1_000_000, activation_bytes=500_000
    )
    assert estimate.streamed_weight_bytes == 1_000_000
    assert estimate.bound == "link"
    assert estimate.seconds == pytest.approx(1_500_000 / 500e6)


@pytest.mark.parametrize("element_type", ["float32", "bfloat16", "float16", "int16"])
def test_edge_refuses_what_is_not_eight_bit_integers(element_type: str) -> None:
    with pytest.raises(PodyardError, match="quantize"):
        analyze_int8(1, 1, 1, element_type)


@pytest.mark.parametrize("sizes", [(-1, 0, 0), (0, -1, 0), (0, 0, -1)])
def test_edge_refuses_negative_sizes(sizes: tuple[int, int, int]) -> None:
    with pytest.raises(PodyardError):
        analyze_int8(*sizes)
