"""Users' programs as jobs, as users bring them, on hosts that have the software of their runtime
version."""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
import zipfile
from collections.abc import Iterator, Sequence
from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from typing import Any

import google_crc32c
import numpy as np
import pytest

from podyard.base.clock import PlatformTime
from podyard.programs.environments import FOLDER_VARIABLE
from tests.clients.client import Client
from tests.clients.outside import Outside
from tests.stack import PODYARD, Stack, open_stack
from tests.waiting import patient, until

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("clients")]
PROGRAMS = Path(__file__).parent / "programs"
ROOT = Path(__file__).parents[2]
FOLDER = {FOLDER_VARIABLE: str(ROOT / ".venv-clients" / "runtimes")}
ZONES = {"slice": "europe-west4-a", "keras": "us-central1-f"}


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    environ = {
        name: value for name, value in os.environ.items() if not name.startswith("PODYARD_")
    } | FOLDER
    made = subprocess.run(
        [*PODYARD, "runtime", "install", "jax"], env=environ, capture_output=True, text=True
    )
    assert made.returncode == 0, made.stderr
    with open_stack(tmp_path_factory.mktemp("jobs"), FOLDER) as found:
        yield found


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """train.py with a package of its own: boxes reach nothing outside."""
    folder = tmp_path_factory.mktemp("archive")
    download = (
        sys.executable,
        "-m",
        "pip",
        "download",
        "-q",
        "--no-deps",
        "-d",
        str(folder),
        "tensorboardX==2.6.4",
    )
    subprocess.run(download, check=True, timeout=patient(60))
    (wheel,) = folder.glob("*.whl")
    with zipfile.ZipFile(folder / "show.zip", "w") as found:
        found.write(PROGRAMS / "train_with_curves.py", "train.py")
        found.write(wheel, f"wheels/{wheel.name}")
        found.writestr("requirements.txt", f"--no-index\n./wheels/{wheel.name}\n")
    return folder / "show.zip"


def _client(stack: Stack, tmp_path: Path, program: str, *arguments: str) -> Any:
    with Outside() as outside:
        found = Client("storage", PROGRAMS / program, stack, outside, tmp_path).run(*arguments)
        assert not outside.refused, "a request left the machine"
    return found


def test_a_zip_trains_on_four_hosts_through_a_preemption(
    stack: Stack, archive: Path, tmp_path: Path
) -> None:
    data = ("--data", str(stack.data))
    for words in (("mb", "gs://show"), ("cp", str(archive), "gs://show/")):
        done = stack.command("storage", *words, *data)
        assert done.returncode == 0, done.stderr
    crc = base64.b64encode(google_crc32c.Checksum(archive.read_bytes()).digest()).decode()
    assert _client(stack, tmp_path, "storage_sizes.py", "gs://show/") == {
        "show.zip": [archive.stat().st_size, crc]
    }
    flags = (
        "--run",
        "gs://show/show.zip",
        "--accelerator-type",
        "v3-32",
        "--spot",
        "--zone",
        ZONES["slice"],
    )
    done = stack.command("job", "submit", "show", *flags, *data)
    assert done.returncode == 0, done.stderr
    path = f"/podyard/v1/projects/demo/locations/{ZONES['slice']}/jobs/show"
    stack.wait_steps(path, 3, patient(120))
    stack.call(
        "POST",
        "/podyard/v1/faults",
        {"effect": "preempt", "match": {"resource": "*show"}, "notice": "10s"},
    )
    job = stack.wait_job(path, patient(180))
    assert (job["state"], job["attempt"], job["preemptions"], job["failures"]) == (
        "SUCCEEDED",
        2,
        1,
        0,
    ), job
    log = stack.log(path)
    points = [json.loads(line["line"]) for line in log if line["line"].startswith("{")]
    kept = points[-1]["step"] - 20
    assert [point["step"] for point in points] == list(range(1, kept + 21)), (
        "no step is lost, and none is done twice"
    )
    said = {
        (line["attempt"], line["worker"]): line["line"]
        for line in log
        if line["line"].startswith("worker")
    }
    assert said == {
        (attempt,
            worker): f"worker {worker} of 4 on 32 devices from step {0 if attempt == 1 else kept}"
        for attempt in (1, 2) for worker in range(4)
    }  # fmt: skip
    output = job["run"]["output"]
    curve = _client(stack, tmp_path, "tensorboard_curves.py", f"{output}/logs")["loss"]
    assert curve == [[point["step"], pytest.approx(point["loss"], rel=1e-6)] for point in points]
    copies = {f"logs/attempt-{attempt}/worker-{worker}.log" for attempt, worker in said}
    named = {"model/weights.npz", "checkpoints/state.npz", *copies}
    until(
        lambda: True if named <= _client(stack, tmp_path, "storage_sizes.py",
            f"{output}/").keys() else None,
        patient(60), "the artefacts and the logs",
    )  # fmt: skip
    model = tmp_path / "weights.npz"
    done = stack.command("storage", "cp", f"{output}/model/weights.npz", str(model), *data)
    assert done.returncode == 0, done.stderr
    with np.load(model) as found:
        assert int(found["step"]) == kept + 20
        assert np.abs(found["weights"] - np.arange(16)).max() < np.abs(np.arange(16)).max()
    _check_bill(stack, path)


