"""Compiled templates are kept over restarts, and no page fails for the folder that they are kept
in."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from jinja2 import Environment
from jinja2.bccache import FileSystemBytecodeCache

from podyard.web.kit import render

TEMPLATE = "lesson.html"


@pytest.fixture
def fresh() -> Iterator[None]:
    """As a process that has just started: no template is compiled."""
    render.templates.cache_clear()
    yield
    render.templates.cache_clear()


def _compiled(monkeypatch: pytest.MonkeyPatch, folder: Path) -> list[str | None]:
    """Names of the templates that had to be compiled for one page."""
    found: list[str | None] = []
    plain = Environment.compile

    def compile_and_note(
        self: Environment, source: str, name: str | None = None, *rest: object
    ) -> object:
        found.append(name)
        return plain(self, source, name, *rest)  # type: ignore[call-overload]

    render.templates.cache_clear()
    render.keep_compiled(folder)
    with monkeypatch.context() as patch:
        patch.setattr(Environment, "compile", compile_and_note)
        render.templates().get_template(TEMPLATE)
    return found


@pytest.mark.usefixtures("fresh")
def test_a_second_start_compiles_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    folder = tmp_path / "cache" / "templates"
    assert _compiled(monkeypatch, folder) == [TEMPLATE]
    assert _compiled(monkeypatch, folder) == []
    assert folder.stat().st_mode & 0o077 == 0, "code that the API runs is written by its user alone"


@pytest.mark.usefixtures("fresh")
def test_what_is_damaged_is_compiled_again(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    _compiled(monkeypatch, tmp_path)
    (kept,) = tmp_path.iterdir()
    kept.write_bytes(kept.read_bytes()[:40])
    assert _compiled(monkeypatch, tmp_path) == [TEMPLATE]
    assert _compiled(monkeypatch, tmp_path) == []


@pytest.mark.usefixtures("fresh")
def test_a_folder_that_cannot_be_made_or_written_changes_nothing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    in_the_way = tmp_path / "file"
    in_the_way.touch()
    assert _compiled(monkeypatch, in_the_way / "templates") == [TEMPLATE]

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(FileSystemBytecodeCache, "dump_bytecode", full)
    assert _compiled(monkeypatch, tmp_path / "templates") == [TEMPLATE]
