"""Jobs: what users submit, see and cancel."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from podyard.base.contents import Contents
from podyard.base.errors import (
    Code,
    PodyardError,
    failed_precondition,
    invalid,
    invalid_field,
    not_found,
)
from podyard.base.ids import check_resource_id, row_id
from podyard.base.log_files import LogFiles
from podyard.base.sealing import seal
from podyard.control.access import identity
from podyard.control.compute import hosts, lookup, node_checks
from podyard.control.jobs import curves, gangs, log_reader, own_nodes, sources
from podyard.control.jobs.log_reader import LineFilter, LinePage
from podyard.control.storage import buckets
from podyard.db.compute import nodes as node_rows
from podyard.db.jobs import attempts as attempt_rows
from podyard.db.jobs import history as job_history
from podyard.db.jobs import jobs as rows
from podyard.db.jobs import replicas
from podyard.db.jobs import slices as job_slices
from podyard.db.platform import agents
from podyard.db.store.transition import create_record, move, store
from podyard.db.store.unit_of_work import UnitOfWork
from podyard.domain.attempt import Attempt, AttemptOutcome
from podyard.domain.fleet import Fleet
from podyard.domain.gang import allowed_sizes
from podyard.domain.job import (
    Elastic,
    Job,
    JobRequest,
    JobSpec,
    JobState,
    StartFrom,
    job_name,
    objects_prefix,
)
from podyard.domain.job_history import CheckpointRecord, EvaluationRecord, JobFailure, MetricPoint
from podyard.domain.job_request import check_num_nodes, spec_of, wanted_checkpoint
from podyard.domain.lists.pages import RowMark, RowQuery, time_mark
from podyard.domain.node import NodeRecord, NodeSpec, NodeState
from podyard.domain.ports import ObjectReader
from podyard.domain.principal import Principal
from podyard.domain.user_program import default_output
from podyard.scheduler.spread import room_of

# what a job makes for others; its checkpoints are its own
ARTIFACTS = ("export/", "predictions", curves.FOLDER)
CHECKPOINTS = "checkpoints/"  # before the names of their files among what a job has made
CHECKPOINTS_NAMED_MAX = 10  # in an error that says which ones there are


def create(  # noqa: PLR0913
    uow: UnitOfWork,
    fleet: Fleet,
    principal: Principal,
    project: str,
    zone: str,
    job_id: str | None,
    request: JobRequest,
    node: str | NodeSpec | NodeRecord,
    sweep: tuple[str, int] | None = None,
) -> Job:
    """Accepts a job on a node that is READY (`node`: its id), on one that is made for the job (a
    spec), or on one that was made for another job of its sweep. `sweep`: the id of that, and the
    job's number in it.

    A user's program has the token of its node's service account, as who logs in to a host has. Its
    files have been looked at (`sources.py`).
    """
    for permission in ("podyard.jobs.create", *((hosts.USE,) if request.run is not None else ())):
        principal.require(permission, project, f"projects/{project}/locations/{zone}/jobs")
    node_checks.zone_of(fleet, zone)
    identity.project_row(uow, project)
    job_key = row_id(uow.streams.stream("jobs"), "job")
    job_id = job_key[:20] if job_id is None else check_resource_id(job_id, "job_id")
    if rows.find(uow, project, zone, job_id) is not None:
        raise PodyardError(
            Code.ALREADY_EXISTS, f"Resource '{job_name(project, zone, job_id)}' already exists"
        )
    own_nodes.check_autostop(request, node)
    used = 0
    more: list[NodeRecord] = []
    if isinstance(node, NodeSpec):
        check_num_nodes(request)
        request = own_nodes.with_places(uow, fleet, request, zone, node)
        place = (uow, fleet, principal, project, zone)
        (target, *more), used = own_nodes.make_first(*place, job_id, node, request, job_key)
    elif request.num_nodes > 1:
        raise invalid_field(
            "numNodes is for nodes that are created: set acceleratorType", "num_nodes"
        )
    elif request.fallbacks:
        raise invalid("fallbacks are for a node that is created: set acceleratorType", "fallbacks")
    else:
        target = (
            node
            if isinstance(node, NodeRecord)
            else _ready_node(uow, principal, project, zone, node)
        )
    kind = target.kind
    source = _source(uow, principal, project, zone, request)
    spec = spec_of(request, kind, source)
    for other in request.fallbacks:  # each must be able to run it
        spec_of(request, fleet.type_named(other.zone, other.accelerator_type), source)
    if spec.run is not None:
        sealed = {name: seal(value) for name, value in spec.run.secrets.items()}
        spec = dataclasses.replace(spec, run=dataclasses.replace(spec.run, secrets=sealed))
    if spec.run is not None and not spec.run.output:
        output = f"gs://{buckets.of_jobs(uow, project).name}{default_output(zone, job_id)}"
        spec = dataclasses.replace(spec, run=dataclasses.replace(spec.run, output=output))
    job = Job(
        job_key=job_key,
        project=project,
        zone=zone,
        job_id=job_id,
        spec=spec,
        node_key=target.node_key,
        node_id=target.node_id,
        accelerator_type=target.accelerator_type,
        topology=target.topology,
        owns_node=not isinstance(node, str),
        created=uow.now,
        created_by=principal.email,
        sweep_id=sweep[0] if sweep else "",
        sweep_index=sweep[1] if sweep else None,
        node_zone="" if target.zone == zone else target.zone,
        fallbacks_used=used,
    )
    if not spec.is_modelled:
        check_room(uow, spec, allowed_sizes(spec, kind)[-1].process_count)
    create_record(uow, job, reason="submitted")
    if more:
        job_slices.put(uow, job_key, [one.node_key for one in more])
    gangs.pin(uow, spec.start_from)
    if spec.run is not None:
        sources.pin(uow, principal, job_key, spec.run)
    return get(uow, principal, project, zone, job_id)


def get(uow: UnitOfWork, principal: Principal, project: str, zone: str, job_id: str) -> Job:
    return lookup.job(uow, principal, "podyard.jobs.get", project, zone, job_id)


def to_clone(
    uow: UnitOfWork, principal: Principal, project: str, zone: str, job_id: str
) -> tuple[Job, NodeSpec]:
    """A job, and what its node was asked to be."""
    job = get(uow, principal, project, zone, job_id)
    return job, node_of(uow, job).spec


def node_of(uow: UnitOfWork, job: Job) -> NodeRecord:
    return node_rows.get_by_key(uow, job.node_key)


def nodes_of(uow: UnitOfWork, job: Job) -> list[NodeRecord]:
    """Those that it has, or had last, in the order of its slices."""
    return [node_rows.get_by_key(uow, key) for key in job_slices.node_keys_of(uow, job)]


def mark_of(job: Job) -> RowMark:
    return time_mark(job.created, job.job_key)


def page(
    uow: UnitOfWork, principal: Principal, project: str, zone: str | None, query: RowQuery
) -> list[Job]:
    """Those of one zone, or (None) of all."""
    principal.require(
        "podyard.jobs.list", project, f"projects/{project}/locations/{zone or '-'}/jobs"
    )
    return rows.page(uow, project, zone, query)


def running_by_node(
    uow: UnitOfWork, principal: Principal, project: str, zone: str
) -> dict[str, str]:
    """The id of the job that runs on each node of a zone, by the node's full name."""
    principal.require("podyard.jobs.list", project, f"projects/{project}/locations/{zone}/jobs")
    return rows.running_by_node(uow, project, zone)


