"""What runs on real machines: the agent, its Celery worker, and the replicas of jobs."""
