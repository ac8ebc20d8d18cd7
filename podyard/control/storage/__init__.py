"""Buckets and objects."""
