"""The Celery worker of one agent: `python -m podyard.workers.tasks.celery_worker NAME QUEUES`.

As `celery worker` would run it, but without the libraries of that command line, which are a quarter
of a worker's memory and half of its start.
"""

from __future__ import annotations

import sys

from podyard.workers.tasks.app import app


def main(name: str, queues: str) -> int:
    """Runs until a signal ends it; returns the exit code."""
    worker = app.Worker(
        hostname=name,
        queues=queues,
        pool="solo",
        loglevel="WARNING",
        without_gossip=True,
        without_mingle=True,
        without_heartbeat=True,
    )
    worker.start()
    return int(worker.exitcode or 0)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
