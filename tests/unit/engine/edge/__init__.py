"""Models for the Edge TPU."""
