"""Modules of `tf.contrib`, as far as programs for TPUs use them."""
