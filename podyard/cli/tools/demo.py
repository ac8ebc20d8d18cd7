"""`podyard demo`: the whole of Podyard once, on real data, in about a minute.

Starts a stack on a scratch folder, creates two nodes through Google's wire, trains on each, checks
the bill against the state events, and takes everything down again, also after Ctrl-C.
"""

from __future__ import annotations

import dataclasses
import importlib.util
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from types import FrameType
from typing import Any

import click

from podyard.base.clock import NANOS_PER_SECOND, OsClock, PlatformTime, RealClock
from podyard.base.durations import duration_for_people
from podyard.base.errors import Code, PodyardError
from podyard.base.files import read_json
from podyard.base.interpreter import python_command
from podyard.base.money import Amount, money_text, nanos_from_decimal_text
from podyard.cli.jobs.logs import FINAL_STATES
from podyard.cli.kit.client import Client, Target, read_token
from podyard.cli.kit.output import say
from podyard.settings import INSTANT_FLEET, from_environment
from podyard.stack.database import violations

READY_SECONDS_MAX = 70.0
NODE_SECONDS_MAX = 60.0
JOB_SECONDS_MAX = 600.0  # a slow laptop needs two minutes; beyond this something hangs
DOWN_SECONDS_MAX = 30.0
BAR_CHARACTERS = 24


@dataclasses.dataclass(frozen=True, slots=True)
class DemoPart:
    """One node of the demo and the job on it."""

    node: str
    accelerator_type: str
    zone: str
    runtime_version: str
    scheduling: dict[str, bool]
    usage: str


PARTS = (
    DemoPart(
        "demo-single", "v2-8", "us-central1-f", "tpu-vm-base", {"preemptible": True}, "preemptible"
    ),
    DemoPart("demo-slice", "v3-32", "europe-west4-a", "tpu-vm-base", {}, "on demand"),
)


@click.command()
@click.option(
    "--keep", is_flag=True, help="Keep Podyard running afterwards, for a look at the console."
)
@click.option(
    "--steps", type=click.IntRange(1), help="Training steps of each job (default: the recipe's)."
)
@click.option("--seed", type=int, default=0, show_default=True, help="Random seed of the jobs.")
def demo(keep: bool, steps: int | None, seed: int) -> int:
    """Create two nodes, train on real data, and verify the bill."""
    missing = [
        name for name in ("jax", "sklearn", "safetensors") if importlib.util.find_spec(name) is None
    ]
    if missing:
        say(f"podyard demo needs {', '.join(missing)}: pip install 'podyard[demo]'")
        return 2
    data = Path(tempfile.mkdtemp(prefix="podyard-demo-"))
    run = _DemoRun(data, OsClock())
    try:
        run.start()
        rows = [run.train(part, steps, seed) for part in PARTS]
        run.print_result(rows)
        if keep:
            run.keep()
            return 0
    except PodyardError as error:
        say(f"podyard demo: {error.message}")
        run.show_log()
        return 1
    except KeyboardInterrupt:
        say("\ninterrupted: taking everything down")
        return 130
    finally:
        if not run.kept:
            run.stop()
    return 0


