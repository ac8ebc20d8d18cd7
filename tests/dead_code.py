"""Finds what nothing in the product reaches: functions, classes, methods, constants and fields of
dataclasses.

`make lint` runs it over the packages that are shipped. Tests, benchmarks and examples are not
asked: what only they need belongs to them. It follows names from the modules' own statements, and
knows by structure what frameworks call: functions with a decorator that registers them, overrides
of methods of other libraries' classes, fields of models. What it cannot see is in KEPT, each with
its reason; a test fails on an entry that is no longer needed.
"""

from __future__ import annotations

import ast
import dataclasses
import fnmatch
import re
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGE = "podyard"
# the package's folders at the root
FOLDERS = ("api", "scheduler", "workers", "pricing", "web", "migrations")
# Decorators that register nothing with anybody.
PLAIN = frozenset(
    [
        *(
            "abstractmethod",
            "asynccontextmanager",
            "cache",
            "cached_property",
            "classmethod",
            "contextmanager",
        ),
        *(
            "dataclass",
            "final",
            "lru_cache",
            "override",
            "overload",
            "property",
            "runtime_checkable",
            "staticmethod",
        ),
        *("total_ordering", "wraps"),
    ]
)
# Of other libraries' classes, those that call none of their subclasses' methods by name.
PASSIVE = frozenset(
    [
        "ABC",
        "Enum",
        "Exception",
        "Generic",
        "IntEnum",
        "NamedTuple",
        "Protocol",
        "StrEnum",
        "TypedDict",
        "ValueError",
    ]
)
# What is reached by name, as a pattern of `module:name`, and by whom.
KEPT: Mapping[str, str] = {
    "podyard.testing.plugin:pytest_*": "pytest calls its hooks by name",
    "podyard.programs.jax_dry_run:DryExecutable.*": "JAX calls what stands for an executable",
    "podyard.programs.contrib*:HParams.*": "users' programs call them",
    "podyard.programs.torch_xla*:*": "users' programs call torch_xla's names",
    "podyard.programs.site_hook.sitecustomize:_Finder.find_distributions": (
        "importlib.metadata asks for versions"
    ),
    "podyard.engine.lesson.picture:Picture._repr_html_": "notebooks call it",
    "podyard.lesson:*": "docs/howto/lesson.md: notebooks call them",
    "podyard:load_ipython_extension": "IPython calls it for %load_ext podyard",
    "podyard.migrations.versions.*:*": "alembic calls the revisions",
    "podyard.engine.numerics.mxu:mxu_matmul": "docs/concepts/systolic-array.md: the specification",
    "podyard.engine.numerics.tiled:*_matmul": (
        "docs/concepts/systolic-array.md: faster, and compared with it"
    ),
    "podyard.engine.timing.tpu_v1*:*": "docs/internals/tpu_v1.md: a separate model",
    "podyard.engine.timing.energy:efficiencies": (
        "docs/internals/tpu_v1.md: compared with what is published"
    ),
    "podyard.engine.timing.energy:PeakEfficiency.*": (
        "docs/internals/tpu_v1.md: compared with what is published"
    ),
    "podyard.engine.collectives.schedule:*_*": (
        "all collectives that the transports can run; jobs use the all-reduce"
    ),
    "podyard.hardware.generations.*:GENERATION": "podyard.hardware.generations loads each module",
    "podyard.*:*.*_writing": "asyncio calls them where a connection takes no more",
    "podyard.domain.webhook:ChangeMessage.*": (
        "control/platform/webhooks.py writes every field as JSON"
    ),
    "podyard.domain.fleet:Fleet.is_unpriced": (
        "what a fleet file says of itself, held against the rate card"
    ),
}
_IMPORT = re.compile(r"^\s*from (podyard[\w.]*) import ([\w, ]+)", re.MULTILINE)
_DOTTED = re.compile(r"\b(podyard(?:\.\w+)+)\.(\w+)")
_WORD = re.compile(r"[A-Za-z_]\w*")
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


