"""`make house-figures`: every figure of the refactoring: today, at the beginning, and its goal.

    python -m tests.house.figures [--measure] [--names]

`--names` also prints what was counted, where that is a list. `--measure` runs the benchmark of the
start and of the idle stack (benchmarks/startup.py; about a minute), and prints what it prints.

The figures of the beginning were counted on the tree of 2026-11-22 that has 68,856 lines. Where
that count had no written rule, the rule is in `counters.py`. On that tree the rules here give the
same figures, but for two: 307 bare participles (285 then) and 117 camelCase literals (111 then).
"""

from __future__ import annotations

import argparse
import ast
import dataclasses
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.house import counters
from tests.house.counters import CONTROL, PRODUCT

ROOT = Path(__file__).parents[2]
# A field of a job that goes the whole way: command line, REST, console, use case, row, agent,
# replica.
FIELD = "start_from"
GENERATION = "v6e"


@dataclasses.dataclass(frozen=True, slots=True)
class Figure:
    """`before`: what the refactoring began with; `goal`: what it is to end with, as text. `names`:
    what was counted."""

    name: str
    today: int
    before: int
    goal: str
    names: Sequence[str] = ()


@dataclasses.dataclass(frozen=True)
class Product:
    """The product's files: `texts` all that are text, `trees` the Python ones."""

    texts: Mapping[str, str]
    trees: Mapping[str, ast.AST]

    def control(self) -> list[ast.AST]:
        return [tree for path, tree in self.trees.items() if path.startswith(CONTROL)]


def load(root: Path = ROOT) -> Product:
    """What git knows below the product's folders; links are not followed."""
    command = ["git", "ls-files", "-co", "--exclude-standard", "--", *PRODUCT]
    listed = subprocess.run(
        command, cwd=root, capture_output=True, text=True, check=True
    ).stdout.splitlines()
    texts: dict[str, str] = {}
    for name in sorted(set(listed)):
        path = root / name
        if path.is_file() and not path.is_symlink():
            try:
                texts[name] = path.read_text(encoding="utf-8")
            except UnicodeDecodeError:
                continue  # a picture
    return Product(
        texts, {name: ast.parse(text) for name, text in texts.items() if name.endswith(".py")}
    )


def figures(product: Product) -> list[Figure]:
    """In the order of the list of goals."""
    control, trees, texts = product.control(), product.trees, product.texts
    sql = [
        path for path, tree in trees.items() if not _is_of_db(path) and counters.imports_sql(tree)
    ]
    participles = sorted(
        f"{path}: {name}"
        for path, tree in trees.items()
        for name in counters.bare_participles(tree)
    )
    cycles = [" <-> ".join(group) for group in counters.import_cycles(trees)]
    know = [
        path
        for path, text in texts.items()
        if _is_code(path) and counters.names_generation(text, GENERATION)
    ]
    field = [
        path
        for path, text in texts.items()
        if not path.endswith(".md") and counters.spells_field(text, FIELD)
    ]
    loose = [
        path for path in trees if path.startswith(CONTROL) and "/" not in path.removeprefix(CONTROL)
    ]
    classes = [
        f"{name}: {', '.join(paths)}" for name, paths in counters.shared_class_names(trees).items()
    ]
    return [
        Figure(
            "string subscripts in control",
            sum(map(counters.string_subscripts, control)),
            1346,
            "under 100",
        ),
        Figure(
            "mappings to Any in control", sum(map(counters.any_mappings, control)), 200, "under 40"
        ),
        Figure("files with SQL outside db", len(sql), 48, "at most 3", sql),
        Figure(
            "bare participles as names of functions", len(participles), 285, "under 30", participles
        ),
        Figure("import cycles", len(cycles), 1, "0", cycles),
        Figure(
            f"files that know {GENERATION} (rate cards apart)", len(know), 15, "at most 2", know
        ),
        Figure(
            f"files that a field of a job touches ({FIELD})", len(field), 12, "at most 5", field
        ),
        Figure(
            "files loose in control (with __init__)", len(loose), 57, "1, next to 6 rooms", loose
        ),
        Figure("class names of several files", len(classes), 54, "0", classes),
        Figure(
            "camelCase and @type in control", sum(map(counters.wire_literals, control)), 111, "0"
        ),
        Figure("lines of the product", _lines(product), 68_856, "at most 68,856"),
    ]


def table(found: Sequence[Figure]) -> str:
    width = max(len(item.name) for item in found)
    head = f"{'figure':<{width}}  {'today':>7}  {'before':>7}  goal"
    return "\n".join(
        [
            head,
            *(
                f"{item.name:<{width}}  {item.today:>7,}  {item.before:>7,}  {item.goal}"
                for item in found
            ),
        ]
    )


def _is_of_db(path: str) -> bool:
    return path.startswith(("podyard/db/", "migrations/"))


def _is_code(path: str) -> bool:
    return not path.endswith(".md") and not path.startswith("pricing/rate_cards/")


def _lines(product: Product) -> int:
    """Lines of Python, blank ones and comments included; templates, styles and data are not
    counted."""
    return sum(text.count("\n") for path, text in product.texts.items() if path.endswith(".py"))


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.house.figures")
    parser.add_argument("--names", action="store_true", help="Print what was counted, too.")
    parser.add_argument(
        "--measure",
        action="store_true",
        help="Run the benchmark of the start and of the idle stack.",
    )
    given = parser.parse_args(arguments)
    found = figures(load())
    print(table(found))
    if given.names:
        for item in found:
            print(f"\n{item.name}", *item.names, sep="\n  ")
    if given.measure:
        print(flush=True)
        return subprocess.run([sys.executable, "-m", "benchmarks.startup"], cwd=ROOT).returncode
    return 0


if __name__ == "__main__":
    sys.exit(main())
