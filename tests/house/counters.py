"""What the figures of the house count, as pure functions of sources. Each says what counts and what
does not."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import PurePosixPath

# The folders of the product: what a user installs. Their links below podyard/ are not followed.
PRODUCT = ("podyard", "api", "scheduler", "workers", "pricing", "web", "migrations")
CONTROL = "podyard/control/"
_LINKED = ("api", "scheduler", "workers", "pricing", "web", "migrations")
_TABLES = "podyard.db.tables"
_MAPPINGS = ("Mapping", "MutableMapping", "dict", "Dict", "defaultdict")
_FUNCTION = ast.FunctionDef | ast.AsyncFunctionDef
_NAMED = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
_TIC = re.compile(r"(What|Whether|Which|How|Where|Who)\b")
_RESULTS = ("found", "made", "given", "kept", "held", "asked")
_NOQA = re.compile(r"#\s*noqa:\s*([A-Z0-9, ]+)")
_CAMEL = re.compile(r"[a-z][a-z0-9]*([A-Z][A-Za-z0-9]*)+")


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


# Forms that are also the imperative (set, split, cut, put, read, run, ...) are verbs here, and left
# out.
_IRREGULAR = _words(
    """begun born bought broken brought built caught chosen done drawn fallen fed felt forgotten found frozen given gone
    grown heard held hidden kept known laid led left lent lost made meant met overdrawn paid rewritten said seen sent
    shown sold spent sworn taken taught thawed thought thrown told torn understood unknown unsent withdrawn woken won
    worn written"""  # noqa: E501
)
_NO_PARTICIPLES = _words(
    """bed embed exceed feed hundred indeed need proceed red seed shed speed succeed weed"""
)
# Words that name nothing: a participle that is followed by these alone is still bare.
_NAMES_NOTHING = _words(
    """after again all alike again as at away back before behind between both by each first for from here in into last
    next not now of off on once only out over per since so then there through to under until up with within without
    """  # noqa: E501
)


def nodes_of(tree: ast.AST) -> Sequence[ast.AST]:
    """Return all nodes of a tree. A tree keeps them: a dozen counters walk through each one."""
    nodes: list[ast.AST] | None = tree.__dict__.get("_nodes")
    if nodes is None:
        nodes = tree.__dict__["_nodes"] = list(ast.walk(tree))
    return nodes


def string_subscripts(tree: ast.AST) -> int:
    """Subscripts with a literal string, `x["name"]`, read or written, wherever they stand.
    `x[name]`, `x[0]`, `x.get("name")` and `x["a", "b"]` do not count."""
    return sum(
        isinstance(node, ast.Subscript)
        and isinstance(node.slice, ast.Constant)
        and isinstance(node.slice.value, str)
        for node in nodes_of(tree)
    )


def any_mappings(tree: ast.AST) -> int:
    """Types of a mapping whose values are Any: `Mapping[str, Any]`, `dict[str, Any]`, in
    annotations and aliases. `Sequence[Any]` and `dict[str, str]` do not count; `list[dict[str,
    Any]]` counts once."""
    return sum(
        isinstance(node, ast.Subscript)
        and isinstance(node.value, ast.Name)
        and node.value.id in _MAPPINGS
        and isinstance(node.slice, ast.Tuple)
        and isinstance(node.slice.elts[-1], ast.Name)
        and node.slice.elts[-1].id == "Any"
        for node in nodes_of(tree)
    )


def imports_sql(tree: ast.AST) -> bool:
    """Return whether it imports sqlalchemy or a module of tables (of podyard.db.tables), at the top
    or in a function."""
    names = {name for imported in _imports(tree) for name in imported}
    return any(name.partition(".")[0] == "sqlalchemy" or name.startswith(_TABLES) for name in names)


def wire_literals(tree: ast.AST) -> int:
    """Literal strings that are one camelCase word or `@type`: the spelling of Google's JSON. Words
    inside a longer text do not count."""
    return sum(
        isinstance(node, ast.Constant)
        and isinstance(node.value, str)
        and (node.value == "@type" or _CAMEL.fullmatch(node.value) is not None)
        for node in nodes_of(tree)
    )


def bare_participles(tree: ast.AST) -> list[str]:
    """Functions and methods that are named by a past participle and no noun: the first word of the
    name is a participle (ends in -ed, or is irregular), and no word follows, or only words that
    name nothing (`held_by`). `expired_tokens` and `is_closed` do not count, nor do verbs that look
    the same in both forms (`set`, `split`, `read`)."""
    return [
        node.name
        for node in nodes_of(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and is_bare_participle(node.name)
    ]


def is_bare_participle(name: str) -> bool:
    first, *rest = name.strip("_").split("_")
    regular = first.endswith("ed") and len(first) > 3 and first not in _NO_PARTICIPLES
    return (regular or first in _IRREGULAR) and all(word in _NAMES_NOTHING for word in rest)


def long_functions(tree: ast.AST, lines_max: int) -> dict[str, int]:
    """Return the functions of more lines, with their lines: from the line of `def` to the last one.
    A method has the name of its class before it; a function inside another one counts in both."""
    if not any(_lines(node) > lines_max for node in nodes_of(tree) if isinstance(node, _FUNCTION)):
        return {}
    return {
        name: _lines(node) for name, node in _named_functions(tree, "") if _lines(node) > lines_max
    }


def _lines(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    return (node.end_lineno or node.lineno) - node.lineno + 1


def _named_functions(
    tree: ast.AST, prefix: str
) -> Iterator[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef]]:
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield f"{prefix}{node.name}", node
        inner = f"{prefix}{node.name}." if isinstance(node, _NAMED) else prefix
        yield from _named_functions(node, inner)


def docstring_tics(tree: ast.AST) -> int:
    """Count the docstrings that begin with What, Whether, Which, How, Where or Who: neither an
    imperative nor a noun phrase."""
    return sum(
        (text := ast.get_docstring(node, clean=True)) is not None and _TIC.match(text) is not None
        for node in nodes_of(tree)
        if isinstance(node, ast.Module | _NAMED)
    )


def participle_results(tree: ast.AST) -> int:
    """Count the assignments to a variable called found, made, given, kept, held or asked: it says
    how a value came to be, not what it is."""
    return sum(
        isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and node.id in _RESULTS
        for node in nodes_of(tree)
    )


def large_folders(paths: Iterable[str], files_max: int) -> dict[str, int]:
    """Return the folders with more files; files in the folders below them do not count."""
    counts = Counter(str(PurePosixPath(path).parent) for path in paths)
    return {folder: count for folder, count in sorted(counts.items()) if count > files_max}


def exemptions(text: str, codes: Collection[str]) -> Counter[str]:
    """Count the comments `noqa` of a source by code."""
    named = (re.findall(r"[A-Z]+[0-9]+", match[1]) for match in _NOQA.finditer(text))
    return Counter(code for found in named for code in found if code in codes)


def shared_class_names(trees: Mapping[str, ast.AST]) -> dict[str, list[str]]:
    """Names of classes that two or more files define, with those files; private names and classes
    inside others count.
    A name that is imported or re-exported does not."""
    found: dict[str, set[str]] = {}
    for path, tree in trees.items():
        for node in nodes_of(tree):
            if isinstance(node, ast.ClassDef):
                found.setdefault(node.name, set()).add(path)
    return {name: sorted(paths) for name, paths in sorted(found.items()) if len(paths) > 1}


def import_cycles(trees: Mapping[str, ast.AST]) -> list[list[str]]:
    """Sets of modules that import each other in a circle, imports inside functions included
    (strongly connected components of more than one module). That a package is imported with its
    modules does not count."""
    modules = {module_name(path): tree for path, tree in trees.items()}
    graph = {name: sorted(known_imports(tree, modules) - {name}) for name, tree in modules.items()}
    return [sorted(group) for group in _components(graph) if len(group) > 1]


def module_name(path: str) -> str:
    """`podyard/control/jobs.py` -> podyard.control.jobs; the linked folders are below podyard,
    too."""
    parts = PurePosixPath(path).with_suffix("").parts
    parts = ("podyard", *parts) if parts[0] in _LINKED else parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def names_generation(text: str, generation: str = "v6e") -> bool:
    """Return whether a text has the name of a generation as a separate word, or at the head of one
    (`v6e-16`)."""
    return re.search(rf"(?<![A-Za-z0-9]){generation}(?![A-Za-z0-9])", text) is not None


def spells_field(text: str, field: str) -> bool:
    """Return whether a text has a field in any of its spellings: start_from, startFrom,
    --start-from."""
    first, *rest = field.split("_")
    camel = first + "".join(word.capitalize() for word in rest)
    spellings = "|".join((field, camel, re.escape("--" + field.replace("_", "-"))))
    return re.search(rf"(?<![A-Za-z])({spellings})(?![A-Za-z])", text) is not None


def _imports(tree: ast.AST) -> Iterator[tuple[str, ...]]:
    """The names that each import may mean: of `from a import b`, a.b and a."""
    for node in nodes_of(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name,) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield from ((f"{node.module}.{alias.name}", node.module) for alias in node.names)


def known_imports(tree: ast.AST, modules: Collection[str]) -> set[str]:
    firsts = (next((name for name in names if name in modules), None) for names in _imports(tree))
    return {name for name in firsts if name is not None}


def _components(graph: Mapping[str, Iterable[str]]) -> Iterator[set[str]]:
    """Strongly connected components: what each reaches that reaches it."""
    backward: dict[str, set[str]] = {name: set() for name in graph}
    for name, targets in graph.items():
        for target in targets:
            backward[target].add(name)
    left = set(graph)
    for name in sorted(graph):
        if name in left:
            group = _reached(graph, name) & _reached(backward, name)
            left -= group
            yield group


def _reached(graph: Mapping[str, Iterable[str]], start: str) -> set[str]:
    seen, waiting = {start}, [start]
    while waiting:
        for target in graph[waiting.pop()]:
            if target not in seen:
                seen.add(target)
                waiting.append(target)
    return seen
