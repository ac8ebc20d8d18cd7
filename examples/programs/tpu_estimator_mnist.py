"""MNIST on a Cloud TPU with TPUEstimator, as programs of 2018 were written; images that are made up.

    python tpu_estimator_mnist.py --tpu=NAME --model_dir=gs://BUCKET/mnist
"""

import numpy as np
import tensorflow as tf
from tensorflow.contrib.tpu.python.tpu import tpu_config, tpu_estimator, tpu_optimizer

FLAGS = tf.flags.FLAGS
tf.flags.DEFINE_string("tpu", None, "Name of the Cloud TPU.")
tf.flags.DEFINE_string("model_dir", None, "Where checkpoints go.")
tf.flags.DEFINE_bool("use_tpu", True, "Whether to train on the TPU.")
tf.flags.DEFINE_integer("batch_size", 64, "Examples of a step, over all cores.")
tf.flags.DEFINE_integer("train_steps", 30, "Steps.")
tf.flags.DEFINE_integer("iterations", 10, "Steps between two returns to the host.")


def model_fn(features, labels, mode, params):
    del params
    image = tf.reshape(features, [-1, 28, 28, 1])
    net = tf.layers.conv2d(image, 16, 5, activation=tf.nn.relu)
    net = tf.layers.max_pooling2d(net, 2, 2)
    net = tf.layers.flatten(net)
    logits = tf.layers.dense(net, 10)
    if mode == tf.estimator.ModeKeys.PREDICT:
        return tpu_estimator.TPUEstimatorSpec(mode, predictions={"class": tf.argmax(logits, 1)})
    loss = tf.losses.sparse_softmax_cross_entropy(labels=labels, logits=logits)
    if mode == tf.estimator.ModeKeys.EVAL:

        def metric_fn(labels, logits):
            return {"accuracy": tf.metrics.accuracy(labels, tf.argmax(logits, 1))}

        return tpu_estimator.TPUEstimatorSpec(mode, loss=loss, eval_metrics=(metric_fn, [labels, logits]))
    rate = tf.train.exponential_decay(0.05, tf.train.get_global_step(), 1000, 0.96)
    optimizer = tf.train.GradientDescentOptimizer(rate)
    if FLAGS.use_tpu:
        optimizer = tpu_optimizer.CrossShardOptimizer(optimizer)
    step = optimizer.minimize(loss, tf.train.get_global_step())
    return tpu_estimator.TPUEstimatorSpec(mode, loss=loss, train_op=step)


def input_fn(params):
    random = np.random.RandomState(0)
    labels = random.randint(0, 10, 1024).astype(np.int32)
    images = random.rand(1024, 784).astype(np.float32) * 0.3
    images[np.arange(1024), labels * 70] += 3.0
    dataset = tf.data.Dataset.from_tensor_slices((images, labels)).repeat()
    dataset = dataset.batch(params["batch_size"], drop_remainder=True)
    return dataset.make_one_shot_iterator().get_next()


def main(argv):
    del argv
    tf.logging.set_verbosity(tf.logging.INFO)
    resolver = tf.contrib.cluster_resolver.TPUClusterResolver(FLAGS.tpu)
    run_config = tpu_config.RunConfig(
        cluster=resolver,
        model_dir=FLAGS.model_dir,
        tf_random_seed=1,
        session_config=tf.ConfigProto(allow_soft_placement=True, log_device_placement=False),
        tpu_config=tpu_config.TPUConfig(FLAGS.iterations, num_shards=8),
    )
    estimator = tpu_estimator.TPUEstimator(
        model_fn=model_fn,
        use_tpu=FLAGS.use_tpu,
        train_batch_size=FLAGS.batch_size,
        eval_batch_size=FLAGS.batch_size,
        predict_batch_size=FLAGS.batch_size,
        params={"data": "made up"},
        config=run_config,
    )
    estimator.train(input_fn=input_fn, max_steps=FLAGS.train_steps)
    found = estimator.evaluate(input_fn=input_fn, steps=4)
    print("steps", found["global_step"], "accuracy %.3f" % found["accuracy"])


if __name__ == "__main__":
    tf.app.run()
