"""The time of a simulated job's step: the estimate of `podyard estimate`, found before the job is
written."""

from __future__ import annotations

import dataclasses
import json
import re
import subprocess
import threading
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

from starlette.requests import Request

from podyard.base.errors import Code, PodyardError, failed_precondition, invalid
from podyard.base.interpreter import python_command
from podyard.control.compute import nodes
from podyard.domain.job import JobRequest
from podyard.domain.node import NodeSpec
from podyard.domain.recipes import RECIPES, FolderArgument, is_program
from podyard.engine.plan.forecast import StepOnSlice
from podyard.engine.plan.tokens import TokensPerStep
from podyard.hardware.accelerator_types import kind_of
from podyard.http import context

ESTIMATE_SECONDS_MAX = 120.0  # the largest recipes are traced in a tenth of it
ESTIMATES_KEPT = 256
TABLES_KEPT = 32  # of several types each; a question may hold a module of a megabyte
ESTIMATING_MAX = 2  # processes at once, each of which takes a core
_FORMER_PREFIX = "podyard:"  # of stored jobs, whose recipe could only be estimated
_ESTIMATING = threading.BoundedSemaphore(ESTIMATING_MAX)
_MODULE = re.compile(r"\bmodule\s+@([A-Za-z_][A-Za-z0-9_]*)")


@dataclasses.dataclass(frozen=True, slots=True)
class StepEstimate:
    """A step of a program on one type; bytes are of one device. `error`: why there is no
    estimate."""

    seconds: float = 0.0
    fits: bool = True
    needed_bytes: int = 0
    usable_bytes: int = 0
    memory_text: str = ""
    is_lower_bound: bool = False
    error: str = ""
    verdict: str = ""
    mfu: float = 0.0
    hfu: float = 0.0
    tokens: TokensPerStep | None = None

    @property
    def on_slice(self) -> StepOnSlice:
        """The step, as the forecast of a whole run takes it."""
        if self.error or not self.seconds:
            return StepOnSlice(None, "", self.error)
        return StepOnSlice(
            self.fits, self.verdict, "", self.seconds, self.mfu, self.hfu, self.tokens
        )


def recipe_names() -> Sequence[str]:
    """The recipes that can be estimated."""
    from podyard.engine.recipes.programs import PROGRAMS  # late: the engine costs the API's start

    return tuple(PROGRAMS)


def estimates(
    recipe: str, arguments: Mapping[str, object], global_batch: int | None, kinds: Sequence[str]
) -> Mapping[str, StepEstimate]:
    """A step of a recipe on each of the types, in one process: most of the time goes into tracing.
    Raises INVALID_ARGUMENT for an unknown recipe, and what `_answer_of` raises."""
    if recipe not in recipe_names():
        raise invalid(f"unknown recipe {recipe!r}: use {', '.join(recipe_names())}", "recipe")
    given = {**_folders(recipe), **arguments}
    question = {
        "recipe": recipe,
        "arguments": given,
        "globalBatch": global_batch,
        "acceleratorTypes": list(kinds),
    }
    return dict(zip(kinds, _ask_of_several(json.dumps(question)), strict=True))


def estimates_of_module(stablehlo: str, kinds: Sequence[str]) -> Mapping[str, StepEstimate]:
    """As `estimates`, of a StableHLO module."""
    question = {"stablehlo": stablehlo, "acceleratorTypes": list(kinds)}
    return dict(zip(kinds, _ask_of_several(json.dumps(question)), strict=True))


