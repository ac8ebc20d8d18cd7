"""The simulation of `podyard simulate`: main hands it to the command line, which may not import a
simulation itself."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from podyard.cli.programs.simulate import SimulationOutcome, SimulationRequest
from podyard.simulation import scenario as scenarios
from podyard.simulation.run import simulate
from podyard.simulation.scenario import FAULTS_PER_DAY_USUAL, Scenario
from podyard.simulation.shrink import shrink


def run(request: SimulationRequest) -> SimulationOutcome:
    """Raises INVALID_ARGUMENT for a scenario or a trace that is wrong, with its line and field;
    nothing runs then."""
    scenario = _scenario(request)
    result = simulate(scenario)
    if request.scenario is None:
        repeat = scenario.command()
    else:
        repeat = f"podyard simulate --scenario {request.scenario}"
    outcome = SimulationOutcome(result.as_json(), result.is_failure, repeat)
    if result.is_failure and request.shrink:
        outcome = dataclasses.replace(outcome, shrunk=shrink(scenario, result).as_yaml())
    return outcome


def _scenario(request: SimulationRequest) -> Scenario:
    if request.scenario is not None:
        return scenarios.read(Path(request.scenario))
    per_day = FAULTS_PER_DAY_USUAL if request.faults_per_day is None else request.faults_per_day
    trace = None if request.trace is None else str(request.trace)
    return scenarios.check(Scenario(request.seed, request.days, request.nodes, per_day, trace))
