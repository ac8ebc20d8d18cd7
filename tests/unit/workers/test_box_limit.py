"""When the programs of a box are ended: only once they have been refused processes again and again."""

from __future__ import annotations

from pathlib import Path

import pytest

from podyard.workers.box import Box
from podyard.workers.box_limit import RefusedForks
from podyard.workers.box_space import Space
from podyard.workers.process_group import Group


def _refused(path: Path, times: int) -> None:
    path.mkdir(exist_ok=True)
    (path / "pids.events").write_text(f"max {times}\n")


@pytest.mark.parametrize(
    ("told", "ends"),
    [
        ([5, 9, 12], True),
        ([5, 9, 9, 12, 15], False),  # a shell waits 1, 2, 4 and 8 s before it asks again
        ([5, 9, 9, 10, 11, 12], True),
        ([3, 3, 3, 3], False),  # before anybody looked
    ],
)
def test_programs_that_ask_in_three_seconds_on_end_are_ended(told: list[int], ends: bool, tmp_path: Path) -> None:
    """`told`: what the kernel says in the box's life, at one look after another."""
    _refused(tmp_path / "box", 3)
    box = Box(Group(1, 0.0, None), Space(tmp_path, tmp_path), (tmp_path / "box", tmp_path / "cpu"), "", "h")
    refusals, seen = RefusedForks(box), []
    for times in told:
        _refused(tmp_path / "box", times)
        seen.append(refusals.look())
    assert seen == [False] * (len(told) - 1) + [ends]


def test_what_a_job_is_refused_in_its_own_group_counts(tmp_path: Path) -> None:
    _refused(tmp_path / "box", 0)
    box = Box(Group(1, 0.0, None), Space(tmp_path, tmp_path), (tmp_path / "box",), "", "h")
    refusals = RefusedForks(box)
    for times in (1, 2, 3):
        _refused(tmp_path / "box" / "replica", times)
        last = refusals.look()
    assert last
