"""Tokens, attribute values and types of MLIR text, as far as StableHLO modules use them."""

from __future__ import annotations

import dataclasses
import math
import re

from podyard.base.errors import Code, PodyardError, invalid
from podyard.engine.program.ir import DTYPE_BYTES, TensorType

_SPACE = re.compile(r"(?:[ \t\r\f\v]|//[^\n]*)+")
_TOKEN = re.compile(
    r"""
    (?P<string>"[^"\\]*(?:\\.[^"\\]*)*")
  | (?P<ssa>%[\w.$-]+(?:\#\d+)?)
  | (?P<symbol>@(?:[\w.$-]+|"[^"]*"))
  | (?P<block>\^[\w.$-]+)
  | (?P<number>-?(?:0x[0-9A-Fa-f]+|\d+(?:\.\d*)?(?:[eE][+-]?\d+)?))
  | (?P<arrow>->)
  | (?P<angled>(?:[#!][\w.]+|tensor|dense|dense_resource|array|complex|tuple|memref)(?=<))
  | (?P<word>[#!]?[A-Za-z_][\w.$]*)
  | (?P<mark>[()\[\]{}<>=:,?*|+-])
    """,
    re.VERBOSE,
)
# Deeper nesting (of bodies, calls, attributes together) than any module of a compiler has; keeps
# hostile text from exhausting the stack.
MAX_NESTING = 100
# Longer lists of numbers are contents of constants, which nothing here reads; those of attributes
# are short.
_MAX_DENSE = 10_000

_TENSOR = re.compile(r"tensor<((?:[0-9]+x|\?x)*)([A-Za-z]\w*)(?:,.*)?>$", re.DOTALL)
_COMPLEX = re.compile(r"tensor<((?:[0-9]+x)*)complex<(f32|f64)>>$")
# Of dimensions of bounded size, "?" of the others.
_BOUNDS = re.compile(r"#stablehlo\.bounds<([0-9?,\s]*)>")
_DTYPES = {"i1": "pred", "i4": "s4", "i8": "s8", "i16": "s16", "i32": "s32", "i64": "s64"} | {
    f"ui{bits}": f"u{bits}" for bits in (4, 8, 16, 32, 64)
}
_INTEGER = re.compile(r"-?[0-9]{1,18}$")
# Sizes of arrays are 64 bit; more digits are no size.
_MAX_DIGITS = 18


@dataclasses.dataclass(frozen=True, slots=True)
class SourceToken:
    """`kind` is a group of the token pattern; `angled` tokens carry their <...> with them."""

    kind: str
    text: str
    line: int


def syntax_error(line: int, problem: str) -> PodyardError:
    """INVALID_ARGUMENT that names the line."""
    return invalid(f"StableHLO, line {line}: {problem}", f"line {line}")


def tokens_of(text: str, first_line: int = 1) -> list[SourceToken]:
    """Raises PodyardError INVALID_ARGUMENT naming the line of a character that no token starts
    with."""
    tokens: list[SourceToken] = []
    position, line, end = 0, first_line, len(text)
    while position < end:
        if text[position] == "\n":
            line += 1
            position += 1
            continue
        space = _SPACE.match(text, position)
        if space is not None:
            position = space.end()
            continue
        match = _TOKEN.match(text, position)
        if match is None:
            raise syntax_error(line, f"unexpected character {text[position]!r}")
        kind, stop = str(match.lastgroup), match.end()
        if kind == "angled":
            stop = _end_of_angles(text, stop, line)
        token = text[position:stop]
        tokens.append(SourceToken(kind, token, line))
        line += token.count("\n")
        position = stop
    return tokens


_ANGLE = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"|->|[<>]')


def _end_of_angles(text: str, position: int, line: int) -> int:
    """The position behind the `>` that closes the `<` at `position`; strings inside do not count,
    nor does `->`."""
    depth = 0
    for match in _ANGLE.finditer(text, position):
        if match[0] == "<":
            depth += 1
        elif match[0] == ">":
            depth -= 1
            if depth == 0:
                return match.end()
    raise syntax_error(line, "'<' is not closed")


