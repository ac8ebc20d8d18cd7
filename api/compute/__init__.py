"""The few calls of Compute Engine that clients of Cloud TPU make."""
