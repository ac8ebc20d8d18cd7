"""Which queues an agent's Celery worker listens on."""

from __future__ import annotations

import pytest

from podyard.base.clock import OsClock
from podyard.workers.agent import CeleryChild


@pytest.mark.parametrize(
    ("env", "queues"),
    [({"PODYARD_DATABASE_URL": "sqlite://"}, "agent.a,background"), ({}, "agent.a")],
    ids=["on the platform's machine", "on another machine"],
)
def test_background_work_is_for_those_who_reach_the_database(env: dict[str, str], queues: str) -> None:
    child = CeleryChild("a", env, OsClock())
    child.stop()  # it was never started: this closes its pipe
    assert child.argv[-2:] == ["a@podyard", queues]