@dataclasses.dataclass(frozen=True, order=True)
class Definition:
    """`name` is `function`, `Class` or `Class.member`, in `module`."""

    module: str
    name: str
    line: int = dataclasses.field(compare=False)
    path: str = dataclasses.field(compare=False)

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.module}:{self.name} is never used"


class Code:
    """The definitions of a package, and who uses what."""

    def __init__(
        self,
        sources: Mapping[str, tuple[str, str]],
        templates: Iterable[str] = (),
        pages: Iterable[str] = (),
        package: str = PACKAGE,
    ) -> None:
        """`sources`: module name -> (path, text). `templates`: texts whose words are uses of
        members. `pages`: what
        they tell users to import is used."""
        self.definitions: dict[tuple[str, str], Definition] = {}
        self.registered: set[tuple[str, str]] = set()
        self.classes: dict[tuple[str, str], ast.ClassDef] = {}
        # Owner (module, definition) or None for a module's own statements -> what it uses.
        self.globals: dict[tuple[str, str] | None, set[tuple[str, str]]] = defaultdict(set)
        self.members: dict[tuple[str, str] | None, set[str]] = defaultdict(set)
        self.members[None] |= {word for text in templates for word in _WORD.findall(text)}
        self.loaded_by_name: set[str] = set()
        self.package = package
        self.modules = frozenset(sources)
        # Module -> name -> what it is imported from, at the top or in functions.
        self.imports: dict[str, dict[str, set[tuple[str, str]]]] = {}
        trees = {module: ast.parse(text) for module, (_, text) in sources.items()}
        for module, tree in trees.items():
            for statement in tree.body:
                self._define(module, sources[module][0], statement)
            self.imports[module] = _imports(tree)
        for module, tree in trees.items():
            _Uses(self, module, tree)
        for page in pages:
            named = [(m, n) for m, names in _IMPORT.findall(page) for n in _WORD.findall(names)]
            for module, name in (*named, *_DOTTED.findall(page)):
                self.globals[None].update(self.homes(module, name))
        self.foreign = {key for key in self.classes if self._has_foreign_base(key)}

    def _define(self, module: str, path: str, statement: ast.stmt) -> None:
        def add(name: str, node: ast.stmt) -> tuple[str, str]:
            self.definitions[module, name] = Definition(module, name, node.lineno, path)
            return module, name

        if isinstance(statement, (*_FUNCTIONS, ast.ClassDef)):
            key = add(statement.name, statement)
            if _is_registered(statement):
                self.registered.add(key)
            if isinstance(statement, ast.ClassDef):
                self.classes[key] = statement
                for member in statement.body:
                    for name in _member_names(statement, member):
                        inner = add(f"{statement.name}.{name}", member)
                        if isinstance(member, _FUNCTIONS) and _is_registered(member):
                            self.registered.add(inner)
        else:
            for node in (
                ast.walk(statement) if isinstance(statement, ast.If | ast.Try) else (statement,)
            ):
                for name in _assigned(node):
                    add(name, statement)

    def homes(self, module: str, name: str) -> Iterator[tuple[str, str]]:
        """The definitions that `name` in `module` may be, through the packages that pass it on."""
        if (module, name) in self.definitions:
            yield module, name
        for home, original in self.imports.get(module, {}).get(name, ()):
            yield from self.homes(home, original)

    def _has_foreign_base(self, key: tuple[str, str]) -> bool:
        """Return whether a class of another library, at whatever distance, may call the members of
        this one."""
        for base in self.classes[key].bases:
            base = base.value if isinstance(base, ast.Subscript) else base
            ours = list(self.homes(key[0], base.id)) if isinstance(base, ast.Name) else []
            if isinstance(base, ast.Attribute) and isinstance(base.value, ast.Name):
                homes = self.imports[key[0]].get(base.value.id, ())
                ours = [
                    home for m, n in homes for home in self.homes(f"{m}.{n}".rstrip("."), base.attr)
                ]
            ours = [home for home in ours if home in self.classes]
            if any(map(self._has_foreign_base, ours)) or (
                not ours and _last_name(base) not in PASSIVE
            ):
                return True
        return False

    def dead(self, kept: Iterable[str] = ()) -> list[Definition]:
        """Return what is not reached, without the members of classes that are not. `kept`: patterns
        of `module:name`."""
        pattern = re.compile("|".join(map(fnmatch.translate, kept)) or "$.")
        kept_keys = {
            key for key in self.definitions if pattern.match(":".join(key)) or _is_special(key[1])
        }
        live: set[tuple[str, str] | None] = {None, *self.registered, *kept_keys}
        while True:
            names = {name for owner in live for name in self.members.get(owner, ())}
            reached = live | {use for owner in live for use in self.globals.get(owner, ())}
            for key in self.definitions:
                owner, _, member = key[1].partition(".")
                called = member in names or _is_special(member) or (key[0], owner) in self.foreign
                is_loaded = key[0] in self.loaded_by_name and owner in names
                if called and (key[0], owner) in live if member else is_loaded:
                    reached.add(key)
            if reached == live:
                break
            live = reached
        left = {key: definition for key, definition in self.definitions.items() if key not in live}
        return sorted(
            d for (m, n), d in left.items() if "." not in n or (m, n.partition(".")[0]) not in left
        )


