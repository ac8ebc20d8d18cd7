"""tf.io.gfile and what TensorFlow writes and reads by it, on gs://. Prints one line of JSON: what
each case came to.

TensorFlow sends its requests to storage.googleapis.com and www.googleapis.com: only `podyard run`
leads them here.
"""

import json
import os
import sys
import traceback

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "1"

import numpy as np
import tensorflow as tf

gfile = tf.io.gfile
DATA = bytes(range(256)) * 8192  # 2 MiB


def files(root):
    with gfile.GFile(f"{root}/a/b.txt", "w") as file:
        file.write("hello")
    assert gfile.GFile(f"{root}/a/b.txt").read() == "hello"
    assert (
        gfile.exists(f"{root}/a/b.txt")
        and gfile.exists(f"{root}/a")
        and not gfile.exists(f"{root}/no")
    )
    assert gfile.isdir(f"{root}/a") and not gfile.isdir(f"{root}/a/b.txt")
    assert gfile.stat(f"{root}/a/b.txt").length == 5
    with gfile.GFile(f"{root}/a/b.txt", "a") as file:
        file.write(" world")
    assert gfile.GFile(f"{root}/a/b.txt").read() == "hello world"
    try:
        gfile.GFile(f"{root}/no").read()
    except tf.errors.NotFoundError:
        pass
    else:
        raise AssertionError("NotFoundError was expected")


def large(root):
    with gfile.GFile(f"{root}/large", "wb") as file:
        file.write(DATA)
    with gfile.GFile(f"{root}/large", "rb") as file:
        file.seek(1_000_000)
        assert file.read(1000) == DATA[1_000_000:1_001_000]
        file.seek(0)
        assert file.read() == DATA


def trees(root):
    for name in ("x", "d/y", "d/e/z"):
        with gfile.GFile(f"{root}/t/{name}", "w") as file:
            file.write(name)
    assert sorted(gfile.listdir(f"{root}/t")) == ["d/", "x"]
    assert sorted(gfile.glob(f"{root}/t/d/*")) == [f"{root}/t/d/e", f"{root}/t/d/y"]
    assert [name.rstrip("/") for name, _, _ in gfile.walk(f"{root}/t")] == [
        f"{root}/t",
        f"{root}/t/d",
        f"{root}/t/d/e",
    ]
    gfile.copy(f"{root}/t/x", f"{root}/t/copy")
    gfile.rename(f"{root}/t/copy", f"{root}/t/renamed")
    assert gfile.GFile(f"{root}/t/renamed").read() == "x" and not gfile.exists(f"{root}/t/copy")
    gfile.makedirs(f"{root}/t/new/deep")
    assert gfile.isdir(f"{root}/t/new/deep")
    gfile.remove(f"{root}/t/x")
    gfile.rmtree(f"{root}/t/d")
    assert not gfile.exists(f"{root}/t/d/y")


def records(root):
    with tf.io.TFRecordWriter(f"{root}/r.tfrecord") as writer:
        for number in range(1000):
            writer.write(str(number).encode())
    found = [record.numpy() for record in tf.data.TFRecordDataset(f"{root}/r.tfrecord")]
    assert found == [str(number).encode() for number in range(1000)]


def checkpoints(root):
    value = tf.Variable(np.arange(100_000, dtype=np.float32))
    saved = tf.train.Checkpoint(value=value).save(f"{root}/ckpt/model")
    value.assign(tf.zeros_like(value))
    tf.train.Checkpoint(value=value).restore(
        tf.train.latest_checkpoint(f"{root}/ckpt")
    ).assert_consumed()
    assert saved and float(value[99_999]) == 99_999.0


def summaries(root):
    writer = tf.summary.create_file_writer(f"{root}/logs")
    with writer.as_default():
        for step in range(5):
            tf.summary.write("loss", tf.constant(1.0 / (step + 1)), step=step)
    writer.close()
    (path,) = gfile.glob(f"{root}/logs/*")
    steps = [
        event.step for event in tf.compat.v1.train.summary_iterator(path) if event.summary.value
    ]
    assert steps == [0, 1, 2, 3, 4]


CASES = (files, large, trees, records, checkpoints, summaries)


def main():
    results = {}
    for case in CASES:
        try:
            case(f"gs://{sys.argv[1]}/{case.__name__}")
            results[case.__name__] = "ok"
        except Exception as error:
            traceback.print_exc(file=sys.stderr)
            results[case.__name__] = f"{type(error).__name__}: {error}"
    print(json.dumps(results))


main()
