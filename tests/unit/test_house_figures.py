"""Each counter of the house's figures: what counts, and what does not."""

from __future__ import annotations

import ast
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.house import counters, figures
from tests.house.figures import Figure
from tests.house.limits import Limits
from tests.house.similar import similar_functions

NOQA = "# no" + "qa:"  # in two parts, so that it does not count as an exemption of this file


@pytest.mark.parametrize(
    ("source", "count"),
    [
        ('x = row["state"]', 1),
        ('row["a"]["b"] = 1', 2),
        ('del row["a"]', 1),
        ("x = row[name]; y = row[0]; z = row['a', 'b']", 0),
        ('x = row.get("state")', 0),
        ('x = {"state": 1}', 0),
    ],
)
def test_string_subscripts(source: str, count: int) -> None:
    assert counters.string_subscripts(ast.parse(source)) == count


@pytest.mark.parametrize(
    ("source", "count"),
    [
        ("def f(row: Mapping[str, Any]) -> dict[str, Any]: ...", 2),
        ("Row = Mapping[str, Any]", 1),
        ("x: list[dict[str, Any]]", 1),
        ("x: Mapping[str, Mapping[str, Any]]", 1),
        ("x: dict[str, str]; y: Sequence[Any]; z: tuple[str, Any]", 0),
        ('x = "Mapping[str, Any]"', 0),
    ],
)
def test_mappings_to_any(source: str, count: int) -> None:
    assert counters.any_mappings(ast.parse(source)) == count


@pytest.mark.parametrize(
    ("source", "counts"),
    [
        ("from sqlalchemy import select", True),
        ("import sqlalchemy.orm", True),
        ("def f():\n    from podyard.db.tables.jobs import jobs", True),
        ("from podyard.db import tables", True),
        ("from podyard.db.tables import queue as t", True),
        ("from podyard.db.jobs.jobs import row_of", False),
        ("from podyard.db import timers", False),
        ("import sqlalchemy_like; text = 'import sqlalchemy'", False),
    ],
)
def test_files_with_sql(source: str, counts: bool) -> None:
    assert counters.imports_sql(ast.parse(source)) is counts


@pytest.mark.parametrize(
    ("source", "count"),
    [
        ('x = "acceleratorType"; y = {"@type": 1}', 2),
        ('row["nodeId"]', 1),
        ('x = "accelerator_type"; y = "Node"; z = "READY"; v = "node"', 0),
        ('x = "the acceleratorType of a node"', 0),
        ("acceleratorType = 1", 0),
    ],
)
def test_wire_spelling(source: str, count: int) -> None:
    assert counters.wire_literals(ast.parse(source)) == count


@pytest.mark.parametrize(
    "name",
    [
        "_shown",
        "held",
        "_told",
        "drawn",
        "moved_to",
        "left_behind",
        "held_in",
        "written_before",
        "_allowed",
        "committed",
    ],
)
def test_bare_participles(name: str) -> None:
    assert counters.is_bare_participle(name)


@pytest.mark.parametrize(
    "name",
    [
        "expired_tokens", "is_closed", "find_node", "set", "set_rate", "split", "run", "need",
        "seed", "succeed",
        "feed", "__len__", "started_at_zone", "node", "limit", "list_nodes", "read", "red", "shed",
        "proceed",
    ],
)  # fmt: skip
def test_names_that_are_no_bare_participles(name: str) -> None:
    assert not counters.is_bare_participle(name)


def test_participles_are_counted_where_they_are_defined() -> None:
    source = (
        "def held(): ...\nasync def told(): ...\nclass A:\n    def shown(self): "
        "...\nheld()\ndrawn = lambda: 1\n"
    )
    assert sorted(counters.bare_participles(ast.parse(source))) == ["held", "shown", "told"]


def test_class_names_of_several_files() -> None:
    trees = {
        "podyard/a.py": ast.parse("class Line: ...\nclass Only: ...\nclass _Same: ..."),
        "api/b.py": ast.parse("class Line: ...\ndef f():\n    class _Same: ..."),
        "api/c.py": ast.parse("from podyard.a import Only\nOnly()"),
    }
    assert counters.shared_class_names(trees) == {
        "Line": ["api/b.py", "podyard/a.py"],
        "_Same": ["api/b.py", "podyard/a.py"],
    }


def test_import_cycles_see_imports_in_functions() -> None:
    trees = {
        "pricing/cards.py": ast.parse("from podyard.pricing.sku import Sku"),
        "pricing/sku.py": ast.parse("def f():\n    from podyard.pricing import cards"),
        "pricing/__init__.py": ast.parse(""),
        "podyard/control/jobs.py": ast.parse(
            "from podyard.pricing import sku\nimport podyard.base.clock"
        ),
        "podyard/base/clock.py": ast.parse("import time"),
    }
    assert counters.import_cycles(trees) == [["podyard.pricing.cards", "podyard.pricing.sku"]]
    del trees["pricing/sku.py"]
    assert counters.import_cycles(trees) == []


