"""Distances from files of tests to files that they import, directly or through others."""

from __future__ import annotations

import ast
from collections.abc import Mapping

from tests.house.counters import known_imports, module_name

Graph = Mapping[str, frozenset[str]]


def read_graph(sources: Mapping[str, str]) -> Graph:
    """Return the files that each file imports, also inside functions; `sources`: path -> text of
    the Python files."""
    files = {module_name(path): path for path in sources}
    graph = {}
    for path, text in sources.items():
        modules = known_imports(ast.parse(text), files)
        graph[path] = frozenset(files[module] for module in modules) - {path}
    return graph


def distances(graph: Graph, start: str) -> dict[str, int]:
    """Return how many imports lead from `start` to each file that it reaches; 0 for itself (breadth
    first)."""
    steps, front = {start: 0}, [start]
    while front:
        following = []
        for path in front:
            for target in sorted(graph.get(path, ())):
                if target not in steps:
                    steps[target] = steps[path] + 1
                    following.append(target)
        front = following
    return steps
