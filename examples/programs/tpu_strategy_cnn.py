"""CNNs for Fashion-MNIST and CIFAR-10 in Keras under TPUStrategy. The images are drawn, in the true shapes.

podyard run --tpu v3-8 -- python tpu_strategy_cnn.py fashion
"""

import sys

import numpy as np
import tensorflow as tf

shape = (28, 28, 1) if "fashion" in sys.argv else (32, 32, 3)
resolver = tf.distribute.cluster_resolver.TPUClusterResolver()
tf.config.experimental_connect_to_cluster(resolver)
tf.tpu.experimental.initialize_tpu_system(resolver)
strategy = tf.distribute.TPUStrategy(resolver)
print(f"{len(tf.config.list_logical_devices('TPU'))} devices, {strategy.num_replicas_in_sync} replicas")

tf.keras.utils.set_random_seed(0)
chance = np.random.default_rng(0)
labels = chance.integers(0, 10, 2048)
images = chance.random((2048, *shape), np.float32) * 0.2 + labels[:, None, None, None].astype(np.float32) / 10
data = tf.data.Dataset.from_tensor_slices((images, labels)).batch(128 * strategy.num_replicas_in_sync // 8)

with strategy.scope():
    model = tf.keras.Sequential(
        [
            tf.keras.layers.Input(shape),
            tf.keras.layers.Conv2D(32, 3, padding="same", activation="relu"),
            tf.keras.layers.MaxPooling2D(),
            tf.keras.layers.Conv2D(64, 3, padding="same", activation="relu"),
            tf.keras.layers.MaxPooling2D(),
            tf.keras.layers.Flatten(),
            tf.keras.layers.Dense(128, activation="relu"),
            tf.keras.layers.Dense(10),
        ]
    )
    model.compile(
        optimizer=tf.keras.optimizers.Adam(1e-3),
        loss=tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
        steps_per_execution=4,
    )
history = model.fit(data, epochs=2, verbose=2, shuffle=False)
print("losses", *(f"{loss:.6f}" for loss in history.history["loss"]))
print("predictions", model.predict(images[:16], verbose=0).shape)
