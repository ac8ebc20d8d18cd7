"""One slice for a whole run: tokens of a step, hours and cost from the files of a dry run."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path

import pytest

from podyard.engine.plan.forecast import RunRequest, SliceForecast, SlicePrice
from podyard.engine.plan.forecast import forecast as forecast_of_step
from podyard.engine.plan.tokens import TokensPerStep, tokens_per_step
from podyard.hardware.accelerator_types import parse
from podyard.hardware.generation import StepError
from podyard.programs import estimator
from podyard.programs.plan.forecast import step_on_slice
from podyard.programs.records import Recorder
from podyard.programs.summary import ProgramSummary, read_summary

KIND = parse("v5litepod-8")
PRICES = (SlicePrice("on-demand", 9_600_000_000, "USD"), SlicePrice("spot", None, "USD"))
STEP = """module @jit_step {
  func.func public @main(%w: tensor<1024x1024xbf16>, %ids: tensor<16x512xi32>, %key: tensor<4x2xui32>, %image: tensor<8x8xui8>) -> (tensor<1024x1024xbf16>, tensor<16x512xi32>, tensor<4x2xui32>, tensor<8x8xui8>) {
    %0 = stablehlo.dot_general %w, %w, contracting_dims = [1] x [0] : (tensor<1024x1024xbf16>, tensor<1024x1024xbf16>) -> tensor<1024x1024xbf16>
    return %0, %ids, %key, %image : tensor<1024x1024xbf16>, tensor<16x512xi32>, tensor<4x2xui32>, tensor<8x8xui8>
  }
}
"""  # noqa: E501


def _summary(run: Path, text: str = STEP, error: str = "", runs: int = 3) -> ProgramSummary:
    recorder = Recorder(run, 0)
    module = recorder.add(text.encode(), "jit_step", 8)
    for _ in range(runs):
        module.count()
    if error:
        recorder.fail(error)
    recorder.write()
    estimator.price_new(run, run / "verdicts", estimator.PricedOn(KIND), None)
    return read_summary(run, run / "verdicts", KIND)


def forecast(
    summary: ProgramSummary, zone: str, prices: Sequence[SlicePrice], run: RunRequest
) -> SliceForecast:
    return forecast_of_step(summary.kind, zone, step_on_slice(summary), prices, run)


def test_hours_and_cost_follow_from_the_tokens_of_the_step(tmp_path: Path) -> None:
    summary = _summary(tmp_path)
    row = forecast(summary, "us-west4-a", PRICES, RunRequest(tokens=10**12 + 1, slices=2))
    assert row.step.tokens == TokensPerStep(8192, "from the argument s32[16,512]")
    assert row.step.fits and row.step.memory.startswith("fits (")
    assert row.steps == -(-(10**12 + 1) // 8192) and row.step.seconds is not None
    assert row.hours == row.steps * row.step.seconds / 3600
    on_demand, spot = row.costs
    assert on_demand.amount is not None and spot.amount is None
    assert abs(on_demand.amount / Fraction(row.hours) / 2 - Fraction("9.6")) < Fraction(1, 10**6)


def test_the_caller_says_the_tokens_of_a_step_where_the_program_does_not(tmp_path: Path) -> None:
    text = STEP.replace("16x512xi32", "16x512xf32")
    summary = _summary(tmp_path, text)
    row = forecast(summary, "", PRICES, RunRequest(tokens=10**6))
    assert row.step.tokens is not None
    assert (row.step.tokens.count, row.steps, row.hours, row.costs) == (None, None, None, ())
    assert row.step.tokens.source == "the step has no integer argument of batch x sequence"
    named = forecast(summary, "", PRICES, RunRequest(tokens=10**6, tokens_per_step=1000))
    assert named.steps == 1000 and named.hours is not None


@pytest.mark.parametrize("error", ["JaxRuntimeError: RESOURCE_EXHAUSTED: 3.00G", "KeyError: 'x'"])
def test_a_program_that_ends_for_lack_of_memory_does_not_fit(tmp_path: Path, error: str) -> None:
    row = forecast(_summary(tmp_path, error=error, runs=1), "", PRICES, RunRequest(tokens=10**6))
    is_memory = "RESOURCE_EXHAUSTED" in error
    assert row.step.fits is (False if is_memory else None)
    assert row.step.memory == ("does not fit (out of memory)" if is_memory else "")
    assert row.step.why == f"the program failed: {error}"
    assert (row.step.seconds, row.hours, row.costs) == (None, None, ())


def test_what_does_not_fit_has_a_step_time_and_no_cost(tmp_path: Path) -> None:
    summary = _summary(tmp_path, STEP.replace("1024", "65536"))
    row = forecast(summary, "", PRICES, RunRequest(tokens=10**6))
    assert row.step.fits is False and row.step.memory.startswith("does not fit (")
    assert row.step.seconds and (row.hours, row.costs) == (None, ())


@pytest.mark.parametrize(
    ("inputs", "turns", "count"),
    [
        (("s32[8,128]", "s64[8,128]"), 0, 1024),  # packed: tokens, positions, segments
        (("s32[8,512]", "s32[8,114]"), 0, None),  # encoder and decoder
        (("s32[2,8,128]",), 0, 2048),  # gradient accumulation
        (("s32[10,8,128]",), 10, 1024),  # a batch for each turn of the loop
        (("s32[8,128]",), 10, None),
        (("s32[8,128]",), 1, None),  # a loop whose turns are not known
        ((), 0, None),
    ],
)
def test_tokens_of_a_step(inputs: tuple[str, ...], turns: int, count: int | None) -> None:
    assert tokens_per_step(inputs, turns).count == count


def test_the_batch_that_the_host_sends_goes_before_tables_on_the_devices() -> None:
    image, table = "tensor<8x8xui8>", "tensor<32000x64xi32>"
    estimate = estimator.estimate(STEP.replace(image, table).encode(), KIND)
    assert estimate.token_inputs == ("s32[16,512]", "s32[32000,64]")
    as_run = [estimator.as_run(estimate, sent, 0, KIND) for sent in ({"16x512:4"}, {"64:4"})]
    assert [one.token_inputs for one in as_run] == [("s32[16,512]",), estimate.token_inputs]
    assert tokens_per_step(("s32[1,128]",), 0, replicas=8).count == 1024  # pmap


def test_the_expected_error_is_that_of_the_generation(tmp_path: Path) -> None:
    assert StepError(12, 0.5, 1.5).interval(2.0) == (1.0, 3.0)
    row = forecast(_summary(tmp_path), "", PRICES, RunRequest())
    assert row.error == KIND.generation.step_error
    assert (row.interval is None) == (row.error is None)
