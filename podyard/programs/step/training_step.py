"""The training step of a program: the one rule for dry runs, computed runs and jobs.

It is the jitted module with the largest time x calls among those that were called at least twice
from one place of the program. A module that contains the training loop counts by the turns of the
loop; a loop that is called eagerly counts by its turns alone, because the rest of its step may lie
outside of it. Other eager operations and helpers of JAX never qualify. Where it is known which
modules get their own results back, directly or through others, these go first: parameters come back
to a step, but not to an initializer or an evaluation.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import types
from collections.abc import Sequence

from podyard.programs.step.call_sites import is_program_file

CALLS_MIN = 2
# Of the largest time x calls: a module that gets its own results back is a step only if it takes so
# much. Less have counters, keys and schedules.
SHARE_MIN = 0.05
_LIBRARIES = frozenset({"jax", "jaxlib"})
# types of objects that are no functions
_NO_PROGRAMS = _LIBRARIES | {"numpy", "ml_dtypes", "builtins", "functools"}
_DEPTH_MAX = 4  # functions in the closure of others: a transformation has one or two
_PREFIXES = ("jit_", "pmap_")


@dataclasses.dataclass(frozen=True, slots=True)
class ModuleUse:
    """The calls of one module. `calls`: of the most frequent call site, `site`, such as
    `train.py:14`, or empty. `seconds`: device time of one call; None: not known yet. `turns`: of
    the training loop inside, 1 if not known; 0 without one. `feeds_itself`: whether arguments came
    from earlier results of it; None: not known. `waits_for_host`: the devices are done before the
    host can start the next call; such helpers are the step only if all modules are like that.
    `is_eager_loop`: a loop of the program outside of jitted functions."""

    name: str
    calls: int
    seconds: float | None
    site: str = ""
    turns: int = 0
    is_library: bool = False
    feeds_itself: bool | None = None
    waits_for_host: bool = False
    is_eager_loop: bool = False

    @property
    def is_repeated(self) -> bool:
        has_loop = self.calls > 0 and self.turns > 0
        is_again = self.calls >= CALLS_MIN and not self.is_eager_loop
        return not self.is_library and (has_loop or is_again)

    @property
    def total_seconds(self) -> float:
        """Infinite where the module is not priced yet: it takes long to price, and may be the
        step."""
        return self.calls * (float("inf") if self.seconds is None else self.seconds)


@dataclasses.dataclass(frozen=True, slots=True)
class StepChoice:
    """`index` into the modules; `reason`: a clause for people."""

    index: int
    reason: str


def training_step(uses: Sequence[ModuleUse], name: str | None = None) -> StepChoice | None:
    """Return the training step among `uses`, or None. `name`: as the user gives it, with or without
    `jit_`; the largest time x calls decides among modules of that name."""
    if name is not None:
        named = [place for place, use in enumerate(uses) if has_name(use.name, name) and use.calls]
        return StepChoice(_largest(uses, named), f"--step {name}") if named else None
    repeated = [place for place, use in enumerate(uses) if use.is_repeated]
    if not repeated:
        return None
    most = _largest(uses, repeated)
    fed = [place for place in repeated if uses[place].feeds_itself]
    if fed:
        best = _largest(uses, fed)
        if uses[best].total_seconds >= SHARE_MIN * uses[most].total_seconds:
            most = best
    return StepChoice(most, _reason(uses[most], len(repeated)))


def has_name(module: str, name: str) -> bool:
    """Return True if `name` is a module's; JAX puts `jit_` or `pmap_` before a function's name."""
    return name in (module, *(module.removeprefix(prefix) for prefix in _PREFIXES))


def is_library_function(function: object) -> bool:
    """Return True for a jitted function that is an eager operation or a helper of JAX, and not the
    program's.

    JAX jits a function for each primitive that is called eagerly, and marks it
    (`xla_primitive_callable` in jax/_src/dispatch.py); its own helpers are functions of its
    package. Its transformations are functions of its package as well, but wrap the program's
    function, or have it in their closure.
    """
    if getattr(function, "_apply_primitive", False):
        return not is_eager_loop(function)
    return isinstance(function, types.FunctionType) and not _reaches_program(function, _DEPTH_MAX)


def is_eager_loop(function: object) -> bool:
    """Return True for an eager operation with a traced function of the program inside: `lax.scan`,
    `lax.fori_loop` and `lax.while_loop` outside of `jax.jit`.

    The function that JAX jits for an eager operation has the operation's parameters in its closure,
    and a traced function knows the file that it was written in.
    """
    if not getattr(function, "_apply_primitive", False) or not inspect.isfunction(function):
        return False
    parameters = inspect.getclosurevars(function).nonlocals.get("params", {})
    traces = (getattr(value, "jaxpr", value) for value in parameters.values())
    files = (getattr(getattr(one, "debug_info", None), "func_filename", None) for one in traces)
    return any(file and is_program_file(file) for file in files)


def _reaches_program(value: object, depth: int) -> bool:
    """Return True for a callable object that is the program's, or holds one that is."""
    if isinstance(value, types.FunctionType):
        inner = getattr(value, "__wrapped__", None)
        if inner is None and (value.__module__ or "").partition(".")[0] not in _LIBRARIES:
            return True
        cells = [inner, *(_content(cell) for cell in value.__closure__ or ())]
        return depth > 0 and any(_reaches_program(one, depth - 1) for one in cells)
    if isinstance(value, functools.partial):
        return _reaches_program(value.func, depth)
    # jax/_src/linear_util.py: a function, and what is to be done to it
    if type(value).__name__ == "WrappedFun":
        return _reaches_program(getattr(value, "f", None), depth)
    is_object = callable(value) and not isinstance(value, type)
    return is_object and type(value).__module__.partition(".")[0] not in _NO_PROGRAMS


def _content(cell: types.CellType) -> object:
    try:
        return cell.cell_contents
    except ValueError:  # not set yet
        return None


def _largest(uses: Sequence[ModuleUse], places: Sequence[int]) -> int:
    return max(
        places,
        key=lambda place: (
            not uses[place].waits_for_host,
            uses[place].total_seconds,
            uses[place].calls,
        ),
    )


def _reason(use: ModuleUse, candidates: int) -> str:
    parts = []
    if use.calls >= CALLS_MIN:
        parts.append(f"called repeatedly{f' from {use.site}' if use.site else ''}")
    if use.turns:
        parts.append(
            f"contains a training loop of {use.turns} turns"
            if use.turns > 1
            else "contains a training loop"
        )
    if use.feeds_itself:
        parts.append("gets its own results back")
    if candidates > 1:
        parts.append(
            f"largest time x calls of {candidates} jitted modules that are called repeatedly"
        )
    return ", ".join(parts)
