"""Programs on two slices at once: what JAX sees of them, and what a job does when one of them is
taken back."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.stack import Stack, kill, open_stack, until

ZONE = "us-central1-f"
JOBS = f"/podyard/v1/projects/demo/locations/{ZONE}/jobs"
PSUM = """
import os
import jax, numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

jax.distributed.initialize()
count, mine = jax.device_count(), jax.local_devices()[0]
sharding = NamedSharding(Mesh(np.array(jax.devices()), ("x",)), P("x"))
numbers = jax.make_array_from_callback((count,), sharding, lambda at: np.arange(count, dtype=np.float32)[at])
total = int(jax.jit(jax.numpy.sum)(numbers))
print("worker", jax.process_index(), "of", jax.process_count(), "slice", mine.slice_index, "sum", total)
assert os.environ["SKYPILOT_NODE_RANK"] == str(jax.process_index())
assert os.environ["SKYPILOT_NODE_IPS"].splitlines()[0] == os.environ["MEGASCALE_COORDINATOR_ADDRESS"].split(":")[0]
assert os.environ["MEGASCALE_SLICE_ID"] == str(mine.slice_index)
"""  # noqa: E501
TASK = f"""
name: both
num_nodes: 2
resources:
  infra: gcp/us-central1/{ZONE}
  accelerators: tpu-v2-8
workdir: WORKDIR
run: python psum.py
"""
WAITS = """
echo attempt $PODYARD_ATTEMPT slice $MEGASCALE_SLICE_ID of $MEGASCALE_NUM_SLICES
trap 'echo left slice $MEGASCALE_SLICE_ID; exit 1' TERM
while [ $PODYARD_ATTEMPT = 1 ]; do sleep 0.1; done
"""
pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("stack")]


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    with open_stack(tmp_path_factory.mktemp("slices"), {"PODYARD_RUNTIMES": "off"}) as found:
        yield found


def _nodes(stack: Stack) -> list[str]:
    found = stack.call("GET", f"/v2/projects/demo/locations/{ZONE}/nodes").get("nodes", [])
    return sorted(node["name"].rsplit("/", 1)[1] for node in found)


def test_jax_computes_on_all_devices_of_two_slices(stack: Stack, tmp_path: Path) -> None:
    (tmp_path / "psum.py").write_text(PSUM)
    task = tmp_path / "task.yaml"
    task.write_text(TASK.replace("WORKDIR", str(tmp_path)))
    done = stack.command("job", "launch", str(task), "--data", str(stack.data), "--wait")
    assert done.returncode == 0, f"{done.stderr}{stack.log_lines(f'{JOBS}/both')}"
    lines = [line for line in stack.log(f"{JOBS}/both") if line["line"].startswith("worker")]
    assert sorted((line["line"], line["slice"]) for line in lines) == [
        (f"worker {n} of 2 slice {n} sum {sum(range(16))}", n) for n in range(2)
    ]
    shown = stack.command("job", "logs", "both", "--data", str(stack.data)).stdout
    assert "[1.1 slice 1] worker 1 of 2" in shown
    until(lambda: True if not _nodes(stack) else None, 30, "the end of the nodes")


def test_all_slices_are_made_again_when_one_is_taken_back(stack: Stack) -> None:
    """With notice, so that both programs can save; API and loop are killed meanwhile."""
    flags = (
        "--zone",
        ZONE,
        "--accelerator-type",
        "v2-8",
        "--num-nodes",
        "2",
        "--spot",
        "--command",
        WAITS,
    )
    done = stack.command("job", "submit", "spot", "--data", str(stack.data), *flags)
    assert done.returncode == 0, done.stderr
    path = f"{JOBS}/spot"
    both = [f"attempt 1 slice {n} of 2" for n in range(2)]
    until(lambda: True if set(both) <= set(stack.log_lines(path)) else None, 60, "both slices")
    notice = {"effect": "preempt", "match": {"resource": "*spot-1*"}, "notice": "5s", "count": 1}
    stack.call("POST", "/podyard/v1/faults", notice)
    for process in ("api", "loop"):
        kill(stack.pid(process))
    found = stack.wait_job(path, 120)
    assert (found["state"], found["attempt"], found["preemptions"], found["failures"]) == (
        "SUCCEEDED",
        2,
        1,
        0,
    ), found
    lines = stack.log_lines(path)
    assert sorted(line for line in lines if line.startswith(("attempt", "left"))) == [
        *both, *(f"attempt 2 slice {n} of 2" for n in range(2)),
        *(f"left slice {n}" for n in range(2)),
    ]  # fmt: skip
    until(lambda: True if not _nodes(stack) else None, 30, "the end of the nodes")
    used = [
        node
        for node in stack.call("GET", "/podyard/v1/projects/demo/usage")["nodes"]
        if "/spot-" in node["node"]
    ]
    assert len(used) == 4, "two slices, twice"
    assert stack.violations() == []


def test_a_cancelled_job_leaves_no_slice(stack: Stack) -> None:
    flags = ("--zone", ZONE, "--accelerator-type", "v2-8", "--num-nodes", "2", "--command", WAITS)
    done = stack.command("job", "submit", "cancelled", "--data", str(stack.data), *flags)
    assert done.returncode == 0, done.stderr
    path = f"{JOBS}/cancelled"
    until(
        lambda: True if any("attempt 1" in line for line in stack.log_lines(path)) else None,
        60,
        "a slice",
    )
    stack.call("POST", f"{path}:cancel", {})
    assert stack.wait_job(path, 30)["state"] == "CANCELLED"
    until(
        lambda: True if not _nodes(stack) and not stack.replicas() else None,
        30,
        "the end of nodes and replicas",
    )
    assert stack.violations() == []
