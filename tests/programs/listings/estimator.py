"""An estimator as listings of 2018 print it: a model function without `params`, names of
`tf.contrib` that have moved or gone, and a TPUConfig by place.

    python estimator.py MODEL_DIR STEPS [EXPORT_DIR]

With EXPORT_DIR it prints its first prediction, and exports the model.
"""

import sys

import numpy as np
import tensorflow as tf
from tensorflow.contrib.tpu.python.tpu import tpu_config, tpu_estimator, tpu_optimizer

model_dir, steps = sys.argv[1], int(sys.argv[2])


def metric_fn(labels, logits):
    return {"accuracy": tf.metrics.accuracy(labels, tf.argmax(logits, 1))}


def model_fn(features, labels, mode):
    net = tf.contrib.layers.fully_connected(features["image"], 64)
    logits = tf.layers.dense(
        net,
        10,
        kernel_initializer=tf.contrib.layers.variance_scaling_initializer(),
        kernel_regularizer=tf.contrib.layers.l2_regularizer(1e-5),
    )
    if mode == tf.estimator.ModeKeys.PREDICT:
        predictions = {"scores": tf.nn.softmax(logits)}
        outputs = {"serving_default": tf.estimator.export.PredictOutput(predictions)}
        return tpu_estimator.TPUEstimatorSpec(
            mode=mode, predictions=predictions, export_outputs=outputs
        )
    loss = (
        tf.losses.sparse_softmax_cross_entropy(labels, logits) + tf.losses.get_regularization_loss()
    )
    if mode == tf.estimator.ModeKeys.EVAL:
        return tpu_estimator.TPUEstimatorSpec(
            mode=mode, loss=loss, eval_metrics=(metric_fn, [labels, logits])
        )
    optimizer = tpu_optimizer.CrossShardOptimizer(tf.train.AdamOptimizer(0.01))
    train_op = optimizer.minimize(
        loss, global_step=tf.contrib.framework.get_or_create_global_step()
    )
    return tpu_estimator.TPUEstimatorSpec(mode=mode, loss=loss, train_op=train_op)


def input_fn(params):
    random = np.random.RandomState(0)
    labels = random.randint(0, 10, 1000).astype(np.int32)
    images = random.rand(1000, 784).astype(np.float32) * 0.3
    images[np.arange(1000), labels * 70] += 3.0
    dataset = tf.data.Dataset.from_tensor_slices((images, labels))
    dataset = dataset.apply(tf.contrib.data.shuffle_and_repeat(1000, seed=1))
    dataset = dataset.map(lambda image, label: ({"image": image}, label))
    dataset = dataset.apply(tf.contrib.data.batch_and_drop_remainder(params["batch_size"]))
    return dataset.make_one_shot_iterator().get_next()


run_config = tpu_config.RunConfig(
    master="local",
    evaluation_master="local",
    model_dir=model_dir,
    tpu_config=tpu_config.TPUConfig(50, 8),
    save_checkpoints_steps=50,
)
estimator = tpu_estimator.TPUEstimator(
    model_fn=model_fn,
    use_tpu=True,
    train_batch_size=128,
    eval_batch_size=128,
    predict_batch_size=32,
    config=run_config,
)
estimator.train(input_fn=input_fn, max_steps=steps)
result = estimator.evaluate(input_fn=input_fn, steps=10)
print("steps", result["global_step"], "accuracy", result["accuracy"])


def eye_fn(params):
    images = np.eye(params["batch_size"], 784, dtype=np.float32) * 3
    return tf.data.Dataset.from_tensors({"image": images})


def receive():
    image = tf.placeholder(tf.float32, [None, 784])
    return tf.estimator.export.ServingInputReceiver({"image": image}, {"image": image})


if len(sys.argv) > 3:
    print("scores", next(estimator.predict(eye_fn))["scores"].tolist())
    print("saved", estimator.export_saved_model(sys.argv[3], receive).decode())