def cancel(uow: UnitOfWork, principal: Principal, project: str, zone: str, job_id: str) -> Job:
    """Asks a job to stop; it is CANCELLED once its last process is gone. A job that has ended stays
    as it is."""
    job = lookup.job(uow, principal, "podyard.jobs.cancel", project, zone, job_id)
    if job.has_ended:
        raise failed_precondition(f"job {job_id} is {job.state} and cannot be cancelled")
    by = f"cancelled by {principal.email}"
    if job.state is JobState.QUEUED:
        gangs.finish_job(uow, job, "cancel", None, by)
    elif job.state is not JobState.CANCELLING:
        changed = dataclasses.replace(job, state_reason="cancelling")
        moved = move(uow, job, "cancel", reason=by, changed=changed)
        attempt = attempt_rows.find_open(uow, job.job_key)
        if attempt is None:
            gangs.finish_job(uow, moved, "cancelled", None, by)
        else:
            gangs.end(uow, attempt, AttemptOutcome.CANCELLED, by)
            gangs.settle(uow, attempt.attempt_id)
    return get(uow, principal, project, zone, job_id)


def resize(
    uow: UnitOfWork,
    principal: Principal,
    project: str,
    zone: str,
    job_id: str,
    replicas: int | None,
) -> Job:
    """Sets how many processes an elastic job runs with at most; None: its whole gang again. A gang
    of another size is asked to save and to leave, and the job goes on with the new one as soon as
    it has room.

    Raises FAILED_PRECONDITION for a job that has ended or is not elastic, INVALID_ARGUMENT for a
    number that it cannot run with.
    """
    job = lookup.job(uow, principal, "podyard.jobs.resize", project, zone, job_id)
    if job.has_ended or job.state is JobState.CANCELLING:
        raise failed_precondition(f"job {job_id} is {job.state} and cannot be resized")
    elastic = job.spec.elastic
    if elastic is None:
        raise failed_precondition(
            f"job {job_id} is not elastic: only jobs submitted with --elastic can be resized"
        )
    counts = [size.process_count for size in allowed_sizes(job.spec, job.kind)]
    if replicas is not None and replicas not in counts:
        raise invalid(f"replicas is {replicas}: {_why_not(replicas, elastic, counts)}", "replicas")
    spec = dataclasses.replace(
        job.spec, elastic=dataclasses.replace(elastic, max_replicas=replicas)
    )
    store(uow, job, dataclasses.replace(job, spec=spec))
    gangs.follow_size(uow, job.job_key)
    return get(uow, principal, project, zone, job_id)


