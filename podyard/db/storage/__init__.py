"""Rows of buckets and objects."""