def test_a_circle_of_three_is_one_cycle() -> None:
    trees = {
        f"podyard/{a}.py": ast.parse(f"from podyard import {b}")
        for a, b in ("ab", "bc", "ca", "da")
    }
    assert counters.import_cycles(trees) == [["podyard.a", "podyard.b", "podyard.c"]]


def test_names_of_modules() -> None:
    assert counters.module_name("api/tpu/call.py") == "podyard.api.tpu.call"
    assert counters.module_name("podyard/control/__init__.py") == "podyard.control"


@pytest.mark.parametrize(
    ("text", "counts"), [('"v6e"', True), ("v6e-16", True), ("v6ex av6e", False), ("v5e", False)]
)
def test_files_that_know_a_generation(text: str, counts: bool) -> None:
    assert counters.names_generation(text) is counts


@pytest.mark.parametrize(
    ("text", "counts"),
    [
        ("request.start_from", True),
        ('"startFrom"', True),
        ("--start-from JOB", True),
        ("_start_from(row)", True),
        ("restart_from", False),
        ("startFromHere", False),
        ("start from", False),
    ],
)
def test_files_that_spell_a_field(text: str, counts: bool) -> None:
    assert counters.spells_field(text, "start_from") is counts


def test_long_functions_have_their_lines() -> None:
    body = "        x = 1\n" * 4
    tree = ast.parse(f"class A:\n    def f(self):\n{body}\ndef g():\n    return 1\n")
    assert counters.long_functions(tree, 4) == {"A.f": 5}
    assert counters.long_functions(tree, 5) == {}


@pytest.mark.parametrize(
    ("docstring", "count"),
    [
        ("What a node costs.", 1),
        ("Whether it fits.", 1),
        ("Who may ask.", 1),
        ("Return the price of a node.", 0),
        ("Whatever the caller gives.", 0),
        ("The price. What it covers is in the card.", 0),
    ],
)
def test_docstrings_that_begin_with_a_question_word(docstring: str, count: int) -> None:
    assert counters.docstring_tics(ast.parse(f'def f():\n    """{docstring}"""')) == count


def test_results_that_are_named_by_a_participle() -> None:
    source = "found = 1\nfor kept in x: pass\nnode = found\nself.made = 2\ndef f(given): ..."
    assert counters.participle_results(ast.parse(source)) == 2


def test_large_folders_count_their_own_files() -> None:
    paths = ["a/1", "a/2", "a/3", "a/b/1", "c/1"]
    assert counters.large_folders(paths, 2) == {"a": 3}


def test_exemptions_are_counted_by_code() -> None:
    text = f"def f():  {NOQA} C901, PLR0912\n    x = 1  {NOQA} E501\n"
    assert counters.exemptions(text, ["C901", "PLR0912"]) == {"C901": 1, "PLR0912": 1}


def test_functions_of_one_shape_are_similar() -> None:
    first = "def f(a):\n    b = a.x + 1\n    c = g(b, key=2)\n    return c\n"
    second = (
        'def h(p: int) -> int:\n    """Doc."""\n'
        "    q = p.y + 7\n    r = k(q, name=3)\n    return r\n"
    )
    other = "def f(a):\n    b = a.x + 1\n    c = g(a, key=2)\n    return c\n"
    short = "def f(a):\n    return a\n"
    trees = {"a.py": ast.parse(first), "b.py": ast.parse(second), "c.py": ast.parse(other)}
    assert similar_functions(trees) == [["a.py: f", "b.py: h"]]
    assert similar_functions({"a.py": ast.parse(short), "b.py": ast.parse(short)}) == []


