"""Six packages are found in the root folders of a checkout, and nowhere else by mistake."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

import podyard
from podyard import ROOT_FOLDERS, RootFolderFinder, is_checkout

ROOT = Path(__file__).parents[2]
OWN = (ROOT / "pyproject.toml").read_text(encoding="utf-8")


def test_a_checkout_is_known_by_its_project_file(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text(OWN, encoding="utf-8")
    assert is_checkout(tmp_path)
    # git on Windows may write CRLF.
    (tmp_path / "pyproject.toml").write_text(OWN, encoding="utf-8", newline="\r\n")
    assert is_checkout(tmp_path)


@pytest.mark.parametrize(
    "project",
    [
        None,
        b"",
        b'\n[project]\nname = "podyard-tools"\ndependencies = ["podyard"]\n',
        b'\n[project]\nname = "other"\n\n[tool.other]\nname = "podyard"\n',
        b"\xff\xfe",
    ],
    ids=["none", "empty", "of a user of Podyard", "other", "no text"],
)
def test_folders_of_these_names_make_no_checkout(tmp_path: Path, project: bytes | None) -> None:
    """A wheel may be installed where folders named `api` or `web` are, next to another project's
    file."""
    for folder in ROOT_FOLDERS:
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "__init__.py").touch()
    if project is not None:
        (tmp_path / "pyproject.toml").write_bytes(project)
    assert not is_checkout(tmp_path)


def test_a_project_file_that_is_a_folder_makes_no_checkout(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").mkdir()
    assert not is_checkout(tmp_path)


def test_the_finder_answers_to_six_names_only() -> None:
    finder = RootFolderFinder(ROOT)
    for folder in ROOT_FOLDERS:
        spec = finder.find_spec(f"podyard.{folder}")
        assert spec is not None
        assert spec.origin == str(ROOT / folder / "__init__.py")
        assert spec.submodule_search_locations == [str(ROOT / folder)]
    others = (
        "podyard",
        "podyard.base",
        "podyard.api.app",
        "podyard.tests",
        "api",
        "tests",
        "web",
        "other.api",
    )
    assert [finder.find_spec(name) for name in others] == [None] * len(others)


def test_this_run_uses_one_finder_and_no_longer_path() -> None:
    assert list(podyard.__path__) == [str(ROOT / "podyard")]
    assert [type(finder) for finder in sys.meta_path].count(RootFolderFinder) == 1


def test_no_module_of_this_run_comes_through_a_link() -> None:
    import podyard.api.app

    assert podyard.api.app.__file__ == str(ROOT / "api" / "app.py")
    links = [str(ROOT / "podyard" / folder) for folder in ROOT_FOLDERS]
    files = [
        str(module.__file__) for name, module in sys.modules.items() if name.startswith("podyard.")
    ]
    assert [file for file in files if file.startswith(tuple(links))] == []
    assert len(files) == len(set(files))