def _check_bill(stack: Stack, path: str) -> None:
    """By the definition: whole seconds in which a node of the job was READY, but none of a node
    that was taken back in its first minute. The job's own cost is that of the seconds that an
    attempt has touched."""
    tried = [
        (one["startTime"], one["endTime"])
        for one in stack.call("GET", f"{path}:attempts")["attempts"]
    ]
    by_attempts = _touched(tried)
    of_nodes: dict[str, list[dict[str, Any]]] = {}
    for event in stack.pages("/podyard/v1/projects/demo/events", "events"):
        if event["kind"] == "node" and event["name"].endswith("/nodes/show"):
            of_nodes.setdefault(event["key"], []).append(event)
    assert len(of_nodes) == 2
    seconds: list[set[int]] = []
    for events in of_nodes.values():
        ready = [
            (one["at"], two["at"]) for one, two in pairwise(events) if one["toState"] == "READY"
        ]
        is_waived = (
            any(event["event"] == "preempt" for event in events) and len(_touched(ready)) <= 60
        )
        seconds.append(set() if is_waived else _touched(ready))
    used = stack.call("GET", "/podyard/v1/projects/demo/usage")["nodes"]
    used = [one for one in used if one["node"].endswith("/nodes/show")]
    assert sorted(one["seconds"] for one in used) == sorted(map(len, seconds))
    price = stack.call(
        "GET", f"/podyard/v1/projects/demo/locations/{ZONES['slice']}/prices/v3-32?usage=spot"
    )
    per_second = Fraction(price["pricePerHour"]) / 3600
    half = Fraction(1, 2 * 10**12)  # each amount is printed with twelve digits
    assert (
        abs(sum(Fraction(one["amount"]) for one in used) - per_second * sum(map(len, seconds)))
        <= 2 * half
    )
    cost = Fraction(stack.call("GET", path)["cost"])
    assert abs(cost - per_second * sum(len(one & by_attempts) for one in seconds)) <= half


def _touched(spans: Sequence[tuple[str, str]]) -> set[int]:
    """The whole seconds in which a span begins, lasts or ends."""
    ends = [
        (PlatformTime.from_rfc3339(one).nanos, PlatformTime.from_rfc3339(two).nanos)
        for one, two in spans
    ]
    return {second for first, last in ends for second in range(first // 10**9, -(-last // 10**9))}


def test_tensorflow_trains_on_a_v2_8_through_a_preemption(stack: Stack, tmp_path: Path) -> None:
    data = ("--data", str(stack.data))
    terms = (
        "--accelerator-type",
        "v2-8",
        "--version",
        "tpu-vm-tf-2.18.0-pjrt",
        "--spot",
        "--zone",
        ZONES["keras"],
    )
    flags = ("--run", str(PROGRAMS / "train_with_tensorflow.py"), *terms)
    done = stack.command("job", "submit", "keras", *flags, *data)
    assert done.returncode == 0, done.stderr
    path = f"/podyard/v1/projects/demo/locations/{ZONES['keras']}/jobs/keras"

    def has_begun() -> bool | None:
        assert stack.call("GET", path)["state"] != "FAILED", stack.log_lines(path)[-10:]
        return any(line.startswith("step 3 ") for line in stack.log_lines(path)) or None

    until(has_begun, patient(240), "3 steps")
    stack.call(
        "POST",
        "/podyard/v1/faults",
        {"effect": "preempt", "match": {"resource": "*keras"}, "notice": "10s"},
    )
    job = stack.wait_job(path, patient(240))
    assert (job["state"], job["attempt"], job["preemptions"], job["failures"]) == (
        "SUCCEEDED",
        2,
        1,
        0,
    ), job
    assert job["programRun"]["steps"] == 20 and job["programRun"]["modules"][0]["fits"]
    assert job["programRun"]["seconds"] > 0
    points = [line.split() for line in stack.log_lines(path) if line.startswith("step ")]
    kept = int(points[-1][1]) - 20
    assert [int(point[1]) for point in points] == list(range(1, kept + 21)), (
        "no step is lost, and none is done twice"
    )
    begun = [line for line in stack.log_lines(path) if line.startswith("8 replicas")]
    assert begun == ["8 replicas from step 0", f"8 replicas from step {kept}"]
    curve = _client(stack, tmp_path, "tensorboard_curves.py", f"{job['run']['output']}/logs")[
        "loss"
    ]
    assert curve == [[int(point[1]), pytest.approx(float(point[3]), rel=1e-6)] for point in points]
