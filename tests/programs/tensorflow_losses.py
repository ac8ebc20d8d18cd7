"""Losses of a Keras CNN: `python tensorflow_losses.py OPTIMIZER STEPS [float64]`; plain without a
TPU."""

import os
import sys

import numpy as np
import tensorflow as tf

optimizers = {"sgd": tf.keras.optimizers.SGD, "adam": tf.keras.optimizers.Adam}
name, steps = sys.argv[1], int(sys.argv[2])
if "float64" in sys.argv:
    tf.keras.backend.set_floatx("float64")
if os.environ.get("PODYARD_TPU"):
    strategy = tf.distribute.TPUStrategy(tf.distribute.cluster_resolver.TPUClusterResolver())
else:
    strategy = tf.distribute.get_strategy()
tf.keras.utils.set_random_seed(0)
chance = np.random.default_rng(0)
labels = chance.integers(0, 10, 128 * steps)
images = chance.random((128 * steps, 28, 28, 1)) * 0.2 + labels[:, None, None, None] / 10
data = tf.data.Dataset.from_tensor_slices((images.astype(tf.keras.backend.floatx()), labels)).batch(
    128
)
with strategy.scope():
    model = tf.keras.Sequential(
        [
            tf.keras.layers.Input((28, 28, 1)),
            tf.keras.layers.Conv2D(32, 3, padding="same", activation="relu"),
            tf.keras.layers.MaxPooling2D(),
            tf.keras.layers.Conv2D(64, 3, padding="same", activation="relu"),
            tf.keras.layers.MaxPooling2D(),
            tf.keras.layers.Flatten(),
            tf.keras.layers.Dense(128, activation="relu"),
            tf.keras.layers.Dense(10),
        ]
    )
    optimizer = optimizers[name](0.02 if name == "sgd" else 1e-3)
    model.compile(optimizer, tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True))
fits = [model.fit(data.skip(step).take(1), verbose=0, shuffle=False) for step in range(steps)]
print(*(f"{fit.history['loss'][0]:.9g}" for fit in fits))
