"""`python -m podyard.engine.step_time`: what a step of a recipe or of a StableHLO module takes on a
slice, as JSON.

A separate process: JAX and a user's module stay out of the API's. The question on standard input is
{"acceleratorType", "stablehlo"} or {"acceleratorType", "recipe", "arguments", "globalBatch"}; the
answer is {"seconds"} or {"code", "message"}. With "acceleratorTypes" instead of one, the answer is
a list of what is known of each.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from podyard.base.errors import PodyardError, failed_precondition, invalid
from podyard.engine.analysis import analyze, analyze_stablehlo
from podyard.engine.recipes.programs import program_of
from podyard.engine.step.host_input import HOST_INPUT
from podyard.engine.timing.estimate import Estimate


def main() -> None:
    asked = json.load(sys.stdin)
    if "acceleratorTypes" in asked:
        print(
            json.dumps(
                [_answer({**asked, "acceleratorType": kind}) for kind in asked["acceleratorTypes"]]
            )
        )
        return
    try:
        answer: dict[str, Any] = {"seconds": _seconds(_estimate(asked))}
    except PodyardError as error:
        answer = _refusal(error)
    print(json.dumps(answer))


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
    }


def _refusal(error: PodyardError) -> dict[str, Any]:
    return {"code": error.code.name, "message": error.message}


def _estimate(asked: dict[str, Any]) -> Estimate:
    kind = asked["acceleratorType"]
    if "stablehlo" in asked:
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