class Reader:
    """A cursor over tokens."""

    def __init__(self, tokens: list[SourceToken], depth: int = 0) -> None:
        self._tokens = tokens
        self._index = 0
        self._depth = depth
        # `#name = ...` of the module: what the name stands for.
        self._aliases: dict[str, object] = {}
        # `#name = loc(...)` of the module: the name in the location, or that of another location.
        self._locations: dict[str, str] = {}

    @property
    def line(self) -> int:
        if not self._tokens:
            return 1
        return self._tokens[min(self._index, len(self._tokens) - 1)].line

    def peek(self, ahead: int = 0) -> str:
        """The text of a coming token; empty at the end."""
        index = self._index + ahead
        return self._tokens[index].text if index < len(self._tokens) else ""

    def peek_kind(self, ahead: int = 0) -> str:
        index = self._index + ahead
        return self._tokens[index].kind if index < len(self._tokens) else "end"

    def next(self) -> SourceToken:
        if self._index >= len(self._tokens):
            raise syntax_error(self.line, "the module ends in the middle of an operation")
        token = self._tokens[self._index]
        self._index += 1
        return token

    def accept(self, text: str) -> bool:
        if self.peek() != text:
            return False
        self._index += 1
        return True

    def expect(self, text: str) -> None:
        if not self.accept(text):
            found = self.peek() or "the end"
            raise syntax_error(self.line, f"expected {text!r}, found {found!r}")

    def at_end(self) -> bool:
        return self._index >= len(self._tokens)

    def value(self, typed: bool = True) -> object:
        """An attribute value: lists become tuples, dictionaries dicts, integers ints, everything
        else its text.

        `[0] x [1]` and `[b, f]x[i, o]->[b, f]` become tuples of their parts. A type behind `:` is
        skipped, unless it is not the value's own (not `typed`).
        """
        self.deeper()
        first = self._one_value()
        parts = [first]
        while isinstance(first, tuple) and (
            self.peek() == "->" or (self.peek() == "x" and self.peek(1) == "[")
        ):
            self.next()
            parts.append(self._one_value())
        if typed and self.peek() == ":" and self.peek_kind(1) in ("word", "angled"):
            self.next()
            own_type = self.next().text
            if isinstance(first, str) and first.startswith('dense<"0x'):
                parts = [f"{first} : {own_type}"]
        self._depth -= 1
        return parts[0] if len(parts) == 1 else tuple(parts)

    def deeper(self) -> None:
        """One level down; the caller decrements `_depth` when it leaves the level."""
        self._depth += 1
        if self._depth > MAX_NESTING:
            raise syntax_error(
                self.line, f"bodies, calls and attributes are nested more than {MAX_NESTING} deep"
            )

    def location(self) -> str:
        """Pass over `loc(...)`, if it is next, and return the name in it: a name stack or an
        argument, or `#loc3` where another location has it. Empty where there is none:
        `"file.py":3:1` is a place, not a name."""
        name = ""
        if self.peek() != "loc" or self.peek(1) != "(":
            return name
        self.next()
        line, depth = self.next().line, 1
        while depth:
            if self.at_end():
                raise syntax_error(line, "'loc(' is not closed")
            token = self.next()
            if not name and token.text.startswith("#"):
                name = token.text
            elif not name and token.kind == "string" and self.peek() != ":":
                name = token.text[1:-1]
            depth += (token.text == "(") - (token.text == ")")
        return name

    def location_name(self, name: str) -> str:
        """Return the name that `location` has read, with what other locations stand for."""
        passed: set[str] = set()
        while name.startswith("#") and name not in passed:
            passed.add(name)
            name = self._locations.get(name, "")
        return name

    def alias(self, name: SourceToken) -> None:
        """Return the text behind `#name` at the outside of a module. Names in it stay names, else
        each could double the one before."""
        self.expect("=")
        if self.peek() == "loc":
            self._locations[name.text] = self.location()
            return
        known, self._aliases = self._aliases, {}
        known[name.text], self._aliases = self.value(), known

    def integer(self) -> int:
        """A whole number that is next."""
        token = self.next()
        if not token.text.isdecimal() or len(token.text) > _MAX_DIGITS:
            raise syntax_error(token.line, f"expected a number, found {token.text!r}")
        return int(token.text)

    def signature(self) -> tuple[list[TensorType], list[TensorType]]:
        """(operand types, result types); without an arrow both are the list."""
        left = self._types_in_signature()
        return left, self._types_in_signature() if self.accept("->") else left

    def _types_in_signature(self) -> list[TensorType]:
        types: list[TensorType] = []
        if self.accept("("):
            while not self.accept(")"):
                types.append(tensor_type(self.next()))
                self.comma_unless(")")
            return types
        while True:
            types.append(tensor_type(self.next()))
            if self.peek() != "," or self.peek_kind(1) not in ("angled", "word"):
                return types
            self.next()

    def comma_unless(self, closing: str) -> None:
        """Between the items of a list."""
        if self.peek() != closing:
            self.expect(",")

    def _one_value(self) -> object:
        token = self.next()
        if token.text == "[":
            items: list[object] = []
            while not self.accept("]"):
                items.append(self.value())
                while self.accept(":"):  # a slice, start:limit:step
                    items[-1] = (*_as_tuple(items[-1]), self.value())
                self.accept(",")
            return tuple(items)
        if token.text == "{":
            return self.dictionary()
        # a sharding
        if token.text == "<" and (self.peek_kind() == "symbol" or self.peek() == "mesh"):
            return self._until_closed(token)
        if token.text == "<" and self.peek(1) == "=":
            return self.dictionary(">")
        if token.text == "<":
            inner_values = [self.value()]
            while self.accept(","):
                inner_values.append(self.value())
            self.expect(">")
            return inner_values[0] if len(inner_values) == 1 else tuple(inner_values)
        if token.kind == "number":
            return _number(token)
        if token.kind == "string":
            return token.text[1:-1]
        if token.kind == "angled":
            return angled_value(token, self._depth)
        if token.text == "(":
            pieces: list[object] = []
            while not self.accept(")"):
                pieces.append(self.value())
                self.accept(",")
            return tuple(pieces)
        if (token.kind == "mark" and token.text not in "*?+-") or token.kind == "arrow":
            raise syntax_error(token.line, f"expected a value, found {token.text!r}")
        return self._aliases.get(token.text, token.text)

    def _until_closed(self, opened: SourceToken) -> str:
        """The text of `<...>`, whose start was read."""
        texts, depth = [opened.text], 1
        while depth:
            if self.at_end():
                raise syntax_error(opened.line, "'<' is not closed")
            texts.append(self.next().text)
            depth += (texts[-1] == "<") - (texts[-1] == ">")
        return "".join(texts)

    def dictionary(self, closing: str = "}") -> dict[str, object]:
        """The entries behind a `{` (or `<`) that was read, to what closes it; an entry without a
        value is True."""
        self.deeper()
        entries: dict[str, object] = {}
        while not self.accept(closing):
            name = self.next()
            if name.text in _BRACKETS:
                raise syntax_error(name.line, f"expected a name, found {name.text!r}")
            entries[name.text.strip('"')] = self.value() if self.accept("=") else True
            self.accept(",")
        self._depth -= 1
        return entries


