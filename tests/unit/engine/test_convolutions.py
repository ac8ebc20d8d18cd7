"""Convolutions with groups, of each feature by itself, and with copies around them, against the TPU compiler."""

from __future__ import annotations

import pytest

from benchmarks.programs_of_today import cases

_NAMES = ("convolution-depthwise-wide", "convolution-one-channel", "mobilenet", "convnext", "resnet-")

# One worker of the test run does all of it: the others would read the same record.
pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("programs of today")]


@pytest.mark.parametrize(("generation", "limit"), [("v3", 0.2), ("v4", 0.35), ("v5e", 0.6)])
def test_few_and_single_features_are_near_the_compilers_cycles(generation: str, limit: float) -> None:
    judged = cases(generation, _NAMES)
    print([(case.row.program, case.ratio) for case in judged])
    assert judged
    assert all(case.error is not None and case.error <= limit for case in judged)
