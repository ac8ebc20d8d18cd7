"""An install is exactly the tree: the wheel, from the checkout and from the sdist, holds each file
once.

Every module has one path; in a checkout or an editable install it is the one that git knows.
"""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import venv
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from podyard import ROOT_FOLDERS

ROOT = Path(__file__).parents[2]
PROBE = Path(__file__).with_name("module_paths.py")
PATHS = ("traceback", "coverage", "code", "resources")  # lists of files in what it prints
DATA_SUFFIXES = {".py", ".yaml", ".mako", ".typed", ".html", ".css", ".js", ".svg", ".txt"}
# at the top of site-packages, where Python looks for such files
HOOK_FINDER = "podyard_programs.pth"
pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("packaging")]


def _tree(root: Path) -> set[str]:
    """Return what the package holds, by its name in site-packages."""
    found = set()
    for folder, prefix in (
        (root / "podyard", "podyard"),
        *((root / name, f"podyard/{name}") for name in ROOT_FOLDERS),
    ):
        for path in folder.rglob("*"):
            relative = path.relative_to(folder)
            through_link = folder.name == "podyard" and relative.parts[0] in ROOT_FOLDERS
            if (
                path.is_file()
                and path.suffix in DATA_SUFFIXES
                and "__pycache__" not in path.parts
                and not through_link
            ):
                found.add(f"{prefix}/{relative.as_posix()}")
    found |= {
        f"podyard/{path.relative_to(root).as_posix()}" for path in (root / "docs").rglob("*.md")
    }
    return found | {HOOK_FINDER}


def _build(source: Path, kind: str, out: Path) -> Path:
    command = [
        sys.executable,
        "-m",
        "build",
        "--no-isolation",
        f"--{kind}",
        "--outdir",
        str(out),
        str(source),
    ]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr + done.stdout
    (built,) = out.iterdir()
    return built


def _names(wheel: Path) -> set[str]:
    return {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}


def _environment(**added: str) -> dict[str, str]:
    kept = {
        name: os.environ[name]
        for name in ("PATH", "HOME", "LANG", "SYSTEMROOT", "TEMP")
        if name in os.environ
    }
    return kept | added


