"""Reads StableHLO text into a `Program`. Our own parser: no JAX, no MLIR.

Functions that are called are put in place of the call. Types are those of the text; nothing is
inferred, but what the models rely on (axes that exist, shapes that follow from each other) is
checked. The pretty form and the generic one are read, the latter for the module and its functions,
too.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Mapping, Sequence

from podyard.base.errors import invalid
from podyard.engine.program.arguments import MainArguments, is_on_host
from podyard.engine.program.attributes import contradiction, control_problem, normalise
from podyard.engine.program.branches import chosen_branches
from podyard.engine.program.custom_calls import SHARDING_CALLS, memory_of
from podyard.engine.program.doubts import Doubt
from podyard.engine.program.functions import LOCATION, Function, Outside
from podyard.engine.program.ir import (
    PLACE,
    REMATTED,
    Body,
    HloOperation,
    Program,
    TensorType,
    mark_call,
    mark_rematted,
)
from podyard.engine.program.operation_parts import OperationParts
from podyard.engine.program.sharding_notes import COLLECTIVES, ShardingNotes, plain
from podyard.engine.program.shardings import PLACED, Sharding
from podyard.engine.program.text import (
    SourceToken,
    symbol_name,
    syntax_error,
    tensor_type,
    tokens_of,
)

# 64 MB of text is a model with thousands of layers written out; more is refused before it is read.
MAX_TEXT_BYTES = 64 * 2**20
# Values of a module with all calls in place; a chain of functions that call each other twice
# doubles with each.
MAX_VALUES = 2_000_000

_RETURNS = frozenset({"return", "func.return", "stablehlo.return", "sdy.return", "mhlo.return"})
# What is replaced by a function, and the attribute that names it where no symbol is printed.
_CALLS = {"call": "callee", "func.call": "callee", "stablehlo.composite": "decomposition"}
_MANUAL = "sdy.manual_computation"
# Other names of operations that the models know.
_SYNONYMS = {"erfc": "erf", "dot": "dot_general", "sharding_constraint": "optimization_barrier"}
# Values by name, those of a body before those of what is around it.
Scope = ChainMap[str, tuple[int, ...]]
# How many times its own size a module may grow to with calls in place, besides a first million
# tokens.
_GROWTH, _FREE_TOKENS = 100, 1_000_000


def parse_stablehlo(text: str) -> Program:
    """The `main` function of a module (or its only public one).

    Raises PodyardError INVALID_ARGUMENT naming line and operation for malformed text, dynamic
    shapes, unknown element types and values, functions that call themselves, nesting of more than
    100 levels; UNIMPLEMENTED for f64, which the hardware does not have. Takes time and memory in
    proportion to the text.
    """
    if len(text) > MAX_TEXT_BYTES:
        raise invalid(
            f"StableHLO: a module of {len(text)} characters is more than the {MAX_TEXT_BYTES} "
            "that are read",
            "line 1",
        )
    module = _Module(tokens_of(text), text)
    return module.program()


class _Module(Outside):
    """Functions are found first; `main` is read then, and every called function again at each
    call."""

    def __init__(self, tokens: list[SourceToken], text: str) -> None:
        super().__init__(tokens)
        self._text = text
        self._types: list[TensorType] = []
        # Functions whose bodies are being read, and tokens of bodies that were.
        self._open: list[str] = []
        self._tokens_read = 0
        self._token_count = len(tokens)
        self._shardings: dict[int, Sharding] = {}
        # Results of sharding constraints, and how they are to lie.
        self._placed: dict[int, Sharding] = {}

    def program(self) -> Program:
        self.find_functions()
        self._notes = ShardingNotes(self.mesh, self.partitions, self.frontend, self._text)
        if "main" not in self.functions and len(self.public) != 1:
            raise syntax_error(self.line, "the module has no function 'main'")
        name = "main" if "main" in self.functions else self.public[0]
        main = self.functions[name]
        scope = Scope()
        arguments = MainArguments()
        self.partitions = self._notes.check_meshes()
        for place, (own_name, type_, attributes) in enumerate(main.parameters):
            value = self._new_value(type_)
            scope[own_name] = (value,)
            location = self.location_name(str(attributes.get(LOCATION, "")))
            arguments.add(value, (own_name.removeprefix("%"), location), attributes)
            sharding = self._notes.of_argument(attributes, f"argument {place}", len(type_.shape))
            if sharding is not None:
                self._shardings[value] = sharding
        body = self._body_of(name, scope, self._first_line(main))
        body.parameters = arguments.values
        notes = {
            place: self._notes.of_argument(own, f"result {place}", len(main.results[place].shape))
            for place, own in main.result_attributes.items()
        }
        doubts = [*self._notes.doubts, *self._replication_doubts()]
        body = chosen_branches(body)
        return Program(
            body,
            self._types,
            self.partitions,
            self._notes.mesh,
            self._shardings,
            {place: sharding for place, sharding in notes.items() if sharding},
            arguments.donated,
            arguments.donors,
            doubts=doubts,
            argument_names=tuple(arguments.names),
            host_arguments=arguments.on_host,
            host_results={
                place for place, own in main.result_attributes.items() if is_on_host(own)
            },
        )

    def _replication_doubts(self) -> list[Doubt]:
        if self.replicas == 1:
            return []
        reason = (
            f"mhlo.num_replicas is {self.replicas}: counted as one replica, without what "
            "replicas exchange"
        )
        return [Doubt("devices", "replicas", reason, about_memory=False)]

    # --- bodies

    def _first_line(self, function: Function) -> int:
        return self._tokens[function.start - 1].line

    def _body_of(self, name: str, scope: Scope, line: int) -> Body:
        """Reads the body of a function that is called at `line`, with its parameters in `scope`,
        and comes back."""
        function = self.functions[name]
        if name in self._open:
            raise syntax_error(line, f"function @{name} calls itself")
        self._tokens_read += function.end - function.start + 1
        if self._tokens_read > _GROWTH * self._token_count + _FREE_TOKENS:
            raise syntax_error(
                line, f"with all calls in place the module is more than {_GROWTH} times as long"
            )
        self._open.append(name)
        here, self._index = self._index, function.start
        body = self._block(scope, {})
        if self._types_of(body.results) != function.results:
            raise syntax_error(
                self._first_line(function),
                f"function @{name} does not return what its signature says",
            )
        self._index = here
        self._open.pop()
        return body

    def _block(self, scope: Scope, own: Mapping[str, tuple[int, ...]]) -> Body:
        """Operations up to the closing brace. Values of the outside are seen, values of the inside
        stay in."""
        self.deeper()
        inner = scope.new_child(dict(own))
        body = Body([values[0] for values in own.values()], [], [])
        if self.peek_kind() == "block":
            self.next()
            body.parameters += self._block_arguments(inner)
            self.expect(":")
        while not self.accept("}"):
            if self.peek() in _RETURNS or self.peek().strip('"') in _RETURNS:
                self.next()
                body.results = self._results(inner)
                if self.peek() != "}":
                    raise syntax_error(self.line, f"{self.peek() or 'the end'!r} behind a return")
            else:
                body.operations += self._operation(inner)
        self._depth -= 1
        return body

    def _block_arguments(self, scope: Scope) -> list[int]:
        """`(%a: type, %b: type)`; none without a parenthesis."""
        values: list[int] = []
        if not self.accept("("):
            return values
        while not self.accept(")"):
            name = self.next()
            self.expect(":")
            values.append(self._new_value(tensor_type(self.next())))
            scope[name.text] = (values[-1],)
            self.location()
            self.comma_unless(")")
        return values

    def _results(self, scope: Scope) -> list[int]:
        line, generic = self.line, self.accept("(")
        values = self._values(scope)
        if generic:
            self.expect(")")
        types = self.signature()[0] if self.accept(":") else []
        if self._types_of(values) != types:
            raise syntax_error(line, "a return says other types than its values have")
        self.location()
        return list(values)

    def _values(self, scope: Scope) -> tuple[int, ...]:
        values: list[int] = []
        while self.peek_kind() == "ssa":
            values += self._value(self.next(), scope)
            if not self.accept(","):
                break
        return tuple(values)

    def _value(self, token: SourceToken, scope: Scope) -> tuple[int, ...]:
        name, _, index = token.text.partition("#")
        values = scope.get(name)
        if values is None or len(index) > 6 or (index and int(index) >= len(values)):
            raise syntax_error(token.line, f"value {token.text} is not defined")
        return (values[int(index)],) if index else values

    def _new_value(self, type_: TensorType) -> int:
        if len(self._types) >= MAX_VALUES:
            raise syntax_error(
                self.line, f"with all calls in place the module has more than {MAX_VALUES} values"
            )
        self._types.append(type_)
        return len(self._types) - 1

    # --- operations

    def _operation(self, scope: Scope) -> list[HloOperation]:
        names = self._result_names()
        token = self.next()
        if token.kind not in ("word", "string"):
            raise syntax_error(token.line, f"expected an operation, found {token.text!r}")
        parts = OperationParts(token.text.strip('"'), token.line)
        self._tail(parts, scope)
        result_types = parts.result_types
        if parts.opcode in _CALLS:
            return self._inline(parts, names, scope)
        count_named = sum(count for _, count in names)
        # `select %0, %1, %2 : tensor<i1>, tensor<f32>`: the last type is the result's
        if count_named == 1:
            result_types = result_types[-1:]
        if count_named != len(result_types):
            raise syntax_error(
                token.line,
                f"'{parts.opcode}' has {len(result_types)} results, not as many as it names",
            )
        results = [self._new_value(type_) for type_ in result_types]
        position = 0
        for name, count in names:
            scope[name] = tuple(results[position : position + count])
            position += count
        if parts.opcode == _MANUAL:
            operations = self._manual(parts, names, scope)
            mark_rematted(operations if parts.is_rematted else ())
            return operations
        opcode = parts.opcode.rpartition(".")[2]
        operation = HloOperation(
            _SYNONYMS.get(opcode, opcode), tuple(parts.operands), tuple(results), parts.attributes,
            tuple(parts.bodies), f"line {token.line}",
        )  # fmt: skip
        operands = self._types_of(operation.operands)
        placed = self._place(operation, parts)
        if opcode == "dot":  # the last axis of the first operand meets the first of the second
            operation.attributes["contracting_dims"] = (
                ((len(operands[0].shape) - 1,), (0,)) if operands else ()
            )
        operation.attributes = normalise(operation, parts.positional, operands)
        target = operation.text("target")
        if target in SHARDING_CALLS and operation.operands:
            operation.opcode = SHARDING_CALLS[target]
            if operation.opcode != "optimization_barrier":
                placed = self._gspmd_border(operation, placed)
            if target == "annotate_device_placement":
                placed = placed | {PLACE: memory_of(parts.attributes)}
        operation.attributes |= placed
        mark_rematted([operation] if parts.is_rematted else ())
        if isinstance(kept := placed.get(PLACED), Sharding):
            self._placed[operation.results[0]] = kept
        if operation.opcode in COLLECTIVES:
            operation.attributes |= self._notes.groups(operation)
        problem = contradiction(operation, operands, result_types) or control_problem(
            operation, self._types
        )
        if problem:
            raise syntax_error(token.line, f"'{parts.opcode}' {problem}")
        return [operation]

    def _place(self, operation: HloOperation, parts: OperationParts) -> dict[str, object]:
        """Return how a sharding constraint wants its result to lie on the devices."""
        given: object = None
        if parts.opcode.endswith("sharding_constraint"):
            given = parts.attributes.get(
                "sharding", parts.positional[0] if parts.positional else None
            )
        elif parts.opcode.endswith("custom_call"):
            given = parts.attributes.get("mhlo.sharding")
        if given is None or not operation.results:
            return {}
        rank = len(self._types[operation.results[0]].shape)
        return self._notes.place(plain(given), rank, f"the result at {operation.where}")

    def _gspmd_border(
        self, operation: HloOperation, placed: dict[str, object]
    ) -> dict[str, object]:
        """Return what crosses the border of a manual computation lies outside as the constraint
        there says; all axes are manual, but for those that the constraint inside names."""
        inner, outer = self._placed.get(operation.operands[0]), placed.get(PLACED)
        if operation.opcode == "shard":
            inner, outer = outer if isinstance(outer, Sharding) else None, inner
        manual = inner.manual if inner is not None else tuple(range(len(self._notes.mesh.sizes)))
        return (
            {PLACED: Sharding(outer.dims, outer.open_dims, manual)}
            if isinstance(outer, Sharding)
            else {}
        )

    def _types_of(self, values: Sequence[int]) -> list[TensorType]:
        return [self._types[value] for value in values]

    def _result_names(self) -> list[tuple[str, int]]:
        names: list[tuple[str, int]] = []
        while self.peek_kind() == "ssa":
            name = self.next().text
            names.append((name, self.integer() if self.accept(":") else 1))
            if not self.accept(","):
                self.expect("=")
                break
        return names

    def _tail(self, parts: OperationParts, scope: Scope) -> None:  # noqa: C901, PLR0912, PLR0915
        """Everything behind the name: operands, attributes, bodies, types, in any order that the
        dialects print."""
        arguments: dict[str, tuple[int, ...]] = {}
        while True:
            text, kind = self.peek(), self.peek_kind()
            if text == ":":
                self.next()
                parts.operand_types, parts.result_types = self.signature()
                if self.peek() in ("cond", "do", "reducer") or (
                    parts.is_while and self.peek() == "attributes"
                ):
                    continue
                parts.is_rematted = REMATTED in self.location_name(self.location())
                return
            if text == "(" and self.peek(1) == "{":
                self._bodies(parts, scope)
            elif text == "(" and self.peek_kind(1) == "ssa" and self.peek(2) == ":":
                self._add_arguments(arguments)
            elif text == "(":
                self.next()
                self._parenthesis(parts, scope)
            elif text == "{" and (arguments or parts.opcode == _MANUAL) and not parts.is_while:
                self.next()
                parts.bodies.append(self._block(scope, arguments))
                arguments = {}
                if parts.opcode == "stablehlo.reduce":
                    self.location()
                    return
            elif text in ("cond", "do") and self.peek(1) == "{":
                self.next()
                self.next()
                body = self._block(scope.new_child(parts.loop), {})
                body.parameters = [values[0] for values in parts.loop.values()]
                parts.bodies.append(body)
                if text == "do":
                    self.location()
                    return
            elif text == "<" and self.peek(1) != "{":  # a sharding
                parts.positional.append(self.value(typed=False))
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
                parts.attributes[name] = self.value(typed=False)
            elif kind in ("word", "angled", "number", "string", "symbol") or text == "[":
                parts.positional.append(self.value(typed=False))
            else:
                raise syntax_error(
                    self.line, f"'{parts.opcode}' is followed by {text or 'the end'!r}"
                )

    def _bodies(self, parts: OperationParts, scope: Scope) -> None:
        self.expect("(")
        while not self.accept(")"):
            self.expect("{")
            parts.bodies.append(self._block(scope, {}))
            self.accept(",")

    def _add_arguments(self, arguments: dict[str, tuple[int, ...]]) -> None:
        line, own = self.line, Scope()
        if len(self._block_arguments(own)) != len(own) or arguments.keys() & own.keys():
            raise syntax_error(line, "two arguments of a body have the same name")
        arguments |= own

    def _parenthesis(self, parts: OperationParts, scope: Scope) -> None:
        """`(%a, %b)`, `(%a init: %b)`, `(%iterArg = %a, ...)`."""
        while not self.accept(")"):
            token = self.next()
            if token.kind == "ssa" and self.accept("="):
                parts.is_while = True
                initial = self._value(self.next(), scope)
                if len(initial) != 1:
                    raise syntax_error(token.line, f"{token.text} starts as {len(initial)} values")
                parts.operands += initial
                parts.loop[token.text] = (self._new_value(self._types[initial[0]]),)
            elif token.kind == "ssa":
                parts.operands += self._value(token, scope)
            elif token.kind == "word" and self.accept("="):
                parts.attributes[token.text] = self.value()
            elif token.text == "init":
                self.expect(":")
            elif token.text != ",":
                raise syntax_error(token.line, f"'{parts.opcode}' has the operand {token.text!r}")

    def _inline(
        self, parts: OperationParts, names: list[tuple[str, int]], scope: Scope
    ) -> list[HloOperation]:
        symbols = [*parts.positional, parts.attributes.get(_CALLS[parts.opcode])]
        callee = next((symbol_name(str(item)) for item in symbols if str(item).startswith("@")), "")
        function = self.functions.get(callee)
        if function is None:
            raise syntax_error(parts.line, f"function @{callee} is called and not defined")
        if self._types_of(parts.operands) != [type_ for _, type_, _ in function.parameters]:
            raise syntax_error(
                parts.line, f"@{callee} is called with other arguments than it takes"
            )
        if sum(count for _, count in names) != len(function.results):
            raise syntax_error(
                parts.line,
                f"@{callee} has {len(function.results)} results, not as many as are named",
            )
        given = zip(function.parameters, parts.operands, strict=True)
        own = Scope({name: (value,) for (name, _, _), value in given})
        body = self._body_of(callee, own, parts.line)
        position = 0
        for name, count in names:
            scope[name] = tuple(body.results[position : position + count])
            position += count
        if self.call_sites[callee] > 1:
            mark_call(body.operations, len(self._types))
        mark_rematted(body.operations if parts.is_rematted else ())
        return body.operations

    def _manual(
        self, parts: OperationParts, names: list[tuple[str, int]], scope: Scope
    ) -> list[HloOperation]:
        """A manual computation is one device's program already: its arguments take the place of the
        global ones."""
        results = [value for name, _ in names for value in scope[name]]
        body = parts.bodies[0] if parts.bodies else Body([], [], [])
        if len(body.parameters) != len(parts.operands) or len(body.results) != len(results):
            raise syntax_error(
                parts.line, "'sdy.manual_computation' has a body with other arguments or results"
            )
        where, attributes = f"line {parts.line}", parts.attributes
        entries, exits = list[HloOperation](), list[HloOperation]()
        for place, (operand, own) in enumerate(zip(parts.operands, body.parameters, strict=True)):
            rank = len(self._types[operand].shape)
            placed = self._notes.manual(attributes, "in_shardings", place, rank, where)
            entries.append(HloOperation("shard", (operand,), (own,), placed, where=where))
        for place, (own, value) in enumerate(zip(body.results, results, strict=True)):
            rank = len(self._types[value].shape)
            placed = self._notes.manual(attributes, "out_shardings", place, rank, where)
            exits.append(HloOperation("unshard", (own,), (value,), placed, where=where))
        return [*entries, *body.operations, *exits]


__all__ = ["parse_stablehlo", "tensor_type"]
