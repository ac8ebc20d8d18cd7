"""Options of programs: arguments with a type, a default and bounds, checked before anything is
traced."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, Protocol, TypeGuard

from podyard.base.errors import invalid


class ArgumentRule(Protocol):
    """`default` is what a program gets that is not asked otherwise; `allowed` says in words what
    may be given."""

    @property
    def default(self) -> object: ...
    @property
    def description(self) -> str: ...
    @property
    def allowed_text(self) -> str: ...
    def accepts(self, value: object) -> bool: ...
    def convert(self, value: Any) -> object: ...


@dataclasses.dataclass(frozen=True)
class Whole:
    """A whole number between `minimum` and `maximum`, both inclusive."""

    default: int
    minimum: int
    maximum: int
    description: str

    @property
    def allowed_text(self) -> str:
        return f"a whole number between {self.minimum} and {self.maximum}"

    def accepts(self, value: object) -> bool:
        return _is_within(value, self.minimum, self.maximum) and value == int(value)

    def convert(self, value: Any) -> int:
        return int(value)


@dataclasses.dataclass(frozen=True)
class Real:
    """A number between `minimum` and `maximum`, both inclusive."""

    default: float
    minimum: float
    maximum: float
    description: str

    @property
    def allowed_text(self) -> str:
        return f"a number between {self.minimum} and {self.maximum}"

    def accepts(self, value: object) -> bool:
        return _is_within(value, self.minimum, self.maximum)

    def convert(self, value: Any) -> float:
        return float(value)


@dataclasses.dataclass(frozen=True)
class Choice:
    """One of `options`."""

    default: str
    options: tuple[str, ...]
    description: str

    @property
    def allowed_text(self) -> str:
        return f"one of {', '.join(self.options)}"

    def accepts(self, value: object) -> bool:
        return isinstance(value, str) and value in self.options

    def convert(self, value: Any) -> str:
        return str(value)


@dataclasses.dataclass(frozen=True)
class Text:
    """Any text on one line."""

    default: str
    description: str

    @property
    def allowed_text(self) -> str:
        return "text on one line"

    def accepts(self, value: object) -> bool:
        return isinstance(value, str) and (not value or value.isprintable())

    def convert(self, value: Any) -> str:
        return str(value)


@dataclasses.dataclass(frozen=True)
class Flag:
    """True or false; a default of None leaves the choice to the program."""

    default: bool | None
    description: str

    @property
    def allowed_text(self) -> str:
        return "true or false"

    def accepts(self, value: object) -> bool:
        return isinstance(value, bool)

    def convert(self, value: Any) -> bool:
        return bool(value)


def check_all(
    owner: str, declared: Mapping[str, ArgumentRule], given: Mapping[str, object]
) -> dict[str, Any]:
    """All `declared` arguments: the given ones checked, the others by default.

    Raises PodyardError INVALID_ARGUMENT naming the argument that `owner` does not have, or that has
    a value of a wrong type or out of bounds, and what is allowed.
    """
    for name in given:
        if name not in declared:
            known = ", ".join(declared)
            raise invalid(f"unknown argument {name!r} of {owner}: use {known}", f"arguments.{name}")
    checked: dict[str, Any] = {}
    for name, argument in declared.items():
        checked[name] = argument.default
        if name in given:
            value = given[name]
            if not argument.accepts(value):
                raise invalid(
                    f"arguments.{name} is {argument.allowed_text}, not {value!r}",
                    f"arguments.{name}",
                )
            checked[name] = argument.convert(value)
    return checked


def _is_within(value: object, minimum: float, maximum: float) -> TypeGuard[int | float]:
    """Booleans are numbers to Python, not to a user. NaN is within nothing."""
    return (
        isinstance(value, int | float)
        and not isinstance(value, bool)
        and minimum <= value <= maximum
    )
