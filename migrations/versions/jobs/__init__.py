"""Revisions of the tables of jobs."""
