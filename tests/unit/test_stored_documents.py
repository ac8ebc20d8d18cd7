"""What stands in the documents that rows keep: the release before has to read what this one
writes."""

from __future__ import annotations

import dataclasses
from typing import Any

from podyard.db.store import records
from podyard.domain.job import FormerType, JobSpec
from tests.builders import node_spec, request

# Names of the first release. A field that comes later is left out where it is as usual
# (podyard.db.store.records), so that none is added here.
JOB = {
    "recipe", "arguments", "steps", "global_batch", "seed", "checkpoint_every_steps", "start_from",
    "mode",
    "max_failures", "max_preemptions", "execution", "step_seconds", "replica_processes", "labels",
    "training",
    "elastic", "priority", "time_limit_seconds", "retry_delay_seconds", "run", "keep_node",
    "autostop_seconds",
    "fallbacks",
}  # fmt: skip
NODE = {
    "accelerator_type", "topology", "runtime_version", "usage_class", "description", "labels",
    "metadata", "tags",
    "cidr_block", "extras", "api_version", "reservation_name", "max_run_seconds",
    "termination_time",
}  # fmt: skip
QUEUED = {
    "nodes", "usage_class", "valid_after", "valid_until", "min_duration_seconds", "max_run_seconds",
    "termination_time", "reservation_name", "given", "valid_after_seconds", "valid_until_seconds",
}  # fmt: skip


def _usual(**changes: Any) -> JobSpec:
    return JobSpec(
        recipe="mnist-cnn",
        arguments={},
        steps=1,
        global_batch=8,
        seed=0,
        checkpoint_every_steps=1,
        **changes,
    )


def test_what_is_as_usual_has_the_fields_of_the_first_release() -> None:
    queued = records.from_queued_spec(request())
    assert set(records.from_job_spec(_usual())) == JOB
    assert set(records.from_node_spec(node_spec())) == NODE
    assert set(queued) == QUEUED
    assert set(queued["nodes"][0]) == {"node_id", "spec", "slice_index", "slice_count"}
    assert set(queued["nodes"][0]["spec"]) == NODE


def test_what_is_written_is_what_is_read() -> None:
    later = [
        name for name in (field.name for field in dataclasses.fields(JobSpec)) if name not in JOB
    ]
    resized = {"next_type": "v3-32", "former_types": (FormerType(2, "v3-8", "2x2"),)}
    changes = {"num_nodes": 2, **resized}
    assert later == [*changes], "give each of them a value that is not usual here"
    for spec in (_usual(), *(_usual(**{name: changes[name]}) for name in later)):
        assert JobSpec.of_stored(records.from_job_spec(spec)) == spec
    assert records.from_job_spec(_usual(num_nodes=2))["num_nodes"] == 2
