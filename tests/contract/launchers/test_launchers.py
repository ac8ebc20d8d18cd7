"""The calls of launchers, from their sources, one list for each: what they send is taken, and what
they read is there. Nobody has changed a launcher for Podyard, so a fault here is Podyard's."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from tests.contract.launchers import dstack, iris, ray, skypilot, terraform, xpk
from tests.contract.launchers.replay import Call, replay
from tests.yard import Yard

LAUNCHERS = {
    "skypilot": skypilot.CALLS,
    "ray": ray.CALLS,
    "iris": iris.CALLS,
    "dstack": dstack.CALLS,
    "xpk": xpk.CALLS,
    "terraform": terraform.CALLS,
}


@pytest.mark.parametrize("calls", LAUNCHERS.values(), ids=LAUNCHERS)
def test_a_launcher_s_calls_are_answered(yard: Yard, calls: Sequence[Call]) -> None:
    faults = replay(yard, calls)
    assert not faults, "\n".join(faults)
