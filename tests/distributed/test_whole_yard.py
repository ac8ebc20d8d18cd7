"""Two control planes and three machines: jobs over the machines have the bits of one, through
faults, too."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import psutil
import pytest

from podyard.cli.tools.demo import check_bill
from tests.conftest import require
from tests.distributed.machine_soak import SHARES, Soak, schedule
from tests.distributed.whole_yard import WholeYard, open_whole_yard
from tests.stack import Stack, kill, open_stack, until

V3, V4 = "europe-west4-a", "us-central2-b"
JOBS: dict[str, tuple[str, str, int]] = {"four": ("v3-32", V3, 4), "eight": ("v4-64", V4, 8)}
FIELDS: dict[str, Any] = {"steps": 40, "checkpointEverySteps": 20}
PLACES = (5, 4, 3)  # of each machine: neither job fits on one, and both on all
FAULTS, SEED = 8, 3  # `make soak` has six hundred
pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("stack")]


@pytest.fixture(scope="module")
def whole(postgresql_url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[WholeYard]:
    require("namespaces" if os.geteuid() == 0 else None, "network namespaces (root)")
    with open_whole_yard(tmp_path_factory.mktemp("whole"), postgresql_url, PLACES) as found:
        yield found


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The digests of the parameters of the same jobs on one machine, in one process."""
    with open_stack(tmp_path_factory.mktemp("alone"), {"PODYARD_BOXES": "off"}) as stack:
        return {
            name: stack.params_sha256(_finish(stack, _submit(stack, name, replicaProcesses=1)))
            for name in JOBS
        }


def _submit(stack: Stack, name: str, **fields: Any) -> str:
    kind, zone, _ = JOBS[name]
    stack.create_node(name, kind, zone)
    return stack.submit(name, zone, node=name, **FIELDS, **fields)


def _finish(stack: Stack, path: str) -> str:
    job = stack.wait_job(path)
    assert job["state"] == "SUCCEEDED", job
    return path


def test_two_slices_train_over_three_machines_with_the_bits_of_one(
    whole: WholeYard, alone: dict[str, str]
) -> None:
    """The leader is killed and Redis forgets everything in the middle."""
    paths = {"eight": _submit(whole.second, "eight"), "four": _submit(whole.first, "four")}
    for name, path in paths.items():
        whole.first.wait_steps(path, 5)
        agents = whole.second.call("GET", f"{path}:attempts")["attempts"][-1]["agents"]
        assert len(agents) == JOBS[name][2] and len(set(agents)) >= 2, agents
    leader = whole.leader_pid()
    kill(leader)
    assert whole.broker.flush()
    until(lambda: True if whole.leader_pid() != leader else None, 20, "the next leader")
    assert psutil.pid_exists(whole.leader_pid())
    for name, path in paths.items():
        _finish(whole.second, path)
        assert whole.second.call("GET", path)["failures"] == 0
        assert [point["step"] for point in whole.first.metrics(path)] == list(
            range(1, FIELDS["steps"] + 1)
        )
        assert whole.first.params_sha256(path) == alone[name]


def test_the_bill_of_both_is_exact(whole: WholeYard) -> None:
    for name, (_, zone, _) in JOBS.items():
        whole.second.delete_node(name, zone)
    usage = whole.first.call("GET", "/podyard/v1/projects/demo/usage")
    assert all(node["seconds"] > 0 for node in usage["nodes"])
    assert (
        check_bill(usage, whole.second.pages("/podyard/v1/projects/demo/events", "events")) is None
    )


def test_jobs_survive_a_few_faults(whole: WholeYard) -> None:
    report = Soak(whole, SEED).run(schedule(FAULTS, SEED), 600)
    print(report.text())
    assert report.done.total() + report.skipped == FAULTS


def test_the_seed_decides_which_faults_come_and_all_kinds_come() -> None:
    assert schedule(500, SEED) == schedule(500, SEED) != schedule(500, SEED + 1)
    assert {fault.kind for fault in schedule(500, SEED)} == set(SHARES)
