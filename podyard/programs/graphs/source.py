"""A program's source, read before it runs: is it for TensorFlow 1?

A program may make a model with names that both releases have, and ask for one of TensorFlow 1 after
that. Then it is too late to change to graphs, so the choice is made where it imports TensorFlow.
"""

from __future__ import annotations

import ast
import json
import os
import sys
import tokenize
import types
from collections.abc import Callable, Iterator
from pathlib import Path

Chain = tuple[str, ...]  # of names: ("train", "AdamOptimizer") of tf.train.AdamOptimizer
SOURCE_BYTES_MAX = 4 * 2**20  # a larger file is data
_PACKAGE = str(Path(__file__).parents[2])
_INSTALLED = ("site-packages", "dist-packages")  # in the paths of libraries
_NOTEBOOK_VARIABLE = "JPY_SESSION_NAME"  # Jupyter's, for its kernels: the path of the notebook
_MAGIC = ("%", "!", "?")
# A program for both releases asks first.
_QUESTIONS = frozenset({"__version__", "VERSION", "hasattr", "version"})
_FAILURES = frozenset({"AttributeError", "ImportError", "ModuleNotFoundError", "Exception"})


def uses_tensorflow_1(source: str, is_of_1: Callable[[Chain], bool]) -> bool:
    """Return whether a program uses a name of TensorFlow's that `is_of_1` says only TensorFlow 1
    has, without asking for the release first. What is not Python uses none."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError):
        return False
    nodes = list(_unconditional(tree))
    imports = [alias for node in nodes if isinstance(node, ast.Import) for alias in node.names]
    roots = {one.asname or one.name for one in imports if one.name == "tensorflow"}
    chains = [_chain_of(node, roots) for node in nodes]
    for node in nodes:
        if isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            package = tuple(node.module.split("."))
            chains += [(*package[1:], one.name) for one in node.names if package[0] == "tensorflow"]
    chains += [tuple(one.name.split(".")[1:]) for one in imports if _is_inside(one.name)]
    return any(chain and is_of_1(chain) for chain in chains)


def sources_of_program() -> Iterator[str]:
    """Yield the sources that are known where the program imports TensorFlow: of the module that
    does, of the program itself, and of its notebook."""
    names = (calling_file(), getattr(sys.modules.get("__main__"), "__file__", None))
    for name in dict.fromkeys(name for name in names if name and not is_of_library(name)):
        yield _text(Path(name))
    if "-c" in sys.orig_argv[1:-1]:
        yield sys.orig_argv[sys.orig_argv.index("-c") + 1]
    if notebook := os.environ.get(_NOTEBOOK_VARIABLE):
        yield from _cells(_text(Path(notebook)))


def calling_file() -> str:
    """Return the file of the innermost caller outside of Podyard and Python's import; empty: there
    is none."""
    frame: types.FrameType | None = sys._getframe(1)
    while frame is not None:
        name = frame.f_code.co_filename
        if not name.startswith(_PACKAGE) and "importlib" not in name:
            return name
        frame = frame.f_back
    return ""


def is_of_library(file: str) -> bool:
    return any(part in file for part in _INSTALLED)


def _is_inside(name: str) -> bool:
    return name.startswith("tensorflow.")


def _unconditional(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the nodes that run whatever the release is."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, (ast.If, ast.IfExp)) and _names(child.test) & _QUESTIONS:
            continue
        if isinstance(child, ast.Try) and any(
            one.type is None or _names(one.type) & _FAILURES for one in child.handlers
        ):
            continue
        yield child
        yield from _unconditional(child)


def _names(node: ast.AST) -> set[str]:
    plain = {one.id for one in ast.walk(node) if isinstance(one, ast.Name)}
    return plain | {one.attr for one in ast.walk(node) if isinstance(one, ast.Attribute)}


def _chain_of(node: ast.AST, roots: set[str]) -> Chain:
    """Return the names behind one of `roots`, or nothing."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    return tuple(reversed(parts)) if isinstance(node, ast.Name) and node.id in roots else ()


def _text(path: Path) -> str:
    try:
        if path.stat().st_size > SOURCE_BYTES_MAX:
            return ""
        with (
            tokenize.open(path) if path.suffix != ".ipynb" else path.open(encoding="utf-8") as file
        ):
            return file.read()
    except (OSError, SyntaxError, UnicodeDecodeError):
        return ""


def _cells(notebook: str) -> Iterator[str]:
    try:
        cells = json.loads(notebook)["cells"]
        codes = ["".join(one["source"]) for one in cells if one["cell_type"] == "code"]
    except (ValueError, KeyError, TypeError):
        return
    imports = "import tensorflow as tf\n" if any("tensorflow as tf" in one for one in codes) else ""
    for code in codes:
        lines = (line for line in code.split("\n") if not line.lstrip().startswith(_MAGIC))
        yield imports + "\n".join(lines)
