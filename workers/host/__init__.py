"""Hosts of nodes: what runs on a TPU VM, and who reaches it."""
