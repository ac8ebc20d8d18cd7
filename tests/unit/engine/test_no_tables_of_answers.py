"""Looks for answers in the timing model: tables of numbers, names of models and cases, decisions
about single shapes.

A model that knew the cases would be right on them and wrong next to them. So the source is read for
what such a model would need, every look is tried on a bad sample, and prices are followed from one
shape to its neighbours.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import podyard.engine.timing
from podyard.engine.program.ir import TensorType
from podyard.engine.recipes.programs import PROGRAMS
from podyard.engine.timing.kernels import Product, matrix_price, result_bytes, tile_bytes
from podyard.hardware.cost_model import CostModel
from podyard.hardware.generations import GENERATIONS, cost_model
from tests.unit.engine.compiled import cases

_FOLDER = Path(podyard.engine.timing.__file__).parent
# The published applications of TPU v1 are data with sources, which no estimate reads (see below).
_DATA = ("tpu_v1_apps.py",)
_HARDWARE = _FOLDER.parents[1] / "hardware"
_CONSTANTS = [
    _HARDWARE / "cost_model.py",
    _HARDWARE / "generation.py",
    *(path for path in _HARDWARE.glob("generations/*.py")),
]
_FILES = {
    path.name: path.read_text(encoding="utf-8")
    for path in [*sorted(_CONSTANTS), *sorted(_FOLDER.glob("*.py"))]
    if path.name not in (*_DATA, "__init__.py")
}
_NUMBERS_MAX = 12
# Arithmetic per element-wise operation is by operation of the language; the comparisons are
# published, and price nothing.
_TABLES_ALLOWED = {("kernels.py", "INSTRUCTIONS"), ("energy.py", "COMPARISONS")}
_UNITS = ("_GIB", "_UNITS")
_SHAPE_LITERAL = 16
# By so much may a product be faster than half of it, and a shape differ from the shape that is 8
# longer in one axis.
_FASTER_MOST = 0.05
_NEIGHBOUR_RATIO = 1.6
_WORD = re.compile(r"[a-z][a-z0-9]*")


def _is_number(node: ast.AST) -> bool:
    return (
        isinstance(node, ast.Constant)
        and isinstance(node.value, int | float)
        and not isinstance(node.value, bool)
    )


def big_tables(text: str) -> list[tuple[str, int]]:
    """(name, line) of top-level assignments and other displays that hold more than 12 numbers."""
    tree = ast.parse(text)
    names = {id(part): name for name, node in _assigned(tree) for part in ast.walk(node)}
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Dict | ast.List | ast.Tuple | ast.Set):
            numbers = sum(map(_is_number, ast.walk(node)))
            if numbers > _NUMBERS_MAX:
                found.append((names.get(id(node), ""), node.lineno))
    return found


def _assigned(tree: ast.Module) -> Iterator[tuple[str, ast.expr]]:
    for node in tree.body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            yield node.targets[0].id, node.value
        if (
            isinstance(node, ast.AnnAssign)
            and isinstance(node.target, ast.Name)
            and node.value is not None
        ):
            yield node.target.id, node.value


def named_models(text: str, names: frozenset[str]) -> set[str]:
    """Words of string literals (docstrings apart) and of identifiers that name a model or a
    case."""
    tree = ast.parse(text)
    prose = {
        id(node.value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    }
    said = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in prose:
            said.append(node.value)
        if isinstance(node, ast.Name):
            said.append(node.id)
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            said.append(node.name)
    words = {word for one in said for word in _WORD.findall(one.lower())}
    whole = {one.lower() for one in said}
    return (words | whole) & names


def shape_decisions(text: str) -> list[tuple[int, str]]:
    """(line, text) of comparisons and matches with a literal number from 16 on; widths in bits are
    no extents."""
    found = []
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Compare):
            sides = [node.left, *node.comparators]
            if isinstance(node.left, ast.Name) and node.left.id.endswith("_bits"):
                continue
        elif isinstance(node, ast.MatchValue):
            sides = [node.value]
        else:
            continue
        literals = [
            part for side in sides for part in ast.walk(side) if isinstance(part, ast.Constant)
        ]
        if any(_is_number(part) and abs(part.value) >= _SHAPE_LITERAL for part in literals):  # type: ignore[arg-type]
            found.append((node.lineno, ast.unparse(node)))
    return found


def undocumented(text: str, classes: frozenset[str] = frozenset()) -> list[str]:
    """Top-level constants with numbers that nothing explains: no comment above them (or above the
    group they are in) or next to them, no docstring of the class they are made of (one of
    `classes`), no word in the module's own."""
    tree = ast.parse(text)
    comments = {
        token.start[0]
        for token in tokenize.generate_tokens(io.StringIO(text).readline)
        if token.type == tokenize.COMMENT and not token.string.startswith("# fmt")
    }
    head = (ast.get_docstring(tree) or "").lower()
    told_lines: set[int] = set()
    missing = []
    for name, node in _assigned(tree):
        if not name.isupper() or name in _UNITS or not any(map(_is_number, ast.walk(node))):
            continue
        lines = range(node.lineno, (getattr(node, "end_lineno", None) or 0) + 1)
        made_of = {
            part.func.id
            for part in ast.walk(node)
            if isinstance(part, ast.Call) and isinstance(part.func, ast.Name)
        }
        told = comments & {lines[0] - 1, *lines} or lines[0] - 1 in told_lines
        if told or made_of & classes or re.search(rf"\b{name.lower()}\b", head):
            told_lines |= set(lines)
        else:
            missing.append(name)
    return missing