def _git(folder: Path, *arguments: str) -> str:
    """Return what git prints, whatever its user has configured."""
    person = {"NAME": "Podyard", "EMAIL": "podyard@example.com"}
    names = {
        f"GIT_{role}_{key}": value
        for role in ("AUTHOR", "COMMITTER")
        for key, value in person.items()
    }
    environment = _environment(GIT_CONFIG_GLOBAL=os.devnull, GIT_CONFIG_NOSYSTEM="1", **names)
    done = subprocess.run(
        ["git", *arguments], cwd=folder, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy with a repository, so that the build leaves nothing in the tree."""
    copy = tmp_path_factory.mktemp("checkout") / "podyard"
    names = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.splitlines()
    for name in names:
        source, target = ROOT / name, copy / name
        if source.is_symlink() or source.is_file():
            target.parent.mkdir(parents=True, exist_ok=True)
            if source.is_symlink():
                target.symlink_to(source.readlink())
            else:
                target.write_bytes(source.read_bytes())
    for arguments in (["init", "-q"], ["add", "-A"], ["commit", "-q", "-m", "Copy the tree"]):
        _git(copy, *arguments)
    return copy


@pytest.fixture(scope="module")
def wheel(checkout: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return _build(checkout, "wheel", tmp_path_factory.mktemp("wheel"))


def test_the_wheel_holds_exactly_the_tree(checkout: Path, wheel: Path) -> None:
    assert _names(wheel) == _tree(checkout)


def test_a_wheel_from_the_sdist_is_the_same(checkout: Path, tmp_path: Path) -> None:
    archive = _build(checkout, "sdist", tmp_path / "sdist")
    with tarfile.open(archive) as sources:
        sources.extractall(tmp_path / "sources", filter="tar")
    (source,) = (tmp_path / "sources").iterdir()
    # each file is there once
    assert [name for name in ROOT_FOLDERS if (source / "podyard" / name).exists()] == []
    assert _names(_build(source, "wheel", tmp_path / "wheel")) == _tree(checkout)


@dataclasses.dataclass(frozen=True, slots=True)
class Setup:
    """One way to have Podyard: a Python, its environment, and the folder that the paths of its
    modules begin with."""

    python: Path
    environment: dict[str, str]
    root: Path
    is_checkout: bool

    def run(self, folder: Path, arguments: Sequence[str]) -> str:
        command = [str(self.python), *arguments]
        done = subprocess.run(
            command, cwd=folder, env=self.environment, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def path_of(self, file: str) -> str:
        return Path(file).relative_to(self.root).as_posix()

    def path_of_module(self, name: str) -> tuple[str, str]:
        """Return where a module has to be, as a module and as a package."""
        folders = name.split(".")
        if self.is_checkout and len(folders) > 1 and folders[1] in ROOT_FOLDERS:
            folders = folders[1:]
        return "/".join(folders) + ".py", "/".join((*folders, "__init__.py"))


def _bare_python(folder: Path) -> Path:
    """A Python that has the libraries of this one, but not its Podyard: path files of the other
    folder are not read."""
    venv.create(folder, with_pip=False, symlinks=os.name != "nt")
    paths = sysconfig.get_paths()
    libraries = dict.fromkeys((paths["purelib"], paths["platlib"]))
    (_site_packages(folder) / "libraries.pth").write_text("\n".join(libraries))
    return folder / ("Scripts" if os.name == "nt" else "bin") / "python"


def _site_packages(folder: Path) -> Path:
    return Path(
        sysconfig.get_path("purelib", "venv", {"base": str(folder), "platbase": str(folder)})
    )


def _install(python: Path, *what: str) -> None:
    # The libraries are there. The Podyard of the environment that lends them must stay installed.
    options = (
        "--no-deps",
        "--no-index",
        "--no-build-isolation",
        "--ignore-installed",
        "--disable-pip-version-check",
    )
    command = [str(python), "-m", "pip", "install", "--quiet", *options, *what]
    done = subprocess.run(command, env=_environment(), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def clone(checkout: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A clone in which git writes a link as a file that holds its target, as on Windows."""
    folder = tmp_path_factory.mktemp("clone") / "podyard"
    _git(checkout, "clone", "-q", "-c", "core.symlinks=false", ".", str(folder))
    return folder


@pytest.fixture(scope="module", params=["checkout", "no links", "wheel", "editable"])
def setup(
    request: pytest.FixtureRequest, checkout: Path, tmp_path_factory: pytest.TempPathFactory
) -> Setup:
    folder = tmp_path_factory.mktemp("setup")
    python = _bare_python(folder / "venv")
    if request.param == "checkout":
        return Setup(python, _environment(PYTHONPATH=str(checkout)), checkout, True)
    if request.param == "no links":
        clone: Path = request.getfixturevalue("clone")
        return Setup(python, _environment(PYTHONPATH=str(clone)), clone, True)
    if request.param == "editable":
        source = folder / "sources"
        shutil.copytree(
            checkout, source, symlinks=True, ignore=shutil.ignore_patterns("build", "*.egg-info")
        )
        _install(python, "--editable", str(source))
        return Setup(python, _environment(), source, True)
    site = _site_packages(folder / "venv")
    # another project's packages with the names of ours, and its project file
    for name in ROOT_FOLDERS:
        (site / name).mkdir()
        (site / name / "__init__.py").write_text("raise AssertionError('this is not Podyard')\n")
    (site / "pyproject.toml").write_text('[project]\nname = "other"\ndependencies = ["podyard"]\n')
    _install(python, str(request.getfixturevalue("wheel")))
    return Setup(python, _environment(), site, False)


@pytest.fixture(scope="module")
def report(setup: Setup, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("probe")
    shutil.copy(PROBE, folder)
    answer: dict[str, Any] = json.loads(setup.run(folder, [PROBE.name]))
    return answer


@pytest.mark.parametrize("process", ["modules", "child"])
def test_every_module_has_one_file_where_git_has_it(
    setup: Setup, report: dict[str, Any], process: str
) -> None:
    files: dict[str, str] = report[process]
    assert {"podyard", "podyard.scheduler.placement", "podyard.pricing.cards"} <= set(files)
    assert {f"podyard.{name}" for name in ROOT_FOLDERS} <= set(files)
    misplaced = {
        name: file
        for name, file in files.items()
        if setup.path_of(file) not in setup.path_of_module(name)
    }
    assert misplaced == {}
    assert len({os.path.realpath(file) for file in files.values()}) == len(files)


def test_a_pickle_comes_back_from_a_spawned_child_as_the_same_class(report: dict[str, Any]) -> None:
    assert report["pickle"] == [True, True]


def test_tracebacks_coverage_and_debuggers_show_that_path(
    setup: Setup, report: dict[str, Any]
) -> None:
    cards = setup.path_of_module("podyard.pricing.cards")[0]
    assert cards in {setup.path_of(file) for file in report["traceback"]}
    assert {setup.path_of(file) for file in report["coverage"]} == {cards}
    assert [setup.path_of(file) for file in report["code"]] == [
        setup.path_of_module("podyard.api.app")[0]
    ]


def test_data_of_packages_is_found(setup: Setup, report: dict[str, Any]) -> None:
    paths = [setup.path_of(file) for file in report["resources"]]
    prefix = "" if setup.is_checkout else "podyard/"
    assert [path.rpartition("/")[0] for path in paths] == [
        f"{prefix}web/static",
        f"{prefix}pricing/rate_cards",
        f"{prefix}web/templates",
    ]
    assert [path for path in paths if not (setup.root / path).is_file()] == []


def test_the_finder_is_there_in_a_checkout_only(setup: Setup, report: dict[str, Any]) -> None:
    assert report["finders"].count("RootFolderFinder") == int(setup.is_checkout)


def test_the_command_line_runs(setup: Setup, tmp_path: Path) -> None:
    command = "import sys; from podyard.main import cli; sys.argv[0] = 'podyard'; cli()"
    assert "Usage: podyard" in setup.run(tmp_path, ["-c", command, "--help"])
    assert "v5litepod" in setup.run(tmp_path, ["-c", command, "hardware", "list"])


def test_the_hook_of_programs_is_found_without_pythonpath(setup: Setup, tmp_path: Path) -> None:
    """A program may be started as `PYTHONPATH=src python train.py`."""
    is_installed = "PYTHONPATH" not in setup.environment
    (tmp_path / "sitecustomize.py").write_text("print('the user\\'s')")
    hook = setup.root / "podyard" / "programs" / "site_hook"
    added = {"PODYARD_SITE_HOOK": str(hook), "PYTHONPATH": str(tmp_path)}
    hooked = dataclasses.replace(setup, environment=setup.environment | added)
    code = (
        "import sys; print(type(sys.meta_path[0]).__module__ == 'sitecustomize', "
        "sys.path.count(sys.argv[1]))"
    )
    assert hooked.run(tmp_path, ["-c", code, str(hook)]) == f"the user's\n{is_installed} 0\n"


def test_git_knows_every_path(setup: Setup, report: dict[str, Any], checkout: Path) -> None:
    known = set(_git(checkout, "ls-files").splitlines()) if setup.is_checkout else _tree(checkout)
    files = [*report["modules"].values(), *(file for key in PATHS for file in report[key])]
    assert len(files) > 100
    assert {setup.path_of(file) for file in files} <= known


def test_a_clone_without_links_stays_clean(clone: Path) -> None:
    assert [(clone / "podyard" / name).read_text() for name in ROOT_FOLDERS] == [
        f"../{name}" for name in ROOT_FOLDERS
    ]
    environment = _environment(PYTHONPATH=str(clone))
    subprocess.run([sys.executable, "-c", "import podyard.migrations"], env=environment, check=True)
    assert _git(clone, "status", "--short") == ""
