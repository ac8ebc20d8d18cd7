"""Log entries of what Podyard keeps itself: lines of jobs, of hosts' scripts, and of the audit
log."""

from __future__ import annotations

from podyard.base.clock import RealTime
from podyard.domain.audit import AuditLine
from podyard.domain.host import host_name
from podyard.domain.job import Job
from podyard.domain.log import LogLine
from podyard.domain.node import NodeRecord
from podyard.domain.observed.log_entry import AUDIT_LOG, JOB_LOG, SCRIPT_LOG, LogEntry, Severity

_SEVERITY_OF_STREAM = {
    "stdout": Severity.DEFAULT,
    "stderr": Severity.ERROR,  # as GKE has it
    "platform": Severity.NOTICE,
    "stacks": Severity.DEBUG,
}
_AUDIT_TYPE = "type.googleapis.com/google.cloud.audit.AuditLog"
_REFUSED_STATUS = 400  # from this one on an answer is a refusal


def of_script(
    node: NodeRecord, host: int, script: str, written: RealTime, number: int, text: str
) -> LogEntry:
    """Line `number` of a script's file, which has no time but that of the file's last line."""
    return LogEntry(
        project=node.project,
        log_id=SCRIPT_LOG,
        at=written,
        received=written,
        severity=Severity.INFO,
        insert_id=f"{node.node_key}-{host:05d}-{script}-{number:06d}",
        resource_type="tpu_worker",
        resource_labels=_worker(node.project, node.zone, node.node_id, host),
        labels={
            "podyard.googleapis.com/script": script.removeprefix(
                f"{host_name(node.node_key, host)}-"
            )
        },
        text=text,
    )


def of_job_line(job: Job, line: LogLine) -> LogEntry:
    """A line of a job; its time is the platform's, which may run faster than this machine's."""
    at = RealTime(line.at.nanos)
    return LogEntry(
        project=job.project,
        log_id=JOB_LOG,
        at=at,
        received=at,
        severity=_SEVERITY_OF_STREAM.get(line.stream, Severity.DEFAULT),
        insert_id=f"{job.job_key}-{line.attempt}-{line.rank:05d}-{line.seq:010d}",
        resource_type="tpu_worker",
        resource_labels=_worker(job.project, job.zone_of_node, job.node_id, line.rank),
        labels={
            "podyard.googleapis.com/job": job.job_id,
            "podyard.googleapis.com/attempt": str(line.attempt),
            "podyard.googleapis.com/stream": line.stream,
        },
        text=line.line,
    )


def of_audit(project: str, line: AuditLine) -> LogEntry:
    is_refusal = line.status >= _REFUSED_STATUS
    return LogEntry(
        project=project,
        log_id=AUDIT_LOG,
        at=line.at,
        received=line.at,
        severity=Severity.ERROR if is_refusal else Severity.NOTICE,
        insert_id=f"audit-{line.seq:012d}",
        resource_type="audited_resource",
        resource_labels={"project_id": project},
        labels={},
        payload={
            "@type": _AUDIT_TYPE,
            "methodName": f"{line.method} {line.path}",
            "resourceName": line.path,
            "authenticationInfo": {"principalEmail": line.actor},
            "requestMetadata": {"callerIp": line.address},
            "status": {"code": line.status} if is_refusal else {},
        },
    )


def _worker(project: str, zone: str, node_id: str, host: int) -> dict[str, str]:
    return {"project_id": project, "zone": zone, "node_id": node_id, "worker_id": str(host)}