class _DemoRun:
    def __init__(self, data: Path, clock: RealClock) -> None:
        self._data = data
        self._clock = clock
        self._process: subprocess.Popen[bytes] | None = None
        self._client: Client | None = None
        self.kept = False
        self._marked: tuple[str, str, int] | None = None
        # Set by hand: a shell starts background commands with SIGINT ignored.
        signal.signal(signal.SIGINT, _interrupt)
        signal.signal(signal.SIGTERM, _interrupt)

    def start(self) -> None:
        arguments = ["up", "--data", str(self._data), "--port", "0", "--fleet", INSTANT_FLEET]
        # A scratch stack: it must not meet the database or broker of a Podyard that the environment
        # points to.
        env = {name: value for name, value in os.environ.items() if not name.startswith("PODYARD_")}
        self._process = subprocess.Popen(
            python_command("-c", "from podyard.main import cli; cli()", *arguments),
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            # Its own session: a Ctrl-C reaches the demo, which then takes everything down in order.
            start_new_session=True,
        )
        # It ends by itself where its start makes no progress.
        while not (state := read_json(self._data / "podyard.json")):
            if self._process.poll() is not None:
                raise PodyardError(Code.UNAVAILABLE, "podyard did not start")
            self._clock.sleep(0.05)
        url = str(state["url"])
        self._client = Client(Target(url, read_token(self._data / "token"), "demo", PARTS[0].zone))
        say(f"Podyard runs at {url}  (console {url}/console)")
        self._await_agent()

    def _await_agent(self) -> None:
        client = self._require()
        client.poll(
            lambda: client.call("GET", "/podyard/v1/agents"),
            lambda found: bool(found["agents"]),
            READY_SECONDS_MAX,
            "the agent",
        )

    def train(self, part: DemoPart, steps: int | None, seed: int) -> dict[str, Any]:
        """Creates the node, trains, deletes the node; returns what the table shows."""
        client = self._require()
        say(f"\nCreating {part.accelerator_type} ({part.usage}) in {part.zone} ...")
        body = {
            "acceleratorType": part.accelerator_type,
            "runtimeVersion": part.runtime_version,
            "schedulingConfig": part.scheduling,
        }
        operation = client.call(
            "POST", f"{client.zone_path(part.zone)}/nodes", body, nodeId=part.node
        )
        node = client.wait_operation(operation, NODE_SECONDS_MAX)["response"]
        hosts = len(node["networkEndpoints"])
        say(
            f"READY: {node['acceleratorConfig']['topology']} chips, {hosts} "
            f"host{'s' if hosts > 1 else ''}"
        )
        job: dict[str, Any] = {"recipe": "digits-cnn", "node": part.node, "seed": seed}
        if steps is not None:
            job["steps"] = steps
        found = client.call(
            "POST", f"{client.own_path(part.zone)}/jobs", job, jobId=f"{part.node}-digits"
        )
        found = client.poll(
            lambda: self._progress(client.call("GET", f"/podyard/v1/{found['name']}")),
            lambda current: current["state"] in FINAL_STATES,
            JOB_SECONDS_MAX,
            str(found["name"]),
        )
        if sys.stderr.isatty():
            sys.stderr.write("\n")
        if found["state"] != "SUCCEEDED":
            raise PodyardError(
                Code.ABORTED, f"the job ended {found['state']}: {found['stateReason']}"
            )
        client.wait_operation(
            client.call("DELETE", f"{client.zone_path(part.zone)}/nodes/{part.node}"),
            NODE_SECONDS_MAX,
        )
        return {"part": part, "hosts": hosts, "job": found}

    def _progress(self, job: dict[str, Any]) -> dict[str, Any]:
        latest = job["metrics"]["latest"]
        filled = BAR_CHARACTERS * job["stepsDone"] // job["steps"]
        bar = "#" * filled + "." * (BAR_CHARACTERS - filled)
        numbers = (
            f"loss {latest['loss']:.4f} accuracy {latest['accuracy']:.3f}"
            if "loss" in latest
            else ""
        )
        line = f"{job['state']:<10} [{bar}] {job['stepsDone']}/{job['steps']} {numbers}"
        if sys.stderr.isatty():
            sys.stderr.write(f"\r\x1b[K{line}")
        else:
            # A log gets a line per state and per quarter of the way, not one per look.
            mark = (job["name"], job["state"], 4 * job["stepsDone"] // job["steps"])
            if mark != self._marked:
                self._marked = mark
                sys.stderr.write(f"{line}\n")
        sys.stderr.flush()
        return job

    def print_result(self, rows: list[dict[str, Any]]) -> None:
        client = self._require()
        usage = client.call("GET", f"{client.project_path()}/usage")
        by_node = {item["node"].rsplit("/", 1)[-1]: item for item in usage["nodes"]}
        lines = [_table_line(row, by_node[row["part"].node]) for row in rows]
        widths = [max(len(line[index]) for line in lines) for index in range(len(lines[0]))]
        click.echo()
        for line in lines:
            click.echo(
                "  ".join(
                    text.ljust(width) for text, width in zip(line, widths, strict=True)
                ).rstrip()
            )
        events = list(client.pages(f"{client.project_path()}/events", "events"))
        problem = check_bill(usage, events)
        if problem is not None:
            raise PodyardError(
                Code.DATA_LOSS, f"the bill does not follow from the state events: {problem}"
            )
        broken = violations(from_environment({"PODYARD_DATA": str(self._data)}))
        if broken:
            raise PodyardError(
                Code.DATA_LOSS, f"fsck found {len(broken)} violations, the first: {broken[0]}"
            )
        bill = f"{duration_for_people(usage['seconds'])}, {money_text(usage['amount'])}"
        click.echo(
            f"Bill: {bill}, equal to the usage records. "
            "wall = this machine; modelled = a real slice. Left running: podyard demo --keep"
        )

    def keep(self) -> None:
        self.kept = True
        say(f"\nLeft running on {self._data}. Next:")
        say(f'  eval "$(podyard env --data {self._data})"')
        say(f"  podyard auth print-token --data {self._data}     # to sign in to the console")
        say(f"  podyard down --data {self._data} --delete-data   # when you are done")

    def stop(self) -> None:
        if self._client is not None:
            self._client.close()
        if self._process is not None and self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(DOWN_SECONDS_MAX)
            except subprocess.TimeoutExpired:
                self._process.kill()
        shutil.rmtree(self._data, ignore_errors=True)

    def show_log(self) -> None:
        path = self._data / "podyard.log"
        if path.exists():
            say("the last lines of podyard.log:")
            say("\n".join(path.read_text(encoding="utf-8", errors="replace").splitlines()[-20:]))

    def _require(self) -> Client:
        assert self._client is not None, "started first"
        return self._client


def check_bill(usage: dict[str, Any], events: list[dict[str, Any]]) -> str | None:
    """Recomputes the bill from the state events alone: distinct UTC seconds touched by READY, times
    the price.

    Returns what differs, or None. On purpose it shares nothing with the meter but the exact
    integers of money.
    """
    seconds: dict[str, set[int]] = {}
    since: dict[str, PlatformTime] = {}
    for event in sorted(
        (e for e in events if e["kind"] == "node"), key=lambda e: (e["key"], e["version"])
    ):
        at = PlatformTime.from_rfc3339(event["at"])
        if event["toState"] == "READY":
            since.setdefault(event["key"], at)
        elif event["key"] in since:
            start = since.pop(event["key"])
            last = at.nanos if at.nanos > start.nanos else start.nanos
            touched = range(start.nanos // NANOS_PER_SECOND, -(-last // NANOS_PER_SECOND))
            seconds.setdefault(event["key"], set()).update(touched)
    total = Amount()
    for item in usage["nodes"]:
        expected = len(seconds.get(item["key"], ()))
        if item["seconds"] != expected:
            return f"{item['node']}: {item['seconds']} s billed, {expected} s touched by READY"
        total += Amount.of_hourly(nanos_from_decimal_text(item["pricePerHour"]), expected)
    if total.text(12) != usage["amount"]:
        return f"${usage['amount']} billed, ${total.text(12)} from the events"
    return None


def _table_line(row: dict[str, Any], usage: dict[str, Any]) -> list[str]:
    part, job, hosts = row["part"], row["job"], row["hosts"]
    accuracy = job["metrics"]["latest"].get("testAccuracy")
    return [
        part.accelerator_type,
        part.usage,
        part.zone,
        f"{hosts} host{'s' if hosts > 1 else ''}",
        f"accuracy {accuracy:.2f}" if accuracy is not None else "accuracy -",
        f"steps {job['stepsDone']}",
        f"wall {duration_for_people(job['wallSeconds'])}",
        f"modelled {duration_for_people(job['modelledSeconds'])} ({job['estimateModel']})",
        f"billed {duration_for_people(usage['seconds'])}",
        money_text(usage["amount"]),
    ]


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


COMMANDS = {"demo": demo}
