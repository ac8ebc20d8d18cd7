"""TPUStrategy as listings of TensorFlow 2 use it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.clients.listings.program import run_program

pytestmark = pytest.mark.slow
RUNTIMES = ("tensorflow-2.15.1", "tensorflow-2.21.0")
START = """
import tensorflow as tf
tpu = tf.distribute.cluster_resolver.TPUClusterResolver()
tf.config.experimental_connect_to_cluster(tpu)
tf.tpu.experimental.initialize_tpu_system(tpu)
"""
UNEVEN = """
import json, numpy as np
strategy = tf.distribute.TPUStrategy(tpu)
with strategy.scope():
    model = tf.keras.Sequential([tf.keras.layers.Dense(1, kernel_initializer="ones")])
    model.compile("sgd", "mse")
x = np.arange(205 * 4, dtype="float32").reshape(205, 4) / 1000
history = model.fit(x, x.sum(1, keepdims=True), batch_size=100, verbose=0, shuffle=False)
loss = model.evaluate(x, x.sum(1, keepdims=True), batch_size=100, verbose=0)
predicted = model.predict(x, batch_size=100, verbose=0)
step = tf.function(lambda batch: strategy.run(lambda part: tf.reduce_sum(part, 1), args=(batch,)))
sums, sizes = [], []
for batch in strategy.experimental_distribute_dataset(tf.data.Dataset.from_tensor_slices(x).batch(100)):
    rows = step(batch)
    sums.append(float(tf.reduce_sum(strategy.reduce("SUM", rows, axis=None))))
    sizes.append([part.shape[0] for part in strategy.experimental_local_results(rows)])
print(json.dumps([history.history["loss"], loss, predicted.shape, sum(sums) - float(x.sum()), sizes]))
"""  # noqa: E501


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_the_system_is_logged_once_in_the_words_of_tensorflow(runtime: str, tmp_path: Path) -> None:
    start = run_program(runtime, tmp_path, "-c", START)
    device = "_DeviceAttributes(/job:worker/replica:0/task:0/device:TPU:{}, TPU, 0, 0)"
    words = [
        "Initializing the TPU system: local", "Finished initializing TPU system.",
        "Found TPU system:", "*** Num TPU Cores: 8", "*** Num TPU Workers: 1",
        "*** Num TPU Cores Per Worker: 8",
        *(f"*** Available Device: {device.format(place)}" for place in range(8)),
    ]  # fmt: skip
    assert start.logged == words
    strategy = f"{START}\ntf.distribute.TPUStrategy(tpu)"
    assert run_program(runtime, tmp_path, "-c", strategy).logged == words, "once"
    quiet = f"import tensorflow as tf\ntf.get_logger().setLevel('ERROR')\n{START}"
    assert run_program(runtime, tmp_path, "-c", quiet).logged == []


@pytest.mark.parametrize("runtime", RUNTIMES)
@pytest.mark.parametrize("replicas", ["mirrored", "fused"])
def test_uneven_batches_run_as_with_dynamic_batch_size(
    runtime: str, replicas: str, tmp_path: Path
) -> None:
    end = run_program(runtime, tmp_path, "-c", START + UNEVEN, PODYARD_TF_REPLICAS=replicas)
    losses, loss, shape, difference, sizes = json.loads(end.out)
    assert losses == pytest.approx([0.0], abs=1e-9) and loss == pytest.approx(0.0, abs=1e-9)
    assert shape == [205, 1] and difference == pytest.approx(0.0, abs=1e-2)
    parts = [[13] * 7 + [9]] * 2 + [[1] * 5 + [0] * 3]
    assert sizes == (parts if replicas == "mirrored" else [[100], [100], [5]])
    assert "not covered" not in end.err + end.out


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_the_learning_rate_by_its_old_name_is_used(runtime: str, tmp_path: Path) -> None:
    code = (
        "import tensorflow as tf\n"
        "class Own(tf.keras.optimizers.SGD): pass\n"
        "every = [one(lr=0.25) for one in (tf.keras.optimizers.Adam, tf.optimizers.RMSprop, Own)]\n"
        "print([float(one.learning_rate.numpy()) for one in every])\n"
    )
    end = run_program(runtime, tmp_path, "-c", code)
    assert end.out.startswith("[0.25, 0.25, 0.25]\n")
    assert "podyard: Adam: lr is learning_rate in this Keras: learning_rate=0.25 is used" in end.err
