"""Which queues an agent's Celery worker listens on, and when it is started."""

from __future__ import annotations

import sys

import pytest

from podyard.base.clock import OsClock
from podyard.workers.agent.celery_child import CeleryChild


@pytest.mark.parametrize(
    ("env", "queues"),
    [({"PODYARD_DATABASE_URL": "sqlite://"}, "agent.a,background"), ({}, "agent.a")],
    ids=["on the platform's machine", "on another machine"],
)
def test_background_work_is_for_those_who_reach_the_database(
    env: dict[str, str], queues: str
) -> None:
    child = CeleryChild("a", env, OsClock())
    child.stop()  # it was never started: this closes its pipe
    assert child.argv[-2:] == ["a@podyard", queues]


def test_a_worker_whose_loop_pokes_starts_with_the_first_poke() -> None:
    child = CeleryChild("a", {"PODYARD_BROKER_URL": "memory://"}, OsClock(), is_poked_by_loop=True)
    child.argv = [sys.executable, "-c", "import time; time.sleep(60)"]
    try:
        child.watch()
        assert (child.is_running(), child.takes_pokes()) == (False, True)
        child.want()
        child.watch()
        assert (child.is_running(), child.takes_pokes()) == (True, True)
    finally:
        child.stop()


def test_a_worker_that_nobody_else_pokes_starts_at_once() -> None:
    child = CeleryChild("a", {"PODYARD_BROKER_URL": "memory://"}, OsClock())
    child.argv = [sys.executable, "-c", "import time; time.sleep(60)"]
    try:
        assert not child.takes_pokes()
        child.watch()
        assert (child.is_running(), child.takes_pokes()) == (True, True)
    finally:
        child.stop()
