"""Trains under TPUStrategy until the slice is taken back, and 20 steps more once it is restored.
Checkpoints and curve are written by TensorFlow itself into the job's output."""

import os
import signal
import sys

import numpy as np
import tensorflow as tf

OUTPUT = os.environ["PODYARD_OUTPUT"].rstrip("/")
notice = []
signal.signal(signal.SIGTERM, lambda *_: notice.append(True))

resolver = tf.distribute.cluster_resolver.TPUClusterResolver()
tf.config.experimental_connect_to_cluster(resolver)
tf.tpu.experimental.initialize_tpu_system(resolver)
strategy = tf.distribute.TPUStrategy(resolver)

chance = np.random.default_rng(0)
x = chance.normal(size=(64, 16)).astype(np.float32)
y = x @ np.arange(16, dtype=np.float32)[:, None]
data = tf.data.Dataset.from_tensor_slices((x, y)).batch(64, drop_remainder=True).repeat()
with strategy.scope():
    weights = tf.Variable(tf.zeros((16, 1)))
step = tf.Variable(0, dtype=tf.int64)
manager = tf.train.CheckpointManager(
    tf.train.Checkpoint(weights=weights, step=step), f"{OUTPUT}/checkpoints", 2
)


def train_step(x, y):
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean((x @ weights - y) ** 2)
    weights.assign_sub(
        0.05 * tf.distribute.get_replica_context().all_reduce("mean", tape.gradient(loss, weights))
    )
    return loss


@tf.function
def train(iterator):
    return strategy.reduce("MEAN", strategy.run(train_step, args=next(iterator)), axis=None)


saved = manager.restore_or_initialize()
print(f"{strategy.num_replicas_in_sync} replicas from step {int(step)}", flush=True)
last = int(step) + 20 if saved else None
curve = tf.summary.create_file_writer(f"{OUTPUT}/logs")
batches = iter(strategy.experimental_distribute_dataset(data))
while int(step) != last and not notice:
    loss = float(train(batches))
    step.assign_add(1)
    with curve.as_default():
        tf.summary.scalar("loss", loss, int(step))
    print(f"step {int(step)} loss {loss!r}", flush=True)
curve.close()
manager.save()
sys.exit(0 if int(step) == last else 1)
