"""Inferences on an Edge TPU: of TensorFlow Lite models, and what each takes."""