def explained_classes() -> frozenset[str]:
    """Classes of the timing model with a docstring of their own."""
    return frozenset(
        node.name
        for text in _FILES.values()
        for node in ast.parse(text).body
        if isinstance(node, ast.ClassDef) and ast.get_docstring(node)
    )


def _names() -> frozenset[str]:
    """Recipes, their functions and the programs that were compiled."""
    recipes = {name.lower() for name in PROGRAMS} | {name.replace("-", "_") for name in PROGRAMS}
    compiled = {str(one.facts["model"]).lower() for one in cases() if one.facts.get("model")}
    families = {"resnet", "resnet50", "rn50", "mnist", "cifar", "cifar10", "fashion", "digits",
        "mlp", "transformer",
                "imagenet", "bert", "gpt", "llama"}  # fmt: skip
    ids = {one.case.lower() for one in cases()}
    return frozenset(recipes | compiled | families | ids)


# --- the looks see what they look for


def test_the_looks_find_what_they_look_for() -> None:
    assert big_tables(f"T = {{{', '.join(f'{n}: {n}.5' for n in range(7))}}}") == [("T", 1)]
    assert big_tables(f"def f(): return {list(range(13))}") == [("", 1)]
    assert big_tables(f"T = {list(range(12))}") == []
    names = frozenset({"resnet", "resnet-50", "gemm-v3-bf16-64x64x64"})
    assert named_models("x = 1 if kind == 'a resnet' else 2", names) == {"resnet"}
    assert named_models("x = {'gemm-v3-bf16-64x64x64': 1}", names) == {"gemm-v3-bf16-64x64x64"}
    assert named_models("def resnet(): return 1", names) == {"resnet"}
    assert named_models("'''The resnet.'''", names) == set()
    assert shape_decisions("if shape[0] == 224: x = 1") == [(1, "shape[0] == 224")]
    assert shape_decisions("if shape in ((64, 64),): x = 1") == [(1, "shape in ((64, 64),)")]
    assert shape_decisions("if m <= LIMIT or n < 8: x = 1") == []
    assert shape_decisions("match m:\n    case 4096: x = 1") == [(2, "4096")]
    assert undocumented(
        "A = 5\n# why\nB = 6\nC = 7\n\nD = 8  # how\nX = K(1)\n", frozenset({"K"})
    ) == ["A"]


# --- the source


def test_no_module_holds_a_table_of_numbers_but_the_constants_per_generation() -> None:
    assert len(_FILES) > 12
    allowed = {
        (file, line)
        for file, name in _TABLES_ALLOWED
        for found, node in _assigned(ast.parse(_FILES[file]))
        if found == name
        for line in range(node.lineno, (node.end_lineno or 0) + 1)  # type: ignore[attr-defined]
    }
    found = {(file, line) for file, text in _FILES.items() for _, line in big_tables(text)}
    assert found - allowed == set()


