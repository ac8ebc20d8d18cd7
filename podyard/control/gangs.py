"""Attempts: a gang of replicas is started whole, watched, ended whole, and only then does the job go on.

1. `start_waiting` makes an attempt for each job that waits and whose node and agents have room: all replicas or none.
2. `settle` looks at the replicas of an attempt after each report and decides whether it has come to its end.
3. `grow` asks the gang of an elastic job that runs with less than there is room for to yield: to save and to leave.
4. `end` asks every replica to stop. Only when every process is gone (`EXITED`) does the attempt count as ended.
5. `_finish` lets the job succeed, recover from its last checkpoint, fail, or be cancelled.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sqlalchemy import select, update

from podyard.base.errors import Code
from podyard.base.ids import row_id
from podyard.base.rng import secret_token
from podyard.control import access
from podyard.db import jobs as rows
from podyard.db import outbox
from podyard.db.nodes import row_by_key as node_row
from podyard.db.tables_compute import agents
from podyard.db.tables_jobs import attempts, jobs, replicas
from podyard.db.transition import ATTEMPTS, JOBS, REPLICAS, born, move
from podyard.db.unit_of_work import UnitOfWork
from podyard.domain.gang import GangSize, allowed_sizes, whole_gang
from podyard.domain.job import ATTEMPT, JOB, PRIORITY_DEFAULT, REPLICA
from podyard.domain.node import kind_of

WAITING = ("QUEUED", "RECOVERING")
POKE_TASK = "podyard.poke_agent"
YIELD_SECONDS_MAX = 60.0  # a step and a checkpoint of any model that trains here; past it the gang hangs
RESIZE_PAUSE_SECONDS = 10.0  # what a start costs is worked off by then, so an agent that comes and goes stops no job


def start_waiting(uow: UnitOfWork) -> int:
    """Starts an attempt for every waiting job that can run now, in the order of `turn`; returns how many."""
    waiting = uow.all(select(jobs).where(jobs.c.state.in_(WAITING)))
    started = 0
    for job in sorted(waiting, key=turn):
        if rows.open_attempt(uow, job["job_key"]) is not None:
            continue  # its last attempt is still stopping; why it ended is the reason to show
        found = _size_or_reason(uow, job)
        if isinstance(found, GangSize):
            _start(uow, job, found)
            started += 1
        elif found != job["state_reason"]:
            uow.execute(update(jobs).where(jobs.c.job_key == job["job_key"]).values(state_reason=found))
    return started


def turn(job: Mapping[str, Any]) -> tuple[int, bool, int, str]:
    """Whose turn it is among jobs that wait: the higher priority, then whoever has begun, then the older one."""
    priority = job["spec"].get("priority", PRIORITY_DEFAULT)
    return (-priority, job["state"] != "RECOVERING", job["created"].nanos, job["job_key"])


def free_replicas(uow: UnitOfWork) -> dict[str, int]:
    """Free places for replicas on each living agent."""
    used = rows.live_replicas_by_agent(uow)
    oldest = uow.real_now.plus_seconds(-uow.leases.agent_seconds)
    living = uow.all(select(agents).where(agents.c.seen >= oldest).order_by(agents.c.agent_id))
    return {row["agent_id"]: row["replicas_max"] - used.get(row["agent_id"], 0) for row in living}


def _size_or_reason(uow: UnitOfWork, job: Mapping[str, Any]) -> GangSize | str:
    """The gang that a waiting job can have now, or why it has to wait."""
    node = node_row(uow, job["node_key"])
    if node["state"] != "READY":
        why = f": {node['wait_reason']}" if node["wait_reason"] else ""
        return f"node {job['node_id']} is {node['state']}{why}"
    if node["reclaim_at"] is not None:
        return f"node {job['node_id']} is taken back at {node['reclaim_at'].rfc3339()}"
    free = sum(max(0, count) for count in free_replicas(uow).values())
    sizes = allowed_sizes(rows.to_spec(job["spec"]), kind_of(job["accelerator_type"], job["topology"]))
    others = [row for row in rows.active_on_node(uow, job["node_key"]) if row["job_key"] != job["job_key"]]
    on_it = next((row for row in others if rows.open_attempt(uow, row["job_key"]) is not None), None)
    if on_it is not None:
        return _take_turn(uow, job, on_it, sizes[-1], free)
    before = next((row for row in sorted(others, key=turn) if turn(row) < turn(job)), None)
    if before is not None:
        return f"node {job['node_id']} is busy with job {before['job_id']}"
    return next((size for size in sizes if size.process_count <= free), _needed(sizes[-1], free))


def _take_turn(uow: UnitOfWork, job: Mapping[str, Any], other: Mapping[str, Any], size: GangSize, free: int) -> str:
    """Why `job` waits for the one that is on its node. One of lower priority is asked to save and to leave, if a gang
    of `size` has room once it has left."""
    busy = f"node {job['node_id']} is busy with job {other['job_id']}"
    attempt = rows.open_attempt(uow, other["job_key"])
    if attempt is None or turn(other)[0] <= turn(job)[0]:
        return busy
    gang = [row for row in rows.replica_rows(uow, attempt["attempt_id"]) if not REPLICA.is_final(row["state"])]
    if size.process_count > free + len(gang):
        return _needed(size, free + len(gang))
    ask_to_yield(uow, attempt, "PREEMPTED", f"job {job['job_id']} has a higher priority and takes its turn")
    return f"{busy}, which has a lower priority and makes room"


def _needed(size: GangSize, free: int) -> str:
    return f"{size.process_count} replicas are needed at once and the living agents have room for {free}"


def _start(uow: UnitOfWork, job: Mapping[str, Any], size: GangSize) -> None:
    number = job["attempt"] + 1
    saved = rows.committed_checkpoints(uow, job["job_key"])
    resume_step = saved[0]["step"] if saved else 0
    attempt_id = row_id(uow.streams.stream("attempts"), "attempt")
    born(
        uow,
        ATTEMPTS,
        {
            "attempt_id": attempt_id,
            "job_key": job["job_key"],
            "attempt": number,
            "resume_step": resume_step,
            "host_count": size.host_count,
            "global_batch": size.global_batch,
            "outcome": None,
            "reason": "",
            "ring_key": secret_token(24),
            "started": uow.now,
            "ended": None,
            "started_real": uow.real_now,
            "yield_real": None,
        },
        reason=f"from step {resume_step}",
    )
    smaller = _smaller(uow, job, number, size)
    for agent_id in _place_replicas(uow, job, attempt_id, size):
        outbox.put(uow, f"agent.{agent_id}", POKE_TASK, [agent_id])
    move(
        uow,
        JOBS,
        job,
        "prepare",
        reason=smaller or f"attempt {number} from step {resume_step}",
        state_reason=smaller,
        attempt=number,
        steps_done=resume_step,
        modelled_seconds=rows.modelled_seconds_until(uow, job["job_key"], resume_step),
        started=job["started"] or uow.now,
    )


def _smaller(uow: UnitOfWork, job: Mapping[str, Any], number: int, size: GangSize) -> str:
    """What is to be said of an attempt that does not have the whole slice; nothing of one that has."""
    whole = whole_gang(rows.to_spec(job["spec"]), kind_of(job["accelerator_type"], job["topology"]))
    if size == whole:
        return ""
    free = sum(max(0, count) for count in free_replicas(uow).values())
    batch = "" if size.global_batch == whole.global_batch else f" with a batch of {size.global_batch}"
    on = f"attempt {number} runs on {size.host_count} of {whole.host_count} hosts{batch}"
    return f"{on}: {_needed(whole, free)}"


def _place_replicas(uow: UnitOfWork, job: Mapping[str, Any], attempt_id: str, size: GangSize) -> list[str]:
    """Makes the replicas, contiguous hosts each, on the agents with the most room; returns the agents."""
    free = free_replicas(uow)
    token = access.issue(uow, f"{attempt_id}@jobs.podyard.local", attempt_id=attempt_id)
    used = []
    for rank in range(size.process_count):
        agent_id = max(sorted(free), key=lambda agent: free[agent])
        assert free[agent_id] > 0, free
        free[agent_id] -= 1
        used.append(agent_id)
        born(
            uow,
            REPLICAS,
            {
                "replica_id": row_id(uow.streams.stream("replicas"), "replica"),
                "attempt_id": attempt_id,
                "job_key": job["job_key"],
                "rank": rank,
                "host_indices": size.hosts_of(rank),
                "agent_id": agent_id,
                "desired": "RUN",
                "fence": job["attempt"] + 1,
                "token": token,
                "address": None,
                "outcome": None,
                "reason": "",
                "lease_until": None,
            },
            reason="gang placed",
        )
    return sorted(set(used))


def grow(uow: UnitOfWork) -> None:
    """Asks a smaller gang to yield once a larger one has room, and ends one that does not yield in time.

    One gang at a time: two could not both have the same room.
    """
    yielding = select(attempts.c.attempt_id).where(attempts.c.yield_real.is_not(None), attempts.c.state != "ENDED")
    waiting_for = uow.all(yielding.order_by(attempts.c.attempt_id))
    for row in waiting_for:
        attempt = rows.attempt_by_id(uow, row["attempt_id"])
        if uow.real_now > attempt["yield_real"].plus_seconds(YIELD_SECONDS_MAX):
            text = f"the gang has not yielded within {YIELD_SECONDS_MAX:g} s: it goes on from its last checkpoint"
            end(uow, attempt, attempt["yield_outcome"] or "RESIZED", text)
    settled = uow.real_now.plus_seconds(-RESIZE_PAUSE_SECONDS)
    running = select(attempts.c.attempt_id).where(attempts.c.state == "RUNNING", attempts.c.started_real < settled)
    for row in uow.all(running.order_by(attempts.c.started_real, attempts.c.attempt_id)):
        if waiting_for or _ask_to_yield(uow, rows.attempt_by_id(uow, row["attempt_id"])):
            return


def _ask_to_yield(uow: UnitOfWork, attempt: Mapping[str, Any]) -> bool:
    """Does so if there is a larger size with room: free places and those that the gang has itself on living agents."""
    job = rows.row_by_key(uow, attempt["job_key"])
    if attempt["state"] != "RUNNING" or job["state"] != "RUNNING":
        return False
    kind = kind_of(job["accelerator_type"], job["topology"])
    hosts, _ = rows.size_of(attempt, job)
    free = free_replicas(uow)
    gang = [r for r in rows.replica_rows(uow, attempt["attempt_id"]) if not REPLICA.is_final(r["state"])]
    room = sum(max(0, count) for count in free.values()) + sum(r["agent_id"] in free for r in gang)
    larger = (size for size in allowed_sizes(rows.to_spec(job["spec"]), kind) if size.host_count > hosts)
    size = next((size for size in larger if size.process_count <= room), None)
    if size is None:
        return False
    text = f"attempt {attempt['attempt']} yields: there is room for {size.host_count} of {kind.host_count} hosts"
    ask_to_yield(uow, attempt, "RESIZED", text)
    return True


def ask_to_yield(uow: UnitOfWork, attempt: Mapping[str, Any], outcome: str, text: str) -> None:
    """Asks a gang that runs to save and to leave; its end then counts as `outcome`. What is not running has nothing to
    save, and one that has been asked knows: neither is asked."""
    if attempt["state"] != "RUNNING" or attempt["yield_real"] is not None:
        return
    asked = update(attempts).where(attempts.c.attempt_id == attempt["attempt_id"])
    uow.execute(asked.values(yield_real=uow.real_now, yield_outcome=outcome))
    uow.execute(update(replicas).where(replicas.c.attempt_id == attempt["attempt_id"]).values(desired="YIELD"))
    uow.execute(update(jobs).where(jobs.c.job_key == attempt["job_key"]).values(state_reason=text))


def settle(uow: UnitOfWork, attempt_id: str) -> None:
    """Brings an attempt and its job to where its replicas say that they are. Does nothing when nothing follows."""
    attempt = rows.attempt_by_id(uow, attempt_id)
    if ATTEMPT.is_final(attempt["state"]):
        return
    gang = rows.replica_rows(uow, attempt_id)
    if attempt["state"] != "ENDING":
        released = [r for r in gang if r["outcome"] == "RELEASED"]
        lost = [r for r in gang if r["outcome"] == "FAILED" or (r["state"] == "EXITED" and r["outcome"] is None)]
        if released:
            end(uow, attempt, "PREEMPTED", f"replica {released[0]['rank']}: {released[0]['reason']}")
        elif lost:
            end(uow, attempt, "FAILED", f"replica {lost[0]['rank']}: {lost[0]['reason']}")
        elif all(r["outcome"] == "SUCCEEDED" for r in gang):
            end(uow, attempt, "SUCCEEDED", "all replicas finished")
        elif all(r["outcome"] in ("SUCCEEDED", "YIELDED") for r in gang):
            outcome = attempt["yield_outcome"] or "RESIZED"
            to = "to a larger gang" if outcome == "RESIZED" else "and saved: the job goes on when it has room again"
            end(uow, attempt, outcome, f"all replicas have yielded {to}")
        elif attempt["state"] == "STARTING" and all(r["state"] == "RUNNING" for r in gang):
            move(uow, ATTEMPTS, attempt, "run", reason="all replicas run")
            job = rows.row_by_key(uow, attempt["job_key"])
            if JOB.allows(job["state"], "run"):
                move(uow, JOBS, job, "run", reason="all replicas run")
    attempt = rows.attempt_by_id(uow, attempt_id)
    if attempt["state"] == "ENDING" and all(REPLICA.is_final(r["state"]) for r in gang):
        _finish(uow, attempt)


def end(uow: UnitOfWork, attempt: Mapping[str, Any], outcome: str, reason: str) -> None:
    """Asks every replica to stop; the attempt has ended once all have exited."""
    if attempt["state"] in ("ENDING", "ENDED"):
        return
    move(uow, ATTEMPTS, attempt, "end", reason=reason, outcome=outcome)
    uow.execute(update(attempts).where(attempts.c.attempt_id == attempt["attempt_id"]).values(reason=reason))
    gang = [r for r in rows.replica_rows(uow, attempt["attempt_id"]) if not REPLICA.is_final(r["state"])]
    uow.execute(update(replicas).where(replicas.c.attempt_id == attempt["attempt_id"]).values(desired="STOP"))
    for agent_id in sorted({r["agent_id"] for r in gang}):
        outbox.put(uow, f"agent.{agent_id}", POKE_TASK, [agent_id])
    job = rows.row_by_key(uow, attempt["job_key"])
    if outcome in ("FAILED", "PREEMPTED", "RESIZED") and JOB.allows(job["state"], "recover"):
        move(uow, JOBS, job, "recover", reason=reason, state_reason=reason)


def _finish(uow: UnitOfWork, attempt: Mapping[str, Any]) -> None:
    move(uow, ATTEMPTS, attempt, "ended", reason=attempt["outcome"], ended=uow.now)
    access.revoke_attempt(uow, attempt["attempt_id"])
    uow.execute(update(replicas).where(replicas.c.attempt_id == attempt["attempt_id"]).values(token=""))
    job = rows.row_by_key(uow, attempt["job_key"])
    wall = job["wall_seconds"] + uow.real_now.seconds_since(attempt["started_real"])
    counts = {
        "failures": job["failures"] + (attempt["outcome"] == "FAILED"),
        "preemptions": job["preemptions"] + (attempt["outcome"] == "PREEMPTED"),
        "wall_seconds": wall,
    }
    uow.execute(update(jobs).where(jobs.c.job_key == job["job_key"]).values(**counts))
    job = {**job, **counts}
    if job["state"] == "CANCELLING":
        finish_job(uow, job, "cancelled", None, "cancelled by the user")
    elif attempt["outcome"] == "SUCCEEDED":
        early = job["latest"].get("stopReason") if job["steps_done"] < job["spec"]["steps"] else None
        mode = job["spec"]["mode"]
        finish_job(
            uow, job, "succeed", None, str(early or ("all steps done" if mode == "train" else f"{mode} is done"))
        )
    elif job["failures"] > job["spec"]["max_failures"]:
        most = job["spec"]["max_failures"]
        text = f"{job['failures']} attempts failed (maxFailures {most}); the last: {attempt['reason']}"
        finish_job(uow, job, "fail", Code.ABORTED, text)
    elif job["preemptions"] > job["spec"]["max_preemptions"]:
        text = f"preempted {job['preemptions']} times (maxPreemptions {job['spec']['max_preemptions']})"
        finish_job(uow, job, "fail", Code.ABORTED, text)


def finish_job(uow: UnitOfWork, job: Mapping[str, Any], event: str, code: Code | None, message: str) -> None:
    values: dict[str, Any] = {"ended": uow.now, "state_reason": message}
    if code is not None:
        values.update(error_code=int(code), error_message=message)
    move(uow, JOBS, job, event, reason=message, **values)