class _Uses(ast.NodeVisitor):
    """Writes down what each definition of a module uses."""

    def __init__(self, code: Code, module: str, tree: ast.Module) -> None:
        self.code = code
        self.module = module
        self.owner: tuple[str, str] | None = None
        self.is_type = False  # inside of what only says a type: an annotation, a union, isinstance
        self.imported = code.imports[module]
        self.generic_visit(tree)

    def _inside(self, name: str, node: ast.AST) -> None:
        before = self.owner
        qualified = name if before is None else f"{before[1]}.{name}"
        # What is nested in a function belongs to the function.
        self.owner = (
            (self.module, qualified)
            if (self.module, qualified) in self.code.definitions
            else before
        )
        for field, value in ast.iter_fields(node):
            for child in value if isinstance(value, list) else [value]:
                if isinstance(child, ast.AST):
                    self._visit_type(child) if field == "returns" else self.visit(child)
        self.owner = before

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        self._inside(node.name, node)

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> None:
        self._inside(node.name, node)

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        self._inside(node.name, node)

    def visit_Name(self, node: ast.Name) -> None:
        if isinstance(node.ctx, ast.Load):
            self._use(self.module, node.id)
            self.code.loaded_by_name.update(self._modules_of(node))  # a module that is handed on

    def visit_Attribute(self, node: ast.Attribute) -> None:
        modules = list(self._modules_of(node.value))
        for module in modules:
            self._use(module, node.attr)
        if modules:
            return
        if isinstance(node.ctx, ast.Load):
            self.code.members[self.owner].add(node.attr)
        self.generic_visit(node)

    def visit_MatchClass(self, node: ast.MatchClass) -> None:
        self.code.members[self.owner].update(node.kwd_attrs)
        self._visit_type(node.cls)
        for pattern in (*node.patterns, *node.kwd_patterns):
            self.visit(pattern)

    def visit_Call(self, node: ast.Call) -> None:
        if (
            isinstance(node.func, ast.Name)
            and node.func.id in ("isinstance", "issubclass")
            and len(node.args) == 2
        ):
            self.visit(node.args[0])
            self._visit_type(node.args[1])
        else:
            self.generic_visit(node)

    def visit_BinOp(self, node: ast.BinOp) -> None:
        if isinstance(node.op, ast.BitOr):
            self._visit_type(node)
        else:
            self.generic_visit(node)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        self._visit_type(node.annotation)
        for child in (node.target, node.value):
            if child is not None:
                self.visit(child)

    def visit_arg(self, node: ast.arg) -> None:
        if node.annotation is not None:
            self._visit_type(node.annotation)

    def _visit_type(self, node: ast.AST) -> None:
        """A dataclass that is named as a type only is never made."""
        before, self.is_type = self.is_type, True
        self.generic_visit(node) if isinstance(node, ast.BinOp) else self.visit(node)
        self.is_type = before

    def visit_Constant(self, node: ast.Constant) -> None:
        """Names in texts: `getattr`, tables of lazy imports, columns that are fields, quoted
        annotations."""
        if isinstance(node.value, str) and len(node.value) < 200:
            if node.value.startswith(f"{self.code.package}."):
                # `podyard.cli.` begins the name of a module that is chosen at run time.
                begins = node.value.endswith(".")
                names = self.code.modules
                self.code.loaded_by_name |= {
                    m for m in names if m == node.value or (begins and m.startswith(node.value))
                }
            self.code.members[self.owner].update(_WORD.findall(node.value))

    def _modules_of(self, node: ast.expr) -> Iterator[str]:
        if isinstance(node, ast.Name):
            for home, name in self.imported.get(node.id, ()):
                if (module := f"{home}.{name}".rstrip(".")) in self.code.modules:
                    yield module

    def _use(self, module: str, name: str) -> None:
        for key in self.code.homes(module, name):
            if key != self.owner and not (
                self.is_type and _is_dataclass(self.code.classes.get(key))
            ):
                self.code.globals[self.owner].add(key)


