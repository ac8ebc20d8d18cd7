"""CNNs for Fashion-MNIST and CIFAR-10 in Keras 3 on JAX, data-parallel. The images are drawn, in the true shapes.

podyard run --tpu v3-8 -- python keras_cnn.py fashion
"""

import os
import sys

os.environ.setdefault("KERAS_BACKEND", "jax")

import keras
import numpy as np

shape = (28, 28, 1) if "fashion" in sys.argv else (32, 32, 3)
keras.utils.set_random_seed(0)
keras.distribution.set_distribution(keras.distribution.DataParallel())
chance = np.random.default_rng(0)
labels = chance.integers(0, 10, 2048)
images = chance.random((2048, *shape), np.float32) * 0.2 + labels[:, None, None, None] / 10

model = keras.Sequential([keras.Input(shape)])
for filters in (32, 64):
    model.add(keras.layers.Conv2D(filters, 3, padding="same", activation="relu"))
    model.add(keras.layers.MaxPooling2D())
model.add(keras.layers.Flatten())
model.add(keras.layers.Dropout(0.25))
model.add(keras.layers.Dense(128, activation="relu"))
model.add(keras.layers.Dense(10))
model.compile(
    optimizer=keras.optimizers.Adam(1e-3),
    loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    metrics=["accuracy"],
)
stop = keras.callbacks.EarlyStopping(patience=2, restore_best_weights=True)
history = model.fit(images, labels, batch_size=256, epochs=3, validation_split=0.25, callbacks=[stop], verbose=2)
print(f"{len(keras.distribution.list_devices())} devices, accuracy {history.history['accuracy'][-1]:.3f}")
