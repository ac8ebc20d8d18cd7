"""Graphs of programs for TensorFlow 1: steps of estimators, and computations, for their price."""
