"""`python -m podyard.engine.step_time`: what a step of a recipe or of a StableHLO module takes on a slice, as JSON.

A separate process: JAX and a user's module stay out of the API's. The question on standard input is
{"acceleratorType", "stablehlo"} or {"acceleratorType", "recipe", "arguments", "globalBatch"}; the answer is {"seconds"}
or {"code", "message"}.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from podyard.base.errors import PodyardError, failed_precondition, invalid
from podyard.engine.analysis import analyze, analyze_stablehlo
from podyard.engine.recipes.programs import program_of
from podyard.engine.timing.estimate import Estimate


def main() -> None:
    try:
        answer: dict[str, Any] = {"seconds": _seconds(_estimate(json.load(sys.stdin)))}
    except PodyardError as error:
        answer = {"code": error.code.name, "message": error.message}
    print(json.dumps(answer))


def _estimate(asked: dict[str, Any]) -> Estimate:
    kind = asked["acceleratorType"]
    if "stablehlo" in asked:
        return analyze_stablehlo(asked["stablehlo"], accelerator_type=kind)
    recipe = program_of(asked["recipe"], asked["arguments"])
    batch = asked["globalBatch"] or recipe.default_global_batch
    return analyze(recipe.step, *recipe.abstract_arguments(batch), accelerator_type=kind, global_batch=batch)


def _seconds(estimate: Estimate) -> float:
    if not estimate.fits:
        raise failed_precondition(f"the program does not fit: {estimate.memory_text}")
    if not estimate.modelled_seconds > 0:
        raise invalid("the program does nothing that takes time", "stablehlo")
    return estimate.modelled_seconds


if __name__ == "__main__":
    main()
