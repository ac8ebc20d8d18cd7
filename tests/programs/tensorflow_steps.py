"""Steps of every kind under TPUStrategy, and functions for XLA: what the report is to tell
apart."""

import numpy as np
import tensorflow as tf

tf.random.set_seed(1)
resolver = tf.distribute.cluster_resolver.TPUClusterResolver()
tf.config.experimental_connect_to_cluster(resolver)
tf.tpu.experimental.initialize_tpu_system(resolver)
strategy = tf.distribute.TPUStrategy(resolver)
with strategy.scope():
    weights = tf.Variable(tf.random.normal((20, 4)), aggregation=tf.VariableAggregation.MEAN)
    table = tf.Variable(tf.random.normal((100, 20)))
    normalize = tf.keras.layers.BatchNormalization()


@tf.function(jit_compile=True)
def alone(x):
    return tf.reduce_sum(tf.matmul(x, x))


def spell(ids):
    return tf.strings.length(tf.strings.as_string(ids))


def step(ids):
    with tf.GradientTape() as tape:
        found = normalize(tf.matmul(tf.nn.embedding_lookup(table, ids), weights), training=True)
        loss = tf.reduce_mean(tf.nn.dropout(found, 0.3) ** 2)
    gradient, embedded = tape.gradient(loss, [weights, table])
    context = tf.distribute.get_replica_context()
    summed, embedded = context.all_reduce("sum", [gradient, tf.convert_to_tensor(embedded)])
    weights.assign_sub(0.1 * summed)
    np.random.random()  # drawn where the step is traced, once for each replica
    return loss


@tf.function
def train(ids):
    return strategy.reduce("MEAN", strategy.run(step, args=(ids,)), axis=None)


@tf.function
def train_twice(iterator):
    for _ in tf.range(2):
        strategy.run(step, args=(next(iterator),))


@tf.function
def spell_all(ids):
    return strategy.run(spell, args=(ids,))


@tf.function
def double(x):
    return 2 * x


with tf.device("/TPU:0"):
    for size in (64, 64, 128):
        alone(tf.ones((size, size)))
data = tf.data.Dataset.from_tensor_slices(np.arange(256) % 100).batch(64)
data = strategy.experimental_distribute_dataset(data)
np.random.seed(0)
losses = [float(train(ids)) for ids in data]
drawn = np.random.random()
train_twice(iter(data))
for ids in data:
    spell_all(ids)
for _ in range(3):
    strategy.run(double, args=(tf.ones(5),))
try:
    strategy.run(lambda: 1)
except NotImplementedError as error:
    print(str(error)[:63])
print(np.round(losses, 4), weights.numpy().sum(), drawn, float(tf.random.uniform(())))
