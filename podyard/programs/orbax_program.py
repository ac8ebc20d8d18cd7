"""Checkpoints in a dry run: orbax writes no arrays that have no values. At their full size they
would fill the disk."""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable, Iterator
from typing import Any

from podyard.programs import slice as slices


class _NotWritten:
    """The result of a function that saves in the background."""

    def result(self, timeout: float | None = None) -> None:
        """There is nothing to wait for."""


# Each with what it returns for a checkpoint that is not written.
_SAVES = (
    ("CheckpointManager", False),
    ("Checkpointer", None),
    ("AsyncCheckpointer", None),
    ("StandardCheckpointer", None),
)
# Of orbax.checkpoint.experimental.v1. Older releases have not all of them.
_FUNCTIONS = ("save", "save_pytree", "save_checkpointables")


def apply(orbax: Any) -> None:
    """`orbax`: the module orbax.checkpoint, or its functions. Raises AttributeError if it has other
    names."""
    if not int(os.environ.get(slices.DRY_RUN_VARIABLE) or 0):
        return
    if orbax.__name__.endswith(".v1"):
        for name in _FUNCTIONS:
            for whole, returned in ((name, None), (f"{name}_async", _NotWritten())):
                if hasattr(orbax, whole):
                    setattr(orbax, whole, _wrap(getattr(orbax, whole), returned, owners=0))
        return
    for name, answer in _SAVES:
        owner = getattr(orbax, name)
        owner.save = _wrap(owner.save, answer, owners=1)


@functools.cache
def _say_once() -> None:
    print("podyard: a dry run writes no checkpoints of arrays without values", file=sys.stderr)


def _wrap(save: Callable[..., Any], answer: object, *, owners: int) -> Callable[..., Any]:
    """`owners`: how many arguments a method has before its own."""

    @functools.wraps(save)
    def save_what_has_values(*args: Any, **kwargs: Any) -> Any:
        from podyard.programs import jax_dry_run

        dry = jax_dry_run.current()
        if dry is None or not any(map(dry.is_made, _arrays((args[owners:], kwargs)))):
            return save(*args, **kwargs)
        _say_once()
        return answer

    return save_what_has_values


def _arrays(given: object) -> Iterator[Any]:
    """The arrays in what `save` gets: in trees, and in orbax's own arguments, which are no
    trees."""
    import jax

    for leaf in jax.tree.leaves(given):
        if isinstance(leaf, jax.Array):
            yield leaf
        elif type(leaf).__module__.startswith("orbax."):
            yield from _arrays(list(vars(leaf).values()))
