"""A project that two teams have worked in for some weeks, for looking at the console: nodes of many
types, jobs that run, wait, failed and ended, what waits for chips, bills, budgets, broken chips,
members and objects.

The clock is virtual and stands still while the stack is filled, so that weeks of cost take seconds.
`EMPTY`: a project of which nothing is used yet.
"""

from __future__ import annotations

import subprocess
from typing import Any

from tests.stack import PODYARD, Stack
from tests.waiting import until

ZONE = "us-central1-f"
CLOCK = {"PODYARD_CLOCK": "virtual"}  # what the stack is started with
EMPTY = "fresh"
HERE = "/podyard/v1/projects/demo"
# Node, type, zone, fields: those that stay, and those that are deleted before the present.
_LASTING: tuple[tuple[str, str, str, dict[str, Any]], ...] = (
    ("resnet-train", "v3-32", "europe-west4-a", {"labels": {"team": "vision", "env": "prod"}}),
    (
        "llm-pretrain",
        "v4-128",
        "us-central2-b",
        {"labels": {"team": "language"}, "description": "7B, run 12"},
    ),
    ("llm-finetune", "v4-32", "us-central2-b", {"labels": {"team": "language"}}),
    ("bert-sweep", "v2-32", "us-central1-a", {"labels": {"team": "language", "env": "dev"}}),
    ("notebook-ada", "v2-8", ZONE, {"labels": {"owner": "ada"}}),
    ("notebook-ben", "v2-8", ZONE, {"labels": {"owner": "ben"}}),
    ("serving", "v5litepod-8", "us-west4-a", {"labels": {"team": "vision", "env": "prod"}}),
    ("gemma-spot", "v5litepod-16", "us-west4-a", {"schedulingConfig": {"spot": True}}),
    ("eval-spot", "v3-8", ZONE, {"schedulingConfig": {"preemptible": True}}),
    ("maps", "v6e-16", "us-east5-b", {"labels": {"team": "maps"}}),
)
_PAST = (
    ("trial-a", "v3-8", ZONE, {"labels": {"team": "vision"}}),
    ("trial-b", "v4-64", "us-central2-b", {"labels": {"team": "language"}}),
)
_FAILING = (
    'echo "hello from $TPU_WORKER_ID"; [ "$TPU_WORKER_ID" != 2 ] || '
    "{ echo \"ModuleNotFoundError: No module named 'flax'\" >&2; exit 1; }"
)
_LONG = {"recipe": "resnet-50", "execution": "simulated", "globalBatch": 1024, "steps": 100_000}
# before the first nodes go, before the month's last ones come, and up to the present
_DAYS = ("9d", "6d", "5d")


def fill(stack: Stack) -> tuple[str, ...]:
    """Returns the paths of pages that show most."""
    _past(stack)
    _instances(stack)
    _present_jobs(stack)
    _present_requests(stack)
    _account(stack)
    _storage(stack)
    stack.call("POST", "/podyard/v1/clock:setRate", {"rate": 1})
    demo = "/console/demo"
    return (
        f"{demo}/jobs/{ZONE}/digits-live", f"{demo}/nodes/us-central2-b/llm-pretrain",
        f"{demo}/pods/us-central2-b-v4-0", f"{demo}/instances/us-east5-b/dev-ada",
        f"{demo}/instance-groups/us-east5-b/trainers",
        f"{demo}/compare?job={ZONE}/digits-a&job={ZONE}/digits-b",
        f"{demo}/settings/storage/demo-data?prefix=runs/",
    )  # fmt: skip


def _past(stack: Stack) -> None:
    for name, kind, zone, fields in (*_LASTING[:6], *_PAST):
        stack.create_node(name, kind, zone, **fields)
    _advance(stack, _DAYS[0])
    for name, _, zone, _ in _PAST:
        stack.delete_node(name, zone)
    _advance(stack, _DAYS[1])
    for name, kind, zone, fields in _LASTING[6:]:
        stack.create_node(name, kind, zone, **fields)
    commitment = {"years": 1, "acceleratorType": "v4-32", "location": "us-central2-b"}
    stack.call("POST", f"{HERE}/commitments", commitment)
    _advance(stack, _DAYS[2])
    stack.call("POST", f"/v2/projects/demo/locations/{ZONE}/nodes/notebook-ben:stop", {})


