"""Check a traced program by the rules for TPUs: its lowering is for CPUs, which know more.

JAX registers how it lowers each operation, for all platforms or by platform. An operation without a
rule for TPUs is rejected with JAX's own words. What JAX lowers and only the TPU compiler rejects is
rejected with the compiler's words (libtpu 0.0.42; complex128: jax-ml/jax#19769).
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from typing import Any

from podyard.programs import jax_internals as internals

core: Any = importlib.import_module("jax._src.core")
mlir: Any = internals.mlir

NAMES = (
    (core, "jaxprs_in_params"),
    (mlir, "lower_jaxpr_to_module _lowerings _platform_specific_lowerings"),
)
# Operations of the host: a TPU hands them over, and does not lower them itself.
_CALLBACKS = frozenset({"debug_callback", "debug_print", "io_callback", "pure_callback"})
_COMPLEX128 = "INVALID_ARGUMENT: Element type C128 is not supported on TPU."
_NO_REWRITE = (
    "UNIMPLEMENTED: While rewriting computation to not contain X{64|128} element types, XLA "
    "encountered an HLO for which this rewriting is not implemented: "
)
# Operations on float64 that the compiler's rewriting does not know.
_WITHOUT_FLOAT64 = frozenset({"reduce_precision"})


def missing() -> list[str]:
    """Return the names that this JAX does not have."""
    return [
        f"{owner.__name__}.{name}"
        for owner, names in NAMES
        for name in names.split()
        if not hasattr(owner, name)
    ]


def wrap_lowering(report: Callable[[Exception], None]) -> None:
    """Have each program for the backend `tpu` checked before it is lowered; `report` raises the
    error, or prints it."""
    inner = mlir.lower_jaxpr_to_module

    def lower(name: Any, jaxpr: Any, *args: Any, **named: Any) -> Any:
        backend = named.get("backend")
        if backend is not None and backend.platform == "tpu":
            error = rejection(jaxpr)
            if error is not None:
                report(error)
        return inner(name, jaxpr, *args, **named)

    mlir.lower_jaxpr_to_module = lower


def rejection(jaxpr: Any) -> Exception | None:
    """Return the first error that a TPU would give for a traced program; None: there is none."""
    return next(filter(None, map(_rejection_of, _equations(jaxpr))), None)


def _equations(jaxpr: Any) -> Iterator[Any]:
    """All equations, but for branches that other platforms take, and for the bodies of kernels."""
    for equation in getattr(jaxpr, "jaxpr", jaxpr).eqns:
        yield equation
        if equation.primitive.name == "pallas_call":
            continue
        for inner in _bodies(equation):
            yield from _equations(inner)


def _bodies(equation: Any) -> list[Any]:
    platforms = equation.params.get("branches_platforms")
    if equation.primitive.name == "cond" and platforms is not None:
        branches = equation.params["branches"]
        own = [place for place, names in enumerate(platforms) if names and "tpu" in names]
        rest = [place for place, names in enumerate(platforms) if not names]
        return [branches[place] for place in (own or rest)[:1]]
    return list(core.jaxprs_in_params(equation.params))


def _rejection_of(equation: Any) -> Exception | None:
    primitive = equation.primitive
    if primitive.name in _CALLBACKS:
        return None
    has_rule = primitive in mlir._lowerings or primitive in mlir._platform_specific_lowerings["tpu"]
    if not has_rule:
        return NotImplementedError(
            f"MLIR translation rule for primitive '{primitive}' not found for platform tpu"
        )
    types = {
        str(getattr(value.aval, "dtype", "")) for value in (*equation.invars, *equation.outvars)
    }
    if "complex128" in types:
        return _by_compiler(_COMPLEX128)
    if "float64" in types and primitive.name in _WITHOUT_FLOAT64:
        return _by_compiler(f"{_NO_REWRITE}%{primitive.name.replace('_', '-')}")
    return None


def _by_compiler(text: str) -> Exception:
    error: Exception = internals.XlaRuntimeError(text)
    return error
