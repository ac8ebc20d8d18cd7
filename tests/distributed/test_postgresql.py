"""The whole stack on PostgreSQL: a job on four replicas, a killed API, and the same exact bill."""

from __future__ import annotations

from pathlib import Path

import psycopg
import pytest

from podyard.cli.tools.demo import check_bill
from tests.stack import Stack, kill, open_stack

ZONE = "europe-west4-a"
pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("stack")]


@pytest.mark.smoke
def test_a_job_runs_and_is_billed_on_postgresql(postgresql_url: str, tmp_path: Path) -> None:
    with psycopg.connect(f"{postgresql_url}/postgres", autocommit=True) as connection:
        connection.execute("CREATE DATABASE stack")
    with open_stack(tmp_path, {"PODYARD_DATABASE_URL": f"{postgresql_url}/stack"}) as stack:
        stack.create_node("slice", "v3-32", ZONE)
        path = stack.submit("job", ZONE, node="slice", steps=120, checkpointEverySteps=20)
        stack.wait_steps(path, 30)
        kill(stack.pid("api"))
        job = stack.wait_job(path)
        assert (job["state"], job["failures"]) == ("SUCCEEDED", 0), job
        assert [point["step"] for point in stack.metrics(path)] == list(range(1, 121))
        stack.delete_node("slice", ZONE)
        usage = stack.call("GET", "/podyard/v1/projects/demo/usage")
        assert usage["seconds"] > 0
        assert (
            check_bill(usage, stack.call("GET", "/podyard/v1/projects/demo/events")["events"])
            is None
        )
        assert not (tmp_path / "podyard.db").exists()
        check = Stack(tmp_path).podyard("fsck")  # without the variable: the folder knows its server
        assert (check.returncode, check.stderr) == (0, "0 violations\n")
        assert (tmp_path / "database-url").stat().st_mode & 0o777 == 0o600
