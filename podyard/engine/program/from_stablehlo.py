"""Reads StableHLO text into a `Program`. A parser of its own: no JAX, no MLIR.

Functions that are called are put in place of the call. Types are those of the text; nothing is inferred, so a module
whose types contradict each other is priced by what its results say.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import cast

from podyard.base.errors import Code, PodyardError, invalid
from podyard.engine.program.attributes import normalised
from podyard.engine.program.ir import DTYPE_BYTES, Body, Operation, Program, TensorType
from podyard.engine.program.text import MAX_NESTING, Reader, Token, malformed, tokens_of

# 64 MB of text is a model with thousands of layers written out; more is refused before it is read.
MAX_TEXT_BYTES = 64 * 2**20
# Values of a module with all calls in place; a chain of functions that call each other twice doubles with each.
MAX_VALUES = 2_000_000

_TENSOR = re.compile(r"tensor<((?:-?\d+x|\?x)*)([A-Za-z]\w*)(?:,.*)?>$", re.DOTALL)
_DTYPES = {"i1": "pred", "i4": "s4", "i8": "s8", "i16": "s16", "i32": "s32", "i64": "s64"} | {
    f"ui{bits}": f"u{bits}" for bits in (4, 8, 16, 32, 64)
}
_RETURNS = frozenset({"return", "func.return", "stablehlo.return", "sdy.return", "mhlo.return"})
_CALLS = frozenset({"call", "func.call"})


def parse_stablehlo(text: str) -> Program:
    """The `main` function of a module (or its only public one).

    Raises PodyardError INVALID_ARGUMENT naming line and operation for malformed text, dynamic shapes, unknown element
    types and values; UNIMPLEMENTED for f64, which the hardware does not have.
    """
    if len(text) > MAX_TEXT_BYTES:
        raise invalid(f"a module of {len(text)} bytes is more than the {MAX_TEXT_BYTES} that are read", "module")
    module = _Module(tokens_of(text))
    return module.program()


class _Function:
    """Where the body of a function starts in the tokens, and its signature."""

    def __init__(self, start: int, parameters: list[tuple[str, TensorType, dict[str, object]]], public: bool) -> None:
        self.start = start
        self.parameters = parameters
        self.public = public


class _Module(Reader):
    """Functions are found first; `main` is read then, and every called function anew at each call."""

    def __init__(self, tokens: list[Token]) -> None:
        super().__init__(tokens)
        self._functions: dict[str, _Function] = {}
        self._partitions = 1
        self._types: list[TensorType] = []
        self._calls = 0
        self._mesh: dict[str, dict[str, int]] = {}

    def program(self) -> Program:
        self._find_functions()
        name = "main" if "main" in self._functions else self._only_public()
        main = self._functions[name]
        scope: dict[str, tuple[int, ...]] = {}
        parameters, split_axes, donated = list[int](), dict[int, int](), dict[int, int]()
        for own_name, type_, attributes in main.parameters:
            value = self._new_value(type_)
            scope[own_name] = (value,)
            parameters.append(value)
            aliased = attributes.get("tf.aliasing_output")
            if isinstance(aliased, int):
                donated[value] = aliased
            axis = self._split_axis(attributes.get("sdy.sharding"))
            if axis is not None:
                split_axes[value] = axis
        body = self._body_at(main.start, scope)
        body.parameters = parameters
        return Program(body, self._types, self._partitions, split_axes, donated)

    def _only_public(self) -> str:
        public = [name for name, function in self._functions.items() if function.public]
        if len(public) != 1:
            raise malformed(self.line, "the module has no function 'main'")
        return public[0]

    # --- the module's outside

    def _find_functions(self) -> None:
        if self.accept("module"):
            if self.peek_kind() == "symbol":
                self.next()
            if self.accept("attributes"):
                self.expect("{")
                partitions = self.dictionary().get("mhlo.num_partitions", 1)
                self._partitions = partitions if isinstance(partitions, int) else 1
            self.expect("{")
        while not self.at_end() and self.peek() != "}":
            keyword = self.next()
            if keyword.text == "func.func":
                self._function()
            elif keyword.text == "sdy.mesh":
                self._mesh_axes()
            elif keyword.kind in ("angled", "word") and keyword.text.startswith("#"):
                self.expect("=")  # an alias of a location or an attribute
                self.value()
            else:
                raise malformed(keyword.line, f"expected a function, found {keyword.text!r}")
        if not self._functions:
            raise malformed(self.line, "the module has no function")

    def _mesh_axes(self) -> None:
        name = self.next().text
        self.expect("=")
        axes: dict[str, int] = {}
        self.expect("<")
        while not self.accept(">"):
            token = self.next()
            if token.kind == "string" and self.accept("="):
                axes[token.text[1:-1]] = int(self.next().text)
        self._mesh[name] = axes
        if self.accept("{"):
            self.dictionary()

    def _function(self) -> None:
        public = True
        while self.peek_kind() == "word":
            public = self.next().text != "private"
        name = self.next()
        if name.kind != "symbol":
            raise malformed(name.line, f"expected a function's name, found {name.text!r}")
        parameters: list[tuple[str, TensorType, dict[str, object]]] = []
        self.expect("(")
        while not self.accept(")"):
            own_name = self.next()
            self.expect(":")
            type_ = tensor_type(self.next())
            attributes = self.dictionary() if self.accept("{") else {}
            parameters.append((own_name.text, type_, attributes))
            self._location()
            self.accept(",")
        if self.accept("->"):
            self._result_types()
        if self.accept("attributes"):
            self.expect("{")
            self.dictionary()
        self.expect("{")
        self._functions[name.text[1:]] = _Function(self._index, parameters, public)
        self._skip_block(name.line)
        self._location()

    def _result_types(self) -> None:
        if not self.accept("("):
            self.next()
            return
        while not self.accept(")"):
            self.next()
            if self.accept("{"):
                self.dictionary()
            self._location()
            self.accept(",")

    def _skip_block(self, line: int) -> None:
        depth = 1
        while depth:
            if self.at_end():
                raise malformed(line, "the body of this function is not closed")
            mark = self.next().text
            depth += (mark == "{") - (mark == "}")

    def _location(self) -> None:
        if self.peek() == "loc" and self.peek(1) == "(":
            self.next()
            self.value()

    def _split_axis(self, sharding: object) -> int | None:
        """The first axis that a sharding splits over a mesh axis of more than one device."""
        if not isinstance(sharding, str):
            return None
        mesh = re.search(r"@[\w.$-]+", sharding)
        sizes = self._mesh.get(mesh[0], {}) if mesh else {}
        dims = re.findall(r"\{([^{}]*)\}", sharding)
        for axis, dim in enumerate(dims):
            if any(sizes.get(name, 1) > 1 for name in re.findall(r'"([^"]*)"', dim)):
                return axis
        return None

    # --- bodies

    def _body_at(self, start: int, scope: dict[str, tuple[int, ...]]) -> Body:
        """Reads the function body that starts at a token, and comes back."""
        self._calls += 1
        if self._calls > MAX_NESTING:
            raise malformed(self.line, f"functions call each other more than {MAX_NESTING} deep")
        here, self._index = self._index, start
        body = self._block(scope, {})
        self._index = here
        self._calls -= 1
        return body

    def _block(self, scope: dict[str, tuple[int, ...]], own: Mapping[str, tuple[int, ...]]) -> Body:
        """Operations up to the closing brace. Values of the outside are seen, values of the inside stay in."""
        inner = {**scope, **own}
        body = Body([values[0] for values in own.values()], [], [])
        if self.peek_kind() == "block":
            self.next()
            body.parameters += self._block_arguments(inner)
            self.expect(":")
        while not self.accept("}"):
            if self.peek() in _RETURNS or self.peek().strip('"') in _RETURNS:
                self.next()
                body.results = self._returned(inner)
            else:
                body.operations += self._operation(inner)
        return body

    def _block_arguments(self, scope: dict[str, tuple[int, ...]]) -> list[int]:
        """`(%a: type, %b: type)`; none without a parenthesis."""
        values: list[int] = []
        if not self.accept("("):
            return values
        while not self.accept(")"):
            name = self.next()
            self.expect(":")
            values.append(self._new_value(tensor_type(self.next())))
            scope[name.text] = (values[-1],)
            self._location()
            self.accept(",")
        return values

    def _returned(self, scope: Mapping[str, tuple[int, ...]]) -> list[int]:
        generic = self.accept("(")
        values = self._values(scope)
        if generic:
            self.expect(")")
        if self.accept(":"):
            self._signature()
        self._location()
        return list(values)

    def _values(self, scope: Mapping[str, tuple[int, ...]]) -> tuple[int, ...]:
        values: list[int] = []
        while self.peek_kind() == "ssa":
            values += self._value(self.next(), scope)
            if not self.accept(","):
                break
        return tuple(values)

    def _value(self, token: Token, scope: Mapping[str, tuple[int, ...]]) -> tuple[int, ...]:
        name, _, index = token.text.partition("#")
        values = scope.get(name)
        if values is None or (index and int(index) >= len(values)):
            raise malformed(token.line, f"value {token.text} is not defined")
        return (values[int(index)],) if index else values

    def _new_value(self, type_: TensorType) -> int:
        if len(self._types) >= MAX_VALUES:
            raise malformed(self.line, f"the module has more than {MAX_VALUES} values")
        self._types.append(type_)
        return len(self._types) - 1

    # --- operations

    def _operation(self, scope: dict[str, tuple[int, ...]]) -> list[Operation]:
        names = self._result_names()
        token = self.next()
        if token.kind not in ("word", "string"):
            raise malformed(token.line, f"expected an operation, found {token.text!r}")
        parts = _Parts(token.text.strip('"'), token.line)
        self._tail(parts, scope)
        result_types = parts.result_types
        if parts.opcode in _CALLS:
            return self._inlined(parts, names, scope)
        count_named = sum(count for _, count in names)
        if count_named == 1:  # `select %0, %1, %2 : tensor<i1>, tensor<f32>`: the last type is the result's
            result_types = result_types[-1:]
        elif len(result_types) == 1:
            result_types = result_types * count_named
        if count_named != len(result_types):
            raise malformed(token.line, f"'{parts.opcode}' has {len(result_types)} results, not as many as it names")
        results = [self._new_value(type_) for type_ in result_types]
        position = 0
        for name, count in names:
            scope[name] = tuple(results[position : position + count])
            position += count
        if parts.opcode == "sdy.manual_computation":
            return self._manual(parts, names, scope)
        opcode = parts.opcode.rpartition(".")[2]
        operation = Operation(
            opcode, tuple(parts.operands), tuple(results), parts.attributes, tuple(parts.bodies), f"line {token.line}"
        )
        operation.attributes = normalised(operation, parts.positional, [self._types[v] for v in operation.operands])
        return [operation]

    def _result_names(self) -> list[tuple[str, int]]:
        names: list[tuple[str, int]] = []
        while self.peek_kind() == "ssa":
            name = self.next().text
            count = int(self.next().text) if self.accept(":") else 1
            names.append((name, count))
            if not self.accept(","):
                self.expect("=")
                break
        return names

    def _tail(self, parts: _Parts, scope: dict[str, tuple[int, ...]]) -> None:
        """Everything behind the name: operands, attributes, bodies, types, in any order that the dialects print."""
        arguments: dict[str, tuple[int, ...]] = {}
        while True:
            text, kind = self.peek(), self.peek_kind()
            if text == ":":
                self.next()
                parts.operand_types, parts.result_types = self._signature()
                if self.peek() in ("cond", "do", "reducer"):
                    continue
                self._location()
                return
            if text == "(" and self.peek(1) == "{":
                self._bodies(parts, scope)
            elif text == "(" and self.peek_kind(1) == "ssa" and self.peek(2) == ":":
                self._add_arguments(arguments, scope)
            elif text == "(":
                self.next()
                self._parenthesis(parts, scope)
            elif text == "{" and arguments and not parts.is_while:
                self.next()
                parts.bodies.append(self._block(scope, arguments))
                arguments = {}
                if parts.opcode == "stablehlo.reduce":
                    self._location()
                    return
            elif text in ("cond", "do") and self.peek(1) == "{":
                self.next()
                self.next()
                body = self._block({**scope, **parts.loop}, {})
                body.parameters = [values[0] for values in parts.loop.values()]
                parts.bodies.append(body)
                if text == "do":
                    self._location()
                    return
            elif text in ("{", "<"):
                self.next()
                if text == "<":
                    self.expect("{")
                parts.attributes |= self.dictionary()
                if text == "<":
                    self.expect(">")
            elif kind == "ssa":
                parts.operands += self._value(self.next(), scope)
            elif text == ",":
                self.next()
            elif kind == "word" and self.peek(1) == "=":
                name = self.next().text
                self.next()
                parts.attributes[name] = self.value()
            elif kind in ("word", "angled", "number", "string", "symbol") or text == "[":
                parts.positional.append(self.value())
            else:
                raise malformed(self.line, f"'{parts.opcode}' is followed by {text or 'the end'!r}")

    def _bodies(self, parts: _Parts, scope: dict[str, tuple[int, ...]]) -> None:
        self.expect("(")
        while not self.accept(")"):
            self.expect("{")
            parts.bodies.append(self._block(scope, {}))
            self.accept(",")

    def _add_arguments(self, arguments: dict[str, tuple[int, ...]], scope: dict[str, tuple[int, ...]]) -> None:
        own = dict(scope)
        before = set(own)
        values = self._block_arguments(own)
        names = [name for name in own if name not in before or own[name] != scope[name]]
        for name, value in zip(names, values, strict=True):
            arguments[name] = (value,)

    def _parenthesis(self, parts: _Parts, scope: Mapping[str, tuple[int, ...]]) -> None:
        """`(%a, %b)`, `(%a init: %b)`, `(%iterArg = %a, ...)`."""
        while not self.accept(")"):
            token = self.next()
            if token.kind == "ssa" and self.accept("="):
                parts.is_while = True
                initial = self._value(self.next(), scope)
                parts.operands += initial
                parts.loop[token.text] = (self._new_value(self._types[initial[0]]),)
            elif token.kind == "ssa":
                parts.operands += self._value(token, scope)
            elif token.text == "init":
                self.expect(":")
            elif token.text != ",":
                raise malformed(token.line, f"'{parts.opcode}' has the operand {token.text!r}")

    def _signature(self) -> tuple[list[TensorType], list[TensorType]]:
        """(operand types, result types); without an arrow both are the list."""
        left = self._types_in_signature()
        return left, self._types_in_signature() if self.accept("->") else left

    def _types_in_signature(self) -> list[TensorType]:
        types: list[TensorType] = []
        if self.accept("("):
            while not self.accept(")"):
                types.append(tensor_type(self.next()))
                self.accept(",")
            return types
        while True:
            types.append(tensor_type(self.next()))
            if self.peek() != "," or self.peek_kind(1) not in ("angled", "word"):
                return types
            self.next()

    def _inlined(
        self, parts: _Parts, names: list[tuple[str, int]], scope: dict[str, tuple[int, ...]]
    ) -> list[Operation]:
        callee = next((str(item)[1:] for item in parts.positional if str(item).startswith("@")), "")
        function = self._functions.get(callee)
        if function is None:
            raise malformed(parts.line, f"function @{callee} is called and not defined")
        if len(function.parameters) != len(parts.operands):
            raise malformed(parts.line, f"@{callee} has {len(function.parameters)} parameters")
        own: dict[str, tuple[int, ...]] = {
            name: (value,) for (name, _, _), value in zip(function.parameters, parts.operands, strict=True)
        }
        body = self._body_at(function.start, own)
        position = 0
        for name, count in names:
            scope[name] = tuple(body.results[position : position + count])
            position += count
        return body.operations

    def _manual(
        self, parts: _Parts, names: list[tuple[str, int]], scope: dict[str, tuple[int, ...]]
    ) -> list[Operation]:
        """A manual computation is one device's program already: its arguments take the place of the global ones."""
        body = parts.bodies[0]
        entries = [
            Operation("shard", (operand,), (own,), {}, where=f"line {parts.line}")
            for operand, own in zip(parts.operands, body.parameters, strict=True)
        ]
        exits = []
        results = [value for name, _ in names for value in scope[name]]
        for own, value in zip(body.results, results, strict=True):
            exits.append(Operation("unshard", (own,), (value,), {}, where=f"line {parts.line}"))
        return [*entries, *body.operations, *exits]


