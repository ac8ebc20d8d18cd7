"""Kernels of Pallas: their cost, their text in a module, and their interpreter."""
