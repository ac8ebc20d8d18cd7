"""`podyard estimate MODEL.tflite --accelerator-type edgetpu`."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from podyard.base.errors import PodyardError
from tests.unit.engine.edge.files import OperatorEntry, TensorEntry, model_bytes
from tests.unit.test_cli_tools import run

TENSORS = (
    TensorEntry("image", (1, 8, 8, 3), "FLOAT32"),
    TensorEntry("image_int8", (1, 8, 8, 3)),
    TensorEntry("kernel", (16, 3, 3, 3), data=432),
    TensorEntry("bias", (16,), "INT32", data=64),
    TensorEntry("conv", (1, 8, 8, 16)),
    TensorEntry("depth_kernel", (1, 3, 3, 16), data=144),
    TensorEntry("depth", (1, 8, 8, 16)),
    TensorEntry("shape", (2,), "INT32", data=8),
    TensorEntry("flat", (1, 1024)),
    TensorEntry("dense_weights", (10, 1024), data=10_240),
    TensorEntry("dense", (1, 10)),
    TensorEntry("scores", (1, 10), "FLOAT32"),
)
OPERATORS = (
    OperatorEntry("QUANTIZE", (0,), (1,)),
    OperatorEntry("CONV_2D", (1, 2, 3), (4,)),
    OperatorEntry("DEPTHWISE_CONV_2D", (4, 5, -1), (6,)),
    OperatorEntry("RESHAPE", (6, 7), (8,)),
    OperatorEntry("FULLY_CONNECTED", (8, 9), (10,)),
    OperatorEntry("DEQUANTIZE", (10,), (11,)),
)


def _write(
    folder: Path,
    tensors: Sequence[TensorEntry] = TENSORS,
    operators: Sequence[OperatorEntry] = OPERATORS,
) -> str:
    file = folder / "model.tflite"
    file.write_bytes(model_bytes(tensors, operators, [0], [11]))
    return str(file)


def _estimate(file: str, *options: str) -> str:
    return run("estimate", file, "--accelerator-type", "edgetpu", *options)


def _error(file: str) -> str:
    with pytest.raises(PodyardError) as caught:
        _estimate(file)
    return caught.value.message


def test_operations_memory_latency_and_energy_of_a_model(tmp_path: Path) -> None:
    file = _write(tmp_path)
    document = json.loads(_estimate(file, "-o", "json"))
    assert document["operations"] == {
        "CONV_2D": 1, "DEPTHWISE_CONV_2D": 1, "RESHAPE": 1, "FULLY_CONNECTED": 1,
    }  # fmt: skip
    assert document["onHost"] == {"QUANTIZE": 1, "DEQUANTIZE": 1}
    assert document["macs"] == 8 * 8 * 16 * 27 + 8 * 8 * 16 * 9 + 10 * 1024
    assert document["weightBytes"] == 432 + 64 + 144 + 8 + 10_240
    assert document["activationBytes"] == 4 * 192 + 4 * 10
    assert document["fits"] is True and document["seconds"] > 0 and document["joules"] > 0
    assert set(document["sources"]) >= {"watts", "sram_bytes"}
    text = _estimate(file)
    assert "on the host     QUANTIZE 1, DEQUANTIZE 1" in text
    assert "fits (0.0109 MB of 8 MB)" in text and "latency         at least" in text


def test_weights_beyond_the_chips_memory_come_from_the_host(tmp_path: Path) -> None:
    tensors = list(TENSORS)
    tensors[9] = TensorEntry("dense_weights", (9_000, 1024), data=9_216_000)
    text = _estimate(_write(tmp_path, tensors))
    assert "does not fit (9.22 MB of 8 MB): 1.22 MB come from the host at each inference" in text


@pytest.mark.parametrize(
    ("operator", "words"),
    [
        (OperatorEntry("BATCH_MATMUL", (8, 9), (10,)), "cannot run BATCH_MATMUL (dense)"),
        (OperatorEntry("GELU", (8,), (10,)), "cannot run GELU (dense)"),
        (OperatorEntry("CUSTOM", (8,), (10,), "MyOp"), "cannot run MyOp (dense)"),
        (
            OperatorEntry("CUSTOM", (8,), (10,), "edgetpu-custom-op"),
            "estimate the model that edgetpu_compiler got",
        ),
    ],
)
def test_an_operation_that_it_cannot_run_is_named(
    operator: OperatorEntry, words: str, tmp_path: Path
) -> None:
    operators = [operator if one.name == "FULLY_CONNECTED" else one for one in OPERATORS]
    assert words in _error(_write(tmp_path, TENSORS, operators))


@pytest.mark.parametrize(("place", "dtype"), [(2, "FLOAT32"), (4, "FLOAT32"), (9, "INT4")])
def test_other_types_than_integers_of_8_bits_are_refused(
    place: int, dtype: str, tmp_path: Path
) -> None:
    tensors = list(TENSORS)
    tensors[place] = dataclasses.replace(tensors[place], dtype=dtype)
    message = _error(_write(tmp_path, tensors))
    assert f" of {dtype.lower()} (" in message and "quantize the model to int8" in message


def test_a_damaged_file_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "model.tflite"
    whole = model_bytes(TENSORS, OPERATORS, [0], [11])
    for size in (8, 40, len(whole) // 2):
        file.write_bytes(whole[:size])
        assert "the TensorFlow Lite file is damaged" in _error(str(file))
