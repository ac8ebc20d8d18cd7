"""Operations that run on the host in the middle of a program: callbacks of JAX, operations of
TensorFlow that XLA has no kernel for, and transfers to and from the host.

The device sends the operands over PCIe, waits, and gets the results back. Only the transfers can be
known before the program runs; the host's own work is a doubt of the program.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

from podyard.base.kernel_cost import HOST_CALL
from podyard.engine.program.doubts import host_call
from podyard.engine.program.ir import Body, HloOperation, Program, TensorType, walk
from podyard.engine.step.host_memory import LOAD, STORE

# TensorFlow's, and JAX's callbacks: jax/_src/callback.py, jaxlib's CPU plugin.
_TARGETS = frozenset({
    HOST_CALL, "xla_python_cpu_callback", "xla_ffi_python_cpu_callback",
    "xla_ffi_partitioned_python_cpu_callback",
})  # fmt: skip
ANSWERS = "answers"  # of a load: the values that the host needs for it


def take_out_host_calls(program: Program) -> Program:
    """Return the program of one device with copies to the host and back in the place of each call,
    and a doubt for each place that calls."""
    calls = [one for one in walk(program.body) if _is_host_call(one)]
    if not calls:
        return program
    places = dict.fromkeys((_name(one), one.where) for one in calls)
    rewriter = _Rewriter(program)
    return dataclasses.replace(
        program,
        body=rewriter.body_of(program.body),
        types=rewriter.types,
        doubts=[*program.doubts, *(host_call(name, where) for name, where in places)],
    )


def _is_host_call(operation: HloOperation) -> bool:
    if operation.opcode == "custom_call":
        return operation.text("target") in _TARGETS
    is_to_host = str(operation.attributes.get("is_host_transfer", "")).lower() == "true"
    return is_to_host and operation.opcode in ("send", "recv")


def _name(operation: HloOperation) -> str:
    """Return what a report calls it: the operations that the call stands for, or its target."""
    if operation.opcode != "custom_call":
        return operation.opcode
    names = operation.text(HOST_CALL)
    return f"operation {names}" if names else f"callback @{operation.text('target')}"


class _Rewriter:
    """`_sent`: by token, the values that went to the host before it, with their stores' results."""

    def __init__(self, program: Program) -> None:
        self.types = list(program.types)
        self._sent: dict[int, dict[int, int]] = {}

    def body_of(self, body: Body) -> Body:
        operations: list[HloOperation] = []
        for operation in body.operations:
            if _is_host_call(operation):
                operations += self._copies(operation)
            else:
                operations.append(operation.with_bodies(self.body_of))
        return dataclasses.replace(body, operations=operations)

    def _copies(self, operation: HloOperation) -> Iterable[HloOperation]:
        """Return a store of each operand, and a load of each result that waits for all of them."""
        sent: dict[int, int] = {}
        for value in operation.operands:
            if self._is_token(value):
                sent |= self._sent.get(value, {})
                continue
            sent[value] = len(self.types)
            self.types.append(TensorType((), "pred"))
            keeps: dict[str, object] = {"keeps": True}
            yield HloOperation(STORE, (value,), (sent[value],), keeps, where=operation.where)
        for value in operation.results:
            if self._is_token(value):
                self._sent[value] = sent
                yield HloOperation("create_token", (), (value,), {})
                continue
            answer: dict[str, object] = {ANSWERS: tuple(sent)} if sent else {}
            done = tuple(sent.values())
            yield HloOperation(LOAD, done, (value,), answer, where=operation.where)

    def _is_token(self, value: int) -> bool:
        return self.types[value].dtype == "token"
