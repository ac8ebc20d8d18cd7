"""`podyard plan` from arguments to output."""

from __future__ import annotations

import dataclasses
import json
import time
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

import pytest
from click.testing import CliRunner, Result

from podyard import engine
from podyard.base.errors import invalid
from podyard.cli.kit.commands import root
from podyard.engine.timing.estimate import Estimate
from tests.unit.engine.test_report import estimate

STEP_SECONDS: Mapping[str, float] = {"v2-8": 0.4, "v3-8": 0.2, "v3-32": 0.05, "v4-8": 0.1}


@pytest.fixture
def modelled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Steps of a known length: v4-16 has no room for them, and v5p-8 cannot divide the batch."""

    def analyze(step: Any, *args: Any, accelerator_type: str, **how: Any) -> Estimate:
        if accelerator_type == "v5p-8":
            raise invalid("the batch of 64 does not divide by 5")
        seconds = STEP_SECONDS.get(accelerator_type, 0.1)
        return dataclasses.replace(
            estimate(accelerator_type), modelled_seconds=seconds, fits=accelerator_type != "v4-16"
        )

    monkeypatch.setattr(engine, "analyze", analyze)
    monkeypatch.delenv("PODYARD_FLEET", raising=False)


def plan(*arguments: str) -> Result:
    return CliRunner().invoke(root, ["plan", "digits-cnn", *arguments])


def planned(*arguments: str) -> dict[str, Any]:
    done = plan(*arguments, "-o", "json")
    assert done.exit_code == 0, done.output
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.mark.usefixtures("modelled")
def test_the_cheapest_that_meets_both_is_marked() -> None:
    found = planned(
        "--steps",
        "100000",
        "--deadline",
        "6h",
        "--budget",
        "100",
        "--types",
        "v2-8,v3-8,v3-32,v4-8",
    )
    rows = found["rows"]
    best = [row for row in rows if row["cheapest"]]
    assert len(best) == 1
    fine = [row for row in rows if row["meets"]]
    for row in fine:
        assert row["finishSeconds"]["p95"] <= 6 * 3600
        assert Decimal(best[0]["cost"]["p95"]) <= Decimal(row["cost"]["p95"]) <= 100
    late = [row for row in rows if "too late" in row["whyNot"]]
    assert {row["acceleratorType"] for row in late} == {"v2-8"}
    assert found["summary"].startswith(
        f"Cheapest: {best[0]['acceleratorType']} {best[0]['usage']} in {best[0]['zone']}"
    )


@pytest.mark.usefixtures("modelled")
def test_on_demand_is_exact() -> None:
    asked = (
        "--steps",
        "36000",
        "--types",
        "v3-8",
        "--zone",
        "us-central1-f",
        "--restart-seconds",
        "0",
    )
    found = planned(*asked, "--fleet", "instant")
    row = next(row for row in found["rows"] if row["usage"] == "on-demand")
    assert row["finishSeconds"] == {"p50": 7200.0, "p95": 7200.0}
    slower = next(row for row in planned(*asked)["rows"] if row["usage"] == "on-demand")
    # the default fleet creates it in 4.05 s
    assert slower["finishSeconds"] == {"p50": 7204.05, "p95": 7204.05}
    assert row["cost"] == {"p50": "16.000000", "p95": "16.000000"}
    spot = next(row for row in found["rows"] if row["usage"] == "spot")
    assert spot["finishSeconds"]["p95"] > 7200 and spot["preemptions"] > 0


@pytest.mark.usefixtures("modelled")
def test_what_cannot_run_and_what_has_no_price_say_so() -> None:
    found = planned("--steps", "1000", "--types", "v4-8,v4-16,v5p-8")
    by_type: dict[str, list[dict[str, Any]]] = {}
    for row in found["rows"]:
        by_type.setdefault(row["acceleratorType"], []).append(row)
    (small,), (uneven,) = by_type["v4-16"], by_type["v5p-8"]
    assert not small["fits"] and "does not fit" in small["whyNot"][0]
    assert uneven["whyNot"] == ["the batch of 64 does not divide by 5"]
    unpriced = [row for row in by_type["v4-8"] if row["usage"] == "preemptible"]
    assert [(row["cost"], row["whyNot"]) for row in unpriced] == [(None, ["no price"])]
    assert not any(row["cheapest"] for row in (small, uneven, *unpriced))


@pytest.mark.usefixtures("modelled")
def test_limits_that_nothing_meets_still_give_a_table() -> None:
    done = plan("--steps", "100000", "--deadline", "1m", "--budget", "0.01", "--types", "v3-8")
    assert done.exit_code == 0
    assert "v3-8" in done.stdout and "*" not in done.stdout
    last = done.stdout.splitlines()[-1]
    assert last.startswith("None meets the deadline of 60.0 s and the budget of $0.01")


@pytest.mark.usefixtures("modelled")
def test_the_same_seed_gives_the_same_plan() -> None:
    arguments = ("--steps", "50000", "--types", "v3-8", "--preemptions-per-day", "12")
    assert planned(*arguments) == planned(*arguments)
    assert planned(*arguments) != planned(*arguments, "--seed", "1")


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (("--steps", "0"), "--steps"),
        (("--deadline", "soon"), "--deadline"),
        (("--deadline", "0s"), "--deadline"),
        (("--budget", "much"), "--budget"),
        (("--budget", "-3"), "--budget"),
        (("--budget", "nan"), "--budget"),
        (("--preemptions-per-day", "-1"), "--preemptions-per-day"),
        (("--checkpoint-every-steps", "0"), "--checkpoint-every-steps"),
        (("--types", "v9-*"), "--types"),
        (("--types", "*"), "--types"),
        (("--zone", "mars"), "--zone"),
        (("--arg", "colour=red"), "--arg"),
        (("--fleet", "nowhere.yaml"), "--fleet"),
    ],
)
@pytest.mark.usefixtures("modelled")
def test_bad_input_names_the_option(arguments: tuple[str, ...], named: str) -> None:
    done = plan(*(() if "--steps" in arguments else ("--steps", "10")), *arguments)
    assert done.exit_code == 2, done.output
    assert named in done.output


def test_an_unknown_recipe_is_a_usage_error() -> None:
    done = CliRunner().invoke(root, ["plan", "no-such-recipe", "--steps", "10"])
    assert done.exit_code == 2
    assert "FILE_OR_RECIPE" in done.output and "digits-cnn" in done.output


@pytest.mark.usefixtures("modelled")
def test_ten_types_are_planned_in_five_seconds() -> None:
    begin = time.process_time()
    found = planned("--steps", "1000000", "--preemptions-per-day", "8")
    assert len({row["acceleratorType"] for row in found["rows"]}) == 10
    assert time.process_time() - begin < 5


def test_a_host_loop_adds_to_every_step() -> None:
    """Of a small program, the host is most of a step that it waits for."""
    given = (
        "--steps",
        "1000",
        "--types",
        "v6e-1",
        "--zone",
        "us-east1-d",
        "--global-batch",
        "64",
        "--samples",
        "100",
    )
    alone, waiting = (
        planned(*given, *more)["rows"][0]["stepSeconds"] for more in ((), ("--host-loop",))
    )
    assert waiting > alone + 1e-3


@pytest.mark.usefixtures("modelled")
def test_each_type_has_a_line_on_stderr_as_soon_as_it_is_priced() -> None:
    done = plan("--steps", "1000", "--types", "v2-8,v4-16", "--zone", "us-*")
    first, second, *_ = done.stderr.splitlines()
    assert first.startswith("v2-8: 400 ms a step; by P95 "), done.stderr
    assert "$" in first and " in us-" in first
    assert second.startswith("v4-16: does not fit"), second
    assert "v2-8: " not in done.stdout


def test_a_plan_traces_its_program_once_for_all_types() -> None:
    jax = pytest.importorskip("jax")
    traces = []

    def step(batch: Any) -> Any:
        traces.append(batch.shape)
        return (batch @ batch.T).sum()

    shape = jax.ShapeDtypeStruct((64, 128), "float32")
    for accelerator_type in ("v2-8", "v3-8", "v4-8"):
        engine.analyze(step, shape, accelerator_type=accelerator_type, global_batch=64)
    assert traces == [(64, 128)]
