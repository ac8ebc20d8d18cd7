"""Sources of programs for TensorFlow 1, and of others."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from podyard.programs.graphs import source

OF_1 = {("Session",), ("train", "AdamOptimizer"), ("layers", "dense"), ("metrics", "accuracy")}


def _is_of_1(chain: source.Chain) -> bool:
    return chain[0] in ("contrib", "examples") or chain in OF_1


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("import tensorflow as tf\nm = tf.keras.Sequential()\nt = tf.contrib.tpu.f(m)", True),
        ("import tensorflow\nopt = tensorflow.train.AdamOptimizer(1).minimize(x)", True),
        ("from tensorflow.contrib.tpu.python.tpu import tpu_config", True),
        ("from tensorflow import contrib", True),
        ("import tensorflow.contrib.tpu as tpu", True),
        ("from tensorflow.examples.tutorials.mnist import input_data", True),
        ("import tensorflow as tf\ndef f():\n    with tf.Session() as s: pass", True),
        ("import tensorflow as tf\nwith tf.GradientTape(): pass", False),
        ("import tensorflow.compat.v1 as tf\ntf.Session()", False),
        ("import tensorflow as tf\ntf.compat.v1.Session()", False),
        ("import other as tf\ntf.Session()", False),
        (
            (
                "import tensorflow as tf\n"
                "if tf.__version__.startswith('1'):\n    tf.Session()\nelse:\n    tf.function"
            ),
            False,
        ),
        ("import tensorflow as tf\nif hasattr(tf, 'contrib'):\n    tf.contrib.tpu", False),
        ("import tensorflow as tf\ntry:\n    tf.Session\nexcept AttributeError:\n    pass", False),
        ("import tensorflow as tf\ntry:\n    tf.Session()\nfinally:\n    pass", True),
        ("this is no Python (", False),
        ("\0", False),
    ],
)
def test_a_name_that_only_tensorflow_1_has_decides(text: str, expected: bool) -> None:
    assert source.uses_tensorflow_1(text, _is_of_1) is expected


def test_cells_of_the_notebook_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    notebook = tmp_path / "colab.ipynb"
    cells = [
        {"cell_type": "markdown", "source": ["tf.Session"]},
        {"cell_type": "code", "source": ["%matplotlib inline\n", "import tensorflow as tf"]},
        {"cell_type": "code", "source": ["!ls\n", "tf.contrib.tpu.keras_to_tpu_model"]},
    ]
    monkeypatch.setenv("JPY_SESSION_NAME", str(notebook))
    notebook.write_text(json.dumps({"cells": cells}))
    assert any(source.uses_tensorflow_1(one, _is_of_1) for one in source.sources_of_program())
    notebook.write_text(json.dumps({"cells": cells[:2]}))
    assert not any(source.uses_tensorflow_1(one, _is_of_1) for one in source.sources_of_program())
    notebook.write_text("[]")
    assert not any(source.uses_tensorflow_1(one, _is_of_1) for one in source.sources_of_program())
