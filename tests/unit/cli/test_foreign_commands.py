"""Commands that users of kubectl, gcloud, docker, SkyPilot and Ray try: each works, or its error
names the command that does it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from podyard.cli.kit.command_names.routes import (
    GROUP_HINTS,
    GROUP_NAMES,
    HINTS,
    KINDS,
    ROUTES,
    SYNONYMS,
    WITHOUT_NAMES,
)
from tests.unit.cli.cli_yard import podyard
from tests.unit.cli.command_walk import find
from tests.unit.cli.golden_yard import open_golden_yard
from tests.yard import Yard

# Lines that run: the second text is in their output.
RUN = {
    # kubectl
    "api-resources": "podyard tpu --help",
    "jobs queue": "trains",
    # docker
    "ps -a": "trains",
    "get nodes": "v2-8",
    "get node pod": "v2-8",
    "get node/pod": "v2-8",
    "get no": "v2-8",
    "get jobs": "trains",
    "get job trains": "RUNNING",
    "get pods": "us-central1-f-v2-0",
    "get events": "trains",
    "get projects": "demo",
    "get namespaces": "demo",
    "get ns": "demo",
    "get sweeps": "rates",
    "get queued-resources": "wish",
    "get reservations": "lab",
    "get webhooks": "chat",
    "get budgets": "lab",
    "get prices": "v2",
    "get nodes -o json": '"acceleratorType"',
    "get nodes -o yaml": "acceleratorType:",
    "get nodes -o wide": "CLASS",
    "get nodes -o name": "pod",
    "get jobs --filter state==RUNNING": "trains",
    "describe node pod": "acceleratorType: v2-8",
    "describe job trains": "steps",
    "describe node/pod": "acceleratorType: v2-8",
    "describe jobs trains": "steps",
    "describe sweep rates": "rates-0",
    "logs trains": "the loss is 1.0",
    "logs trains --tail 1": "the loss is 1.0",
    "top --once": "trains",
    "events": "trains",
    "version": "podyard",
    "help": "Usage",
    "cluster-info --help": "running",
    "auth whoami": "EMAIL",
    "delete node --help": "Delete a node",
    # gcloud
    "compute tpus tpu-vm list": "v2-8",
    "compute tpus tpu-vm describe pod": "acceleratorType: v2-8",
    "compute tpus tpu-vm describe pod --zone us-central1-f": "acceleratorType: v2-8",
    "compute tpus tpu-vm delete --help": "Delete a node",
    "compute tpus tpu-vm ssh --help": "ssh",
    "compute tpus list": "v2-8",
    "compute tpus queued-resources list": "wish",
    "compute tpus queued-resources describe wish": "v2-32",
    "compute tpus accelerator-types list": "v2-8",
    "compute tpus locations list": "us-central1-f",
    "compute instances list": "v2-8",
    "compute zones list": "us-central1-f",
    "projects list": "demo",
    "auth list": "EMAIL",
    "config list --help": "running",
    "storage ls --help": "List buckets",
    "storage buckets list --help": "List buckets",
    "billing": "Total",
    "tpus list": "v2-8",
    "zones": "us-central1-f",
    "regions": "us-central1-f",
    "quota": "CHIPS_MAX",
    "cost": "Total",
    "bill": "Total",
    "budget": "lab",
    "queue": "wish",
    "pods": "us-central1-f-v2-0",
    "clock": "virtual",
    "hardware": "v2-8",
    "price": "v2",
    # docker
    "ps": "trains",
    "ps --watch --help": "Usage",
    "images --help": "runtime",
    "inspect node pod": "acceleratorType: v2-8",
    "inspect job trains": "steps",
    "stats --once": "trains",
    "exec --help": "Run a command",
    "rm node --help": "Delete a node",
    "job ps": "trains",
    "job ls": "trains",
    "job inspect trains": "steps",
    "job kill ends --help": "Cancel",
    "tpu ls": "pod",
    "tpu get": "pod",
    "tpu get pod": "acceleratorType: v2-8",
    "tpu rm --help": "Delete a node",
    "info --help": "running",
    # SkyPilot
    "show-gpus": "v2-8",
    "cost-report": "Total",
    "check --help": "what is wrong",
    "cancel --help": "Cancel",
    "launch --help": "YAML",
    "jobs list": "trains",
    "jobs logs trains": "the loss is 1.0",
    "jobs cancel --help": "Cancel",
    "jobs launch --help": "YAML",
    "status --help": "running",
    # Ray
    "job submit --help": "Submit a job",
    "job stop --help": "Cancel",
    "job status trains": "steps",
    "list nodes": "v2-8",
    "list jobs": "trains",
    "summary --once": "trains",
    "dashboard --help": "console",
    "submit --help": "Submit a job",
    "project ls": "demo",
    "sweep ls": "rates",
    "webhook ls": "chat",
}
# Lines that cannot run: their error names the commands that do it.
SUGGESTED = {
    "ls": "podyard nodes",
    "get": "podyard nodes",
    "get things": "podyard nodes",
    "list": "podyard nodes",
    "describe": "podyard tpu describe NODE",
    "describe pod": "podyard pods",
    "create": "podyard job submit",
    "delete job trains": "podyard job cancel JOB",
    "delete pod-a": "podyard tpu delete NODE",
    "rm pod-a": "podyard tpu delete NODE",
    "kill trains": "podyard job cancel JOB",
    "stop trains": "podyard job cancel JOB",
    "start pod": "podyard tpu start NODE",
    "apply -f job.yaml": "podyard job launch FILE.yaml",
    "edit job trains": "podyard job clone JOB",
    "scale job trains": "podyard job resize",
    "rollout restart": "podyard job resize JOB",
    "label node pod a=b": "--labels",
    "port-forward pod 80": "podyard connect",
    "attach trains": "podyard logs JOB --follow",
    "drain node": "podyard agent drain AGENT",
    "config set project x": "podyard env",
    "login": "podyard open",
    "init": "podyard up",
    "build .": "podyard runtime install",
    "pull image": "podyard runtime install",
    "push image": "podyard storage cp",
    "cp a b": "podyard tpu scp",
    "rsync a gs://b": "podyard storage sync",
    "serve up": "podyard predict",
    "autostop pod": "podyard tpu delete NODE",
    "memory": "podyard estimate",
    "timeline": "podyard events JOB",
    "jbos": "podyard jobs",
    "noeds": "podyard nodes",
    "tpu lst": "podyard tpu list",
    "job sumbit": "podyard job submit",
    "delte node": "podyard tpu delete NODE",
    "nodes pod": "podyard tpu describe NODE",
    "jobs trains": "podyard job describe JOB",
    "down pod": "podyard tpu delete NODE",
    "up cluster.yaml": "podyard job launch",
    "status pod": "podyard tpu describe NODE",
    "tpu frobnicate": "podyard tpu --help",
    "auth login": "podyard open",
    "auth can-i create nodes": "podyard auth whoami",
    "project describe demo": "podyard project list",
    "ssh pod": "podyard tpu ssh NODE",
    "queue mycluster": "podyard qr describe",
    "explain node": "podyard tpu describe NODE",
    "annotate node pod a=b": "--labels KEY=VALUE",
    "destroy pod": "podyard tpu delete NODE",
    "uninstall": "podyard down --delete-data",
    "compose up": "podyard job launch FILE.yaml",
    "system df": "podyard doctor",
    "volume ls": "podyard storage ls",
    "api status": "podyard status",
}


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Yard]:
    with open_golden_yard(tmp_path_factory.mktemp("foreign")) as yard:
        yield yard


@pytest.mark.parametrize("line", RUN)
def test_a_line_runs(world: Yard, line: str) -> None:
    answer = podyard(world, line)
    assert answer.code == 0, answer.text
    assert RUN[line] in answer.text


@pytest.mark.parametrize("line", SUGGESTED)
def test_an_error_names_the_command(world: Yard, line: str) -> None:
    answer = podyard(world, line)
    assert answer.code == 2, answer.text
    assert SUGGESTED[line] in answer.err


def test_every_suggestion_and_route_is_a_command() -> None:
    tables = (HINTS, WITHOUT_NAMES, GROUP_HINTS, GROUP_NAMES)
    hints = [hint for table in tables for group in table.values() for hint in group]
    lines = [hint.split()[1:] for hint in hints if hint.startswith("podyard ")]
    lines += [list(words) for words in ROUTES.values() if not words[0].startswith("-")]
    lines += [[group] for group in KINDS.values()]
    for words in lines:
        path, _, _ = find(words)
        named = list(words[: len(path.split())])
        assert path.split() == named, words
    assert not set(SYNONYMS) & set(KINDS)
