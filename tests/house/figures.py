"""`make house-figures`: every figure of the house with its limit.

    python -m tests.house.figures [--record] [--measure] [--names]

`--record` lowers the limits in `limits.toml` to the figures of today; it never raises one.
`--names` also prints what was counted. `--measure` runs the benchmark of the start and of the idle
stack (benchmarks/startup.py; about a minute).

What each figure counts is written in `counters.py`. A counter that counts otherwise than before
gets a new name, so that everybody sees that its limit starts again.
"""

from __future__ import annotations

import argparse
import ast
import dataclasses
import subprocess
import sys
import tomllib
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from tests.house import counters, limits
from tests.house.counters import CONTROL, PRODUCT
from tests.house.similar import similar_functions

ROOT = Path(__file__).parents[2]
# A field of a job that goes the whole way: command line, REST, console, use case, row, agent.
FIELD = "start_from"
GENERATION = "v6e"
# Where people and programs enter: they parse, authorise, call and format.
EDGES = ("podyard/cli/", "podyard/stack/", "api/", "web/", "podyard/loop/", "workers/")
FILE_LINES_MAX = 500
FUNCTION_LINES_MAX = 60
FOLDER_FILES_MAX = 30
# Each exemption stands in the source, at its function; the limits of ruff are in pyproject.toml.
SIZE_RULES = {
    "C901": "functions over 15 in complexity",
    "PLR0912": "functions over 15 branches",
    "PLR0915": "functions over 50 statements",
    "PLR0913": "functions over 7 parameters",
}


@dataclasses.dataclass(frozen=True, slots=True)
class Figure:
    """One figure of today. `names`: what was counted. `items`: exceptions that have a limit each.
    `is_limited`: whether it has a limit; others are only printed."""

    name: str
    value: int
    names: Sequence[str] = ()
    items: Mapping[str, int] = dataclasses.field(default_factory=dict)
    is_limited: bool = True


@dataclasses.dataclass(frozen=True)
class Sources:
    """What git knows: `texts` all files of the product that are text, `checks` the Python files of
    tests and benchmarks. Links are not followed."""

    texts: Mapping[str, str]
    checks: Mapping[str, str]
    settings: Mapping[str, Any]

    @cached_property
    def trees(self) -> dict[str, ast.AST]:
        """The product's Python files."""
        return {name: ast.parse(text) for name, text in self.texts.items() if name.endswith(".py")}

    @cached_property
    def python(self) -> dict[str, str]:
        """All Python files."""
        product = {name: text for name, text in self.texts.items() if name.endswith(".py")}
        return {**product, **self.checks}

    def below(self, *folders: str) -> list[ast.AST]:
        return [tree for path, tree in self.trees.items() if path.startswith(folders)]


def load(root: Path = ROOT) -> Sources:
    texts = _read(root, *PRODUCT)
    checks = _read(root, "tests", "benchmarks")
    settings = root / "pyproject.toml"
    return Sources(
        texts,
        {name: text for name, text in checks.items() if name.endswith(".py")},
        tomllib.loads(settings.read_text(encoding="utf-8")) if settings.exists() else {},
    )


def _read(root: Path, *folders: str) -> dict[str, str]:
    command = ["git", "ls-files", "-co", "--exclude-standard", "--", *folders]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=True)
    texts: dict[str, str] = {}
    for name in sorted(set(done.stdout.splitlines())):
        path = root / name
        if path.is_file() and not path.is_symlink():
            try:
                texts[name] = path.read_text(encoding="utf-8")
            except UnicodeDecodeError:
                continue  # a picture
    return texts


def figures(sources: Sources) -> list[Figure]:
    return [*_structure(sources), *_sizes(sources), *_words(sources), *_printed(sources)]


def _structure(sources: Sources) -> list[Figure]:
    control, trees = sources.below(CONTROL), sources.trees
    sql = [
        path for path, tree in trees.items() if not _is_of_db(path) and counters.imports_sql(tree)
    ]
    circles = [" <-> ".join(group) for group in counters.import_cycles(trees)]
    loose = [path for path in trees if path.startswith(CONTROL) and path.count("/") == 2]
    know = [
        path
        for path, text in sources.texts.items()
        if _is_code(path) and counters.names_generation(text, GENERATION)
    ]
    classes = counters.shared_class_names(trees)
    return [
        Figure("import circles", len(circles), circles),
        _list(sources, "imports between siblings that close a circle", _ignored_imports),
        _list(sources, "folders of tests that mypy leaves out", _untyped_folders),
        Figure("files with SQL outside db", len(sql), sql),
        Figure("files loose in control", len(loose), loose),
        Figure(f"files that know one generation ({GENERATION})", len(know), know),
        Figure(
            "class names used for two things",
            len(classes),
            [f"{name}: {', '.join(paths)}" for name, paths in classes.items()],
        ),
        Figure("string subscripts in control", sum(map(counters.string_subscripts, control))),
        Figure(
            "string subscripts at the edges",
            sum(map(counters.string_subscripts, sources.below(*EDGES))),
        ),
        Figure("mappings to Any in control", sum(map(counters.any_mappings, control))),
        Figure("camelCase and @type in control", sum(map(counters.wire_literals, control))),
    ]


