"""Each counter of the house's figures: what counts, and what does not."""

from __future__ import annotations

import ast
import subprocess
from pathlib import Path

import pytest

from tests.house import counters, figures


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
        ("def f():\n    from podyard.db.tables_jobs import jobs", True),
        ("from podyard.db import tables", True),
        ("from podyard.db import tables_queue as t", True),
        ("from podyard.db.jobs import row_of", False),
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


def test_figures_of_a_small_product(tmp_path: Path) -> None:
    def write(name: str, text: str) -> None:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text, encoding="utf-8")

    write(
        "podyard/control/jobs.py",
        'from sqlalchemy import text\n\n\ndef held(row):\n    return row["startFrom"]\n',
    )
    write("podyard/control/jobs_room/more.py", 'GENERATION = "v6e"\n')
    write("podyard/db/jobs.py", "import sqlalchemy\n")
    write("pricing/rate_cards/a.yaml", "v6e: 1\n")
    write("web/templates/job.html", "start_from v6e\n")
    write("web/README.md", "v6e start_from\n")
    write("tests/test_jobs.py", 'row["a"]\nv6e = start_from\n')
    (tmp_path / "podyard" / "web").symlink_to("../web")
    subprocess.run(["git", "init", "--quiet", str(tmp_path)], check=True)
    found = {item.name: item for item in figures.figures(figures.load(tmp_path))}
    assert [item.today for item in found.values()] == [1, 0, 1, 1, 0, 2, 2, 1, 0, 1, 7]
    assert found["files with SQL outside db"].names == ["podyard/control/jobs.py"]
    assert found["files that know v6e (rate cards apart)"].names == [
        "podyard/control/jobs_room/more.py",
        "web/templates/job.html",
    ]
    lines = figures.table(list(found.values())).splitlines()
    assert len(lines) == len(found) + 1
    assert lines[1].split() == [
        "string",
        "subscripts",
        "in",
        "control",
        "1",
        "1,346",
        "under",
        "100",
    ]


@pytest.mark.slow
def test_the_figures_of_this_tree_are_counted_from_its_files() -> None:
    product = figures.load()
    assert len(product.trees) > 400
    assert not [
        path
        for path in product.texts
        if path.startswith(("podyard/api/", "podyard/web/", "tests/"))
    ]
    assert len(figures.figures(product)) == 11
