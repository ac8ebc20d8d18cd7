"""A computation for a TPU without estimators, as the first programs of 2018 have it."""

import tensorflow as tf
from tensorflow.contrib import tpu
from tensorflow.contrib.cluster_resolver import TPUClusterResolver


def scale_and_add(a, x, y):
    return a * x + y


inputs = [3.0, tf.ones([3, 3], tf.float32), tf.ones([3, 3], tf.float32)]
computation = tpu.rewrite(scale_and_add, inputs)
shared = tpu.shard(lambda x: 2 * x, [tf.ones([16])], num_shards=8)
with tf.Session(TPUClusterResolver(tpu=["demo"]).get_master()) as session:
    session.run(tpu.initialize_system())
    session.run(tf.global_variables_initializer())
    print(session.run(computation)[0].tolist(), session.run(shared)[0].sum())
    session.run(tpu.shutdown_system())
try:
    tpu.shard(lambda x: x, [tf.ones([15])], num_shards=8)
except ValueError as error:
    print(error)
try:
    print(tf.contrib.slim)
except AttributeError as error:
    print(error)