class _Parts:
    """What has been read of an operation."""

    def __init__(self, opcode: str, line: int) -> None:
        self.opcode = opcode
        self.line = line
        self.operands: list[int] = []
        self.positional: list[object] = []
        self.attributes: dict[str, object] = {}
        self.bodies: list[Body] = []
        self.operand_types: list[TensorType] = []
        self.result_types: list[TensorType] = []
        self.loop: dict[str, tuple[int, ...]] = {}
        self.is_while = False


def tensor_type(token: Token) -> TensorType:
    """Raises INVALID_ARGUMENT for what is no static tensor, UNIMPLEMENTED for f64, both with the line."""
    if token.text in ("!stablehlo.token", "token"):
        return TensorType((), "token")
    match = _TENSOR.match(token.text)
    if match is None:
        complex_ = re.match(r"tensor<((?:\d+x)*)complex<f32>>$", token.text)
        if complex_ is not None:
            return TensorType(tuple(int(size) for size in complex_[1].split("x") if size), "c64")
        raise malformed(token.line, f"{token.text!r} is no tensor type")
    if "?" in match[1]:
        raise malformed(token.line, f"{token.text} has a dynamic shape; programs for a TPU have static ones")
    shape = tuple(int(size) for size in match[1].split("x") if size)
    dtype = _DTYPES.get(match[2], match[2].lower())
    if dtype == "f64":
        raise PodyardError(Code.UNIMPLEMENTED, f"StableHLO, line {token.line}: TPUs have no f64 ({token.text})")
    if dtype not in DTYPE_BYTES:
        raise malformed(token.line, f"{token.text} has the unknown element type {match[2]!r}")
    return TensorType(shape, cast(str, dtype))


__all__ = ["parse_stablehlo", "tensor_type"]