def _instances(stack: Stack) -> None:
    """With chips and without, one stopped, one that waits, and a group that is one slice."""
    url, zone = "/compute/v1/projects/demo", "us-east5-b"
    scripts = [{"key": "startup-script", "value": "#!/bin/bash\npip install --user jax\n"}]
    disks = [
        {"boot": True, "autoDelete": True},
        {"autoDelete": True, "initializeParams": {"diskSizeGb": "200", "diskType": "pd-ssd"}},
    ]
    spot = {"provisioningModel": "SPOT", "instanceTerminationAction": "STOP"}
    flex = {"provisioningModel": "FLEX_START", "maxRunDuration": {"seconds": "14400"}}
    for name, machine, fields in (
        ("dev-ada", "ct6e-standard-4t", {"labels": {"owner": "ada"}, "disks": disks}),
        ("dev-ben", "ct6e-standard-1t", {"labels": {"owner": "ben"}, "scheduling": spot}),
        ("head-node", "n2-standard-4", {"description": "Submits the nightly runs"}),
        ("night-run", "ct6e-standard-8t", {"scheduling": flex}),
    ):
        body = {
            "name": name,
            "machineType": f"zones/{zone}/machineTypes/{machine}",
            "networkInterfaces": [{"accessConfigs": [{"type": "ONE_TO_ONE_NAT"}]}],
            "disks": disks[:1],
            "metadata": {"items": scripts},
            **fields,
        }
        stack.call("POST", f"{url}/zones/{zone}/instances", body)
    template = {"name": "v6e-host", "properties": {"machineType": "ct6e-standard-4t"}}
    stack.call("POST", f"{url}/global/instanceTemplates", template)
    workload = {"type": "HIGH_THROUGHPUT", "acceleratorTopology": "4x4"}
    policies = f"{url}/regions/us-east5/resourcePolicies"
    stack.call("POST", policies, {"name": "slice-4x4", "workloadPolicy": workload})
    for name, more in (
        ("trainers", {"resourcePolicies": {"workloadPolicy": f"{policies}/slice-4x4"}}),
        ("servers", {}),
    ):
        group = {
            "name": name,
            "instanceTemplate": f"{url}/global/instanceTemplates/v6e-host",
            "targetSize": 4 if more else 0,
            "targetSizePolicy": {"mode": "BULK" if more else "INDIVIDUAL"},
            **more,
        }
        stack.call("POST", f"{url}/zones/{zone}/instanceGroupManagers", group)
    _advance(stack, "7h")
    stack.call("POST", f"{url}/zones/{zone}/instances/dev-ben/stop")


def _advance(stack: Stack, duration: str) -> None:
    operation = stack.call("POST", "/podyard/v1/clock:advance", {"duration": duration})
    until(
        lambda: stack.call("GET", f"/podyard/v1/{operation['name']}").get("done") or None,
        120,
        "the clock",
    )


