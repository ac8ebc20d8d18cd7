"""The short version of `make kills-supervisor`."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.distributed.supervisor_kills import check, run
from tests.stack import open_stack

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("stack")]


def test_a_job_survives_kills_of_the_supervisor_also_while_it_starts(tmp_path: Path) -> None:
    with open_stack(tmp_path) as stack:
        outcome = run(stack, kills=2, seed=15)
        assert {kill.starting is None for kill in outcome.kills} == {True, False}
        check(stack, outcome)
