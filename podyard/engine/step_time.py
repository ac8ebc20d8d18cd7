"""`python -m podyard.engine.step_time`: what a step of a recipe or of a StableHLO module takes on a
slice, as JSON.

A separate process: JAX and a user's module stay out of the API's. The question on standard input is
{"acceleratorType", "stablehlo"} or {"acceleratorType", "recipe", "arguments", "globalBatch"}; the
answer is {"seconds"} or {"code", "message"}. With "acceleratorTypes" instead of one, the answer is
a list of what is known of each.
"""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Sequence
from typing import Any

from podyard.base.errors import Code, PodyardError, failed_precondition, invalid
from podyard.engine.analysis import analyze, analyze_stablehlo, parse_module
from podyard.engine.cpu_limit import module_limit
from podyard.engine.plan.tokens import TokensPerStep, token_inputs, tokens_per_step
from podyard.engine.recipes.programs import program_of
from podyard.engine.report.summary import Report
from podyard.engine.step.host_input import HOST_INPUT
from podyard.engine.timing.estimate import Estimate
from podyard.hardware.accelerator_types import parse


def main() -> None:
    asked = json.load(sys.stdin)
    if "acceleratorTypes" in asked:
        print(json.dumps(_answers(asked, asked["acceleratorTypes"])))
        return
    try:
        answer: dict[str, Any] = {"seconds": _seconds(_estimate(asked))}
    except PodyardError as error:
        answer = _refusal(error)
    print(json.dumps(answer))


def _answers(asked: dict[str, Any], kinds: Sequence[str]) -> list[dict[str, Any]]:
    """Return what is known of each type. A module that is too long for one is too long for all."""
    answers: list[dict[str, Any]] = []
    for kind in kinds:
        last = answers[-1] if answers else {}
        is_too_long = last.get("code") == Code.OUT_OF_RANGE.name
        answers.append(last if is_too_long else _answer({**asked, "acceleratorType": kind}))
    return answers


def _answer(asked: dict[str, Any]) -> dict[str, Any]:
    """Time and memory of a step on one type, also of a program that does not fit."""
    try:
        found = _estimate(asked)
    except PodyardError as error:
        return _refusal(error)
    return {
        "seconds": found.modelled_seconds,
        "fits": found.fits,
        "neededBytes": found.needed_hbm_bytes,
        "usableBytes": found.usable_hbm_bytes,
        "memoryText": found.memory_text,
        "isLowerBound": bool(found.doubts),
        "verdict": Report("", found).verdict,
        "mfu": found.mfu,
        "hfu": found.hfu,
        "tokens": dataclasses.asdict(_tokens(asked)),
    }


def _tokens(asked: dict[str, Any]) -> TokensPerStep:
    """Return the tokens of a module's run. Without shardings it is the program of one device, which
    has its own part of the batch."""
    if "stablehlo" not in asked:
        return TokensPerStep(None, "a recipe has no tokens")
    program = parse_module(asked["stablehlo"])
    devices = 1 if program.shardings else parse(asked["acceleratorType"]).device_count
    return tokens_per_step(token_inputs(program), 0, devices)


def _refusal(error: PodyardError) -> dict[str, Any]:
    return {"code": error.code.name, "message": error.message}


def _estimate(asked: dict[str, Any]) -> Estimate:
    kind = asked["acceleratorType"]
    if "stablehlo" in asked:
        with module_limit(asked["stablehlo"]):
            return analyze_stablehlo(asked["stablehlo"], accelerator_type=kind)
    recipe = program_of(asked["recipe"], asked["arguments"])
    batch = asked["globalBatch"] or recipe.default_global_batch
    return analyze(
        recipe.step,
        *recipe.abstract_arguments(batch),
        accelerator_type=kind,
        global_batch=batch,
        infeed=HOST_INPUT,
    )


def _seconds(estimate: Estimate) -> float:
    if not estimate.fits:
        raise failed_precondition(f"the program does not fit: {estimate.memory_text}")
    if not estimate.modelled_seconds > 0:
        raise invalid("the program does nothing that takes time", "stablehlo")
    return estimate.modelled_seconds


if __name__ == "__main__":
    main()