def _present_jobs(stack: Stack) -> None:
    for job, rate in (("digits-a", 0.001), ("digits-b", 0.01)):
        fields = {
            "steps": 60,
            "checkpointEverySteps": 20,
            "training": {"evaluateEverySteps": 20},
            "labels": {"sweep": "rate"},
        }
        stack.wait_job(
            stack.submit(job, ZONE, node="notebook-ada", arguments={"learningRate": rate}, **fields)
        )
    jobs = f"{HERE}/locations/us-central1-a/jobs"
    failing = {"run": {"command": _FAILING}, "node": "bert-sweep", "maxFailures": 0}
    stack.call("POST", f"{jobs}?jobId=bert-tune", failing)
    stack.wait_job(f"{jobs}/bert-tune")
    for job, node, zone in (
        ("resnet-imagenet", "resnet-train", "europe-west4-a"),
        ("vit-l16", "maps", "us-east5-b"),
    ):
        stack.submit(job, zone, node=node, **_LONG)
    stack.submit("rerun", "europe-west4-a", node="resnet-train", **_LONG)
    steps = {"steps": 100_000, "checkpointEverySteps": 100, "training": {"evaluateEverySteps": 100}}
    stack.wait_steps(
        stack.submit("digits-live", ZONE, node="notebook-ada", labels={"team": "vision"}, **steps),
        30,
    )
    stack.submit("digits-next", ZONE, node="notebook-ada", steps=500)
    preempted = {"effect": "preempt", "match": {"resource": "gemma-spot"}, "count": 1}
    stack.call("POST", "/podyard/v1/faults", preempted)
    broken = {"effect": "chip", "match": {"resource": "llm-finetune"}, "chips": 2, "count": 1}
    stack.call("POST", "/podyard/v1/faults", broken)
    stack.call(
        "POST", "/podyard/v1/faults", {"effect": "stockout", "match": {"zone": "us-central1-b"}}
    )


def _present_requests(stack: Stack) -> None:
    full = {"acceleratorType": "v3-8", "runtimeVersion": "tpu-vm-base"}
    for name, zone, more in (
        ("weekly-eval", "us-central1-b", {}),
        ("ablation", "us-central1-b", {"spot": {}}),
        ("night-run", ZONE, {"queueingPolicy": {"validAfterDuration": "28800s"}}),
        ("granted", ZONE, {}),
    ):
        spec = {"parent": f"projects/demo/locations/{zone}", "nodeId": name, "node": full}
        path = f"/v2alpha1/projects/demo/locations/{zone}/queuedResources?queuedResourceId={name}"
        stack.call("POST", path, {"tpu": {"nodeSpec": [spec]}, **more})
    for name, generation, size in (("vision-team", "v2", 16), ("language-team", "v4", 128)):
        zone = ZONE if generation == "v2" else "us-central2-b"
        reservation = {"generation": generation, "size": size}
        stack.call(
            "POST", f"{HERE}/locations/{zone}/reservations?reservationId={name}", reservation
        )


def _account(stack: Stack) -> None:
    for name, fields in (
        ("demo-month", {"amount": "60000", "thresholds": ["0.5", "0.9"], "forecasts": ["1"]}),
        ("vision", {"amount": "9000", "scope": "label:team=vision", "thresholds": ["0.8", "1"]}),
        ("maps", {"amount": "500", "scope": "label:team=maps"}),
    ):
        stack.call("PUT", f"{HERE}/budgets/{name}", fields)
    months = {"amount": "2500", "untilMonth": "2030-12", "reason": "Research grant"}
    stack.call("POST", f"{HERE}/credits", months)
    for email, role in (("ada", "tpu.admin"), ("ben", "tpu.viewer"), ("finance", "billing.viewer")):
        member = {"email": f"{email}@example.com", "project": "demo", "roles": [role]}
        stack.call("POST", "/podyard/v1/tokens", member)
    hook = {"url": "http://127.0.0.1:9/hook", "events": ["job.failed", "node.preempted"]}
    stack.call("PUT", f"{HERE}/webhooks/chat", hook)
    stack.call("POST", "/podyard/v1/projects", {"projectId": EMPTY})


def _storage(stack: Stack) -> None:
    file = stack.data / "note.txt"
    file.write_text("Learning rates that were tried.\n" * 40)
    for words in (
        "storage mb gs://demo-data gs://demo-checkpoints",
        f"storage cp {file} gs://demo-data/runs/notes.txt",
        f"storage cp {file} gs://demo-data/runs/results/table.txt",
        f"storage cp {file} gs://demo-data/readme.txt",
    ):
        subprocess.run(
            [*PODYARD, *words.split(), "--data", str(stack.data)],
            check=True,
            stdout=subprocess.DEVNULL,
        )
