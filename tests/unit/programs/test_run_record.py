"""The record of a run that hosts and jobs keep."""

from __future__ import annotations

import pytest

from podyard.cli.programs.run_report.modules import module_table
from podyard.domain.ran_module import RanModule
from podyard.hardware.accelerator_types import parse
from podyard.programs.estimator import ModuleEstimate
from podyard.programs.plan.run_record import ran_module
from podyard.programs.summary import ModuleTotal, ProgramSummary

PRICED = ModuleEstimate(
    1e-3, device_seconds=1e-3, verdict="fits (1.0 of 7.5 GiB)", model_flops=10**9, peak_flops=1e13
)


def module_of(estimate: ModuleEstimate | None) -> RanModule:
    total = ModuleTotal("00", "jit_step", 8, 3, 0.1, 0.2, estimate)
    return ran_module(ProgramSummary(parse("v2-8"), (total,), 0), total)


@pytest.mark.parametrize(
    "estimate",
    [None, ModuleEstimate(None, error="not covered: stablehlo.fft")],
    ids=["not priced yet", "not covered"],
)
def test_what_has_no_price_has_no_verdict_and_no_utilization(
    estimate: ModuleEstimate | None,
) -> None:
    module = module_of(estimate)
    assert (module.seconds, module.mfu, module.hfu, module.fits) == (None,) * 4
    row = module_table([module], "core").splitlines()[-1].split()
    assert row == ["jit_step", "3", "-", "200", "ms", "-", "-", "-"]


def test_a_priced_module_has_all() -> None:
    module = module_of(PRICED)
    assert (module.seconds, module.fits, module.verdict) == (1e-3, True, PRICED.verdict)
    assert module.mfu == PRICED.mfu > 0


def test_a_module_that_does_not_fit_says_so_without_a_time() -> None:
    module = module_of(ModuleEstimate(None, fits=False, verdict="does not fit", error="too large"))
    assert (module.seconds, module.mfu, module.fits) == (None, None, False)
