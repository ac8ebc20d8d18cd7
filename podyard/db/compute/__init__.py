"""Rows of nodes, queued resources, slices and hosts."""
