"""Progress of a job: a bar on a terminal, lines elsewhere."""

from __future__ import annotations

import re
import sys
from typing import Any

from podyard.base.durations import duration_for_people
from podyard.base.money import money_text
from podyard.cli.jobs.logs import FINAL_STATES
from podyard.cli.kit.client import Client
from podyard.cli.kit.output import emit, say
from podyard.cli.kit.tables import NOTHING
from podyard.cli.kit.terminal import bar, progress
from podyard.cli.programs.run_report.modules import run_text
from podyard.domain.ran_module import ProgramRun


def wait_for_job(client: Client, name: str, timeout_seconds: float | None) -> dict[str, Any]:
    """Return the job at its end. Meanwhile stderr has a bar on a terminal, and elsewhere a line for
    each phase."""
    said, has_bar = "", sys.stderr.isatty()

    def ask() -> dict[str, Any]:
        nonlocal said
        found = client.call("GET", f"/podyard/v1/{name}")
        text = progress_bar(found) if has_bar else phase_of(found)
        if text != said:
            progress(text if has_bar else progress_line(found))
            said = text
        return found

    try:
        return client.poll(
            ask, lambda found: found["state"] in FINAL_STATES, timeout_seconds or float("inf"), name
        )
    finally:
        if has_bar:
            progress("")


def progress_bar(found: dict[str, Any]) -> str:
    """In one line: how far a job is, its speed, the time left and what it has cost so far."""
    facts = [steps_text(found)]
    if "stepsPerSecond" in found:
        facts += [
            f"{found['stepsPerSecond']:.3g} steps/s",
            f"{duration_for_people(found['remainingSeconds'])} left",
        ]
    if "cost" in found:
        facts.append(money_text(found["cost"]))
    if found["state"] != "RUNNING" and found.get("stateReason"):
        facts.append(found["stateReason"])
    state, steps = found["state"], found["steps"]
    return (
        f"{state:<9} {bar(found['stepsDone'], steps, facts)}"
        if steps
        else "  ".join([state, *facts])
    )


def phase_of(found: dict[str, Any]) -> str:
    """Return the state of a job and why it waits, without numbers, which change all the time."""
    state, why = str(found.get("state")), re.sub(r"\d+", "", found.get("stateReason") or "")
    return state if state == "RUNNING" else f"{state} {why}"


def progress_line(found: dict[str, Any]) -> str:
    if "run" in found:
        why = found.get("stateReason", "")
        return f"{found['state']:<10}  {why}" if found["state"] != "RUNNING" else found["state"]
    latest = found["metrics"]["latest"]
    shown = (("loss", ".4f"), ("accuracy", ".3f"))
    loss = "".join(f"  {name} {latest[name]:{form}}" for name, form in shown if name in latest)
    why = (
        f"  ({found['stateReason']})"
        if found.get("stateReason") and found["state"] != "RUNNING"
        else ""
    )
    run = ""
    if "stepsPerSecond" in found:
        left = duration_for_people(found["remainingSeconds"])
        run = f"  {found['stepsPerSecond']:.3g} steps/s, {left} left"
    cost = f"  {money_text(found['cost'])}" if "cost" in found else ""
    wall = f"  {duration_for_people(found['wallSeconds'])}" if found["wallSeconds"] else ""
    return f"{found['state']:<10} step {steps_text(found)}{loss}{wall}{run}{cost}{why}"


def steps_text(found: dict[str, Any]) -> str:
    """Return how far it is, `-` if that is not known; how far it has to go is known to a user's
    program only."""
    done, steps = found.get("stepsDone", NOTHING), found["steps"]
    return f"{done}/{steps}" if steps else str(done)


def emit_job(found: dict[str, Any], output: str) -> None:
    """Print a job; in a table's place YAML, and on stderr the modules of its program."""
    emit(found, "yaml" if output == "table" else output)
    if output == "table" and "programRun" in found:
        run = ProgramRun.of_answer(found["programRun"])
        say(run_text(run, found["acceleratorType"]))
