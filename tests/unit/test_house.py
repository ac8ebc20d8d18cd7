"""The rules of the house that linters cannot check; each rule is a function, and is itself tested
on a bad sample."""

from __future__ import annotations

import ast
import importlib.util
import re
import subprocess
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from podyard import ROOT_FOLDERS
from tests.house.counters import shared_class_names

ROOT = Path(__file__).parents[2]
ADR_LINES_MAX = 40
FIXED_FOLDERS = ("api", "scheduler", "workers", "pricing", "web", "migrations")
ROW_WRITERS = {"insert", "insert_all", "update", "values"}
# Every form of such a write matches; most files need not be parsed.
_MAY_WRITE_STATE = re.compile(r"\.state\b\s*([:=,)\]]|[-+*/%&|^@<>]+=)|\bstate\s*=|[\"']state[\"']")
_COMMIT = re.compile(r"\.commit\(|[\"']COMMIT[\"']")
_CLOCK_READ = re.compile(
    r"\b(datetime\.(now|utcnow|today)|date\.today|time\.(time|time_ns|monotonic|sleep|"
    r"perf_counter))\("
)
# Python with -m or -c looks for modules in the current folder first, unless -P or -I says not to.
_UNSAFE_CHILD = re.compile(r"sys\.executable,\s*[\"']-[mc]")
# Built from parts, so that this file does not hold what it looks for.
_MACHINE_PATH = re.compile(
    "|".join(("/" + "work/", "/" + "farm/", "/" + "root/", "/" + "opt/pypi"))
)


def writes_state(text: str) -> bool:
    """An assignment to `.state`, or a call that writes rows and is given a column `state` by name
    or in a dict."""
    return _MAY_WRITE_STATE.search(text) is not None and any(
        (
            isinstance(node, ast.Assign | ast.AugAssign | ast.AnnAssign)
            and any(map(_is_state, _targets(node)))
        )
        or (
            isinstance(node, ast.Call)
            and _called(node) in ROW_WRITERS
            and any(map(_gives_state, _given(node)))
        )
        for node in ast.walk(ast.parse(text))
    )


def _targets(node: ast.Assign | ast.AugAssign | ast.AnnAssign) -> list[ast.expr]:
    return node.targets if isinstance(node, ast.Assign) else [node.target]


def _is_state(target: ast.expr) -> bool:
    return isinstance(target, ast.Attribute) and target.attr == "state"


def _called(call: ast.Call) -> str:
    return call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")


def _given(call: ast.Call) -> list[ast.expr | ast.keyword]:
    return [*call.args, *call.keywords]


def _gives_state(given: ast.expr | ast.keyword) -> bool:
    """`state=`, `{"state": ...}`, `**{"state": ...}`, `[{"state": ...}]`."""
    if isinstance(given, ast.keyword):
        return given.arg == "state" or (given.arg is None and _gives_state(given.value))
    if isinstance(given, ast.List | ast.Tuple):
        return any(map(_gives_state, given.elts))
    keys = given.keys if isinstance(given, ast.Dict) else []
    return any(isinstance(key, ast.Constant) and key.value == "state" for key in keys)


def commits(text: str) -> bool:
    return _COMMIT.search(text) is not None


def reads_clock(text: str) -> bool:
    return _CLOCK_READ.search(text) is not None


def starts_unsafe_child(text: str) -> bool:
    return _UNSAFE_CHILD.search(text) is not None


def names_machine(text: str) -> bool:
    return _MACHINE_PATH.search(text) is not None


def _tracked() -> list[str]:
    done = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT, capture_output=True, text=True
    )
    if done.returncode == 0:
        return [name for name in done.stdout.splitlines() if (ROOT / name).is_file()]
    return [
        str(p.relative_to(ROOT)) for p in ROOT.rglob("*") if p.is_file() and ".venv" not in p.parts
    ]


def _product() -> Iterator[tuple[str, str]]:
    for name in _tracked():
        if name.endswith(".py") and not name.startswith(("tests/", "benchmarks/", "examples/")):
            yield name, (ROOT / name).read_text(encoding="utf-8")


@pytest.mark.parametrize(
    "text",
    [
        "node.state = 'READY'",
        "update(nodes).values(state='READY')",
        "update(nodes).values({'state': 'READY'})",
        "update(nodes).values(**{'state': 'READY'})",
        "update(nodes).where(f(x)).values(\n    version=2, state='READY')",
        "uow.update(nodes, {'node_key': key}, {'state': 'READY'})",
        "uow.insert(nodes, {'node_key': key, 'state': 'READY'})",
        "uow.insert_all(nodes, [{'state': 'READY'}])",
        "uow.execute(insert(nodes).values([{'state': 'READY'}]))",
    ],
)
def test_a_write_of_a_state_is_seen_in_every_form(text: str) -> None:
    assert writes_state(text)


def test_there_is_one_writer_of_state() -> None:
    assert not writes_state("if node.state == 'READY': pass")
    assert not writes_state("emit({'state': node.state})")
    assert {name for name, text in _product() if writes_state(text)} <= {
        "podyard/db/store/transition.py"
    }
    assert {name for name, text in _product() if "by_transition=True" in text} == {
        "podyard/db/store/transition.py"
    }


