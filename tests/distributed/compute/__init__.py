"""Instances of Compute Engine in real processes."""
