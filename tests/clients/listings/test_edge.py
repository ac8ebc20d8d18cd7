"""A model that TensorFlow's converter quantized, on an Edge TPU."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from tests.clients.listings.program import environ, run_program
from tests.stack import PODYARD

pytestmark = pytest.mark.slow
CONVERT = """
import numpy as np, sys, tensorflow as tf
layers = tf.keras.layers
model = tf.keras.Sequential([
    layers.Input((32, 32, 3), batch_size=1),
    layers.Conv2D(16, 3, strides=2, padding="same", activation="relu"),
    layers.DepthwiseConv2D(3, padding="same", activation="relu6"),
    layers.Conv2D(32, 1),
    layers.GlobalAveragePooling2D(),
    layers.Dense(10, activation=sys.argv[1]),
])
make = tf.lite.TFLiteConverter.from_keras_model(model)
make.optimizations = [tf.lite.Optimize.DEFAULT]
if sys.argv[2] == "int8":
    make.representative_dataset = lambda: ([np.random.rand(1, 32, 32, 3).astype("f")] for _ in range(8))
    make.target_spec.supported_ops = [tf.lite.OpsSet.TFLITE_BUILTINS_INT8]
open("model.tflite", "wb").write(make.convert())
"""  # noqa: E501


def _estimate(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    command = [*PODYARD, "estimate", "model.tflite", "--accelerator-type", "edgetpu", *options]
    return subprocess.run(
        command, env=environ(), cwd=folder, capture_output=True, text=True, timeout=60
    )


def test_a_quantized_model_is_estimated(tmp_path: Path) -> None:
    run_program("tensorflow-2.15.1", tmp_path, "-c", CONVERT, "softmax", "int8")
    end = _estimate(tmp_path, "-o", "json")
    assert end.returncode == 0, end.stderr
    document = json.loads(end.stdout)
    assert document["operations"]["CONV_2D"] == 2 and "SOFTMAX" in document["operations"]
    products = [16 * 16 * 16 * 27, 16 * 16 * 16 * 9, 16 * 16 * 32 * 16, 320]
    assert document["macs"] == sum(products) and document["fits"] is True
    weights = 16 * 27 + 16 * 9 + 32 * 16 + 320
    assert weights < document["weightBytes"] < weights + 4 * (16 + 16 + 32 + 10) + 64


def test_what_it_cannot_run_is_named(tmp_path: Path) -> None:
    run_program("tensorflow-2.15.1", tmp_path, "-c", CONVERT, "gelu", "int8")
    end = _estimate(tmp_path)
    assert end.returncode == 1 and "an Edge TPU cannot run " in end.stderr
    run_program("tensorflow-2.15.1", tmp_path, "-c", CONVERT, "softmax", "float")
    end = _estimate(tmp_path)
    assert end.returncode == 1 and "quantize the model to int8" in end.stderr
