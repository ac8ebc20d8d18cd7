"""`checkpoint_keras.py PARAMETERS.npz IMAGES.npz SCORES.npy`: a checkpoint of digits-cnn in
Keras."""

import os
import sys

import numpy as np

if "--jax" in sys.argv:
    os.environ["KERAS_BACKEND"] = "jax"
import keras
from keras import layers

parameters, images, scores = np.load(sys.argv[1]), np.load(sys.argv[2])["image"], sys.argv[3]
model = keras.Sequential(
    [
        keras.Input((8, 8, 1)),
        layers.Conv2D(32, 3, padding="same", activation="relu", name="conv1"),
        layers.Conv2D(64, 3, padding="same", activation="relu", name="conv2"),
        layers.MaxPool2D(2),
        layers.Flatten(),
        layers.Dense(128, activation="relu", name="dense1"),
        layers.Dense(10, name="dense2"),
    ]
)
for name in ("conv1", "conv2", "dense1", "dense2"):
    model.get_layer(name).set_weights([parameters[f"{name}/kernel"], parameters[f"{name}/bias"]])
np.save(scores, np.asarray(model(images)))