def _sizes(sources: Sources) -> list[Figure]:
    lines = {path: text.count("\n") for path, text in sources.python.items()}
    files = {path: count for path, count in lines.items() if count > FILE_LINES_MAX}
    functions = {
        f"{path}: {name}": count
        for path, tree in sources.trees.items()
        for name, count in counters.long_functions(tree, FUNCTION_LINES_MAX).items()
    }
    code = [path for path in sources.texts if not path.endswith(".md")]
    folders = counters.large_folders([*code, *sources.checks], FOLDER_FILES_MAX)
    noqa: Counter[str] = Counter()
    for text in sources.python.values():
        noqa.update(counters.exemptions(text, SIZE_RULES))
    groups = similar_functions(sources.trees)
    return [
        _exceptions(f"files over {FILE_LINES_MAX} lines", files),
        _exceptions(f"functions over {FUNCTION_LINES_MAX} lines", functions),
        _exceptions(f"folders over {FOLDER_FILES_MAX} files", folders),
        *(Figure(name, noqa[code]) for code, name in SIZE_RULES.items()),
        Figure(
            "functions that repeat another one",
            sum(len(group) - 1 for group in groups),
            [", ".join(group) for group in groups],
        ),
    ]


def _words(sources: Sources) -> list[Figure]:
    trees = sources.trees
    participles = sorted(
        f"{path}: {name}"
        for path, tree in trees.items()
        for name in counters.bare_participles(tree)
    )
    return [
        Figure("bare participles as names of functions", len(participles), participles),
        Figure(
            "participles as names of results", sum(map(counters.participle_results, trees.values()))
        ),
        Figure(
            "docstrings that begin with What, Whether, ...",
            sum(map(counters.docstring_tics, trees.values())),
        ),
    ]


def _printed(sources: Sources) -> list[Figure]:
    field = [
        path
        for path, text in sources.texts.items()
        if not path.endswith(".md") and counters.spells_field(text, FIELD)
    ]
    lines = sum(sources.texts[path].count("\n") for path in sources.trees)
    return [
        Figure(f"files that a field of a job touches ({FIELD})", len(field), field),
        Figure("lines of the product", lines, is_limited=False),
    ]


def _exceptions(name: str, items: Mapping[str, int]) -> Figure:
    return Figure(name, len(items), [f"{key} ({count})" for key, count in items.items()], items)


def _list(sources: Sources, name: str, read: Any) -> Figure:
    names = read(sources.settings.get("tool", {}))
    return Figure(name, len(names), names)


def _ignored_imports(tool: Mapping[str, Any]) -> list[str]:
    contracts = tool.get("importlinter", {}).get("contracts", [])
    return [one for contract in contracts for one in contract.get("ignore_imports", [])]


def _untyped_folders(tool: Mapping[str, Any]) -> list[str]:
    overrides = tool.get("mypy", {}).get("overrides", [])
    return [
        module
        for override in overrides
        if override.get("ignore_errors")
        for module in override["module"]
    ]


def _is_of_db(path: str) -> bool:
    return path.startswith(("podyard/db/", "migrations/"))


def _is_code(path: str) -> bool:
    return not path.endswith(".md") and not path.startswith("pricing/rate_cards/")


def table(items: Sequence[Figure], recorded: limits.Limits) -> str:
    width = max(len(item.name) for item in items)
    rows = [f"{'figure':<{width}}  {'today':>7}  {'limit':>7}"]
    for item in items:
        limit = f"{recorded.figures[item.name]:,}" if item.name in recorded.figures else "-"
        rows.append(f"{item.name:<{width}}  {item.value:>7,}  {limit:>7}")
    return "\n".join(rows)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.house.figures")
    parser.add_argument("--names", action="store_true", help="Print what was counted, too.")
    parser.add_argument(
        "--record", action="store_true", help="Lower the limits to today's figures."
    )
    parser.add_argument("--measure", action="store_true", help="Run the benchmark of the start.")
    options = parser.parse_args(arguments)
    items = figures(load())
    limited = [item for item in items if item.is_limited]
    if options.record:
        limits.write(limits.lowered(limits.read(), limited))
    print(table(items, limits.read()))
    if options.names:
        for item in items:
            print(f"\n{item.name}", *item.names, sep="\n  ")
    if options.measure:
        print(flush=True)
        command = [sys.executable, "-m", "benchmarks.startup"]
        return subprocess.run(command, cwd=ROOT).returncode
    breaches = limits.breaches(limits.read(), limited)
    print(*breaches, sep="\n")
    return 1 if breaches else 0


if __name__ == "__main__":
    sys.exit(main())
