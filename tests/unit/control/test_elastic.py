"""Elastic jobs: fewer processes while agents are away, the whole gang again when they are back."""

from __future__ import annotations

from typing import Any

import pytest

from podyard.base.errors import PodyardError
from podyard.base.training_settings import TrainingSettings
from podyard.domain.gang import GangSize, allowed_sizes, core_count, learning_rate_scale
from podyard.domain.job import Elastic, JobSpec
from podyard.domain.training import check_elastic
from podyard.hardware import accelerator_types
from podyard.scheduler.jobs import RESIZE_PAUSE_SECONDS, YIELD_SECONDS_MAX
from tests.unit.control.gang import Gang
from tests.yard import Yard

pytestmark = pytest.mark.slow

POD_ZONE = "europe-west4-a"
KEEP = Elastic(1, "keep", "keep")
SCALE = Elastic(1, "scale", "linear")


def _spec(
    elastic: Elastic | None, global_batch: int, processes: int | None, accumulation: int
) -> JobSpec:
    return JobSpec(
        recipe="digits-cnn",
        arguments={},
        mode="train",
        steps=10,
        global_batch=global_batch,
        seed=0,
        checkpoint_every_steps=5,
        max_failures=0,
        max_preemptions=0,
        execution="real",
        replica_processes=processes,
        labels={},
        training=TrainingSettings(accumulation_steps=accumulation),
        elastic=elastic,
    )


@pytest.mark.parametrize(
    ("elastic", "batch", "processes", "accumulation", "sizes"),
    [
        (None, 128, None, 1, [(4, 4, 128)]),
        (KEEP, 128, None, 1, [(4, 4, 128), (2, 2, 128), (1, 1, 128)]),  # 24 cores do not divide 128
        (KEEP, 96, None, 1, [(4, 4, 96), (3, 3, 96), (2, 2, 96), (1, 1, 96)]),
        (KEEP, 96, None, 3, [(4, 4, 96), (2, 2, 96), (1, 1, 96)]),
        (Elastic(2, "keep", "keep"), 128, None, 1, [(4, 4, 128), (2, 2, 128)]),
        (Elastic(4, "keep", "keep"), 128, None, 1, [(4, 4, 128)]),
        (SCALE, 128, None, 1, [(4, 4, 128), (3, 3, 96), (2, 2, 64), (1, 1, 32)]),
        (KEEP, 128, 2, 1, [(2, 4, 128), (1, 2, 128)]),
        # one process has two of four hosts
        (SCALE, 96, 3, 1, [(3, 4, 96), (2, 2, 48), (1, 1, 24)]),
    ],
)
def test_a_gang_may_be_as_small_as_its_batch_divides(
    elastic: Elastic | None,
    batch: int,
    processes: int | None,
    accumulation: int,
    sizes: list[tuple[int, int, int]],
) -> None:
    kind = accelerator_types.parse("v3-32")
    found = allowed_sizes(_spec(elastic, batch, processes, accumulation), kind)
    assert found == [GangSize(*size) for size in sizes]


def test_every_host_of_a_gang_belongs_to_one_process() -> None:
    for size in (GangSize(3, 4, 96), GangSize(2, 2, 48), GangSize(4, 4, 128), GangSize(3, 8, 96)):
        hosts = [host for rank in range(size.process_count) for host in size.hosts_of(rank)]
        assert hosts == list(range(size.host_count))


def test_the_learning_rate_follows_the_hosts_only_when_it_shall() -> None:
    kind = accelerator_types.parse("v3-32")
    assert core_count(kind, 2) == 16
    assert learning_rate_scale(_spec(SCALE, 128, None, 1), kind, 2) == 0.5
    assert learning_rate_scale(_spec(SCALE, 128, None, 1), kind, 4) == 1.0
    assert learning_rate_scale(_spec(KEEP, 128, None, 1), kind, 2) == 1.0
    assert learning_rate_scale(_spec(None, 128, None, 1), kind, 4) == 1.0


