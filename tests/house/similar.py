"""Functions that repeat another one: the same statements, but for names and constants.

    python -m tests.house.similar [FOLDER ...]

Two functions are similar if their syntax trees are equal once docstrings, annotations, names and
the values of constants are left out. Short functions say too little to be compared.
"""

from __future__ import annotations

import ast
import hashlib
import sys
from collections.abc import Iterator, Mapping, Sequence

from tests.house.counters import nodes_of

STATEMENTS_MIN = 3  # a function of fewer statements is alike to others by its nature
Function = ast.FunctionDef | ast.AsyncFunctionDef


def similar_functions(trees: Mapping[str, ast.AST]) -> list[list[str]]:
    """Return the groups of functions with one shape, each function as `path: name`."""
    groups: dict[str, list[str]] = {}
    for path, tree in trees.items():
        for function in _functions(tree):
            groups.setdefault(_shape(function), []).append(f"{path}: {function.name}")
    repeated = [sorted(names) for names in groups.values() if len(names) > 1]
    return sorted(repeated, key=lambda names: (-len(names), names))


def _functions(tree: ast.AST) -> Iterator[Function]:
    for node in nodes_of(tree):
        if isinstance(node, Function):
            statements = sum(isinstance(inner, ast.stmt) for inner in ast.walk(node)) - 1
            if statements - _has_docstring(node) >= STATEMENTS_MIN:
                yield node


def _has_docstring(node: Function) -> bool:
    return ast.get_docstring(node, clean=False) is not None


def _shape(function: Function) -> str:
    body = function.body[1:] if _has_docstring(function) else function.body
    names: dict[str, int] = {}
    return hashlib.sha256("".join(_words(body, names)).encode()).hexdigest()


def _words(value: object, names: dict[str, int]) -> Iterator[str]:
    """Spell a tree: a name by the order in which it first occurs, a constant by its type."""
    if isinstance(value, ast.Name | ast.arg):
        name = value.id if isinstance(value, ast.Name) else value.arg
        yield f"name{names.setdefault(name, len(names))} "
    elif isinstance(value, ast.Attribute | ast.keyword):
        yield f"{type(value).__name__} "
        yield from _words(value.value, names)
    elif isinstance(value, ast.Constant):
        yield f"{type(value.value).__name__} "
    elif isinstance(value, ast.AST):
        yield f"({type(value).__name__} "
        for field, inner in ast.iter_fields(value):
            if field not in ("annotation", "returns", "type_comment", "ctx"):
                yield from _words(inner, names)
        yield ")"
    elif isinstance(value, list):
        for inner in value:
            yield from _words(inner, names)
    elif value is not None:
        yield f"{value} "


def main(folders: Sequence[str]) -> int:
    from tests.house.figures import load

    trees = load().trees
    wanted = tuple(folders) or ("",)
    groups = similar_functions(
        {path: tree for path, tree in trees.items() if path.startswith(wanted)}
    )
    for names in groups:
        print(*names, sep="\n  ")
    print(f"{sum(len(names) - 1 for names in groups)} functions repeat another one")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
