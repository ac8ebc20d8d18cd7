"""A step with operations that XLA does not compile: `soft_placement.py KIND [off]`."""

import sys

import numpy as np
import tensorflow as tf

kind = sys.argv[1]
if "off" in sys.argv:
    tf.config.set_soft_device_placement(False)
resolver = tf.distribute.cluster_resolver.TPUClusterResolver("")
tf.config.experimental_connect_to_cluster(resolver)
tf.tpu.experimental.initialize_tpu_system(resolver)
strategy = tf.distribute.TPUStrategy(resolver)
writer = tf.summary.create_file_writer("summaries")
table = tf.lookup.StaticHashTable(tf.lookup.KeyValueTensorInitializer([1, 2], [3, 4]), 0)
with strategy.scope():
    weights = tf.Variable(tf.ones([512, 512]))


def on_host(y):
    if kind == "python":
        y = tf.py_function(lambda v: np.negative(v), [y], tf.float32)
        y.set_shape([64, 512])
    elif kind == "print":
        tf.print("mean", tf.strings.as_string(tf.reduce_mean(y)))
    elif kind == "summary":
        with writer.as_default(step=tf.constant(1, tf.int64)):
            tf.summary.write("mean", tf.reduce_mean(y))
    elif kind == "branch":
        if tf.reduce_sum(y) > 0:
            tf.print(y)
    elif kind == "table":
        y += tf.cast(tf.reshape(table.lookup(tf.cast(y, tf.int32)), [64, 512]), tf.float32)
    elif kind == "unique":
        y += tf.cast(tf.reduce_sum(tf.unique(tf.reshape(y, [-1]))[0]), tf.float32)
    elif kind == "outside":
        y = tf.compat.v1.tpu.outside_compilation(tf.nn.relu, y)
    return y


def replica(x):
    y = on_host(x @ weights)
    weights.assign_sub(1e-6 * tf.matmul(x, y, transpose_a=True))


@tf.function
def step(x):
    strategy.run(replica, args=(x,))


for _ in range(3):
    step(tf.ones([64, 512]))
print("trained")