def _why_not(replicas: int, elastic: Elastic, counts: Sequence[int]) -> str:
    if replicas < elastic.min_replicas:
        return f"the job goes on with {elastic.min_replicas} (elastic.minReplicas) at least"
    if replicas > counts[0]:
        return f"its slice has room for {counts[0]} at most"
    return f"its batch divides for {', '.join(map(str, counts))} only"


def metrics(
    uow: UnitOfWork,
    principal: Principal,
    project: str,
    zone: str,
    job_id: str,
    after_step: int,
    limit: int,
) -> list[MetricPoint]:
    """The committed step history after `after_step`, at most `limit` points."""
    job = lookup.job(uow, principal, "podyard.jobs.get", project, zone, job_id)
    return job_history.committed_points(uow, job.job_key, after_step, limit)


def checkpoints(
    uow: UnitOfWork, principal: Principal, project: str, zone: str, job_id: str
) -> list[CheckpointRecord]:
    """The committed checkpoints, the newest first. `best` is true of one at most: each was the best
    when it came."""
    job = lookup.job(uow, principal, "podyard.jobs.get", project, zone, job_id)
    found = job_history.committed_checkpoints(uow, job.job_key)
    best = next((item.step for item in found if item.best), None)
    return [dataclasses.replace(item, best=item.step == best) for item in found]


def evaluations(
    uow: UnitOfWork, principal: Principal, project: str, zone: str, job_id: str
) -> list[EvaluationRecord]:
    """The committed evaluations, by step."""
    job = lookup.job(uow, principal, "podyard.jobs.get", project, zone, job_id)
    return job_history.committed_evaluations(uow, job.job_key)


def artifacts(
    uow: UnitOfWork,
    principal: Principal,
    project: str,
    zone: str,
    job_id: str,
    objects: ObjectReader,
    *,
    with_checkpoints: bool = False,
) -> dict[str, int]:
    """Return what the job has made to be taken away: name -> bytes. Of a user's program, the event
    files of its output."""
    job = lookup.job(uow, principal, "podyard.jobs.get", project, zone, job_id)
    prefix = objects_prefix(job.job_key)
    found = {
        name: size for kind in ARTIFACTS for name, size in objects.sizes(prefix + kind).items()
    }
    events = {
        curves.FOLDER + name: item.size
        for name, item in curves.event_objects(uow, principal, job).items()
    }
    made = {name.removeprefix(prefix): found[name] for name in sorted(found)} | events
    if with_checkpoints:
        for saved in job_history.committed_checkpoints(uow, job.job_key):
            for name in (f"{saved.name}.safetensors", f"checkpoint-{saved.step:08d}.json"):
                sizes = objects.sizes(prefix + name)
                made |= {CHECKPOINTS + name: sizes[prefix + name]} if prefix + name in sizes else {}
    return made


def artifact(  # noqa: PLR0913
    uow: UnitOfWork,
    principal: Principal,
    project: str,
    zone: str,
    job_id: str,
    objects: ObjectReader,
    contents: Contents,
    name: str,
) -> bytes:
    """One of `artifacts`; NOT_FOUND for any other name, wherever it might lead."""
    if name not in artifacts(uow, principal, project, zone, job_id, objects, with_checkpoints=True):
        raise not_found(f"{job_name(project, zone, job_id)}/artifacts/{name}")
    job = lookup.job(uow, principal, "podyard.jobs.get", project, zone, job_id)
    event = curves.event_objects(uow, principal, job).get(name.removeprefix(curves.FOLDER))
    if event is not None:
        return contents.path(event.digest).read_bytes()
    return objects.get(objects_prefix(job.job_key) + name.removeprefix(CHECKPOINTS))


def attempts(
    uow: UnitOfWork, principal: Principal, project: str, zone: str, job_id: str
) -> list[tuple[Attempt, int, int]]:
    """All attempts by number, each with its hosts and its global batch."""
    job = lookup.job(uow, principal, "podyard.jobs.get", project, zone, job_id)
    return [(attempt, *job.size_of(attempt)) for attempt in attempt_rows.of_job(uow, job.job_key)]


