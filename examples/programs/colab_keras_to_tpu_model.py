"""Keras on Colab's TPU, as notebooks of 2019 were written; images that are made up."""

import os

import numpy as np
import tensorflow as tf

assert "COLAB_TPU_ADDR" in os.environ, "change the type of the runtime to TPU"
TPU_ADDRESS = "grpc://" + os.environ["COLAB_TPU_ADDR"]
random = np.random.RandomState(0)
labels = random.randint(0, 10, 1024)
images = random.rand(1024, 28, 28, 1).astype("float32") * 0.3
images[np.arange(1024), labels * 2] += 3.0

with tf.Session(TPU_ADDRESS) as session:
    print("devices:", len(session.list_devices()))
model = tf.keras.models.Sequential([
    tf.keras.layers.Conv2D(8, 3, activation="relu", input_shape=(28, 28, 1)),
    tf.keras.layers.Flatten(),
    tf.keras.layers.Dense(10, activation="softmax"),
])  # fmt: skip
model.compile(
    optimizer=tf.train.RMSPropOptimizer(1e-3),
    loss="sparse_categorical_crossentropy",
    metrics=["sparse_categorical_accuracy"],
)
tpu_model = tf.contrib.tpu.keras_to_tpu_model(
    model,
    strategy=tf.contrib.tpu.TPUDistributionStrategy(tf.contrib.cluster_resolver.TPUClusterResolver(TPU_ADDRESS)),
)
tpu_model.fit(images, labels, epochs=8, batch_size=128, verbose=0)
loss, accuracy = tpu_model.evaluate(images, labels, batch_size=128, verbose=0)
print(f"accuracy {accuracy:.3f}")
print("predictions", tpu_model.sync_to_cpu().predict(images[:8]).shape)
