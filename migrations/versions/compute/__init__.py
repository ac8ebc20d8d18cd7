"""Revisions of the tables of Compute Engine."""
