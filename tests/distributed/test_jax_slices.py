"""jax.distributed as users start it: two slices on one machine at the same time, and a gang that is killed."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.distributed.jax_slices import VALUES, at_once, create, killed_and_restarted
from tests.stack import open_stack


@pytest.mark.slow
@pytest.mark.xdist_group("stack")
def test_two_slices_at_once_each_have_their_own_sum_and_a_killed_gang_starts_again(tmp_path: Path) -> None:
    with open_stack(tmp_path / "data") as stack:
        for node in VALUES:
            create(stack, node, tmp_path)
        at_once(stack, "plain")
        at_once(stack, "own")
        killed_and_restarted(stack, "left")
