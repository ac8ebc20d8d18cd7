from __future__ import annotations

from pathlib import Path

import pytest

from podyard.engine.collectives.left_over import PREFIX
from podyard.workers.agent import agent


def test_windows_are_in_memory_private_and_gone_with_the_agent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory = tmp_path / "shm"
    memory.mkdir()
    monkeypatch.setattr(agent, "_SHARED_MEMORY", memory)
    with agent._windows(tmp_path / "agent") as folder:
        assert folder.parent == memory
        assert folder.stat().st_mode & 0o777 == 0o700
        (folder / f"{PREFIX}left-by-the-dead").write_bytes(b"")
    assert list(memory.iterdir()) == []


def test_an_agent_that_comes_back_finds_its_folder_and_clears_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(agent, "_SHARED_MEMORY", tmp_path)
    with agent._windows(tmp_path / "agent") as first:
        (first / f"{PREFIX}left-by-the-dead").write_bytes(b"")
        with agent._windows(tmp_path / "agent") as second:
            assert second == first
            assert list(second.iterdir()) == []


def test_a_folder_that_others_can_read_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(agent, "_SHARED_MEMORY", tmp_path)
    own = tmp_path / "agent"
    own.mkdir()
    with agent._windows(own) as good:
        pass
    good.mkdir()
    good.chmod(0o777)
    with agent._windows(own) as folder:
        assert folder == own / "windows"


def test_without_shared_memory_windows_are_beside_the_agents_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(agent, "_SHARED_MEMORY", tmp_path / "none")
    own = tmp_path / "agent"
    own.mkdir()
    with agent._windows(own) as folder:
        assert folder == own / "windows"
