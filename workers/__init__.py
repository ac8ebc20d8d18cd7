"""Processes on real machines: the agent, its Celery worker, hosts, and the replicas of jobs."""
