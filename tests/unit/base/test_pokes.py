"""Pokes: they end a wait, they are never in the way of who sends them, and the successor of a
listener gets them."""

from __future__ import annotations

from pathlib import Path

from podyard.base import pokes


def test_pokes_end_a_wait_and_several_are_one(tmp_path: Path) -> None:
    path = tmp_path / "poke"
    with pokes.listen(path) as listener:
        assert not listener.wait(0)
        for _ in range(3):
            pokes.send(path)
        assert listener.wait(0)
        assert not listener.wait(0)
        listener.wake()
        assert listener.wait(0)


def test_who_is_not_there_needs_none(tmp_path: Path) -> None:
    path = tmp_path / "poke"
    pokes.send(path)
    with pokes.listen(path):
        pass
    assert not path.exists()
    pokes.send(path)


def test_a_listener_that_ends_leaves_its_successor_alone(tmp_path: Path) -> None:
    path = tmp_path / "poke"
    with pokes.listen(path) as before:
        successor = pokes.listen(path)
        after = successor.__enter__()
        pokes.send(path)
        assert after.wait(0)
        assert not before.wait(0)
    pokes.send(path)
    assert after.wait(0)
    successor.__exit__(None, None, None)
    assert not path.exists()