def agents_of(uow: UnitOfWork, attempts: Sequence[Attempt]) -> dict[str, list[str]]:
    """By attempt the agents of its replicas, by rank."""
    found: dict[str, list[str]] = {attempt.attempt_id: [] for attempt in attempts}
    for key in {attempt.job_key for attempt in attempts}:
        for replica in replicas.of_job(uow, key):
            found.setdefault(replica.attempt_id, []).append(replica.agent_id)
    return found


def logs(  # noqa: PLR0913
    uow: UnitOfWork,
    principal: Principal,
    project: str,
    zone: str,
    job_id: str,
    files: LogFiles,
    chosen: LineFilter,
    place: str,
    limit: int,
) -> LinePage:
    """Lines in the order of their time, after a place (of the page before; "" at first)."""
    job = lookup.job(uow, principal, "podyard.jobs.get", project, zone, job_id)
    return log_reader.page(uow, files, job.job_key, chosen, place, limit)


def ask_stacks(uow: UnitOfWork, principal: Principal, project: str, zone: str, job_id: str) -> str:
    """Asks the processes of a job what they are doing; they write it to the log, after the place
    that is returned. Raises FAILED_PRECONDITION when none runs."""
    job = lookup.job(uow, principal, "podyard.jobs.stacks", project, zone, job_id)
    attempt = attempt_rows.find_open(uow, job.job_key)
    if attempt is None or job.spec.is_modelled:
        raise failed_precondition(f"job {job_id} is {job.state} and has no processes to ask")
    store(uow, attempt, dataclasses.replace(attempt, stacks_real=uow.real_now))
    return log_reader.end(uow, job.job_key)


def failure(
    uow: UnitOfWork, principal: Principal, project: str, zone: str, job_id: str, files: LogFiles
) -> JobFailure | None:
    """Return what the worker wrote last that has ended the job's last failed attempt: its traceback
    first of all."""
    job = lookup.job(uow, principal, "podyard.jobs.get", project, zone, job_id)
    if not job.failures:
        return None
    tries = [
        one for one in attempt_rows.of_job(uow, job.job_key) if one.outcome is AttemptOutcome.FAILED
    ]
    found = log_reader.failure_of(uow, files, job.job_key, tries[-1].attempt) if tries else None
    return None if found is None else JobFailure(tries[-1].attempt, *found)


def _source(
    uow: UnitOfWork, principal: Principal, project: str, zone: str, request: JobRequest
) -> tuple[StartFrom, JobSpec] | None:
    """The checkpoint that the job starts from, and what its job was asked to do."""
    wanted = wanted_checkpoint(request)
    if wanted is None:
        return None
    job_id, step = wanted
    job = lookup.job(uow, principal, "podyard.jobs.get", project, zone, job_id)
    if job.spec.is_modelled:
        raise failed_precondition(
            f"job {job_id} was simulated: its checkpoints have no parameters to start from"
        )
    saved = job_history.committed_checkpoints(uow, job.job_key)
    if not saved:
        raise failed_precondition(f"job {job_id} has no checkpoint to start from")
    steps = [item.step for item in saved]
    if step is None:
        step = steps[0]
    elif step not in steps:
        shown = ", ".join(map(str, steps[:CHECKPOINTS_NAMED_MAX]))
        raise PodyardError(
            Code.NOT_FOUND, f"job {job_id} has no checkpoint of step {step}: use one of {shown}"
        )
    return StartFrom(job_id, job.job_key, step), job.spec


def _ready_node(
    uow: UnitOfWork, principal: Principal, project: str, zone: str, node_id: str
) -> NodeRecord:
    node = lookup.node(uow, principal, "tpu.nodes.get", project, zone, node_id)
    if node.state is not NodeState.READY:
        raise failed_precondition(f"node {node_id} is {node.state}: a job requires a READY node")
    return node


def check_room(uow: UnitOfWork, spec: JobSpec, needed: int) -> None:
    """Reject a gang that could never be placed, with the numbers. A replica of a program needs a
    host, too; one of a recipe needs JAX on its machine."""
    on_hosts = spec.run is not None
    living = [agent for agent in agents.list_living(uow) if agent.takes_work]
    if not on_hosts and living and not any(agent.has_engine for agent in living):
        raise failed_precondition(
            "a recipe job needs JAX on the machine of an agent: pip install 'podyard[engine]' "
            "there and restart Podyard, or submit a program with --run"
        )
    most = {
        one.agent_id: min(one.replicas_max, one.hosts_max if on_hosts else needed)
        for one in living
        if on_hosts or one.has_engine
    }
    room = room_of(most, {agent.agent_id: agent.company for agent in living})
    if needed > room:
        raise failed_precondition(
            f"the job needs {needed} replicas, one per host, but the live agents ({len(living)}) "
            "can run at most "
            f"{room}: start more agents, use a smaller slice, or set replicaProcesses"
        )