_BRACKETS = frozenset("[]{}<>=")


def _number(token: SourceToken) -> int | float:
    if len(token.text.lstrip("-")) > 2 * _MAX_DIGITS:
        raise syntax_error(token.line, f"{token.text[:20]}... is too long for a number")
    try:
        return int(token.text, 16 if "x" in token.text else 10)
    except ValueError:
        return float(token.text)


def _as_tuple(item: object) -> tuple[object, ...]:
    return item if isinstance(item, tuple) else (item,)


def angled_value(token: SourceToken, depth: int) -> object:
    """`array<i64: 1, 2>` -> (1, 2); `dense<[[1, 2]]>` -> ((1, 2),); `#stablehlo.dot<a = [0]>` ->
    {"a": (0,)}; `#stablehlo<precision DEFAULT>` and what is not understood -> the text. `depth`: of
    what it stands in."""
    name, _, rest = token.text.partition("<")
    inner = rest[:-1]
    if name == "array" and len(inner) <= _MAX_DENSE:
        _, _, items = inner.partition(":")
        return tuple(
            int(item) if _INTEGER.match(item) else item
            for item in map(str.strip, items.split(","))
            if item
        )
    if name in ("dense", "#stablehlo.conv"):
        if inner.startswith('"') or len(inner) > _MAX_DENSE:
            return token.text
        return Reader(tokens_of(inner, token.line), depth).value() if inner else ()
    if name.startswith("#stablehlo.") and "=" in inner:
        return Reader(tokens_of(inner + "}", token.line), depth).dictionary()
    return token.text


def symbol_name(text: str) -> str:
    """`@name` or `@"any name"` -> the name."""
    return text[1:].strip('"')


def tensor_type(token: SourceToken) -> TensorType:
    """Raises INVALID_ARGUMENT for what is not a static tensor, UNIMPLEMENTED for f64, both with the
    line."""
    if token.text in ("!stablehlo.token", "token"):
        return TensorType((), "token")
    match = _TENSOR.match(token.text) or _COMPLEX.match(token.text)
    if match is None:
        raise syntax_error(token.line, f"{token.text[:80]!r} is not a tensor type")
    sizes = match[1].split("x")[:-1]
    if "?" in sizes:
        # An array of bounded size has room for its bound, and is computed with it: what pads it
        # is XLA's dynamic_padder.
        bounds = _BOUNDS.search(token.text)
        known = [] if bounds is None else [one.strip() for one in bounds[1].split(",")]
        sizes = [two[1] if two[0] == "?" else two[0] for two in zip(sizes, known, strict=False)]
    if not all(size.isdecimal() for size in sizes) or len(sizes) != match[1].count("x"):
        raise syntax_error(
            token.line,
            f"{token.text} has a dynamic shape without a bound; programs for a TPU have static or "
            "bounded ones",
        )
    too_large = any(len(size) > _MAX_DIGITS for size in sizes)
    shape = () if too_large else tuple(int(size) for size in sizes)
    if too_large or math.prod(extent or 1 for extent in shape) >= 10**_MAX_DIGITS:
        raise syntax_error(token.line, f"{token.text[:80]} is larger than any memory")
    if match[2] == "f64":
        raise PodyardError(
            Code.UNIMPLEMENTED, f"StableHLO, line {token.line}: TPUs have no f64 ({token.text})"
        )
    dtype = "c64" if match.re is _COMPLEX else _DTYPES.get(match[2], match[2].lower())
    if dtype not in DTYPE_BYTES or match[2] == "token":
        raise syntax_error(token.line, f"{token.text} has the unknown element type {match[2]!r}")
    return TensorType(shape, dtype)
