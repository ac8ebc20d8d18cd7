"""Notebooks on the hosts of nodes."""