def test_units_of_work_alone_commit() -> None:
    assert commits("session.commit()")
    assert commits('execute(text("COMMIT"))')
    allowed = {"podyard/db/store/unit_of_work.py", "migrations/env.py"}
    assert {name for name, text in _product() if commits(text)} <= allowed


def test_the_clock_is_read_in_one_file() -> None:
    assert reads_clock("now = datetime.now()")
    assert reads_clock("time.sleep(1)")
    assert not reads_clock("clock.sleep(1)")
    assert {name for name, text in _product() if reads_clock(text)} == {"podyard/base/clock.py"}


def test_no_process_of_ours_imports_from_the_current_folder() -> None:
    assert starts_unsafe_child('[sys.executable, "-m", "podyard.main"]')
    assert starts_unsafe_child('(\n    sys.executable,\n    "-c",\n)')
    assert not starts_unsafe_child('python_command("-m", "podyard.main")')
    assert {name for name, text in _product() if starts_unsafe_child(text)} == set()


def test_no_file_names_a_path_of_some_machine() -> None:
    assert names_machine("see /" + "work/main")
    skipped = (".png", ".gz", ".xz")
    for name in _tracked():
        if not name.endswith(skipped):
            assert not names_machine((ROOT / name).read_text(encoding="utf-8")), name


def test_decisions_are_short_and_say_what_enforces_them() -> None:
    records = sorted((ROOT / "docs" / "decisions").glob("0*.md"))
    assert len(records) >= 5
    for record in records:
        text = record.read_text(encoding="utf-8")
        assert len(text.splitlines()) <= ADR_LINES_MAX, record.name
        for heading in ("Context", "Decision", "Consequences", "Enforced by"):
            assert f"## {heading}" in text, (record.name, heading)


def test_two_files_of_tests_define_no_class_of_one_name() -> None:
    names = [name for name in _tracked() if name.startswith("tests/") and name.endswith(".py")]
    texts = {name: (ROOT / name).read_text(encoding="utf-8") for name in names}
    trees = {
        name: ast.parse(text)
        for name, text in texts.items()
        if re.search(r"^\s*class ", text, re.MULTILINE)
    }
    assert len(trees) > 50
    assert shared_class_names({"a": ast.parse("class A: ..."), "b": ast.parse("class A: ...")}) == {
        "A": ["a", "b"]
    }
    assert shared_class_names(trees) == {}


@pytest.mark.parametrize("name", FIXED_FOLDERS)
def test_tools_that_read_folders_find_the_six_by_links(name: str) -> None:
    assert (ROOT / name / "__init__.py").is_file()
    assert not (ROOT / name).is_symlink()
    link = ROOT / "podyard" / name
    assert link.is_symlink()
    assert link.readlink() == Path("..") / name


def test_finder_wheel_and_links_agree_on_the_six_folders() -> None:
    assert ROOT_FOLDERS == FIXED_FOLDERS
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]
    folders = {
        name: folder
        for name, folder in settings["setuptools"]["package-dir"].items()
        if name != "podyard"
    }
    assert folders == {f"podyard.{name}": name for name in FIXED_FOLDERS}
    assert settings["ruff"]["extend-exclude"] == [f"podyard/{name}" for name in FIXED_FOLDERS]
    assert {path.name for path in (ROOT / "podyard").iterdir() if path.is_symlink()} == set(
        FIXED_FOLDERS
    )


def test_time_and_chance_stay_banned() -> None:
    rules = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["ruff"][
        "lint"
    ]
    banned = set(rules["flake8-tidy-imports"]["banned-api"])
    assert {
        "datetime.datetime.now",
        "time.time",
        "time.sleep",
        "random",
        "numpy.random",
        "uuid.uuid4",
    } <= banned
    assert "TID" in rules["select"]
    ignored = {path for path, codes in rules["per-file-ignores"].items() if "TID251" in codes}
    assert ignored == {"podyard/base/clock.py", "podyard/base/rng.py", "tests/**", "benchmarks/**"}


MODULE_NAME = re.compile(r"podyard(?:\.[a-z_0-9]+)+")


def test_modules_that_are_named_in_strings_exist() -> None:
    """Python imports such a module when a user gets there, not when the file is read."""
    names = {
        (path, node.value)
        for path in _tracked()
        if path.startswith(("podyard/", *(f"{name}/" for name in FIXED_FOLDERS)))
        and path.endswith(".py")
        for node in ast.walk(ast.parse((ROOT / path).read_text(encoding="utf-8")))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
        if MODULE_NAME.fullmatch(node.value)
    }
    assert ("podyard/__init__.py", "podyard.cli.programs.notebook") in names
    # Permissions and metrics have such names too: `podyard.jobs.resize`.
    layers = {path.stem for path in (ROOT / "podyard").iterdir()}
    modules = {(path, name) for path, name in names if name.split(".")[1] in layers}
    assert [(path, name) for path, name in modules if not _is_module(name)] == []


def _is_module(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:
        return False
