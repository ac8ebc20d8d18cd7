"""A classifier of texts under TPUStrategy, as books of 2020 have it: functions that make and
compile the model, and datasets whose last batch is smaller."""

import os

import numpy as np
import tensorflow as tf
from tensorflow.keras import layers, losses, metrics, models, optimizers

LENGTH, BATCH = 60, 32
random = np.random.RandomState(0)
y_train = random.randint(0, 8, 656)
x_train = random.randint(1, 400, (656, LENGTH)) + y_train[:, None] * 10
words, classes = int(x_train.max() + 1), int(y_train.max() + 1)


def dataset(x, y):
    pairs = tf.data.Dataset.from_tensor_slices((x, y)).shuffle(buffer_size=1000).batch(BATCH)
    return pairs.prefetch(tf.data.experimental.AUTOTUNE).cache()


tf.keras.backend.clear_session()


def create_model():
    model = models.Sequential()
    model.add(layers.Embedding(words, 7, input_length=LENGTH))
    model.add(layers.Conv1D(filters=64, kernel_size=5, activation="relu"))
    model.add(layers.MaxPool1D(2))
    model.add(layers.Flatten())
    model.add(layers.Dense(classes, activation="softmax"))
    return model


def compile_model(model):
    model.compile(
        optimizer=optimizers.Nadam(),
        loss=losses.SparseCategoricalCrossentropy(),
        metrics=[metrics.SparseCategoricalAccuracy(), metrics.SparseTopKCategoricalAccuracy(5)],
    )
    return model


resolver = tf.distribute.cluster_resolver.TPUClusterResolver(
    tpu="grpc://" + os.environ["COLAB_TPU_ADDR"]
)
tf.config.experimental_connect_to_cluster(resolver)
tf.tpu.experimental.initialize_tpu_system(resolver)
strategy = tf.distribute.experimental.TPUStrategy(resolver)
with strategy.scope():
    model = create_model()
    model.summary()
    model = compile_model(model)
data = dataset(x_train, y_train)
history = model.fit(
    data, validation_data=dataset(x_train[:128], y_train[:128]), epochs=8, verbose=0
)
print("accuracy", history.history["sparse_categorical_accuracy"][-1] > 0.5)
