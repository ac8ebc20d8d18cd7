"""Arguments of older Keras that Keras 3 refuses, and Keras 2.11 to 2.15 ignore, and that many
programs for TPUs have: rename, with a warning."""

from __future__ import annotations

import functools
import inspect
import sys
from typing import Any

from podyard.programs import slice as slices


def apply(keras: Any) -> None:
    """Raises what goes wrong, for the hook's line."""
    if slices.from_environment() is None:
        return
    optimizers = [keras.optimizers.Optimizer]
    if not any(_takes(one, "__init__", "learning_rate") for one in optimizers[0].__mro__):
        # before Keras 3 each has its own
        every = (one for one in vars(keras.optimizers).values() if isinstance(one, type))
        optimizers = [one for one in every if _takes(one, "__init__", "learning_rate")]
    for optimizer in optimizers:
        _rename(optimizer, "__init__", "lr", "learning_rate")
    _rename(keras.Model, "compile", "experimental_steps_per_execution", "steps_per_execution")


def _rename(owner: Any, method: str, old: str, new: str) -> None:
    """In the class that has the method: subclasses of the user's call it in the end."""
    base = next((one for one in reversed(owner.__mro__) if _takes(one, method, new)), None)
    if base is None:
        return
    inner = base.__dict__[method]

    @functools.wraps(inner)
    def rename(self: Any, *args: Any, **kwargs: Any) -> Any:
        if old not in kwargs:
            return inner(self, *args, **kwargs)
        value = kwargs.pop(old)
        print(
            f"podyard: {type(self).__name__}: {old} is {new} in this Keras: {new}={value} is used",
            file=sys.stderr,
        )
        # Subclasses give the default of the new name by place or by name.
        args = args[1:] if method == "__init__" and new not in kwargs else args
        return inner(self, *args, **{**kwargs, new: value})

    setattr(base, method, rename)


def _takes(owner: Any, method: str, name: str) -> bool:
    own = owner.__dict__.get(method)
    return (
        own is not None
        and name in getattr(inspect.unwrap(own), "__code__", _takes.__code__).co_varnames
    )
