"""Agents of other machines: they join over TLS with a one-time token, and run what the platform
places on them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.conftest import require
from tests.distributed.machines import MachineYard, open_machines
from tests.stack import open_stack, until

ZONE = "europe-west4-a"
REPLICA_LEASE = 4
Pixels = np.ndarray[Any, np.dtype[np.uint8]]
LEASES = {"PODYARD_AGENT_LEASE_SECONDS": "3", "PODYARD_REPLICA_LEASE_SECONDS": str(REPLICA_LEASE)}
JOB: dict[str, Any] = {"steps": 60, "checkpointEverySteps": 20}
LONG = 400
pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("stack")]


@pytest.fixture(scope="module")
def yard(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MachineYard]:
    require("namespaces" if os.geteuid() == 0 else None, "network namespaces (root)")
    env = {**LEASES, "PODYARD_REPLICAS_MAX": "0", "PODYARD_HOSTS_MAX": "0", "PODYARD_BOXES": "off"}
    with open_machines(tmp_path_factory.mktemp("machines"), 3, env) as found:
        found.platform.create_node("slice", "v3-32", ZONE)
        yield found


@pytest.fixture(scope="module")
def joined(yard: MachineYard) -> MachineYard:
    """All machines have joined: with room for 2, 1 and 1 replicas."""
    for machine, most in zip(yard.machines, ("2", "1", "1"), strict=True):
        machine.join("--replicas-max", most, "--label", f"rack={machine.name}")
    for machine in yard.machines:
        seen = machine.wait_ready()
        assert (seen["bindAddress"], seen["labels"]) == (machine.address, {"rack": machine.name})
        assert (seen["problem"], seen["clockOffsetSeconds"]) == ("", pytest.approx(0, abs=5))
        assert seen["kernels"].startswith(os.uname().machine) and "jaxlib" in seen["kernels"]
    return yard


@pytest.fixture(scope="module")
def one_machine(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, list[float]]:
    """(the parameters' digest, the losses) of the same job on one machine without any other."""
    with open_stack(tmp_path_factory.mktemp("alone"), {"PODYARD_BOXES": "off"}) as stack:
        stack.create_node("slice", "v3-32", ZONE)
        path = stack.submit("alone", ZONE, node="slice", **JOB)
        assert stack.wait_job(path)["state"] == "SUCCEEDED"
        return stack.params_sha256(path), [point["loss"] for point in stack.metrics(path)]


def bits_of(yard: MachineYard, path: str) -> tuple[str, list[float]]:
    return yard.platform.params_sha256(path), [
        point["loss"] for point in yard.platform.metrics(path)
    ]


def agents_of(yard: MachineYard, path: str) -> list[str]:
    """By rank, of the newest attempt."""
    found: list[str] = yard.platform.call("GET", f"{path}:attempts")["attempts"][-1]["agents"]
    return found


def test_a_gang_over_three_machines_has_the_bits_of_one(
    joined: MachineYard, one_machine: tuple[str, list[float]]
) -> None:
    path = joined.platform.submit("three", ZONE, node="slice", **JOB)
    job = joined.platform.wait_job(path)
    assert (job["state"], job["failures"]) == ("SUCCEEDED", 0), (
        job,
        [m.said() for m in joined.machines],
    )
    assert agents_of(joined, path) == ["machine-1", "machine-1", "machine-2", "machine-3"]
    assert bits_of(joined, path) == one_machine
    # What the gang has made is on the platform, and on none of the machines.
    artifacts = {
        item["name"]
        for item in joined.platform.call("GET", f"{path}:artifacts?checkpoints=true")["artifacts"]
    }
    assert any(name.startswith("events/") for name in artifacts), artifacts
    assert (
        len(
            [
                name
                for name in artifacts
                if name.startswith("checkpoints/") and name.endswith(".json")
            ]
        )
        >= 2
    )
    assert not any((machine.data / "objects").exists() for machine in joined.machines)


def test_a_machine_that_is_cut_off_costs_its_gang_and_nothing_else(
    joined: MachineYard, one_machine: tuple[str, list[float]]
) -> None:
    path = joined.platform.submit("cut", ZONE, node="slice", **{**JOB, "steps": LONG})
    joined.platform.wait_steps(path, 45)
    lost = joined.machines[2]
    assert lost.replicas()
    lost.cut()
    # Nobody can tell it to: its replica stops by itself, within its lease and the time to end.
    until(lambda: True if not lost.replicas() else None, REPLICA_LEASE + 5, "the cut replica's end")
    until(
        lambda: joined.platform.call("GET", path)["state"] == "RECOVERING" or None,
        30,
        "the loss to be seen",
    )
    reason = "4 replicas are needed at once and the live agents have room for 3"
    until(
        lambda: joined.platform.call("GET", path)["stateReason"] == reason or None, 30, "the reason"
    )
    shown = joined.platform.call("GET", "/podyard/v1/agents/machine-3")
    assert (shown["state"], shown["replicas"]) == ("GONE", 0)
    lost.heal()
    job = joined.platform.wait_job(path)
    assert (job["state"], job["stepsDone"]) == ("SUCCEEDED", LONG), job
    steps = [point["step"] for point in joined.platform.metrics(path)]
    assert steps == list(range(1, LONG + 1))
    assert bits_of(joined, path)[1][: JOB["steps"]] == one_machine[1]


def test_the_next_attempt_reads_its_checkpoint_on_another_machine(joined: MachineYard) -> None:
    platform, (first, second, third) = joined.platform, joined.machines
    platform.create_node("small", "v2-8", ZONE)
    for machine in (second, third):
        platform.podyard("agent", "drain", machine.name)
    path = platform.submit("moves", ZONE, node="small", steps=400, checkpointEverySteps=20)
    platform.wait_steps(path, 45)
    assert agents_of(joined, path) == [first.name]
    for machine in (second, third):
        platform.podyard("agent", "resume", machine.name)
    assert platform.podyard("agent", "drain", first.name).returncode == 0
    first.kill()
    job = platform.wait_job(path)
    assert (job["state"], job["stepsDone"]) == ("SUCCEEDED", 400), job
    assert agents_of(joined, path)[0] in (second.name, third.name)
    assert platform.call("GET", f"{path}:attempts")["attempts"][-1]["resumeStep"] >= 40
    first.start()
    first.wait_state("DRAINING")
    assert platform.podyard("agent", "resume", first.name).returncode == 0
    first.wait_ready()


def test_a_machine_that_is_refused_is_told_why(joined: MachineYard) -> None:
    machine, folder = joined.machines[0], joined.machines[0].data / "other"

    def refused(*options: str, token: list[str] | None = None) -> str:
        words = token or joined.platform.join_arguments()
        done = machine.podyard(*words, "--data", str(folder), *options)
        assert done.returncode == 1 and not (folder / "agent.json").exists(), done
        return done.stderr

    assert "an agent named machine-2 exists already" in refused("--name", "machine-2")
    assert "cannot listen at the advertised address 192.0.2.1" in refused(
        "--advertise", "192.0.2.1"
    )
    assert "declares 4096 cores and has" in refused("--cores", "4096")
    words = joined.platform.join_arguments()
    used = [
        word[:-1] + ("0" if word[-1] != "0" else "1") if word.startswith("pdj_") else word
        for word in words
    ]
    assert "it is another server, or its authority was replaced" in refused(token=used)


def test_a_users_program_runs_on_another_machine(joined: MachineYard) -> None:
    platform = joined.platform
    platform.create_node("own", "v2-8", ZONE)
    name = f"/podyard/v1/projects/demo/locations/{ZONE}/jobs:upload?name=run.py"
    uploaded = platform.http.post(
        name, content=b"import os; print('ran as', os.environ['PODYARD_JOB'])"
    )
    assert uploaded.status_code == 200, uploaded.text
    run = {"source": uploaded.json()["uri"], "command": "python3 run.py"}
    path = platform.submit("mine", ZONE, recipe=None, node="own", run=run)
    job = platform.wait_job(path)
    assert job["state"] == "SUCCEEDED", (job, platform.log_lines(path))
    assert "ran as mine" in platform.log_lines(path)
    assert agents_of(joined, path)[0].startswith("machine-")


def test_programs_and_data_sets_come_from_the_platform(joined: MachineYard) -> None:
    platform = joined.platform
    platform.create_node("data", "v2-8", ZONE)
    folder = platform.data / "datasets" / "tiny"
    folder.mkdir(parents=True)
    random = np.random.default_rng(3)
    for split, count in (("train", 64), ("test", 16)):
        images = random.integers(0, 256, (count, 28, 28), dtype=np.uint8)
        labels = random.integers(0, 10, count, dtype=np.uint8)
        _write_idx(folder, split, images, labels)
    path = platform.submit(
        "learns",
        ZONE,
        recipe="mnist-cnn",
        node="data",
        steps=4,
        globalBatch=32,
        arguments={"data": "tiny"},
    )
    job = platform.wait_job(path)
    assert job["state"] == "SUCCEEDED", (job, platform.log_lines(path))
    (agent,) = agents_of(joined, path)
    machine = next(one for one in joined.machines if one.name == agent)
    fetched = {one.name: one.read_bytes() for one in (machine.data / "datasets" / "tiny").iterdir()}
    assert fetched == {one.name: one.read_bytes() for one in folder.iterdir()}
    assert any(line.startswith("fetching tiny: ") for line in platform.log_lines(path))


def _write_idx(folder: Path, split: str, images: Pixels, labels: Pixels) -> None:
    """As MNIST is given out."""
    name = "train" if split == "train" else "t10k"
    head = np.array([0x803, *images.shape], ">u4").tobytes()
    (folder / f"{name}-images-idx3-ubyte").write_bytes(head + images.tobytes())
    (folder / f"{name}-labels-idx1-ubyte").write_bytes(
        np.array([0x801, len(labels)], ">u4").tobytes() + labels.tobytes()
    )