@pytest.mark.parametrize(
    "elastic",
    [
        Elastic(0, "keep", "keep"),
        Elastic(5, "keep", "keep"),
        Elastic(1, "grow", "keep"),
        Elastic(1, "keep", "square"),
    ],
)
def test_a_wrong_elasticity_is_refused_by_its_field(elastic: Elastic) -> None:
    with pytest.raises(PodyardError, match=r"elastic\.(minReplicas|batch|learningRate) is"):
        check_elastic(elastic, 4)


@pytest.fixture
def gang(yard: Yard) -> Gang:
    """An agent with room for two replicas and a READY slice of four hosts."""
    yard.create("pod", "v3-32", POD_ZONE)
    found = Gang(yard)
    found.register(2)
    return found


def _submit(gang: Gang, **fields: Any) -> str:
    body = {
        "recipe": "digits-cnn",
        "node": "pod",
        "steps": 10,
        "elastic": {"minReplicas": 1},
        **fields,
    }
    gang.yard.ok("POST", f"{gang.yard.jobs(POD_ZONE)}?jobId=j", body)
    gang.yard.step()
    return f"{gang.yard.jobs(POD_ZONE)}/j"


def _turn(gang: Gang, seconds: float) -> None:
    """Time passes, then the agent and its replicas say that they live, and the loop looks."""
    gang.yard.clock.advance(seconds)
    for replica in gang.sync():
        gang.report(replica)
    gang.yard.step()


def _run(gang: Gang) -> list[dict[str, Any]]:
    """The gang's replicas, each of which has reported."""
    found = gang.sync()
    for replica in found:
        gang.report(replica)
    return found


def _attempts(gang: Gang, path: str) -> list[tuple[int, int, int, str | None]]:
    found = gang.yard.ok("GET", f"{path}:attempts")["attempts"]
    return [(a["attempt"], a["hosts"], a["globalBatch"], a.get("outcome")) for a in found]


def test_a_job_that_is_not_elastic_needs_room_for_all_and_one_that_is_for_its_least(
    gang: Gang,
) -> None:
    body = {"recipe": "digits-cnn", "node": "pod"}
    path = gang.yard.jobs(POD_ZONE)
    assert "needs 4 replicas" in gang.yard.refused(400, "FAILED_PRECONDITION", "POST", path, body)
    three = {**body, "elastic": {"minReplicas": 3}}  # and three do not divide the batch
    assert "needs 4 replicas" in gang.yard.refused(400, "FAILED_PRECONDITION", "POST", path, three)
    five = {**body, "elastic": {"minReplicas": 5}}
    assert "elastic.minReplicas is 5" in gang.yard.refused(
        400, "INVALID_ARGUMENT", "POST", path, five
    )
    assert gang.yard.ok("POST", path, {**body, "elastic": {"minReplicas": 2}})["elastic"] == {
        "minReplicas": 2,
        "batch": "keep",
        "learningRate": "keep",
    }


def test_an_elastic_job_starts_with_as_many_as_have_room_and_says_so(gang: Gang) -> None:
    path = _submit(gang)
    job = gang.yard.ok("GET", path)
    assert job["stateReason"] == (
        "attempt 1 runs on 2 of 4 hosts: 4 replicas are needed at once and the live agents "
        "have room for 2"
    )
    specs = [gang.specification(replica) for replica in gang.sync()]
    assert sorted(host for spec in specs for host in spec["hostIndices"]) == [0, 1]
    for spec in specs:
        assert (spec["hostCount"], spec["coreCount"], spec["processCount"]) == (2, 16, 2)
        assert (spec["globalBatch"], spec["learningRateScale"]) == (128, 1.0)
    assert _attempts(gang, path) == [(1, 2, 128, None)]
    held = gang.yard.ok("GET", "/podyard/v1/projects/demo/pods")["pods"]
    assert sum(pod["chipsHeld"] for pod in held) == 16  # the node is the job's, whole


