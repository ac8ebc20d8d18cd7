"""A network with memory on Colab's TPU, as notebooks of 2018 have it: inputs with the batch of a
core, a dataset or a generator with that of all cores, and a second model that predicts."""

import os
import sys

import numpy as np
import tensorflow as tf

LENGTH, CORE_BATCH = 20, 16


def lstm_model(length, batch, stateful):
    source = tf.keras.Input(name="seed", shape=(length,), batch_size=batch, dtype=tf.int32)
    net = tf.keras.layers.Embedding(input_dim=64, output_dim=32)(source)
    net = tf.keras.layers.LSTM(32, stateful=stateful, return_sequences=True)(net)
    net = tf.keras.layers.TimeDistributed(tf.keras.layers.Dense(64, activation="softmax"))(net)
    model = tf.keras.Model(inputs=[source], outputs=[net])
    model.compile(
        optimizer=tf.train.RMSPropOptimizer(learning_rate=0.01),
        loss="sparse_categorical_crossentropy",
        metrics=["sparse_categorical_accuracy"],
    )
    return model


tf.keras.backend.clear_session()
tpu_model = tf.contrib.tpu.keras_to_tpu_model(
    lstm_model(LENGTH, CORE_BATCH, stateful="stateful" in sys.argv),
    strategy=tf.contrib.tpu.TPUDistributionStrategy(
        tf.contrib.cluster_resolver.TPUClusterResolver("grpc://" + os.environ["COLAB_TPU_ADDR"])
    ),
)
random = np.random.RandomState(0)
text = random.randint(0, 64, (1024, LENGTH))


def batches():
    while True:
        first = random.randint(0, 1024 - 8 * CORE_BATCH)
        part = text[first : first + 8 * CORE_BATCH]
        yield part, np.expand_dims(part, -1)


def dataset():
    pairs = tf.data.Dataset.from_tensor_slices((text, text[..., None]))
    return pairs.repeat().batch(8 * CORE_BATCH, drop_remainder=True)


if "dataset" in sys.argv:
    tpu_model.fit(dataset, steps_per_epoch=8, epochs=2, verbose=0)
else:
    tpu_model.fit_generator(batches(), steps_per_epoch=8, epochs=2, verbose=0)
tpu_model.save_weights("weights.h5", overwrite=True)
second = lstm_model(length=1, batch=5, stateful=True)
second.load_weights("weights.h5")
second.reset_states()
print("predictions", second.predict(np.zeros((5, 1)), batch_size=5).shape)
