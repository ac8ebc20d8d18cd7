"""Keras under `tf.contrib.distribute.TPUStrategy`, as notebooks of 2019 have it."""

import os
import sys

import numpy as np
import tensorflow as tf

random = np.random.RandomState(0)
labels = random.randint(0, 10, 1024)
images = random.rand(1024, 64).astype("float32") * 0.3
images[np.arange(1024), labels * 6] += 3.0

resolver = tf.contrib.cluster_resolver.TPUClusterResolver("grpc://" + os.environ["COLAB_TPU_ADDR"])
tf.contrib.distribute.initialize_tpu_system(resolver)
of_1_14 = "1.14" in sys.argv
module = tf.distribute.experimental if of_1_14 else tf.contrib.distribute
strategy = module.TPUStrategy(resolver)
with strategy.scope():
    model = tf.keras.Sequential([
        tf.keras.layers.Dense(32, activation="relu", input_shape=(64,)),
        tf.keras.layers.Dense(10, activation="softmax"),
    ])  # fmt: skip
    model.compile("adam", "sparse_categorical_crossentropy", metrics=["accuracy"])
model.fit(images, labels, epochs=20, batch_size=128, verbose=0)
right = model.evaluate(images, labels, batch_size=128, verbose=0)[1]
print(strategy.num_replicas_in_sync, "accuracy", right > 0.9)
