"""Platform time of a running stack: it stands still only while no loop runs, or while the machine
sleeps."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import httpx
import pytest

from podyard.base.clock import PlatformTime
from tests.stack import Stack, open_stack, until

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("stack")]

STANDS_STILL_SECONDS = 6.0  # beyond the leader's lease


def test_a_loop_that_is_late_loses_no_platform_time(tmp_path: Path) -> None:
    with open_stack(tmp_path / "data") as stack:
        before = _lag_seconds(stack)
        loop = stack.pid("loop")
        os.kill(loop, signal.SIGSTOP)
        time.sleep(STANDS_STILL_SECONDS)
        # it is late: the clock stands still meanwhile
        assert _lag_seconds(stack) > before + STANDS_STILL_SECONDS - 3
        os.kill(loop, signal.SIGCONT)
        until(lambda: _lag_seconds(stack) < before + 1 or None, 20, "platform time is where it was")
        answer = stack.call("GET", "/podyard/v1/clock")
        assert answer["lagSeconds"] < before + 1.5
        stack.down()
        time.sleep(2)
        stack.up()
        assert "s behind UTC" in stack.podyard("status").stderr
        headers = {"Origin": stack.url}
        with httpx.Client(
            base_url=stack.url, headers=headers, follow_redirects=True, trust_env=False
        ) as visitor:
            assert " s behind UTC)" in visitor.post("/login", data={"token": stack.token}).text


def _lag_seconds(stack: Stack) -> float:
    platform = PlatformTime.from_rfc3339(stack.call("GET", "/podyard/v1/clock")["platformTime"])
    return time.time() - platform.nanos / 1e9