# For each figure a file, and the same once it breaks the rule. (figure, file, before, after)
_BODY = "    x = 1\n" * 61
_SHAPE = "def f(a):\n    b = a + 1\n    c = b * 2\n    return c\n"
PLANTED = [
    ("import circles", "podyard/base/a.py", "", "from podyard.base import a2\n"),
    ("files with SQL outside db", "podyard/control/x/a.py", "", "import sqlalchemy\n"),
    ("files loose in control", "README.md", "", ""),
    ("files that know one generation (v6e)", "podyard/base/a.py", "", 'KIND = "v6e"\n'),
    ("class names used for two things", "api/a.py", "", "class Taken: ...\n"),
    ("string subscripts in control", "podyard/control/x/a.py", "", 'x = row["a"]\n'),
    ("string subscripts at the edges", "web/a.py", "", 'x = row["a"]\n'),
    ("mappings to Any in control", "podyard/control/x/a.py", "", "x: dict[str, Any]\n"),
    ("camelCase and @type in control", "podyard/control/x/a.py", "", 'x = "nodeId"\n'),
    ("files over 500 lines", "tests/a.py", "x = 1\n" * 500, "x = 1\n" * 501),
    ("functions over 60 lines", "api/a.py", "", f"def f():\n{_BODY}"),
    ("functions over 15 in complexity", "api/a.py", "", f"def f():  {NOQA} C901\n    ...\n"),
    ("functions over 15 branches", "api/a.py", "", f"def f():  {NOQA} PLR0912\n    ...\n"),
    ("functions over 50 statements", "api/a.py", "", f"def f():  {NOQA} PLR0915\n    ...\n"),
    ("functions over 7 parameters", "tests/a.py", "", f"def f():  {NOQA} PLR0913\n    ...\n"),
    ("functions that repeat another one", "api/a.py", "", _SHAPE),
    ("bare participles as names of functions", "api/a.py", "", "def held(): ...\n"),
    ("participles as names of results", "api/a.py", "", "found = 1\n"),
    ("docstrings that begin with What, Whether, ...", "api/a.py", "", '"""What it is."""\n'),
    ("files that a field of a job touches (start_from)", "web/a.html", "", "startFrom\n"),
]  # fmt: skip


def _sources(files: Mapping[str, str], settings: Mapping[str, Any]) -> figures.Sources:
    product = {name: text for name, text in files.items() if not name.startswith("tests/")}
    checks = {name: text for name, text in files.items() if name.startswith("tests/")}
    return figures.Sources(product, checks, settings)


def _values(files: Mapping[str, str], settings: Mapping[str, Any]) -> dict[str, int]:
    found = figures.figures(_sources(files, settings))
    return {figure.name: figure.value for figure in found}


@pytest.mark.parametrize(
    ("name", "file", "before", "after"), PLANTED, ids=[row[0] for row in PLANTED]
)
def test_a_planted_breach_raises_its_figure(name: str, file: str, before: str, after: str) -> None:
    base = {
        "podyard/base/a2.py": "from podyard.base import a\n",
        "podyard/domain/taken.py": "class Taken: ...\n",
        "pricing/shape.py": _SHAPE,
    }
    if name == "files loose in control":
        values = _values(base, {}), _values({**base, "podyard/control/loose.py": ""}, {})
    else:
        values = _values({**base, file: before}, {}), _values({**base, file: after}, {})
    assert values[1][name] == values[0][name] + 1


def test_a_full_folder_and_longer_lists_of_exemptions_raise_their_figures() -> None:
    full = {f"podyard/base/m{number}.py": "" for number in range(31)}
    contracts = [{"name": "x", "ignore_imports": ["a -> b"]}]
    overrides = [{"module": ["tests.x.*", "tests.y.*"], "ignore_errors": True}]
    settings = {
        "tool": {"importlinter": {"contracts": contracts}, "mypy": {"overrides": overrides}}
    }
    values = _values(full, settings)
    assert values["folders over 30 files"] == 1
    assert values["imports between siblings that close a circle"] == 1
    assert values["folders of tests that mypy leaves out"] == 2


def test_every_limited_figure_has_a_planted_breach() -> None:
    planted = {row[0] for row in PLANTED} | {
        "folders over 30 files",
        "imports between siblings that close a circle",
        "folders of tests that mypy leaves out",
    }
    assert planted == {item.name for item in figures.figures(_sources({}, {})) if item.is_limited}


def test_what_git_knows_is_counted_and_links_are_not_followed(tmp_path: Path) -> None:
    def write(name: str, text: str) -> None:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text, encoding="utf-8")

    write("podyard/control/jobs.py", "x = 1\n")
    write("web/templates/job.html", "start_from v6e\n")
    write("web/a.py", "y = 1\n")
    write("tests/test_jobs.py", 'row["a"]\n')
    (tmp_path / "podyard" / "web").symlink_to("../web")
    subprocess.run(["git", "init", "--quiet", str(tmp_path)], check=True)
    sources = figures.load(tmp_path)
    assert sorted(sources.texts) == [
        "podyard/control/jobs.py",
        "web/a.py",
        "web/templates/job.html",
    ]
    assert sorted(sources.trees) == ["podyard/control/jobs.py", "web/a.py"]
    assert sorted(sources.checks) == ["tests/test_jobs.py"]


def test_the_table_names_each_limit() -> None:
    lines = figures.table([Figure("circles", 3), Figure("lines", 7)], Limits({"circles": 2}, {}))
    assert [line.split() for line in lines.splitlines()] == [
        ["figure", "today", "limit"],
        ["circles", "3", "2"],
        ["lines", "7", "-"],
    ]