def test_no_module_names_a_model_a_recipe_or_a_case() -> None:
    names = _names()
    assert len(names) > 600
    assert {
        file: named for file, text in _FILES.items() if (named := named_models(text, names))
    } == {}


def test_no_module_decides_by_a_literal_extent() -> None:
    assert {file: found for file, text in _FILES.items() if (found := shape_decisions(text))} == {}


def test_the_constants_are_one_number_each_and_per_generation() -> None:
    assert {name for name, item in GENERATIONS.items() if item.costs is None} == {"v1", "tpu7x"}
    for costs in filter(None, (item.costs for item in GENERATIONS.values())):
        for field in (
            "clock_hz",
            "mxu_edge",
            "bytes_per_cycle",
            "window_bytes",
            "matrix_kernel_cycles",
        ):
            assert isinstance(getattr(costs, field), int | float)
        assert all(
            not isinstance(getattr(costs, name), dict | tuple | list)
            for name in CostModel.__slots__
        )


def test_every_constant_of_the_model_says_what_it_is() -> None:
    classes = explained_classes()
    assert {"CostModel", "Generation", "Power", "EdgeTpu"} <= classes
    assert {
        file: missing for file, text in _FILES.items() if (missing := undocumented(text, classes))
    } == {}


def test_no_estimate_reads_the_published_applications() -> None:
    reached, waiting = set[str](), ["analysis"]
    while waiting:
        name = waiting.pop()
        reached.add(name)
        imported = set(
            re.findall(r"podyard\.(?:engine\.timing|hardware)\.(\w+) import", _FILES[f"{name}.py"])
        )
        if "from podyard.engine.timing import collectives" in _FILES[f"{name}.py"]:
            imported.add("collectives")
        waiting += (imported & {path.removesuffix(".py") for path in _FILES}) - reached
    assert {"kernels", "cost_model", "fusion", "collectives"} <= reached
    assert not any(name.startswith("tpu_v1") for name in reached)


# --- prices next to each other


def cycles_of(generation: str, sizes: Sequence[int], dtype: str) -> float:
    """Modelled cycles of [m, k] x [k, n], as a program that is only this product."""
    m, k, n = sizes
    costs = cost_model(generation)
    left, right, result = (TensorType(shape, dtype) for shape in ((m, k), (k, n), (m, n)))
    made = result_bytes(result, costs)
    product = Product(1, m, k, n, tile_bytes(left, costs), tile_bytes(right, costs), made)
    return matrix_price(product, 0.0, 0.0, costs).cycles


EXTENTS = st.one_of(st.integers(8, 8192), st.sampled_from([2**power for power in range(3, 14)]))
GENERATION_NAMES = st.sampled_from(
    sorted(name for name, item in GENERATIONS.items() if item.costs is not None)
)
TYPES = st.sampled_from(["bf16", "f32"])


@given(
    generation=GENERATION_NAMES,
    m=EXTENTS,
    k=EXTENTS,
    n=EXTENTS,
    dtype=TYPES,
    axis=st.integers(0, 2),
)
@settings(deadline=None, max_examples=250, derandomize=True)
def test_twice_the_work_is_never_faster(
    generation: str, m: int, k: int, n: int, dtype: str, axis: int
) -> None:
    doubled = [size * 2 if index == axis else size for index, size in enumerate((m, k, n))]
    once = cycles_of(generation, (m, k, n), dtype)
    assert cycles_of(generation, doubled, dtype) >= once * (1 - _FASTER_MOST)


@pytest.mark.slow
@given(
    generation=GENERATION_NAMES, m=st.integers(512, 8192), k=st.integers(512, 8192),
    n=st.integers(512, 8192),
    dtype=TYPES, axis=st.integers(0, 2),
)  # fmt: skip
@settings(deadline=None, max_examples=250, derandomize=True)
def test_neighbouring_shapes_have_neighbouring_prices(
    generation: str, m: int, k: int, n: int, dtype: str, axis: int
) -> None:
    larger = [size + 8 if index == axis else size for index, size in enumerate((m, k, n))]
    ratio = cycles_of(generation, larger, dtype) / cycles_of(generation, (m, k, n), dtype)
    assert 1 / _NEIGHBOUR_RATIO < ratio < _NEIGHBOUR_RATIO