def _imports(tree: ast.Module) -> dict[str, set[tuple[str, str]]]:
    found: dict[str, set[tuple[str, str]]] = defaultdict(set)
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module is not None:
            for alias in node.names:
                found[alias.asname or alias.name].add((node.module, alias.name))
        elif isinstance(node, ast.Import):
            for alias in node.names:
                if alias.asname:
                    found[alias.asname].add((alias.name, ""))
    return found


def _is_registered(node: ast.stmt) -> bool:
    decorators = getattr(node, "decorator_list", [])
    names = [_last_name(d.func if isinstance(d, ast.Call) else d) for d in decorators]
    return any(name not in PLAIN and not name.endswith("setter") for name in names)


def _member_names(owner: ast.ClassDef, member: ast.stmt) -> Iterator[str]:
    if isinstance(member, _FUNCTIONS):
        yield member.name
    elif (
        isinstance(member, ast.AnnAssign)
        and isinstance(member.target, ast.Name)
        and _is_dataclass(owner)
    ):
        yield member.target.id


def _is_dataclass(node: ast.ClassDef | None) -> bool:
    decorators = [] if node is None else node.decorator_list
    return any(
        _last_name(d.func if isinstance(d, ast.Call) else d) == "dataclass" for d in decorators
    )


def _assigned(node: ast.AST) -> Iterator[str]:
    targets = (
        node.targets
        if isinstance(node, ast.Assign)
        else [node.target]
        if isinstance(node, ast.AnnAssign)
        else []
    )
    for target in targets:
        for inner in target.elts if isinstance(target, ast.Tuple) else [target]:
            if isinstance(inner, ast.Name):
                yield inner.id


def _last_name(node: ast.expr) -> str:
    if isinstance(node, ast.Subscript):
        return _last_name(node.value)
    return (
        node.attr
        if isinstance(node, ast.Attribute)
        else node.id
        if isinstance(node, ast.Name)
        else ""
    )


def _is_special(name: str) -> bool:
    last = name.rpartition(".")[2]
    return last == "_" or (last.startswith("__") and last.endswith("__"))


def product(planted: Mapping[str, str] | None = None) -> Code:
    """The packages that are shipped, and their templates; and the texts of modules that a test
    adds."""
    sources = {module: (module, text) for module, text in (planted or {}).items()}
    for folder in (PACKAGE, *FOLDERS):
        for path in sorted((ROOT / folder).rglob("*.py")):
            parts = path.relative_to(ROOT).with_suffix("").parts
            parts = parts if parts[0] == PACKAGE else (PACKAGE, *parts)
            module = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
            sources[module] = (str(path.relative_to(ROOT)), path.read_text(encoding="utf-8"))
    templates = [
        path.read_text(encoding="utf-8") for path in sorted((ROOT / "web/templates").rglob("*.*"))
    ]
    pages = [
        path.read_text(encoding="utf-8")
        for path in (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")))
    ]
    return Code(sources, templates, pages)


def main() -> int:
    dead = product().dead(KEPT)
    print("\n".join(map(str, dead)) or f"No dead code ({len(KEPT)} exceptions)")
    return 1 if dead else 0


if __name__ == "__main__":
    sys.exit(main())
