"""What a machine declares of itself."""

from __future__ import annotations

import dataclasses

import pytest

from podyard.base import this_machine
from podyard.base.clock import RealTime
from podyard.domain.agent import AgentRecord

AGENT = AgentRecord("a", "127.0.0.1", 1, 1, 1, 1, RealTime(0), RealTime(0))


def test_a_machine_without_jaxlib_cannot_run_recipes(monkeypatch: pytest.MonkeyPatch) -> None:
    assert dataclasses.replace(AGENT, kernels=this_machine.kernels()).has_engine
    monkeypatch.setattr(this_machine, "_NUMERIC_PACKAGES", ("no-such-package", "numpy"))
    kernels = this_machine.kernels().replace("no-such-package", "jaxlib")
    assert not dataclasses.replace(AGENT, kernels=kernels).has_engine
