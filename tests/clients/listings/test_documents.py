"""The listings of the documents, with today's libraries: each runs to its end and is priced. An
edit is a data path, layout lost in print, a name that is never defined, or what no Keras takes."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import numpy as np
import pytest

from tests.clients.listings.documents import Indents, edit, indent, line, listing, split
from tests.clients.listings.program import PROGRAMS, run_program

pytestmark = pytest.mark.slow
RUNTIMES = ("tensorflow-2.15.1", "tensorflow-2.21.0")
COLAB = ("import tensorflow", "if ", "  print('ERROR", "else", "  tpu_address", "  print ('TPU")
START = ("tf.config.experimental_connect", "tf.tpu.experimental", "strategy =")
# Where lines of the listing began, with their indentation; print has lost both.
FASHION = (
    "import numpy", "import os", "(x_train, y_train), (x_test", "# add", "x_train = np",
    "x_test = np",
    "def create_model", "  model = tf.keras", *["  model.add("] * 6, "  return model",
    "tpu = tf", *START, "with strategy", "  model = create", "  model.compile", "model.fit",
)  # fmt: skip
SAVED = """
import json
print(json.dumps([strategy.num_replicas_in_sync, model.history.history]))
"""


def test_the_address_of_colabs_tpu_is_printed(tmp_path: Path) -> None:
    text = split(line("002", "import osimport tensorflow"), COLAB)
    end = run_program("tensorflow-2.15.1", tmp_path, "-c", text)
    assert end.out.startswith("TPU address is grpc://")


def test_the_strategy_is_made_as_in_the_text(tmp_path: Path) -> None:
    text = split(line("002", "tpu = tf.distribute.cluster_resolver"), START)
    program = f"import tensorflow as tf\n{text}\nprint(strategy.num_replicas_in_sync)"
    end = run_program("tensorflow-2.15.1", tmp_path, "-c", program)
    assert end.out.startswith("8\n")


def _idx(path: Path, data: np.ndarray) -> None:
    """Write an IDX file, as Fashion-MNIST comes."""
    head = (8 << 8 | data.ndim).to_bytes(4, "big")
    extents = b"".join(extent.to_bytes(4, "big") for extent in data.shape)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(head + extents + data.tobytes()))


def _classes(count: int, shape: tuple[int, ...], seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return images of ten classes that a small network tells apart."""
    random = np.random.default_rng(seed)
    labels = random.integers(0, 10, count).astype(np.uint8)
    images = random.integers(0, 60, (count, *shape)).astype(np.uint8)
    images[np.arange(count), labels * 2 + 2] = 255
    return images, labels


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_fashion_mnist_is_learned_and_priced(runtime: str, tmp_path: Path) -> None:
    for part, count in (("train", 2400), ("t10k", 600)):
        images, labels = _classes(count, (28, 28), count)
        folder = tmp_path / ".keras" / "datasets" / "fashion-mnist"
        _idx(folder / f"{part}-images-idx3-ubyte.gz", images)
        _idx(folder / f"{part}-labels-idx1-ubyte.gz", labels)
    text = split(line("002", "import tensorflow as tfimport numpy"), FASHION)
    (tmp_path / "listing.py").write_text(text + SAVED)
    end = run_program(runtime, tmp_path, "listing.py", HOME=str(tmp_path))
    replicas, history = json.loads("[" + end.out.split("\n[", 1)[1].split("\n")[0])
    assert replicas == 8 and history["sparse_categorical_accuracy"][-1] > 0.8
    assert history["val_sparse_categorical_accuracy"][-1] > 0.8
    assert end.step is not None and end.step["name"] == "train_step"
    assert end.step["runs"] == 300 and end.step["error"] == ""
    # steps_per_epoch makes the batch 40 of 2400 in Keras 2; Keras 3 keeps its 32
    examples = 5 if runtime.startswith("tensorflow-2.15") else 4
    first, dense = 26 * 26 * 64 * 9, 13 * 13 * 64 * 10
    flops = 2.0 * examples * (3 * (first + dense) - first)
    # the rest is what Adam does for each weight, and element-wise
    assert flops < end.step["flopsPerDevice"] < 2 * flops


