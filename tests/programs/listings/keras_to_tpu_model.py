"""Keras on Colab's TPU, as listings of 2018 print it: the model is made before the first name that
only TensorFlow 1 has."""

import os

import numpy as np
import tensorflow as tf

random = np.random.RandomState(0)
labels = random.randint(0, 10, 1024)
images = random.rand(1024, 64).astype("float32") * 0.3
images[np.arange(1024), labels * 6] += 3.0

model = tf.keras.models.Sequential()
model.add(tf.keras.layers.Dense(32, activation="relu", input_shape=(64,)))
model.add(tf.keras.layers.Dense(10, activation="softmax"))
model.compile(optimizer="adam", loss="sparse_categorical_crossentropy", metrics=["accuracy"])
address = "grpc://" + os.environ["COLAB_TPU_ADDR"]
tpu_model = tf.contrib.tpu.keras_to_tpu_model(
    model,
    strategy=tf.contrib.tpu.TPUDistributionStrategy(
        tf.contrib.cluster_resolver.TPUClusterResolver(tpu=address)
    ),
)
tpu_model.fit(images, labels, epochs=20, batch_size=128, verbose=0)
print("accuracy", tpu_model.evaluate(images, labels, batch_size=128, verbose=0)[1] > 0.9)
