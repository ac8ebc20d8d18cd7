"""Gangs of jobs, started, resized and ended by use cases alone."""

from __future__ import annotations

from typing import Any

from sqlalchemy import select

from podyard.base.clock import ManualClock
from podyard.control.jobs import gangs, jobs
from podyard.db.store.transition import create_record, move
from podyard.db.store.unit_of_work import Database, UnitOfWork
from podyard.db.tables.jobs import jobs as jobs_table
from podyard.domain.fleet_file import instant_fleet
from podyard.domain.job import Job, JobRequest
from podyard.domain.principal import PLATFORM
from podyard.scheduler.jobs import RESIZE_PAUSE_SECONDS
from tests.builders import PROJECT, Play, node_record

ZONE = "europe-west4-a"


class Gangs(Play):
    """A node that is READY; its gangs are started and resized when a test says so."""

    def __init__(self, database: Database, clock: ManualClock) -> None:
        super().__init__(database, clock, instant_fleet())
        database.run(ready_node)

    def submit(
        self, job: str = "j", node: str = "pod", project: str = PROJECT, **fields: Any
    ) -> None:
        asked = JobRequest(recipe="digits-cnn", steps=10, **fields)
        self.wait(1)  # so that an older job is older
        self.database.run(
            lambda uow: jobs.create(uow, instant_fleet(), PLATFORM, project, ZONE, job, asked, node)
        )

    def job(self, job: str = "j", project: str = PROJECT) -> Job:
        return self.database.read(lambda uow: jobs.get(uow, PLATFORM, project, ZONE, job))

    def resize(self, replicas: int | None, job: str = "j") -> Job:
        return self.database.run(
            lambda uow: jobs.resize(uow, PLATFORM, PROJECT, ZONE, job, replicas)
        )

    def cancel(self, job: str = "j") -> Job:
        return self.database.run(lambda uow: jobs.cancel(uow, PLATFORM, PROJECT, ZONE, job))

    def attempts(
        self, job: str = "j", project: str = PROJECT
    ) -> list[tuple[int, int | None, str | None]]:
        found = self.database.read(lambda uow: jobs.attempts(uow, PLATFORM, project, ZONE, job))
        return [(hosts, attempt.global_batch, attempt.outcome) for attempt, hosts, _ in found]

    def run_all(self) -> None:
        """Every replica that has been started runs; those that are to yield have done so, and have
        gone."""
        for replica in self.live():
            if replica.state == "PENDING":
                self.say(replica)
        for replica in self.live():
            if replica.desired == "YIELD":
                self.say(replica, "YIELDED")
        self.exit([replica for replica in self.live() if replica.desired == "STOP"])

    def look(self, seconds: float = 0.0) -> None:
        """What a round of the loop does for jobs, and what the processes do then."""
        self.wait(seconds)
        self.database.run(gangs.start_waiting)
        self.database.run(gangs.resize)
        self.run_all()
        self.database.run(gangs.start_waiting)
        self.run_all()

    def counts(self) -> dict[str, int]:
        """Processes of each job that runs."""
        found: dict[str, int] = {}
        for replica in self.live():
            found[replica.job_key] = found.get(replica.job_key, 0) + 1
        ids = {
            row["job_key"]: row["job_id"]
            for row in self.database.read(lambda uow: uow.all(select(jobs_table)))
        }
        return {
            ids[key]: count for key, count in sorted(found.items(), key=lambda item: ids[item[0]])
        }

    def exit_all(self) -> None:
        self.exit(self.live())

    def grow(self) -> None:
        """The loop's look, after the pause, with an agent that lives."""
        self.wait(RESIZE_PAUSE_SECONDS + 1)
        self.database.run(gangs.resize)


def ready_node(uow: UnitOfWork, name: str = "pod", number: int = 1, project: str = PROJECT) -> None:
    node = node_record(
        name, "v3-32", "4x4", project=project, zone=ZONE, node_key=f"n-{number}", number=number
    )
    create_record(uow, node, reason="asked")
    move(uow, node, "created", reason="ready")