# (first line, last line, spaces)
CIFAR_INDENTS: dict[str, Indents] = {
    "### 设置数据集路径": ((2, 2, 4),),
    "### 数据加载与预处理": ((5, 99, 4),),
    "### 模型定义与编译": ((1, 99, 4),),
}
CIFAR_EDITS = (
    # data paths
    ("from tensorflow.keras.datasets import cifar10", "import cifar10"),
    ("filepath='/tmp/model.", "filepath='model."),
    # a name that is never defined where it is used
    ("with strategy.scope():", "input_shape = (32, 32, 3)\nwith strategy.scope():"),
    # no Keras takes labels with a generator that has them, and here the labels are a count
    ("model.fit(*training_data,", "model.fit(training_data[0],"),
    ("validation_data=validation_data)", "validation_data=validation_data[0])"),
)
CIFAR_DATA = """
import numpy as np
def load_data():
    with np.load('cifar-10.npz') as data:
        return (data['x_train'], data['y_train']), (data['x_test'], data['y_test'])
"""


def _cifar_text() -> str:
    titles = ("### 导入包", "### 设置数据集路径", "### 数据加载与预处理", "### 初始化TPU",
              "### 模型定义与编译", "### 模型训练")  # fmt: skip
    parts = [
        indent(listing("003", "```python", "```", below=title), CIFAR_INDENTS.get(title, ()))
        for title in titles
    ]
    return edit("\n".join(line for part in parts for line in part), CIFAR_EDITS)


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_cifar_10_is_learned_and_priced(runtime: str, tmp_path: Path) -> None:
    parts = {}
    for part, count in (("train", 640), ("test", 96)):
        images, labels = _classes(count, (32, 32, 3), count)
        parts |= {f"x_{part}": images, f"y_{part}": labels[:, None]}
    np.savez(tmp_path / "cifar-10.npz", **parts)
    (tmp_path / "cifar10.py").write_text(CIFAR_DATA)
    (tmp_path / "listing.py").write_text(_cifar_text() + SAVED)
    end = run_program(runtime, tmp_path, "listing.py")
    replicas, history = json.loads("[" + end.out.split("\n[", 1)[1].split("\n")[0])
    assert replicas == 8 and history["loss"][-1] < history["loss"][0]
    assert list(tmp_path.glob("model.*.h5")), "checkpoints"
    assert end.step is not None and end.step["name"] == "train_step" and end.step["error"] == ""
    # a replica has 4 of 32 images; three times the forward pass, of which the first layer needs 2
    forward = [32 * 32 * 32 * 27, 30 * 30 * 32 * 9 * 32, 15 * 15 * 64 * 9 * 32,
               13 * 13 * 64 * 9 * 64, 2304 * 512, 5120]  # fmt: skip
    flops = 2.0 * 4 * (3 * sum(forward) - forward[0])
    assert end.step["flopsPerDevice"] == pytest.approx(flops, rel=0.3)


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_our_example_of_a_classifier_of_texts(runtime: str, tmp_path: Path) -> None:
    end = run_program(runtime, tmp_path, str(PROGRAMS / "listings" / "text_classes.py"))
    assert "accuracy True\n" in end.out and "not covered" not in end.out + end.err
    assert end.step is not None and end.step["name"] == "train_step" and end.step["error"] == ""


def test_our_example_of_a_computation_without_a_model(tmp_path: Path) -> None:
    end = run_program("1.15", tmp_path, str(PROGRAMS / "listings" / "rewrite.py"))
    assert end.out.startswith("33.0\nDone!\n")
    assert {name: one["runs"] for name, one in end.modules.items()} == {"multiply_and_add": 3}
    assert end.modules["multiply_and_add"]["flopsPerDevice"] >= 2 * 64 * 32 * 16
