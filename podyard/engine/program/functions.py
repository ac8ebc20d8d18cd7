"""The outside of a StableHLO module: its functions and where their bodies are, its meshes, its
aliases."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping

from podyard.engine.program.ir import TensorType
from podyard.engine.program.text import Reader, SourceToken, symbol_name, syntax_error, tensor_type

_MESH_AXIS = re.compile(r'"([^"]*)" ?= ?([0-9]{1,9})\b')
LOCATION = "loc"  # of a parameter, among its attributes
Parameter = tuple[str, TensorType, Mapping[str, object]]


class Function:
    """The tokens at which the body of a function starts and ends, and its signature."""

    def __init__(
        self, start: int, end: int, parameters: list[Parameter], results: list[TensorType],
        result_attributes: dict[int, Mapping[str, object]],
    ) -> None:  # fmt: skip
        self.start = start
        self.end = end
        self.parameters = parameters
        self.results = results
        self.result_attributes = result_attributes


class Outside(Reader):
    """Finds the functions of a module; their bodies are passed over."""

    def __init__(self, tokens: list[SourceToken]) -> None:
        super().__init__(tokens)
        self.functions: dict[str, Function] = {}
        self.public: list[str] = []
        # How many times the bodies of functions name another one.
        self.call_sites = Counter[str]()
        # Devices that the module is written for; size of each axis of each mesh.
        self.partitions = 1
        self.replicas = 1
        self.mesh: dict[str, dict[str, int]] = {}
        self.frontend: object = None

    def find_functions(self) -> None:
        while self.peek().startswith("#"):
            self.alias(self.next())
        ends = list[str]()
        if self.accept("module"):
            if self.peek_kind() == "symbol":
                self.next()
            if self.accept("attributes"):
                self.expect("{")
                self._module_attributes(self.dictionary())
            ends = ["}"]
            self.expect("{")
        elif self.accept('"builtin.module"'):
            self._operands_and_properties()
            ends = ["}", ")"]
        while not self.at_end() and self.peek() not in ends:
            keyword = self.next()
            if keyword.text in ("func.func", '"func.func"'):
                self._function(keyword)
            elif keyword.text in ("sdy.mesh", '"sdy.mesh"'):
                self._mesh_axes(keyword)
            elif keyword.text.startswith("#"):
                self.alias(keyword)
            else:
                raise syntax_error(keyword.line, f"expected a function, found {keyword.text!r}")
        for mark in ends:
            self.expect(mark)
        if len(ends) == 2:
            self._module_attributes(self._attributes_and_type())
        self.location()
        while not self.at_end():
            name = self.next()
            if not name.text.startswith("#"):
                raise syntax_error(name.line, f"{name.text!r} behind the end of the module")
            self.alias(name)
        if not self.functions:
            raise syntax_error(self.line, "the module has no function")

    def _module_attributes(self, attributes: Mapping[str, object]) -> None:
        self.frontend = attributes.get("mhlo.frontend_attributes")
        self.partitions, self.replicas = (
            count if isinstance(count, int) and count > 0 else 1
            for count in (
                attributes.get(f"mhlo.num_{what}", 1) for what in ("partitions", "replicas")
            )
        )

    def _operands_and_properties(self) -> dict[str, object]:
        """`() <{...}> ({` of a generic operation without operands."""
        properties: dict[str, object] = {}
        self.expect("(")
        self.expect(")")
        if self.accept("<"):
            self.expect("{")
            properties = self.dictionary()
            self.expect(">")
        if self.accept("("):
            self.expect("{")
        return properties

    def _attributes_and_type(self) -> dict[str, object]:
        """`{...} : () -> ()`, the end of a generic operation."""
        attributes = self.dictionary() if self.accept("{") else {}
        self.expect(":")
        self.signature()
        return attributes

    def _mesh_axes(self, keyword: SourceToken) -> None:
        if keyword.kind == "string":
            properties = self._operands_and_properties()
            self._attributes_and_type()
            name, text = f"@{properties.get('sym_name')}", str(properties.get("mesh"))
        else:
            name = self.next().text
            self.expect("=")
            text = " ".join(str(item) for item in self._mesh_tokens())
            if self.accept("{"):
                self.dictionary()
        self.location()
        self.mesh[name] = {axis: int(size) for axis, size in _MESH_AXIS.findall(text)}

    def _mesh_tokens(self) -> list[str]:
        """The tokens of `<...>`."""
        self.expect("<")
        texts: list[str] = []
        while not self.accept(">"):
            texts.append(self.next().text)
        return texts

    def _function(self, keyword: SourceToken) -> None:
        generic = keyword.kind == "string"
        shardings = dict[int, Mapping[str, object]]()
        if generic:
            properties = self._operands_and_properties()
            given_results = properties.get("res_attrs")
            for place, own in enumerate(given_results if isinstance(given_results, tuple) else ()):
                self._keep_sharding(shardings, place, own)
            name, public = (
                str(properties.get("sym_name")),
                properties.get("sym_visibility", "public") == "public",
            )
            given = properties.get("arg_attrs")
            parameters = self._parameters() if self.peek_kind() == "block" and self.next() else []
            if self.peek() == ":":
                self.next()
            if isinstance(given, tuple) and len(given) == len(parameters):
                parameters = [
                    (*one[:2], {**one[2], **own})
                    for one, own in zip(parameters, given, strict=True)
                    if isinstance(own, dict)
                ]
            results = _result_types_of(properties.get("function_type"), keyword)
        else:
            public = True
            while self.peek_kind() == "word":
                public = self.next().text != "private"
            symbol = self.next()
            if symbol.kind != "symbol":
                raise syntax_error(
                    symbol.line, f"expected a function's name, found {symbol.text!r}"
                )
            name, parameters = symbol_name(symbol.text), self._parameters()
            results = self._result_types(shardings) if self.accept("->") else []
            if self.accept("attributes"):
                self.expect("{")
                self.dictionary()
            self.expect("{")
        if name in self.functions:
            raise syntax_error(keyword.line, f"function @{name} is defined twice")
        start = self._index
        self._skip_block(keyword.line)
        self.functions[name] = Function(start, self._index, parameters, results, shardings)
        self.public += [name] if public else []
        if generic:
            self.expect(")")
            self._attributes_and_type()
        self.location()

    def _parameters(self) -> list[Parameter]:
        """`(%a: type {attributes} loc(...), ...)`."""
        parameters: list[Parameter] = []
        self.expect("(")
        while not self.accept(")"):
            own_name = self.next()
            if own_name.kind != "ssa":
                raise syntax_error(own_name.line, f"expected a parameter, found {own_name.text!r}")
            self.expect(":")
            type_ = tensor_type(self.next())
            attributes = self.dictionary() if self.accept("{") else {}
            parameters.append((own_name.text, type_, attributes | {LOCATION: self.location()}))
            self.comma_unless(")")
        return parameters

    def _keep_sharding(
        self, shardings: dict[int, Mapping[str, object]], place: int, attributes: object
    ) -> None:
        if isinstance(attributes, dict):
            shardings[place] = attributes

    def _result_types(self, shardings: dict[int, Mapping[str, object]]) -> list[TensorType]:
        if not self.accept("("):
            return [tensor_type(self.next())]
        types: list[TensorType] = []
        while not self.accept(")"):
            types.append(tensor_type(self.next()))
            if self.accept("{"):
                self._keep_sharding(shardings, len(types) - 1, self.dictionary())
            self.location()
            self.comma_unless(")")
        return types

    def _skip_block(self, line: int) -> None:
        depth = 1
        while depth:
            if self.at_end():
                raise syntax_error(line, "the body of this function is not closed")
            mark = self.next()
            depth += (mark.text == "{") - (mark.text == "}")
            if mark.kind == "symbol":
                self.call_sites[symbol_name(mark.text)] += 1


def _result_types_of(function_type: object, keyword: SourceToken) -> list[TensorType]:
    """The results of `(...) -> ...`, an attribute that was read."""
    if not isinstance(function_type, tuple) or len(function_type) != 2:
        raise syntax_error(keyword.line, "a function without a type")
    results = function_type[1] if isinstance(function_type[1], tuple) else (function_type[1],)
    return [tensor_type(SourceToken("angled", str(result), keyword.line)) for result in results]
