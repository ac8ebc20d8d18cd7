"""The Celery application. Messages carry ids only: losing, doubling or delaying them does no
harm."""

from __future__ import annotations

import os
import threading
from typing import Any

from celery import Celery
from celery.signals import worker_init

# far beyond any task: redelivery is the reconciler's business, not the broker's
VISIBILITY_SECONDS = 12 * 3600
# a sender is told quickly that the broker is away; the outbox keeps the message
CONNECT_SECONDS_MAX = 2.0
# the in-memory transport's default of one second is an eternity in a notebook
MEMORY_POLL_SECONDS = 0.01


def make_app(broker_url: str) -> Celery:
    """JSON only, acknowledged late, no results: options per transport, since some refuse those of
    others."""
    app = Celery("podyard", broker=broker_url, include=["podyard.workers.tasks.tasks"])
    app.conf.update(
        task_serializer="json",
        accept_content=["json"],
        task_ignore_result=True,
        task_acks_late=True,
        task_reject_on_worker_lost=True,
        worker_prefetch_multiplier=1,
        broker_connection_retry_on_startup=True,
        broker_connection_timeout=CONNECT_SECONDS_MAX,
        broker_transport_options=_transport_options(broker_url),
        worker_hijack_root_logger=False,
        task_publish_retry=False,
    )
    return app


def _transport_options(broker_url: str) -> dict[str, Any]:
    if broker_url.startswith(("redis", "valkey")):
        return {
            "visibility_timeout": VISIBILITY_SECONDS,
            "socket_connect_timeout": CONNECT_SECONDS_MAX,
        }
    if broker_url.startswith("memory"):
        return {"polling_interval": MEMORY_POLL_SECONDS}
    return {}


app = make_app(os.environ.get("PODYARD_BROKER_URL") or "memory://")


@worker_init.connect  # type: ignore[untyped-decorator]
def _end_with_agent(**_ignored: Any) -> None:
    """The worker ends when its agent does, even when the agent is killed: the kernel closes the
    pipe's other end."""
    descriptor = os.environ.get("PODYARD_AGENT_PIPE")
    if descriptor is None:
        return

    def wait_for_end() -> None:
        os.read(int(descriptor), 1)
        os._exit(0)

    threading.Thread(target=wait_for_end, name="agent-pipe", daemon=True).start()