def test_a_scaled_batch_and_its_learning_rate_shrink_with_the_hosts(gang: Gang) -> None:
    path = _submit(gang, elastic={"minReplicas": 1, "batch": "scale"})
    spec = gang.specification(gang.sync()[0])
    assert (spec["globalBatch"], spec["learningRateScale"]) == (64, 0.5)
    job = gang.yard.ok("GET", path)
    assert job["globalBatch"] == 128
    assert job["elastic"]["learningRate"] == "linear"
    assert "2 of 4 hosts with a batch of 64" in job["stateReason"]
    assert _attempts(gang, path) == [(1, 2, 64, None)]


def test_a_gang_yields_to_a_larger_one_and_the_next_attempt_goes_on_from_its_checkpoint(
    gang: Gang,
) -> None:
    path = _submit(gang)
    first, second = _run(gang)
    gang.points(first, 1, 3)
    gang.register(4)
    _turn(gang, RESIZE_PAUSE_SECONDS - 1)
    assert gang.report(first).json()["desired"] == "RUN"  # not so soon
    _turn(gang, 3)
    assert [gang.report(replica).json()["desired"] for replica in (first, second)] == [
        "YIELD",
        "YIELD",
    ]
    # the agent must not stop them
    assert [replica["desired"] for replica in gang.sync()] == ["RUN", "RUN"]
    assert "there is room for 4 of 4 hosts" in gang.yard.ok("GET", path)["stateReason"]
    gang.report(first, state="YIELDED", checkpoints=[{"step": 3, "name": "c3", "sha256": "0" * 64}])
    assert gang.yard.ok("GET", path)["state"] == "RUNNING"
    gang.report(second, state="YIELDED")
    assert gang.yard.ok("GET", path)["state"] == "RECOVERING"
    gang.exit_all()
    gang.yard.step()
    assert _attempts(gang, path) == [(1, 2, 128, "RESIZED"), (2, 4, 128, None)]
    job = gang.yard.ok("GET", path)
    assert (job["failures"], job["preemptions"], job["stepsDone"], job["stateReason"]) == (
        0,
        0,
        3,
        "",
    )
    specs = [gang.specification(replica) for replica in _run(gang)]
    assert [(spec["resumeStep"], spec["hostCount"], spec["coreCount"]) for spec in specs] == [
        (3, 4, 32)
    ] * 4
    _turn(gang, 2 * RESIZE_PAUSE_SECONDS)
    # it is whole
    assert {gang.report(replica).json()["desired"] for replica in gang.sync()} == {"RUN"}


def test_a_gang_grows_in_steps_when_only_some_room_comes_back(gang: Gang) -> None:
    gang.register(1)
    path = _submit(gang)
    _run(gang)
    gang.register(3)  # three do not divide the batch
    _turn(gang, RESIZE_PAUSE_SECONDS + 2)
    for replica in gang.sync():
        gang.report(replica, state="YIELDED")
    gang.exit_all()
    gang.yard.step()
    assert _attempts(gang, path) == [(1, 1, 128, "RESIZED"), (2, 2, 128, None)]


def test_a_gang_without_more_room_is_left_alone(gang: Gang) -> None:
    path = _submit(gang)
    _run(gang)
    gang.register(3)  # three do not divide the batch
    _turn(gang, RESIZE_PAUSE_SECONDS + 5)
    assert {gang.report(replica).json()["desired"] for replica in gang.sync()} == {"RUN"}
    assert "2 of 4 hosts" in gang.yard.ok("GET", path)["stateReason"]


