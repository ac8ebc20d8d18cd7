"""An install is exactly the tree: the wheel, from the checkout and from the sdist, holds each file once."""

from __future__ import annotations

import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LINKED = ("api", "scheduler", "workers", "pricing", "web", "migrations")
DATA_SUFFIXES = {".py", ".yaml", ".mako", ".typed", ".html", ".css", ".js", ".svg", ".txt"}
pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("packaging")]


def _tree(root: Path) -> set[str]:
    """What the package holds, by its name in site-packages."""
    found = set()
    for folder, prefix in ((root / "podyard", "podyard"), *((root / name, f"podyard/{name}") for name in LINKED)):
        for path in folder.rglob("*"):
            relative = path.relative_to(folder)
            through_link = folder.name == "podyard" and relative.parts[0] in LINKED
            if path.is_file() and path.suffix in DATA_SUFFIXES and "__pycache__" not in path.parts and not through_link:
                found.add(f"{prefix}/{relative.as_posix()}")
    return found


def _wheel(source: Path, out: Path) -> set[str]:
    command = [sys.executable, "-m", "build", "--no-isolation", "--wheel", "--outdir", str(out), str(source)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr + done.stdout
    (wheel,) = out.glob("*.whl")
    return {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy, so that the build leaves nothing in the tree."""
    copy = tmp_path_factory.mktemp("checkout") / "podyard"
    names = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.splitlines()
    for name in names:
        source, target = ROOT / name, copy / name
        if source.is_symlink() or source.is_file():
            target.parent.mkdir(parents=True, exist_ok=True)
            if source.is_symlink():
                target.symlink_to(source.readlink())
            else:
                target.write_bytes(source.read_bytes())
    return copy


def test_the_wheel_holds_exactly_the_tree(checkout: Path, tmp_path: Path) -> None:
    assert _wheel(checkout, tmp_path) == _tree(checkout)


def test_a_wheel_from_the_sdist_is_the_same(checkout: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "build", "--no-isolation", "--sdist", "--outdir", str(tmp_path), str(checkout)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr + done.stdout
    (archive,) = tmp_path.glob("*.tar.gz")
    with tarfile.open(archive) as sources:
        sources.extractall(tmp_path / "sdist", filter="tar")
    (source,) = (tmp_path / "sdist").iterdir()
    assert _wheel(source, tmp_path / "wheel") == _tree(checkout)
