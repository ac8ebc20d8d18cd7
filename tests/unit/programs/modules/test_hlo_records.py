"""Modules that TensorFlow before 2.19 hands over as HLO."""

from __future__ import annotations

import base64
import zlib

import pytest

from podyard.base.errors import PodyardError
from podyard.hardware.accelerator_types import parse
from podyard.programs.estimator import estimate
from podyard.programs.modules import hlo_records
from podyard.programs.modules.hlo_bytes import without_traces

# A serialized module of TensorFlow 2.15.1: x (16 x 64) times a variable (64 x 32), from which the
# sum of x' times the product over replicas is subtracted.
HLO = zlib.decompress(base64.b64decode("".join((
    "eNrVVb9v00AUvjs7P/zStNEhFk9RBoSQsOO0pYCElDQLAxUSoKgDknVJrmmEG1tnmyorEyPqZGXMyMhfwMzEgPixMiHY",
    "+As4Jw4kcYAOIKWWrHt3uve9+9739B5cZnZ/cMQFH3S43bOtPds2rB26+lh/twW/cahDlole1bCo5jHBTnjAhV4qFXRS",
    "ql9TgWBUIwjdBpo/vNewG6LnRwR/VRTAaKyiswyiu6AJ7h8zjxvbNJeYKyBQRJQxwThx258EtoxaKnC9vDrwXRwRshD6",
    "A4ZM1w2MHarIJYk57x1hyB6w4CB0aLLqz7AZ+sJ0+m3zP30BH/iuOHLcU9MbBsfuwDyK+Z264onper7hDcvPte84CxhT",
    "LLOijglRyEiRz0YzZu8xFALBBr7n+tzYpdrPzYViKQiSomWk7GpCrAkwqxarulwu86SKtBAL/4AHT5kjiw4kSCYB+ZTo",
    "fmNO94WqGf3KSH662tZaKY8mymdj5TOLyn9cUH4vpfyF4TnVPidlyybUxgSKndAP3JPrHeY4xk1amNuuoPcSw9ahw5qT",
    "S015p1WjywfrQvczpp7bHTLRteW7bMG7YYdHJC/5514oeDTpW68V/EZJ8XyrxE3xi6rESfqGAfywLVXvBMYtmp/ZK9Lz",
    "CsOlhu/3e4OHYbvFRJ+1HX7fo6sO1yVNEdFk0cu0pNuBtdQO6n9qBwWZVy0BuQO5jusNDatG1dg4h/uGdC8k7i3IB6Hn",
    "yBds08zE0q+UipVUS6r8HbYoucHGFLfyGFJDEFIQ9Jyh9GRM68nUvLpZLVYe/dMIxKvK36pu7muQk8OphMv4DKMRRj8A",
    "Ap/fFw=="
))))  # fmt: skip


def test_a_record_of_hlo_is_priced_on_all_replicas() -> None:
    found = estimate(hlo_records.record_of(HLO, "train step", 8, 1), parse("v3-8"))
    assert found.error == "" and found.seconds is not None
    assert found.flops == pytest.approx(2 * 2 * 16 * 64 * 32, rel=0.1)
    assert found.signature == "(f32[128,64], f32[64,32]) -> f32[16,32], f32[64,32]"
    text = hlo_records.text_of(hlo_records.record_of(HLO, "train step", 8, 1)).decode()
    assert "module @train_step " in text and "dense<[[0, 1, 2, 3, 4, 5, 6, 7]]>" in text
    alone = hlo_records.text_of(hlo_records.record_of(HLO, "alone", 1, 0)).decode()
    assert "tf.aliasing_output = 1" in alone, "a variable is updated in place"


def test_lines_and_numbers_of_a_trace_are_left_out() -> None:
    other = HLO.replace(b"inference_g_1", b"inference_g_9").replace(b"ops.py", b"sop.py")
    assert other != HLO and without_traces(HLO) == without_traces(other)
    assert b"ops.py" in HLO and b"ops.py" not in without_traces(HLO)
    assert without_traces(without_traces(HLO)) == without_traces(HLO)


def test_text_is_no_record() -> None:
    assert hlo_records.text_of(b"module @m {") == b"module @m {"


@pytest.mark.parametrize(
    "damage", [b"// podyard hlo: {}\n", b"// podyard hlo: 1\nx", b"// podyard hlo: "]
)
def test_a_damaged_record_is_an_error(damage: bytes) -> None:
    with pytest.raises(PodyardError, match="HLO module cannot be read"):
        hlo_records.text_of(damage)
    good = hlo_records.record_of(HLO, "step", 8, 1)
    assert "no HLO module" in estimate(good[:-200], parse("v3-8")).error
