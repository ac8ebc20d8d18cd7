"""The part of a TensorFlow 1 program's graph that a step runs, for a function of the same."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any

from podyard.programs import tensorflow_internals as internals
from podyard.programs import tensorflow_modules

_PLACES = ("_class",)  # attributes that name other operations


@dataclasses.dataclass
class Subgraph:
    """`feeds`: tensors that each run gets. `updates`: the operation that runs with `outputs`.
    `sums`: names of identities that are sums over replicas."""

    tf: Any
    feeds: Sequence[Any]
    outputs: Sequence[Any]
    updates: Any
    sums: Sequence[str]
    variables: dict[str, Any] = dataclasses.field(default_factory=dict)

    def build(self, tensors: Sequence[Any]) -> list[Any]:
        """Return the outputs for `tensors` in place of `feeds`, in the graph around. Variables are
        zeros."""
        tf = self.tf
        inputs = {feed.name: tensor for feed, tensor in zip(self.feeds, tensors, strict=True)}
        capture = tf.compat.v1.get_default_graph().capture
        operations = self._operations({one.op.name for one in self.feeds})
        for operation in operations:
            if operation.type == "VarHandleOp":
                inputs[operation.outputs[0].name] = capture(self._variable(operation).handle)
        names = {one.name for one in operations if one.type != "VarHandleOp"}
        inner = [one.name for one in self.outputs if one.op.name in names]
        graph = self._definition(names)
        results = tf.graph_util.import_graph_def(
            graph, input_map=inputs, return_elements=[*inner, self.updates.name], name=""
        )
        with tf.control_dependencies([results[-1]]):
            return [tf.identity(one) for one in results[:-1]]

    def _operations(self, ends: set[str]) -> list[Any]:
        """Return all operations that the step needs, without `ends` and what is behind them."""
        seen: dict[str, Any] = {}
        pending = [*(one.op for one in self.outputs), self.updates]
        while pending:
            operation = pending.pop()
            if operation.name in seen or operation.name in ends:
                continue
            seen[operation.name] = operation
            pending += [*(one.op for one in operation.inputs), *operation.control_inputs]
        return list(seen.values())

    def _variable(self, operation: Any) -> Any:
        tf, name = self.tf, operation.name
        if name not in self.variables:
            shape, dtype = operation.get_attr("shape"), operation.get_attr("dtype")
            with tf.init_scope():
                self.variables[name] = internals.ResourceVariable(
                    tf.zeros(tf.TensorShape(shape), dtype), name=name.rpartition("/")[2]
                )
        return self.variables[name]

    def _definition(self, names: set[str]) -> Any:
        """Return the graph of these operations, with sums over replicas."""
        graph = self.outputs[0].graph.as_graph_def()
        nodes = [node for node in graph.node if node.name in names]
        shapes = {name: self._shape(name) for name in self.sums if name in names}
        own = type(graph)(versions=graph.versions, library=graph.library)
        for node in nodes:
            copy = own.node.add()
            copy.CopyFrom(node)
            copy.device = ""
            for place in _PLACES:
                copy.attr.pop(place, None)
            sources = [one for one in copy.input if not one.startswith("^") or one[1:] in names]
            del copy.input[:]
            copy.input.extend(sources)
            if node.name in shapes:
                _turn_into_sum(copy, shapes[node.name])
        return own

    def _shape(self, name: str) -> Any:
        (output,) = self.outputs[0].graph.get_operation_by_name(name).outputs
        return output.shape.as_proto()


def _turn_into_sum(node: Any, shape: Any) -> None:
    """Make an identity the operation that stands for a sum over replicas."""
    dtype = node.attr.pop("T").type
    internals.turn_into_custom_call(
        node, tensorflow_modules.SUM, "", [dtype], [dtype], [shape], has_side_effect=False
    )


@contextlib.contextmanager
def as_xla_compiles(tf: Any) -> Iterator[None]:
    """Make a graph the default in which loops and branches are functions, and loops have a known
    number of turns, as in a computation for a TPU."""
    v1, inside = tf.compat.v1, internals.control_flow.XLAControlFlowContext()
    was_on = v1.control_flow_v2_enabled()
    v1.enable_control_flow_v2()
    try:
        with tf.Graph().as_default(), tf.variable_creator_scope(_with_function(tf)):
            inside.Enter()
            try:
                yield
            finally:
                inside.Exit()
    finally:
        if not was_on:
            v1.disable_control_flow_v2()


def _with_function(tf: Any) -> Any:
    """Return a creator of variables, whose first value is made by a function: a tensor could not be
    of a branch or a computation."""

    def create(next_creator: Any, **named: Any) -> Any:
        first = named.get("initial_value")
        if isinstance(first, tf.Tensor):
            named["initial_value"] = lambda: tf.zeros(first.shape, first.dtype)
        return next_creator(**named)

    return create
