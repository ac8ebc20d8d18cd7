"""Instances of Compute Engine: use cases on rows of nodes of that road."""
