"""The decisions of 40 seeds and of an elastic job, as they were before a refactoring.

`python -m tests.simulation.decision_hashes --check` compares this code with them (also `make
decision-hashes`). `--record` writes the file again; do so only after a change of behaviour that is
meant, and name the rule that changed in the commit. `--lines RUN` prints what the hash of a run is
made from, so that `diff` shows what an old and a new tree decide differently. All of them take
about 90 s on one core.
"""

from __future__ import annotations

import argparse
import dataclasses
import hashlib
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from podyard.simulation.run import simulate
from podyard.simulation.scenario import Event, Scenario

FILE = Path(__file__).parents[1] / "data" / "decision_hashes.txt"
COMMAND = "python -m tests.simulation.decision_hashes"
HEADER = f"""\
# Decision hashes of simulated runs (podyard/simulation/digest.py says what is hashed), faults included.
# Recorded with: {COMMAND} --record
# Checked with:  {COMMAND} --check   (`make decision-hashes`)
# A line: run (its seed, or `elastic`), days, nodes, faults per day, decision_hash, the hash of the same lines sorted,
# state changes, faults.
"""  # noqa: E501


@dataclasses.dataclass(frozen=True, slots=True)
class Recorded:
    """A line of the file. `sorted_hash`: of the same decisions in the order of their texts; equal
    where `decision_hash` differs, it says that only the order of what happens at one moment has
    changed."""

    run: str
    days: float
    nodes: int
    faults_per_day: float
    decision_hash: str
    sorted_hash: str
    events: int
    faults: int

    def line(self) -> str:
        size = f"{self.days:g} {self.nodes} {self.faults_per_day:g}"
        return (
            f"{self.run} {size} {self.decision_hash} {self.sorted_hash} {self.events} {self.faults}"
        )


def scenarios() -> dict[str, Scenario]:
    """By name. Five months (two of them on the large fleet), ten crowded runs, fifteen usual ones,
    ten with many
    faults; and one that is written by hand, since no seed runs out of places on agents."""
    found = [
        Scenario(seed=seed, days=30, nodes=nodes) for seed, nodes in enumerate((64, 60, 30, 60, 64))
    ]
    found += [Scenario(seed=seed, days=2, nodes=30) for seed in range(5, 15)]
    found += [Scenario(seed=seed, days=4, nodes=10) for seed in range(15, 30)]
    found += [Scenario(seed=seed, days=2, nodes=5, faults_per_day=80.0) for seed in range(30, 40)]
    return {
        **{str(item.seed): item for item in found},
        "elastic": Scenario(days=1, nodes=4, events=_elastic()),
    }


def _elastic() -> tuple[Event, ...]:
    """Three elastic jobs of three replicas each, and two agents with eight places. When an agent
    cannot be reached, a job goes on with fewer hosts; when it is back, the job is resized."""
    events = [
        Event(5_000.0, "silence", "", {"agent": 1, "seconds": 9_000.0, "lapse": True}),
        Event(20_000.0, "silence", "", {"agent": 1, "seconds": 10.0, "lapse": True}),
        Event(27_000.0, "die", "", {"agent": 0}),
        Event(52_000.0, "silence", "", {"agent": 0, "seconds": 4_000.0, "lapse": True}),
    ]
    places = (("bora", "us-central1-a", "v5litepod-16"), ("atlas", "us-east1-d", "v3-32"))
    for number, (project, zone, kind) in enumerate((*places, ("atlas", "us-central2-b", "v4-32"))):
        where = {"project": project, "zone": zone, "usage": "on-demand", "type": kind}
        job = {
            **where,
            "node": f"n-{number}",
            "steps": 60,
            "every": 5,
            "step_seconds": 600.0,
            "elastic": True,
        }
        events.append(Event(10.0, "create", f"n-{number}", where))
        events.append(Event(300.0 + 10.0 * number, "job", f"j-{number}", job))
    return tuple(sorted(events, key=lambda event: event.at))


def record(name: str) -> Recorded:
    """Runs it; fails when an invariant is broken."""
    scenario = scenarios()[name]
    result = simulate(scenario)
    assert not result.is_failure, (scenario.command(), result.stopped_by, result.violations)
    in_order = "\n".join(sorted(item.line() for item in result.decisions))
    return Recorded(
        name,
        scenario.days,
        scenario.nodes,
        scenario.faults_per_day,
        result.decision_hash,
        hashlib.sha256(in_order.encode()).hexdigest(),
        result.events,
        result.faults,
    )


def read() -> list[Recorded]:
    lines = FILE.read_text(encoding="utf-8").splitlines()
    return [_parsed(line) for line in lines if line and not line.startswith("#")]


def difference(old: Recorded, new: Recorded) -> str:
    """Return what has changed from one record of a run to another, as a sentence; empty when
    nothing has."""
    if old.decision_hash == new.decision_hash:
        return ""
    text = f"run {old.run}: decision_hash is {new.decision_hash}, recorded {old.decision_hash}"
    if old.sorted_hash == new.sorted_hash:
        return f"{text}; the decisions are the same, only their order within a moment differs"
    return f"{text}; {new.events} state changes, recorded {old.events}"


def _parsed(line: str) -> Recorded:
    run, days, nodes, per_day, hashed, in_order, events, faults = line.split()
    return Recorded(
        run, float(days), int(nodes), float(per_day), hashed, in_order, int(events), int(faults)
    )


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog=COMMAND, description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    action = parser.add_mutually_exclusive_group(required=True)
    action.add_argument(
        "--record", action="store_true", help="Write the hashes of this code to the file."
    )
    action.add_argument(
        "--check",
        action="store_true",
        help="Compare this code with the file. Exit code 1 on a change.",
    )
    action.add_argument(
        "--lines",
        choices=scenarios(),
        metavar="RUN",
        help="Print the decisions of a run: 0 to 39, or elastic.",
    )
    given = parser.parse_args(arguments)
    if given.lines is not None:
        for item in simulate(scenarios()[given.lines]).decisions:
            print(item.line())
        return 0
    began = time.process_time()
    if given.record:
        found = [record(name) for name in scenarios()]
        FILE.write_text(HEADER + "".join(f"{item.line()}\n" for item in found), encoding="utf-8")
        print(f"recorded {len(found)} runs, {sum(item.events for item in found)} state changes")
        return 0
    changed = 0
    for old in read():
        text = difference(old, record(old.run))
        if text:
            changed += 1
            print(text, flush=True)
    print(
        f"{len(read()) - changed} of {len(read())} decision hashes are equal "
        f"({time.process_time() - began:.0f} s)"
    )
    return 1 if changed else 0


if __name__ == "__main__":
    sys.exit(main())
