"""The modules that the arrays of a dry run come from."""

from __future__ import annotations

import dataclasses
import re
import weakref
from collections.abc import Sequence
from typing import Any

from podyard.programs import jax_internals as internals
from podyard.programs.records import ModuleRuns

# Numbers that a program trains: floating-point, and not a scalar (a scalar is a loss, a count or a
# metric).
_TRAINABLE = re.compile(r"tensor<(?:\d+x)+(?:f|bf|complex)")
_SAME = frozenset({"sdy.sharding_constraint"})


@dataclasses.dataclass(frozen=True, slots=True)
class ResultOrigin:
    """`argument`: the argument that the module returns unchanged, or None. `is_state`: whether it
    can be parameters or the state of an optimizer."""

    argument: int | None
    is_state: bool


def result_origins(main: Any) -> tuple[ResultOrigin, ...]:
    """Return one entry for each result of a module's main function, without tokens."""
    *_, end = main.regions[0].blocks[0].operations
    tokens = sum("token" in str(type_) for type_ in main.type.inputs)
    return tuple(
        ResultOrigin(
            None if place is None else place - tokens,
            _TRAINABLE.match(str(value.type)) is not None,
        )
        for value in end.operands
        if "token" not in str(value.type)
        for place in (_argument(value),)
    )


def _argument(value: Any) -> int | None:
    while not isinstance(value, internals.ir.BlockArgument):
        if value.owner.name not in _SAME:
            return None
        value = value.owner.operands[0]
    return int(value.arg_number)


class ArrayOrigins:
    """A bit for each module. An array that comes back to a module with the module's bit is the
    module's own result, directly or through others. Arguments that a module returns unchanged keep
    their bits: an evaluation that gets and returns a model does not train it."""

    def __init__(self) -> None:
        self._of: dict[int, tuple[weakref.ref[Any], int]] = {}
        self._bits: dict[str, int] = {}

    def of(self, value: Any) -> int:
        entry = self._of.get(id(internals.array_of(value)))
        return 0 if entry is None else entry[1]

    def copy(self, value: Any, result: Any) -> None:
        """`result` is a copy of `value`."""
        self._note(result, self.of(value))

    def call(self, record: ModuleRuns, arguments: Sequence[Any]) -> None:
        """Note in `record` whether the module of the program gets its own results back."""
        if not record.is_library:
            own = self._bits.setdefault(record.digest, 1 << len(self._bits))
            comes_back = any(self.of(value) & own for value in arguments)
            record.feeds_itself = bool(record.feeds_itself) or comes_back

    def results(
        self, record: ModuleRuns, origins: Sequence[ResultOrigin], arguments: Sequence[Any],
        results: Sequence[Any],
    ) -> None:  # fmt: skip
        """Note the results of a call. An eager operation adds no bit."""
        before = 0
        for value in arguments:
            before |= self.of(value)
        own = 0 if record.is_library else self._bits[record.digest]
        for result, origin in zip(results, origins, strict=True):
            if origin.argument is not None:
                self._note(result, self.of(arguments[origin.argument]))
            else:
                self._note(result, before | own if origin.is_state else before)

    def _note(self, value: Any, origins: int) -> None:
        array = internals.array_of(value)
        key = id(array)
        if origins:
            self._of[key] = weakref.ref(array, lambda _: self._of.pop(key, None)), origins
