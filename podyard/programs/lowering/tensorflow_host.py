"""Operations of TensorFlow that XLA has no kernel for: with soft device placement they run on the
host, and a custom call stands for them in the module.

TensorFlow extracts the same operations (tf2xla, mark_for_outside_compilation and
extract_outside_compilation): all without a kernel, and all inside of `outside_compilation`.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

from podyard.base.kernel_cost import HOST_CALL
from podyard.programs import tensorflow_internals as internals

_OUTSIDE = "_xla_outside_compilation"
_INPUTS = frozenset({"Placeholder", "_Arg", "_DeviceArg"})  # of graphs and functions
_NAMES_CHARACTERS_MAX = 80
_numbers = itertools.count(1)


def host_operations(function: Any) -> Mapping[str, str]:
    """Return the operations that the host runs, of a traced function and what it calls: by type the
    name of the first one."""
    definition = function.graph.as_graph_def()
    library = {one.signature.name for one in definition.library.function}
    first: dict[str, str] = {}
    for node in _nodes_of(definition):
        if _is_of_host(node, library):
            first.setdefault(node.op, node.name)
    return first


def has_marks(function: Any) -> bool:
    """Return whether the program has placed a part of a traced function on the host."""
    return any(_OUTSIDE in node.attr for node in _nodes_of(function.graph.as_graph_def()))


def refusal(name: str, operations: Mapping[str, str]) -> str:
    """Return TensorFlow's error where soft device placement is off. `operations`: as of
    `host_operations`."""
    device = "XLA_TPU_JIT"
    each = ", ".join(
        f"{kind} (No registered '{kind}' OpKernel for {device} devices compatible with node "
        f"{{{{node {node}}}}}){{{{node {node}}}}}"
        for kind, node in operations.items()
    )
    return (
        f"Detected unsupported operations when trying to compile graph {name} on {device}: {each}\n"
        "\tOne approach is to outside compile the unsupported ops to run on CPUs by enabling soft "
        "placement `tf.config.set_soft_device_placement(True)`. This has a potential performance "
        "penalty."
    )


def with_host_calls(tf: Any, function: Any) -> Any:
    """Return a function with `jit_compile=True` that computes what a traced one does, with custom
    calls in the place of what the host runs. It takes the same tensors.

    Raises ValueError where the host gives an array whose shape is not known.
    """
    graph = function.graph
    definition = graph.as_graph_def(add_shapes=True)
    _rename_functions(definition)
    library = {one.signature.name for one in definition.library.function}
    new_name = _Nodes(definition.node, library, _index_in_graph).rewrite(definition.node)
    for one in definition.library.function:
        inner_name = _Nodes(one.node_def, library, _index_in_function).rewrite(one.node_def)
        for name, value in one.ret.items():
            one.ret[name] = inner_name(value)
        internals.context.context().add_function_def(one)
    captures = {id(inner): outer for outer, inner in graph.captures}
    inputs = [tensor.op.name for tensor in graph.inputs]
    rest = [node for node in definition.node if node.name not in set(inputs)]
    del definition.node[:]
    definition.node.extend(rest)
    read = {_maker(reference) for node in rest for reference in node.input}
    read |= {tensor.op.name for tensor in graph.outputs}
    outputs = [new_name(tensor.name) for tensor in graph.outputs]

    variables = (one for one in captures.values() if one.dtype == tf.resource)
    device = next((one.device for one in variables if internals.is_variable(one)), None)

    def compute(*tensors: Any) -> Any:
        own = iter(tensors)
        values = [
            _capture(tf, captures[id(inner)], device) if id(inner) in captures else next(own)
            for inner in graph.inputs
        ]
        pairs = zip(inputs, values, strict=True)
        read_ones = {f"{name}:0": value for name, value in pairs if name in read}
        return tf.graph_util.import_graph_def(definition, read_ones, outputs, name="")

    return tf.function(compute, jit_compile=True, autograph=False)


def outside_compilation(tf: Any) -> Callable[..., Any]:
    """Return what marks the operations of a computation as the host's."""
    mark = tf.compat.v1.AttrValue(s=b"0")

    def call(computation: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        with tf.compat.v1.get_default_graph()._attr_scope({_OUTSIDE: mark}):
            return computation(*args, **kwargs)

    return call


def _capture(tf: Any, value: Any, device: str | None) -> Any:
    """A resource that is not a variable (a writer of summaries, a table) is for the host alone; a
    variable without readers stands for it, on the device of the others."""
    if value.dtype != tf.resource or internals.is_variable(value):
        return tf.compat.v1.get_default_graph().capture(value)
    with tf.init_scope(), tf.device(device):
        none = internals.ResourceVariable(0, trainable=False)
    _KEPT.append(none)
    return tf.compat.v1.get_default_graph().capture(none.handle)


_KEPT: list[Any] = []  # variables that functions have captured


def _nodes_of(definition: Any) -> Iterator[Any]:
    functions = (one.node_def for one in definition.library.function)
    return itertools.chain(definition.node, *functions)


def _is_of_host(node: Any, library: Collection[str]) -> bool:
    if node.op in _INPUTS or node.op in library:
        return False
    makes_text = internals.STRING in _types(node, "output_arg")  # no device has strings
    return makes_text or _OUTSIDE in node.attr or not internals.is_compiled_by_xla(node.op)


def _types(node: Any, side: str) -> list[int]:
    return [kind for _, kinds in _arguments(node, side) for kind in kinds]


def _arguments(node: Any, side: str) -> Iterator[tuple[str, list[int]]]:
    """Yield the name and the types of each input or output of a node, in its order."""
    known = internals.op_def_registry.get(node.op)
    for argument in getattr(known, side) if known is not None else ():
        if argument.type_list_attr:
            yield argument.name, list(node.attr[argument.type_list_attr].list.type)
            continue
        kind = argument.type or node.attr[argument.type_attr].type
        count = node.attr[argument.number_attr].i if argument.number_attr else 1
        yield argument.name, [kind] * count


def _copy(node: Any) -> Any:
    copy = type(node)()
    copy.CopyFrom(node)
    return copy


def _maker(reference: str) -> str:
    """Return the name of the node that an input comes from, or waits for (`^name`)."""
    return reference.removeprefix("^").partition(":")[0]


def _index_in_graph(reference: str, _node: Any) -> int:
    return int(reference.partition(":")[2] or 0)


def _index_in_function(reference: str, node: Any) -> int:
    _, name, index = reference.split(":")
    start = 0
    for argument, kinds in _arguments(node, "output_arg"):
        if argument == name:
            break
        start += len(kinds)
    return start + int(index)


class _Nodes:
    """The nodes of a graph or of a function, among which the host's are replaced."""

    def __init__(
        self,
        nodes: Sequence[Any],
        library: Collection[str],
        index: Callable[[str, Any], int],
    ) -> None:
        self._nodes = {node.name: _copy(node) for node in nodes}
        self._of_host = {name for name, node in self._nodes.items() if _is_of_host(node, library)}
        self._index = index
        self._in_function = index is _index_in_function

    def rewrite(self, nodes: Any) -> Callable[[str], str]:
        """Replace the host's nodes in the list; return what references to them become."""
        calls = {name: self._call_for(self._nodes[name]) for name in self._of_host}
        dropped = {name for name, call in calls.items() if call is None}
        del nodes[:]
        for name, node in self._nodes.items():
            if name in dropped:
                continue
            copy = calls[name] if name in calls else _copy(node)
            sources = [self._new_name(one) for one in copy.input if _maker(one) not in dropped]
            del copy.input[:]
            copy.input.extend(sources)
            nodes.append(copy)
        return self._new_name

    def _new_name(self, reference: str) -> str:
        name = _maker(reference)
        if reference.startswith("^") or name not in self._of_host:
            return reference
        node = self._nodes[name]
        place = self._index(reference, node)
        kinds = _types(node, "output_arg")
        number = sum(kind in internals.XLA_TYPES for kind in kinds[:place])
        return f"{name}:results:{number}" if self._in_function else f"{name}:{number}"

    def _call_for(self, node: Any) -> Any:
        """Return the custom call that stands for a node; None where nothing needs one: what gives
        the device nothing is there for its effect alone."""
        kinds = _types(node, "output_arg")
        places = [place for place, kind in enumerate(kinds) if kind in internals.XLA_TYPES]
        known = internals.op_def_registry.get(node.op)
        if not places and not (known is not None and known.is_stateful):
            return None
        shapes = [node.attr["_output_shapes"].list.shape[place] for place in places]
        if any(one.unknown_rank or any(dim.size < 0 for dim in one.dim) for one in shapes):
            raise ValueError(
                f"{node.op} runs on the host and gives an array whose shape is not known"
            )
        operands, types, names = self._operands(node)
        call = type(node)(name=node.name)
        call.input.extend([*operands, *(one for one in node.input if one.startswith("^"))])
        internals.turn_into_custom_call(
            call, HOST_CALL, ", ".join(names)[:_NAMES_CHARACTERS_MAX], types,
            [kinds[place] for place in places], shapes, has_side_effect=True,
        )  # fmt: skip
        return call

    def _operands(self, node: Any) -> tuple[list[str], list[int], list[str]]:
        """Return what the host needs for a node, through its other nodes: references, their types,
        and the types of all operations that it runs for it."""
        operands: dict[str, int] = {}
        names: dict[str, None] = {}
        seen: set[str] = set()

        def add(one: Any) -> None:
            if one.name in seen:
                return
            seen.add(one.name)
            kinds = _types(one, "input_arg")
            references = [reference for reference in one.input if not reference.startswith("^")]
            for reference, kind in zip(references, kinds, strict=True):
                if (maker := _maker(reference)) in self._of_host:
                    add(self._nodes[maker])
                elif kind in internals.XLA_TYPES:
                    operands[reference] = kind
            if one.op not in ("Const", "Identity"):
                names[one.op] = None

        add(node)
        return list(operands), list(operands.values()), list(names) or [node.op]


def _rename_functions(definition: Any) -> None:
    """Give the functions of a library names that the program has not registered."""
    ending = f"_podyard_{next(_numbers)}"
    names = {one.signature.name for one in definition.library.function}
    del definition.library.gradient[:]
    for one in definition.library.function:
        one.signature.name += ending
    for node in _nodes_of(definition):
        if node.op in names:
            node.op += ending
        for value in node.attr.values():
            for called in (value.func, *value.list.func):
                if called.name in names:
                    called.name += ending