def with_step_time(
    request: Request,
    project: str,
    zone: str,
    asked: JobRequest,
    node: str | NodeSpec,
    stablehlo: str | None = None,
) -> JobRequest:
    """The request of a simulated job with the time of a step, and every other one as it is.
    `stablehlo`: the module
    that the job runs. Raises what an estimate raises, and FAILED_PRECONDITION for a program that
    does not fit."""
    if asked.execution != "simulated":
        if stablehlo is not None:
            raise invalid("stablehlo can only be used with execution simulated", "stablehlo")
        return asked
    recipe = None if asked.recipe is None else asked.recipe.removeprefix(_FORMER_PREFIX)
    if recipe is not None and recipe in RECIPES:
        arguments = {**_estimated_arguments(recipe), **asked.arguments}
        asked = dataclasses.replace(asked, recipe=recipe, arguments=arguments)
    kind_name, cores = _kind(request, project, zone, node)
    if stablehlo is not None:
        named = _MODULE.search(stablehlo)
        batch = cores if asked.global_batch is None else asked.global_batch
        recipe = f"stablehlo:{named[1] if named else 'main'}"
        asked = dataclasses.replace(asked, recipe=recipe, global_batch=batch)
        question: dict[str, object] = {"acceleratorType": kind_name, "stablehlo": stablehlo}
    elif recipe is None or is_program(recipe):
        return asked  # of a user's own: nothing is known of it
    else:
        question = {
            "acceleratorType": kind_name, "recipe": recipe, "arguments": dict(asked.arguments),
            "globalBatch": asked.global_batch
        }  # fmt: skip
    if asked.step_seconds is not None:
        return asked
    return dataclasses.replace(asked, step_seconds=_ask(json.dumps(question)))


def _estimated_arguments(recipe: str) -> dict[str, object]:
    """Return the defaults of `podyard estimate`, with a name for data, of which nothing is read."""
    from podyard.engine.recipes.programs import PROGRAMS  # late, as above

    known = {
        name: argument.default
        for name, argument in PROGRAMS[recipe].arguments.items()
        if argument.default is not None
    }
    return {**known, **_folders(recipe)}


def _folders(recipe: str) -> dict[str, object]:
    return {
        name: "none"
        for name, argument in RECIPES[recipe].arguments.items()
        if isinstance(argument, FolderArgument)
    }


def _kind(request: Request, project: str, zone: str, node: str | NodeSpec) -> tuple[str, int]:
    if isinstance(node, str):
        node_id, caller = node, context.principal(request)
        node = context.read(
            request, lambda uow: nodes.get(uow, caller, project, zone, node_id)
        ).spec
    kind = kind_of(node.accelerator_type, node.topology)
    return kind.name, kind.core_count


@lru_cache(maxsize=TABLES_KEPT)
def _ask_of_several(question: str) -> tuple[StepEstimate, ...]:
    return tuple(
        StepEstimate(error=told["message"])
        if "message" in told
        else StepEstimate(
            told["seconds"], told["fits"], told["neededBytes"], told["usableBytes"],
            told["memoryText"],
            told["isLowerBound"],
            verdict=told["verdict"], mfu=told["mfu"], hfu=told["hfu"],
            tokens=TokensPerStep(**told["tokens"]),
        )
        for told in _answer_of(question)
    )  # fmt: skip


@lru_cache(maxsize=ESTIMATES_KEPT)
def _ask(question: str) -> float:
    answer = _answer_of(question)
    if "seconds" not in answer:
        raise PodyardError(Code[answer["code"]], answer["message"])
    return float(answer["seconds"])


def _answer_of(question: str) -> Any:
    """Return what the process says. Raises UNAVAILABLE and FAILED_PRECONDITION."""
    command = python_command("-m", "podyard.engine.step_time")
    if not _ESTIMATING.acquire(timeout=ESTIMATE_SECONDS_MAX):
        raise PodyardError(
            Code.UNAVAILABLE, "too many steps are being estimated: try again, or set stepSeconds"
        )
    try:
        done = subprocess.run(
            command, input=question, capture_output=True, text=True, timeout=ESTIMATE_SECONDS_MAX
        )
    except subprocess.TimeoutExpired:
        text = (
            f"the estimate of a step takes longer than {ESTIMATE_SECONDS_MAX:.0f} s: "
            "set stepSeconds"
        )
        raise failed_precondition(text) from None
    finally:
        _ESTIMATING.release()
    if done.returncode:
        why = (done.stderr.strip().splitlines() or ["it was killed"])[-1]
        raise failed_precondition(f"a step cannot be estimated: {why}; set stepSeconds")
    return json.loads(done.stdout)
