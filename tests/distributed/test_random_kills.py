"""kill -9 four times, at random moments, of random processes: one job takes it all, and ends in the
same bits."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.distributed.random_kills import (
    ENVIRONMENT,
    KINDS,
    Attempt,
    check,
    lost_steps,
    run,
    schedule,
    table,
)
from tests.stack import open_stack

KILLS, SEED = 4, 57  # each kind once, one of them early; `make kills` has a hundred


@pytest.mark.slow
@pytest.mark.xdist_group("stack")
def test_a_job_survives_kills_at_random_moments(tmp_path: Path) -> None:
    with open_stack(tmp_path, ENVIRONMENT) as stack:
        outcome = run(stack, KILLS, SEED)
        print(table(outcome))
        check(stack, outcome)


def test_the_seed_decides_who_is_killed_and_all_kinds_come() -> None:
    assert schedule(KILLS, SEED) == schedule(KILLS, SEED) != schedule(KILLS, SEED + 1)
    assert {planned.kind for planned in schedule(KILLS, SEED)} == set(KINDS)


def test_lost_are_the_steps_beyond_the_checkpoint_that_the_next_attempt_takes() -> None:
    attempts = [
        Attempt(1, 0, 47, "killed"),
        Attempt(2, 40, 0, "killed"),
        Attempt(3, 40, 60, "killed"),
    ]
    assert lost_steps([*attempts, Attempt(4, 40, 100, "")]) == {1: 7, 2: 0, 3: 20}
