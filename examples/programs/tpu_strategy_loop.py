"""A custom training loop under TPUStrategy: each replica has its part of the batch, and gradients are summed.

podyard run --tpu v3-8 -- python tpu_strategy_loop.py
"""

import numpy as np
import tensorflow as tf

resolver = tf.distribute.cluster_resolver.TPUClusterResolver(tpu="")
tf.config.experimental_connect_to_cluster(resolver)
tf.tpu.experimental.initialize_tpu_system(resolver)
strategy = tf.distribute.TPUStrategy(resolver)
batch = 8 * strategy.num_replicas_in_sync
chance = np.random.default_rng(0)
x = chance.random((4 * batch, 20), np.float32)
y = (x.sum(1, keepdims=True) > 10).astype(np.float32)
data = strategy.experimental_distribute_dataset(tf.data.Dataset.from_tensor_slices((x, y)).batch(batch).repeat(5))

tf.keras.utils.set_random_seed(0)
with strategy.scope():
    model = tf.keras.Sequential([tf.keras.layers.Input((20,)), tf.keras.layers.Dense(1)])
    optimizer = tf.keras.optimizers.SGD(0.1)
    optimizer.build(model.trainable_variables)


def replica_step(x, y):
    with tf.GradientTape() as tape:
        losses = tf.keras.losses.binary_crossentropy(y, model(x, training=True), from_logits=True)
        loss = tf.nn.compute_average_loss(losses, global_batch_size=batch)
    gradients = tape.gradient(loss, model.trainable_variables)
    optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
    return loss


@tf.function
def train_step(x, y):
    losses = strategy.run(replica_step, args=(x, y))
    return strategy.reduce(tf.distribute.ReduceOp.SUM, losses, axis=None)


found = [float(train_step(*values)) for values in data]
print(f"{strategy.num_replicas_in_sync} replicas, loss {found[0]:.6f} to {found[-1]:.6f}")
