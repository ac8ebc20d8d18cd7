"""Background work, with Celery and without."""
