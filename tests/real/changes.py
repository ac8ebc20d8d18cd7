"""Changes since each file of tests last ran, by git, and the imports that lead to them."""

from __future__ import annotations

import ast
import subprocess
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path, PurePosixPath

from tests.house.counters import PRODUCT
from tests.real.files import RealFile
from tests.real.imports import distances, read_graph
from tests.real.record import Entry

ROOT = Path(__file__).resolve().parents[2]
MAIN = "origin/main"


def head() -> str:
    """Return the commit that is checked out; "" without git."""
    return _git("rev-parse", "HEAD").strip()


def read_sources() -> dict[str, str]:
    """Return path -> text of all Python files of the product and the tests; links are not
    followed."""
    paths = [
        path
        for path in _git("ls-files", "--", *PRODUCT, "tests").splitlines()
        if path.endswith(".py")
    ]
    return {
        path: (ROOT / path).read_text(encoding="utf-8")
        for path in paths
        if not (ROOT / path).is_symlink()
    }


def imports_to_changes(files: Iterable[RealFile], record: Mapping[str, Entry]) -> dict[str, int]:
    """Return how many imports each file is away from the nearest file that has changed since it
    last ran whole; files that reach none of them are left out. A file without a record is compared
    with the branch's base."""
    sources = read_sources()
    graph = read_graph(sources)
    changed: dict[str, frozenset[str]] = {}
    nearest = {}
    for file in files:
        commit = record[file.name].commit if file.name in record else ""
        if commit not in changed:
            changed[commit] = _changed_since(commit)
        steps = {
            **_named(file.name, sources),
            **_shared(file.name, sources),
            **distances(graph, file.name),
        }
        near = [steps[path] for path in changed[commit] if path in steps]
        if near:
            nearest[file.name] = min(near)
    return nearest


def _shared(name: str, sources: Collection[str]) -> dict[str, int]:
    """The conftest.py of each folder above a file: pytest imports them."""
    candidates = (str(folder / "conftest.py") for folder in PurePosixPath(name).parents)
    return {path: 1 for path in candidates if path in sources}


def _named(name: str, sources: Mapping[str, str]) -> dict[str, int]:
    """Programs that a file of tests names and starts: a string that is the name of a file in a
    folder `programs`."""
    words = {
        node.value for node in ast.walk(ast.parse(sources[name])) if isinstance(node, ast.Constant)
    }
    programs = (path for path in sources if "/programs/" in path and path.startswith("tests/"))
    return {path: 1 for path in programs if PurePosixPath(path).name in words}


def _changed_since(commit: str) -> frozenset[str]:
    """The files that differ between a commit and the work tree; without a commit, or with one that
    this clone does not have: since the branch left main, and on main since the commit before. Empty
    where git has neither."""
    base = (
        commit
        if commit and _git("cat-file", "-t", commit)
        else _git("merge-base", "HEAD", MAIN).strip()
    )
    if not base or (base == head() and not commit):
        base = "HEAD~1"
    return frozenset(_git("diff", "--name-only", base).splitlines())


def _git(*words: str) -> str:
    """The output; "" where git fails: a clone may hold one commit only."""
    done = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True)
    return done.stdout if done.returncode == 0 else ""
