"""A computation for a TPU whose address is asked for by name, as the first quickstart has it."""

import os

import tensorflow as tf
from tensorflow.contrib import tpu
from tensorflow.contrib.cluster_resolver import TPUClusterResolver


def multiply_and_add(a, x, y):
    return tf.matmul(a, x) + y


inputs = [tf.ones([64, 32]), tf.ones([32, 16]), tf.ones([64, 16])]
tpu_computation = tpu.rewrite(multiply_and_add, inputs)
tpu_grpc_url = TPUClusterResolver(tpu=[os.environ["TPU_NAME"]]).get_master()
with tf.Session(tpu_grpc_url) as sess:
    sess.run(tpu.initialize_system())
    sess.run(tf.global_variables_initializer())
    for _ in range(3):
        (output,) = sess.run(tpu_computation)
    print(output[0, 0])
    sess.run(tpu.shutdown_system())
print("Done!")
