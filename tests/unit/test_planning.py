"""Runs that are drawn by chance, held against closed forms, and against the meter of the bill."""

from __future__ import annotations

import dataclasses
import math

import pytest

from podyard.base.clock import PlatformTime
from podyard.base.errors import Code, PodyardError
from podyard.base.money import Amount
from podyard.domain.node import UsageClass
from podyard.pricing import planning
from podyard.pricing.current_card import default_rate_card
from podyard.pricing.planning import Draws, Life, TrainingRun

START = PlatformTime.from_rfc3339("2026-03-01T00:00:00Z")
RUN = TrainingRun(
    steps=100_000, step_seconds=0.3, checkpoint_every_steps=500, usage=UsageClass.SPOT,
    preemptions_per_day=24.0,
    create_seconds=95.0, restart_seconds=60.0,
)  # fmt: skip
MANY = Draws(1, 20_000)
SKU = default_rate_card().sku_for("v3-8", "us-central1", UsageClass.SPOT)


def test_without_preemptions_a_run_is_exact() -> None:
    run = dataclasses.replace(RUN, usage=UsageClass.ON_DEMAND)
    found = planning.play(run, Draws(0), START)
    assert found.finish.tolist() == [95.0 + 60.0 + 30_000.0]
    assert (found.billed.tolist(), found.lost.tolist(), found.preemptions.tolist()) == (
        [30_060],
        [0.0],
        [0],
    )
    nodes = planning.lives(run, Draws(0), found.billed_index(0.95), START)
    assert nodes == [Life(95.0, 30_155.0, "DELETING")]
    sku, quantity = default_rate_card().sku_for("v3-8", "us-central1", UsageClass.ON_DEMAND)
    price = (
        default_rate_card()
        .price("v3-8", "us-central1", UsageClass.ON_DEMAND, START)
        .total_nanos_per_hour
    )
    assert planning.cost(nodes, run.usage, sku, quantity, START) == (
        Amount.of_hourly(price, 30_060),
        30_060,
    )


@pytest.mark.parametrize("usage", list(UsageClass))
def test_a_rate_of_zero_preempts_nobody(usage: UsageClass) -> None:
    found = planning.play(
        dataclasses.replace(RUN, usage=usage, preemptions_per_day=0.0), Draws(0), START
    )
    assert (found.preemptions.tolist(), found.finish.tolist()) == ([0], [30_155.0])


def test_lost_work_is_what_the_formula_says() -> None:
    """A stretch of c seconds between two checkpoints fails e^(rc) - 1 times on average, and each
    time loses
    1/r - c/(e^(rc) - 1) seconds."""
    found = planning.play(RUN, MANY, START)
    c, n = 500 * 0.3, 200
    expected = n * (math.expm1(RUN.rate * c) / RUN.rate - c)
    assert found.lost.mean() == pytest.approx(expected, rel=0.02)


def test_the_mean_end_is_what_the_formula_says() -> None:
    """w seconds that must pass without a preemption take (1/r + d)(e^(rw) - 1), where d passes
    until the next node."""
    found = planning.play(RUN, MANY, START)
    r, c, d = RUN.rate, 500 * 0.3, RUN.create_seconds
    first = (1 / r + d) * math.expm1(r * (RUN.restart_seconds + c))
    fails = -math.expm1(-r * c)
    each = fails / r + fails * (d + first)
    assert found.finish.mean() == pytest.approx(d + first + 199 * each, rel=0.02)


def test_a_preemptible_node_ends_after_a_day() -> None:
    run = dataclasses.replace(
        RUN, usage=UsageClass.PREEMPTIBLE, preemptions_per_day=0.0, steps=50, step_seconds=3600.0,
        checkpoint_every_steps=2, create_seconds=0.0, restart_seconds=0.0,
    )  # fmt: skip
    found = planning.play(run, Draws(0), START)
    assert found.finish.tolist() == [50 * 3600.0]
    nodes = planning.lives(run, Draws(0), 0, START)
    day = 86_400.0
    assert nodes == [
        Life(0.0, day, "TERMINATED"),
        Life(day, 2 * day, "TERMINATED"),
        Life(2 * day, 180_000.0, "DELETING"),
    ]
    uneven = dataclasses.replace(run, checkpoint_every_steps=5)
    assert planning.play(uneven, Draws(0), START).lost.tolist() == [8 * 3600.0]
    assert planning.play(uneven, Draws(0), START).finish.tolist() == [50 * 3600.0 + 8 * 3600.0]


def test_what_never_ends_says_so() -> None:
    hopeless = dataclasses.replace(RUN, checkpoint_every_steps=100_000, preemptions_per_day=500.0)
    found = planning.play(hopeless, Draws(0, 100), START)
    assert found.finish_at(0.5) == math.inf
    assert int(found.preemptions.max()) == planning.NODES_MAX


def test_seconds_are_counted_as_the_meter_of_the_bill_counts_them() -> None:
    """Also for nodes that are taken back within their first minute, which is free."""
    draws, start = Draws(3, 300), START.plus_seconds(0.25)
    often = dataclasses.replace(
        RUN, steps=2000, preemptions_per_day=400.0, checkpoint_every_steps=10
    )
    found = planning.play(often, draws, start)
    free = 0
    for index in range(300):
        nodes = planning.lives(often, draws, index, start)
        free += sum(node.ended_by == "PREEMPTED" and node.end - node.ready < 60 for node in nodes)
        assert nodes[-1].end == found.finish[index]
        assert planning.cost(nodes, often.usage, *SKU, start)[1] == found.billed[index]
    assert free > 300


def test_quantiles_are_of_whole_runs() -> None:
    found = planning.play(RUN, Draws(0, 1000), START)
    assert sum(found.finish <= found.finish_at(0.95)) == 950
    middle, high = found.billed_index(0.5), found.billed_index(0.95)
    assert sum(found.billed <= found.billed[high]) >= 950 > sum(found.billed < found.billed[high])
    assert found.billed[middle] <= found.billed[high]


def test_the_same_seed_plans_the_same_and_rows_share_their_luck() -> None:
    assert Draws(5, 50).of_node(2).tolist() == Draws(5, 50).of_node(2).tolist()
    assert Draws(5, 50).of_node(0).tolist() != Draws(6, 50).of_node(0).tolist()
    draws = Draws(0, 500)
    slow = planning.play(dataclasses.replace(RUN, step_seconds=0.6), draws, START)
    assert (slow.finish > planning.play(RUN, draws, START).finish).all()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("steps", 0), ("step_seconds", 0.0), ("step_seconds", math.nan),
        ("checkpoint_every_steps", 0),
        ("restart_seconds", -1.0), ("create_seconds", math.inf), ("preemptions_per_day", -1.0),
        ("preemptions_per_day", 1e9),
    ],
)  # fmt: skip
def test_figures_that_are_none_are_refused(name: str, value: float) -> None:
    with pytest.raises(PodyardError) as caught:
        planning.play(dataclasses.replace(RUN, **{name: value}), Draws(0, 10), START)
    assert caught.value.code is Code.INVALID_ARGUMENT
    assert caught.value.message.startswith(name)
