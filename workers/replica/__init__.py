"""Replicas: a worker's part of a job, from its start to its exit code."""
