"""A Python function and the shapes of its arguments, as `podyard estimate --function` names
them."""

from __future__ import annotations

import importlib
import importlib.util
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from podyard.base.errors import PodyardError, failed_precondition, invalid
from podyard.engine.program.ir import DTYPE_BYTES

ARGUMENTS_MAX = 10_000
_SHAPE = re.compile(r"\s*([A-Za-z][A-Za-z0-9_]*)\s*\[([0-9,\s]*)\]\s*(?:,|$)")
_LETTERS = {"s": "int", "u": "uint", "f": "float", "bf": "bfloat", "c": "complex"}


def load_function(named: str) -> Callable[..., Any]:
    """`MODULE:NAME`, looked for in the working directory first. Raises INVALID_ARGUMENT for what
    cannot be imported or called, FAILED_PRECONDITION without JAX."""
    if importlib.util.find_spec("jax") is None:
        raise failed_precondition(
            "the estimate of a function needs JAX: pip install 'podyard[engine]'"
        )
    found = _load(named, "--function")
    if not callable(found):
        raise invalid(f"--function {named}: it is a {type(found).__name__}, not a function")
    function: Callable[..., Any] = found
    return function


def arguments_of(shapes: Sequence[str]) -> tuple[Any, ...]:
    """Return what the function is traced with: of each text `f32[128,784],s32[128]`, one array for
    each shape; of `MODULE:NAME`, the arguments that are there, or that a function there returns:
    trees of arrays, with shardings if they have any. Raises INVALID_ARGUMENT for what is
    neither."""
    found: list[Any] = []
    for text in shapes:
        found += _shapes(text) if "[" in text else _load_arguments(text)
        if len(found) > ARGUMENTS_MAX:
            raise invalid(f"--shapes: at most {ARGUMENTS_MAX} arguments")
    return tuple(found)


def _load_arguments(text: str) -> Sequence[Any]:
    found = _load(text, "--shapes")
    if callable(found):
        try:
            found = found()
        except Exception as error:
            raise invalid(f"--shapes {text} failed: {type(error).__name__}: {error}") from error
    if not isinstance(found, list | tuple):
        raise invalid(
            f"--shapes {text}: it must be a tuple of arguments or return one, got "
            f"{type(found).__name__}"
        )
    return found


def _shapes(text: str) -> list[Any]:
    import jax

    found, place = list[Any](), 0
    while place < len(text):
        match = _SHAPE.match(text, place)
        if match is None:
            raise invalid(
                f"--shapes {text[:80]!r}: use types and sizes such as f32[128,784],s32[128]"
            )
        sizes = [size.strip() for size in match[2].split(",") if size.strip()]
        if not all(map(str.isdecimal, sizes)):
            raise invalid(f"--shapes {match[0].strip()!r}: sizes are whole numbers")
        try:
            found.append(jax.ShapeDtypeStruct(tuple(map(int, sizes)), _dtype(match[1])))
        except TypeError:
            raise invalid(
                f"--shapes: unknown element type {match[1]!r}: use one of {', '.join(DTYPE_BYTES)}"
            ) from None
        place = match.end()
    return found


def _dtype(name: str) -> Any:
    """By XLA's short name or NumPy's; TypeError for what is none."""
    import jax.numpy as jnp

    if name in DTYPE_BYTES:
        letters, digits = re.fullmatch(r"([a-z]*)(.*)", name).groups()  # type: ignore[union-attr]
        name = "bool" if name == "pred" else f"{_LETTERS.get(letters, letters)}{digits}"
        name = re.sub(r"^float8(?=e)", "float8_", name)
    return jnp.dtype(name)


def _load(named: str, option: str) -> Any:
    module_name, _, attribute = named.partition(":")
    if not module_name or not attribute:
        raise invalid(f"{option} {named[:80]!r}: use MODULE:NAME, such as train:step")
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        found: Any = importlib.import_module(module_name)
    except PodyardError:
        raise
    except Exception as error:
        raise invalid(
            f"{option} {named}: cannot import {module_name}: {type(error).__name__}: {error}"
        ) from error
    for part in attribute.split("."):
        if not hasattr(found, part):
            raise invalid(f"{option} {named}: {module_name} has no {attribute}")
        found = getattr(found, part)
    return found
