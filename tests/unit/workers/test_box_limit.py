"""When the programs of a box are ended: only once they have been refused processes again and
again."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

import pytest

from podyard.workers.box import limit as box_limit
from podyard.workers.box.box import Box
from podyard.workers.box.limit import FULL_LOOKS, LOOKS, RefusedForks
from podyard.workers.box.space import Space
from podyard.workers.kit.process_group import Group


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
def test_programs_that_ask_in_three_seconds_on_end_are_ended(
    told: list[int], ends: bool, tmp_path: Path
) -> None:
    """`told`: what the kernel says in the box's life, at one look after another."""
    _refused(tmp_path / "box", 3)
    box = Box(
        Group(1, 0.0, None),
        Space(tmp_path, tmp_path),
        (tmp_path / "box", tmp_path / "cpu"),
        "",
        "h",
    )
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


@pytest.mark.parametrize(
    ("processes", "running", "looks"),
    [
        (640, 320, LOOKS),
        (640, 3, FULL_LOOKS),
        (631, 3, FULL_LOOKS),
        (600, 640, None),
        (0, 640, None),
    ],
    ids=[
        "a busy bomb",
        "one that mostly sleeps",
        "some have just ended",
        "many programs",
        "an ended box",
    ],
)
def test_without_cgroups_a_box_is_full_for_long_or_on_a_busy_machine(
    processes: int, running: int, looks: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    box = Box(Group(1, 0.0, None), Space(tmp_path, tmp_path), (), "", "h")
    share = box.processes_max / 640
    monkeypatch.setattr(box_limit, "_process_count", lambda _first: round(processes * share))
    monkeypatch.setattr(box_limit, "_running_count", lambda: round(running * share))
    refusals = RefusedForks(box)
    seen = [refusals.look() for _ in range(2 * FULL_LOOKS)]
    assert (seen.index(True) + 1 if True in seen else None) == looks


def test_the_threads_of_a_box_are_counted_by_its_own_proc() -> None:
    """Of this process: its /proc shows all that it may see."""
    before = box_limit._process_count(os.getpid())
    threads = [threading.Thread(target=time.sleep, args=(60,), daemon=True) for _ in range(20)]
    for thread in threads:
        thread.start()
    assert box_limit._process_count(os.getpid()) >= 21
    assert before > 0
    assert box_limit._process_count(2**22) == 0  # no process has this number
