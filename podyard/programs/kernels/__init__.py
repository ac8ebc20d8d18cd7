"""Kernels of Pallas: their cost and their interpreter."""
