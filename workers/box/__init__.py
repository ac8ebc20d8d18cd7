"""Boxes: namespaces, limits and files of a host."""
