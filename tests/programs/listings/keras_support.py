"""Keras on Colab's TPU, as the notebooks of 2018 have it: compiled after it was given to the TPU,
fitted with a generator, its weights saved, and predictions on the CPU."""

import os

import numpy as np
import tensorflow as tf
from tensorflow.contrib.tpu.python.tpu import keras_support

random = np.random.RandomState(0)
labels = random.randint(0, 10, 2048)
images = random.rand(2048, 28, 28, 1).astype("float32") * 0.3
images[np.arange(2048), labels * 2] += 3.0

model = tf.keras.models.Sequential()
model.add(tf.keras.layers.Conv2D(16, 5, padding="same", activation="elu", input_shape=(28, 28, 1)))
model.add(tf.keras.layers.MaxPooling2D(pool_size=(2, 2), strides=(2, 2)))
model.add(tf.keras.layers.BatchNormalization())
model.add(tf.keras.layers.Dropout(0.25))
model.add(tf.keras.layers.Flatten())
model.add(tf.keras.layers.Dense(10, activation="softmax"))
try:
    device_name = os.environ["COLAB_TPU_ADDR"]
    address = "grpc://" + device_name
except KeyError:
    print("no TPU")
tpu_model = tf.contrib.tpu.keras_to_tpu_model(
    model,
    strategy=keras_support.TPUDistributionStrategy(
        tf.contrib.cluster_resolver.TPUClusterResolver(address)
    ),
)
tpu_model.compile(
    optimizer=tf.train.AdamOptimizer(learning_rate=1e-3),
    loss=tf.keras.losses.sparse_categorical_crossentropy,
    metrics=["sparse_categorical_accuracy"],
)


def batches(size):
    while True:
        first = random.randint(0, len(images) - size)
        yield images[first : first + size], labels[first : first + size]


tpu_model.fit_generator(
    batches(256),
    epochs=2,
    steps_per_epoch=8,
    validation_data=(images[:512], labels[:512]),
    verbose=0,
)
tpu_model.save_weights("weights.h5", overwrite=True)
plain = tpu_model.sync_to_cpu()
right = np.argmax(plain.predict(images[:512]), 1) == labels[:512]
print("accuracy", right.mean() > 0.9)
