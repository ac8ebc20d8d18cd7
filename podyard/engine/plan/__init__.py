"""A whole run of a program on a slice, from its training step: tokens, hours, cost.

Without JAX and NumPy: the console imports it.
"""
