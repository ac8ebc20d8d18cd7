"""Rows of jobs, attempts and replicas."""
