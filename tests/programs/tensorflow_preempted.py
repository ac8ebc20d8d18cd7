"""Fits in Keras, and is taken back: `python tensorflow_preempted.py FOLDER`. Started again, it goes
on where it was."""

import signal
import sys
import time
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import tensorflow as tf

folder = Path(sys.argv[1])
resolver = tf.distribute.cluster_resolver.TPUClusterResolver()
tf.config.experimental_connect_to_cluster(resolver)
tf.tpu.experimental.initialize_tpu_system(resolver)
strategy = tf.distribute.TPUStrategy(resolver)
tf.keras.utils.set_random_seed(0)
with strategy.scope():
    model = tf.keras.Sequential(
        [tf.keras.layers.Input((8,)), tf.keras.layers.Dense(4), tf.keras.layers.Dense(1)]
    )
    model.compile(tf.keras.optimizers.Adam(0.01), "mse")


class Notice(tf.keras.callbacks.Callback):
    """A slice that is taken back says so by SIGTERM: then the fit ends with its epoch."""

    def __init__(self):
        super().__init__()
        self.has_come = False
        signal.signal(signal.SIGTERM, lambda *_: setattr(self, "has_come", True))

    def on_epoch_begin(self, epoch, logs=None):
        print("epoch", epoch, flush=True)

    def on_epoch_end(self, epoch, logs=None):
        if epoch == 2 and "wait" in sys.argv:
            while not self.has_come:
                time.sleep(0.05)
        if self.has_come:
            model.save(folder / "notice.keras")
            sys.exit(143)


x = np.random.default_rng(0).random((256, 8), np.float32)
callbacks = [
    tf.keras.callbacks.BackupAndRestore(folder / "backup"),
    tf.keras.callbacks.ModelCheckpoint(
        folder / "best.weights.h5", save_weights_only=True, monitor="loss"
    ),
    tf.keras.callbacks.EarlyStopping(monitor="loss", patience=100),
    Notice(),
]
if find_spec("tensorboard"):
    callbacks.append(tf.keras.callbacks.TensorBoard(folder / "logs"))
history = model.fit(
    x, x.sum(1), batch_size=64, epochs=6, shuffle=False, verbose=0, callbacks=callbacks
)
print("losses", *(f"{loss:.6f}" for loss in history.history["loss"]))
again = (
    tf.keras.models.load_model(folder / "notice.keras")
    if (folder / "notice.keras").exists()
    else model
)
print("saved", again.count_params(), sorted(path.name for path in folder.iterdir()))