def test_a_replica_that_fails_while_it_yields_is_a_failure(gang: Gang) -> None:
    path = _submit(gang)
    first, second = _run(gang)
    gang.register(4)
    _turn(gang, RESIZE_PAUSE_SECONDS + 2)
    gang.report(first, state="YIELDED")
    gang.report(second, state="FAILED", error="disk full")
    gang.exit_all()
    assert _attempts(gang, path)[0] == (1, 2, 128, "FAILED")
    assert gang.yard.ok("GET", path)["failures"] == 1


def test_a_replica_that_is_killed_while_it_yields_is_a_failure(gang: Gang) -> None:
    path = _submit(gang)
    first, _ = _run(gang)
    gang.register(4)
    _turn(gang, RESIZE_PAUSE_SECONDS + 2)
    gang.report(first, state="YIELDED")
    gang.exit_all()
    assert _attempts(gang, path)[0] == (1, 2, 128, "FAILED")


def test_a_gang_that_is_done_before_it_can_yield_has_succeeded(gang: Gang) -> None:
    path = _submit(gang)
    replicas = _run(gang)
    gang.register(4)
    _turn(gang, RESIZE_PAUSE_SECONDS + 2)
    for replica in replicas:
        gang.report(replica, state="SUCCEEDED")
    gang.exit_all()
    assert gang.yard.ok("GET", path)["state"] == "SUCCEEDED"


def test_a_gang_that_does_not_yield_is_stopped_and_that_is_no_failure(gang: Gang) -> None:
    path = _submit(gang)
    _run(gang)
    gang.register(4)
    _turn(gang, RESIZE_PAUSE_SECONDS + 2)
    _turn(gang, YIELD_SECONDS_MAX - 5)
    assert {gang.report(replica).json()["desired"] for replica in gang.sync()} == {"YIELD"}
    _turn(gang, 6)
    assert {gang.report(replica).json()["desired"] for replica in gang.sync()} == {"STOP"}
    assert "has not yielded within 60 s" in gang.yard.ok("GET", path)["stateReason"]
    gang.exit_all()
    gang.yard.step()
    assert _attempts(gang, path) == [(1, 2, 128, "RESIZED"), (2, 4, 128, None)]
    assert gang.yard.ok("GET", path)["failures"] == 0


def test_a_replica_that_yields_unasked_is_a_failure(gang: Gang) -> None:
    path = _submit(gang)
    for replica in _run(gang):
        gang.report(replica, state="YIELDED")
    gang.exit_all()
    assert _attempts(gang, path)[0] == (1, 2, 128, "FAILED")


def test_only_one_gang_is_asked_to_yield_for_the_same_room(gang: Gang) -> None:
    gang.register(3)
    _submit(gang)
    gang.yard.step(1)
    gang.yard.create("other", "v3-32", POD_ZONE)
    body = {"recipe": "digits-cnn", "node": "other", "steps": 10, "elastic": {"minReplicas": 1}}
    gang.yard.ok("POST", f"{gang.yard.jobs(POD_ZONE)}?jobId=k", body)
    gang.yard.step()
    assert len(_run(gang)) == 3
    gang.register(5)
    _turn(gang, RESIZE_PAUSE_SECONDS + 5)
    told = [gang.report(replica).json()["desired"] for replica in gang.sync()]
    assert sorted(told) == ["RUN", "YIELD", "YIELD"]


def test_a_whole_gang_that_has_lost_an_agent_goes_on_with_what_is_left(gang: Gang) -> None:
    gang.register(4)
    path = _submit(gang)
    first, *_ = _run(gang)
    gang.points(first, 1, 6)
    gang.report(first, checkpoints=[{"step": 5, "name": "c5", "sha256": "0" * 64}])
    gang.register(2)
    gang.exit_all()
    gang.yard.step()
    assert _attempts(gang, path) == [(1, 4, 128, "FAILED"), (2, 2, 128, None)]
    assert "attempt 2 runs on 2 of 4 hosts" in gang.yard.ok("GET", path)["stateReason"]
    assert [gang.specification(replica)["resumeStep"] for replica in gang.sync()] == [5, 5]
