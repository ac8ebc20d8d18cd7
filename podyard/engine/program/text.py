"""Tokens and attribute values of MLIR text, as far as StableHLO modules use them."""

from __future__ import annotations

import dataclasses
import re

from podyard.base.errors import PodyardError, invalid

_SPACE = re.compile(r"(?:[ \t\r\f\v]|//[^\n]*)+")
_TOKEN = re.compile(
    r"""
    (?P<string>"(?:[^"\\]|\\.)*")
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
# Deeper nesting than any module of a compiler has; keeps hostile text from exhausting the stack.
MAX_NESTING = 200


@dataclasses.dataclass(frozen=True, slots=True)
class Token:
    """`kind` is a group of the token pattern; `angled` tokens carry their <...> with them."""

    kind: str
    text: str
    line: int


def malformed(line: int, problem: str) -> PodyardError:
    """INVALID_ARGUMENT that names the line."""
    return invalid(f"StableHLO, line {line}: {problem}", f"line {line}")


def tokens_of(text: str, first_line: int = 1) -> list[Token]:
    """Raises PodyardError INVALID_ARGUMENT naming the line of a character that no token starts with."""
    tokens: list[Token] = []
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
            raise malformed(line, f"unexpected character {text[position]!r}")
        kind, stop = str(match.lastgroup), match.end()
        if kind == "angled":
            stop = _end_of_angles(text, stop, line)
        token = text[position:stop]
        tokens.append(Token(kind, token, line))
        line += token.count("\n")
        position = stop
    return tokens


_ANGLE = re.compile(r'"(?:[^"\\]|\\.)*"|->|[<>]')


def _end_of_angles(text: str, position: int, line: int) -> int:
    """The position behind the `>` that closes the `<` at `position`; strings inside do not count, nor does `->`."""
    depth = 0
    for match in _ANGLE.finditer(text, position):
        if match[0] == "<":
            depth += 1
        elif match[0] == ">":
            depth -= 1
            if depth == 0:
                return match.end()
    raise malformed(line, "'<' is not closed")


class Reader:
    """A cursor over tokens."""

    def __init__(self, tokens: list[Token]) -> None:
        self._tokens = tokens
        self._index = 0
        self._depth = 0

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

    def next(self) -> Token:
        if self._index >= len(self._tokens):
            raise malformed(self.line, "the module ends in the middle of an operation")
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
            raise malformed(self.line, f"expected {text!r}, found {found!r}")

    def at_end(self) -> bool:
        return self._index >= len(self._tokens)

    def value(self) -> object:
        """An attribute value: lists become tuples, dictionaries dicts, integers ints, everything else its text.

        `[0] x [1]` and `[b, f]x[i, o]->[b, f]` become tuples of their parts. A type behind `:` is skipped.
        """
        self._depth += 1
        if self._depth > MAX_NESTING:
            raise malformed(self.line, f"attributes are nested more than {MAX_NESTING} deep")
        first = self._one_value()
        parts = [first]
        while isinstance(first, tuple) and (self.peek() in ("x", "->")) and self.peek(1) == "[":
            self.next()
            parts.append(self._one_value())
        if self.peek() == ":" and self.peek_kind(1) in ("word", "angled") and self._depth > 1:
            self.next()
            self.next()
        self._depth -= 1
        return parts[0] if len(parts) == 1 else tuple(parts)

    def _one_value(self) -> object:
        token = self.next()
        if token.text == "[":
            items: list[object] = []
            while not self.accept("]"):
                items.append(self.value())
                while self.peek() in (":",):  # a slice, start:limit:step
                    self.next()
                    items[-1] = (*_as_tuple(items[-1]), self.value())
                self.accept(",")
            return tuple(items)
        if token.text == "{":
            return self.dictionary()
        if token.text == "<":
            inner_values = [self.value()]
            while self.accept(","):
                inner_values.append(self.value())
            self.expect(">")
            return inner_values[0] if len(inner_values) == 1 else tuple(inner_values)
        if token.kind == "number":
            return _number(token.text)
        if token.kind == "string":
            return token.text[1:-1]
        if token.kind == "angled":
            return angled_value(token)
        if token.text == "(":
            pieces: list[object] = []
            while not self.accept(")"):
                pieces.append(self.value())
                self.accept(",")
            return tuple(pieces)
        return token.text

    def dictionary(self) -> dict[str, object]:
        """The entries behind a `{` that was read, to its `}`; an entry without a value is True."""
        entries: dict[str, object] = {}
        while not self.accept("}"):
            name = self.next().text.strip('"')
            entries[name] = self.value() if self.accept("=") else True
            self.accept(",")
        return entries


def _number(text: str) -> int | float:
    try:
        return int(text, 0)
    except ValueError:
        return float(text)


def _as_tuple(item: object) -> tuple[object, ...]:
    return item if isinstance(item, tuple) else (item,)


def angled_value(token: Token) -> object:
    """`array<i64: 1, 2>` -> (1, 2); `dense<[[1, 2]]>` -> ((1, 2),); `#stablehlo.dot<a = [0]>` -> {"a": (0,)};
    `#stablehlo<precision DEFAULT>` and what is not understood -> the text."""
    name, _, rest = token.text.partition("<")
    inner = rest[:-1]
    if name == "array":
        _, _, items = inner.partition(":")
        return tuple(
            int(item) if item.strip().lstrip("-").isdigit() else item.strip()
            for item in items.split(",")
            if item.strip()
        )
    if name in ("dense", "#stablehlo.conv"):
        if inner.startswith('"') or len(inner) > 100_000:
            return token.text
        return Reader(tokens_of(inner, token.line)).value() if inner else ()
    if name.startswith("#stablehlo.") and "=" in inner:
        return Reader(tokens_of(inner + "}", token.line)).dictionary()
    return token.text
