"""A data folder of an older Podyard goes on working, and back again, on both databases."""

from __future__ import annotations

import json
from typing import Any

from sqlalchemy import text

from podyard import migrations
from podyard.base.training_settings import TrainingSettings
from podyard.db.jobs import attempts as attempt_rows
from podyard.db.jobs import history as job_history
from podyard.db.jobs import jobs as rows
from podyard.db.store.unit_of_work import Database, UnitOfWork

OLD_SPEC = {
    "recipe": "digits-cnn",
    "arguments": {"learningRate": 0.001, "dropout": 0.25},
    "mode": "train",
    "steps": 10,
    "global_batch": 64,
    "seed": 3,
    "checkpoint_every_steps": 4,
    "max_failures": 3,
    "max_preemptions": 100,
    "execution": "real",
    "replica_processes": None,
    "labels": {},
}
CLOCK = {
    "id": 1, "mode": "system", "anchor_platform": 1, "anchor_real": 1, "running": False,
    "rate_millionths": 1_000_000,
    "loop_fence": 0,
}  # fmt: skip
NODE = {
    "node_key": "n", "number": 1, "project": "p", "zone": "z", "node_id": "a", "live_name": "a",
    "state": "READY",
    "version": 2, "accelerator_type": "v3-32", "topology": "4x4", "usage_class": "on-demand",
    "runtime_version": "x",
    "spec": "{}", "created": 1, "state_reason": "", "wait_reason": "", "host_count": 4,
    "first_address": 0,
}  # fmt: skip
JOB = {
    "job_key": "j", "project": "p", "zone": "z", "job_id": "old", "state": "RUNNING",
    "state_reason": "", "version": 3,
    "spec": json.dumps(OLD_SPEC), "node_key": "n", "node_id": "a", "accelerator_type": "v3-32",
    "topology": "4x4",
    "owns_node": False, "attempt": 2, "failures": 1, "preemptions": 0, "steps_done": 6,
    "latest": json.dumps({"loss": 0.5}), "wall_seconds": 1.5, "modelled_seconds": 3.0,
    "estimate_model": "tpu-model",
    "created": 1,
}  # fmt: skip
ATTEMPT = {
    "job_key": "j",
    "version": 2,
    "reason": "",
    "ring_key": "k",
    "started": 1,
    "started_real": 1,
}
ATTEMPTS = (
    {**ATTEMPT, "attempt_id": "a1", "attempt": 1, "state": "ENDED", "resume_step": 0,
        "resume_name": None,
     "outcome": "FAILED", "ended": 2},
    {**ATTEMPT, "attempt_id": "a2", "attempt": 2, "state": "RUNNING", "resume_step": 4,
        "resume_name": "c4",
     "outcome": None, "ended": None},
)  # fmt: skip
REPLICA = {
    "replica_id": "r", "attempt_id": "a2", "job_key": "j", "rank": 0,
    "host_indices": "[0, 1, 2, 3]",
    "agent_id": "local", "state": "RUNNING", "desired": "RUN", "version": 2, "fence": 2,
    "token": "t", "reason": "",
}  # fmt: skip
CHECKPOINT = {"job_key": "j", "step": 4, "attempt": 1, "name": "c4", "sha256": "0" * 64, "at": 1}


def insert_row(uow: UnitOfWork, table: str, values: dict[str, Any]) -> None:
    names = ", ".join(values)
    marks = ", ".join(f":{name}" for name in values)
    uow.execute(text(f"INSERT INTO {table} ({names}) VALUES ({marks})"), values)


def _fill(uow: UnitOfWork) -> None:
    insert_row(uow, "clock", CLOCK)
    insert_row(uow, "nodes", NODE)
    insert_row(uow, "jobs", JOB)
    for attempt in ATTEMPTS:
        insert_row(uow, "attempts", attempt)
    insert_row(uow, "replicas", REPLICA)
    insert_row(uow, "checkpoints", CHECKPOINT)


def test_a_job_of_the_first_schema_is_read_by_this_one_and_survives_the_way_back(
    empty_database: Database,
) -> None:
    database = empty_database
    migrations.migrate(database.engine, "0001")
    database.run(_fill)
    before = database.read(lambda uow: uow.all(text("SELECT * FROM attempts ORDER BY attempt")))
    migrations.upgrade(database)
    assert migrations.current(database.engine) == migrations.HEAD
    job = database.read(lambda uow: rows.get(uow, "j"))
    assert (job.spec.training, job.spec.elastic, job.spec.start_from) == (
        TrainingSettings(),
        None,
        None,
    )
    assert (job.spec.seed, job.spec.arguments, job.latest) == (
        3,
        OLD_SPEC["arguments"],
        {"loss": 0.5},
    )
    attempts = database.read(lambda uow: attempt_rows.of_job(uow, "j"))
    assert [job.size_of(attempt) for attempt in attempts] == [(4, 64), (4, 64)]
    assert [attempt.yield_real for attempt in attempts] == [None, None]
    (saved,) = database.read(lambda uow: job_history.committed_checkpoints(uow, "j"))
    assert (saved.step, saved.best) == (4, False)
    assert database.read(lambda uow: job_history.committed_evaluations(uow, "j")) == []
    migrations.migrate(database.engine, "0001")
    after = database.read(lambda uow: uow.all(text("SELECT * FROM attempts ORDER BY attempt")))
    assert after == before
    assert database.read(lambda uow: uow.all(text("SELECT * FROM checkpoints"))) == [CHECKPOINT]
    assert len(database.read(lambda uow: uow.all(text("SELECT * FROM replicas")))) == 1


TOKENS = {
    "owner@podyard.local": ("*",),
    "ann@x.org": ("demo",),
    "ben@x.org": ("demo", "other"),  # one of the two may have taken the name
    "cid@x.org": (),
}


def _fill_with_tokens(uow: UnitOfWork) -> None:
    insert_row(uow, "clock", CLOCK)
    for email, projects in TOKENS.items():
        insert_row(uow, "tokens", {"token_hash": email, "email": email, "created": 7})
        for project in projects:
            insert_row(uow, "role_bindings", {"email": email, "project": project, "role": "owner"})
    insert_row(
        uow, "tokens", {"token_hash": "agent", "email": "a@x", "agent_id": "local", "created": 7}
    )
    insert_row(
        uow, "tokens", {"token_hash": "lent", "email": "ben@x.org", "expires": 9, "created": 7}
    )


def test_tokens_of_older_data_are_good_for_the_one_project_that_can_have_made_them(
    empty_database: Database,
) -> None:
    database = empty_database
    migrations.migrate(database.engine, "0013")
    database.run(_fill_with_tokens)
    migrations.upgrade(database)
    found = {
        row["token_hash"]: (row["project"], row["revoked"], row["token_id"] is not None)
        for row in database.read(lambda uow: uow.all(text("SELECT * FROM tokens")))
    }
    assert found == {
        "owner@podyard.local": (None, None, True),
        "ann@x.org": ("demo", None, True),
        "ben@x.org": (None, 7, True),
        "cid@x.org": (None, 7, True),
        "agent": (None, None, False),
        "lent": (None, None, False),
    }
    roles = "SELECT role FROM role_bindings WHERE project = '*'"
    assert database.read(lambda uow: uow.all(text(roles))) == [{"role": "platform.owner"}]
    migrations.migrate(database.engine, "0013")
    assert database.read(lambda uow: uow.all(text(roles))) == [{"role": "owner"}]
