"""`saved_model.py FOLDER IMAGES.npz ANSWERS.npy`: what a SavedModel answers in plain TensorFlow."""

import sys

import numpy as np
import tensorflow as tf

serve = tf.saved_model.load(sys.argv[1]).signatures["serving_default"]
inputs = {name: tf.constant(array) for name, array in np.load(sys.argv[2]).items()}
np.save(sys.argv[3], serve(**inputs)["answers"].numpy())
