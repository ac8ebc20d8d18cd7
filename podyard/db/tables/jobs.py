"""Jobs, attempts, replicas, metrics, evaluations, logs, checkpoints."""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Float,
    ForeignKey,
    Index,
    Integer,
    String,
    Table,
    Text,
    UniqueConstraint,
    false,
)

from podyard.db.tables.base import metadata
from podyard.db.tables.types import Json, PlatformTimeColumn, RealTimeColumn

jobs = Table(
    "jobs",
    metadata,
    Column("job_key", String(64), primary_key=True),
    Column("project", String(64), nullable=False),
    Column("zone", String(64), nullable=False),
    Column("job_id", String(64), nullable=False),
    Column("state", String(32), nullable=False),
    Column("state_reason", Text, nullable=False),
    Column("version", BigInteger, nullable=False),
    Column("spec", Json, nullable=False),
    Column("node_key", String(64), ForeignKey("nodes.node_key"), nullable=False),
    Column("node_id", String(64), nullable=False),
    Column("accelerator_type", String(64), nullable=False),
    Column("topology", String(32), nullable=False),
    Column("owns_node", Boolean, nullable=False),
    Column("attempt", Integer, nullable=False),
    Column("failures", Integer, nullable=False),
    Column("preemptions", Integer, nullable=False),
    Column("steps_done", Integer, nullable=False),
    Column("latest", Json, nullable=False),
    Column("wall_seconds", Float, nullable=False),
    Column("modelled_seconds", Float, nullable=False),
    Column("estimate_model", String(32), nullable=False),
    Column("created", PlatformTimeColumn, nullable=False),
    Column("started", PlatformTimeColumn),
    Column("ended", PlatformTimeColumn),
    Column("error_code", Integer),
    Column("error_message", Text),
    # empty: nobody knows any more
    Column("created_by", String(256), nullable=False, server_default=""),
    Column("retry_at", PlatformTimeColumn),
    Column("sweep_id", String(64), nullable=False, server_default=""),
    Column("sweep_index", Integer),
    Column("pinned_steps", Json, nullable=False, server_default="[]"),
    Column("node_zone", String(64), nullable=False, server_default=""),
    Column("fallbacks_used", Integer, nullable=False, server_default="0"),
    UniqueConstraint("project", "zone", "job_id"),
    Index("ix_jobs_state", "state"),
    Index("ix_jobs_node", "node_key"),
    Index("ix_jobs_sweep", "sweep_id"),
    Index("ix_jobs_created", "project", "created", "job_key"),
    Index("ix_jobs_facets", "project", "state", "zone", "accelerator_type"),
)

# The nodes of a job's slices after the first, which is `jobs.node_key`.
job_slices = Table(
    "job_slices",
    metadata,
    Column("job_key", String(64), ForeignKey("jobs.job_key"), primary_key=True),
    Column("slice_index", Integer, primary_key=True, autoincrement=False),
    Column("node_key", String(64), ForeignKey("nodes.node_key"), nullable=False),
    Index("ix_job_slices_node", "node_key"),
)

job_files = Table(
    "job_files",
    metadata,
    Column("job_key", String(64), ForeignKey("jobs.job_key"), primary_key=True),
    Column("digest", String(64), primary_key=True),
    Index("ix_job_files_digest", "digest"),
)

attempts = Table(
    "attempts",
    metadata,
    Column("attempt_id", String(64), primary_key=True),
    Column("job_key", String(64), ForeignKey("jobs.job_key"), nullable=False),
    Column("attempt", Integer, nullable=False),
    Column("state", String(32), nullable=False),
    Column("version", BigInteger, nullable=False),
    Column("resume_step", Integer, nullable=False),
    Column("host_count", Integer),  # None: the whole slice
    Column("global_batch", Integer),  # None: the job's
    Column("outcome", String(32)),  # SUCCEEDED, FAILED, PREEMPTED, RESIZED, CANCELLED, once known
    Column("reason", Text, nullable=False),
    Column("ring_key", String(64), nullable=False),
    Column("started", PlatformTimeColumn, nullable=False),
    Column("ended", PlatformTimeColumn),
    Column("started_real", RealTimeColumn, nullable=False),
    Column("yield_real", RealTimeColumn),  # when the gang was asked to save and to leave
    Column("stacks_real", RealTimeColumn),  # when the stacks of its processes were asked for
    # RESIZED (also None) or PREEMPTED: what its end counts as if it does
    Column("yield_outcome", String(32)),
    UniqueConstraint("job_key", "attempt"),
)

replicas = Table(
    "replicas",
    metadata,
    Column("replica_id", String(64), primary_key=True),
    Column("attempt_id", String(64), ForeignKey("attempts.attempt_id"), nullable=False),
    Column("job_key", String(64), nullable=False),
    Column("rank", Integer, nullable=False),
    Column("host_indices", Json, nullable=False),
    Column("agent_id", String(64), nullable=False),
    Column("state", String(32), nullable=False),
    Column("desired", String(8), nullable=False),  # RUN, YIELD, STOP
    Column("version", BigInteger, nullable=False),
    Column("fence", BigInteger, nullable=False),
    # scoped to the attempt; emptied when the replica has exited
    Column("token", String(128), nullable=False),
    Column("address", String(128)),
    Column("outcome", String(32)),
    Column("reason", Text, nullable=False),
    Column("lease_until", RealTimeColumn),
    Column("cpu_micros", BigInteger),  # that its process has taken so far, by its own reports
    Column("memory_kib_seconds", BigInteger),
    UniqueConstraint("attempt_id", "rank"),
    Index("ix_replicas_agent", "agent_id", "state"),
)

job_metrics = Table(
    "job_metrics",
    metadata,
    Column("job_key", String(64), ForeignKey("jobs.job_key"), primary_key=True),
    Column("step", Integer, primary_key=True, autoincrement=False),
    Column("attempt", Integer, primary_key=True, autoincrement=False),
    Column("metrics", Json, nullable=False, server_default="{}"),  # by name
    Column("wall_seconds", Float, nullable=False),
    Column("modelled_seconds", Float, nullable=False),
)

# The modules of a user's program in each attempt: ProgramRun.
job_runs = Table(
    "job_runs",
    metadata,
    Column("job_key", String(64), ForeignKey("jobs.job_key"), primary_key=True),
    Column("attempt", Integer, primary_key=True, autoincrement=False),
    Column("run", Json, nullable=False),
)

job_evaluations = Table(
    "job_evaluations",
    metadata,
    Column("job_key", String(64), ForeignKey("jobs.job_key"), primary_key=True),
    Column("step", Integer, primary_key=True, autoincrement=False),
    Column("attempt", Integer, primary_key=True, autoincrement=False),
    Column("metrics", Json, nullable=False),
)

log_chunks = Table(
    "log_chunks",
    metadata,
    Column("replica_id", String(64), ForeignKey("replicas.replica_id"), primary_key=True),
    Column("seq", Integer, primary_key=True, autoincrement=False),  # of its first line
    Column("job_key", String(64), nullable=False),
    Column("attempt", Integer, nullable=False),
    Column("rank", Integer, nullable=False),
    Column("lines", Integer, nullable=False),
    Column("first_at", PlatformTimeColumn, nullable=False),
    Column("last_at", PlatformTimeColumn, nullable=False),
    Column("millis", Integer, nullable=False),  # real ones, from the first line to the last
    Column("segment", Integer, nullable=False),  # the number of the file
    Column("start", Integer, nullable=False),
    Column("size", Integer, nullable=False),
    Column("text", Text),  # instead of bytes of a file
    Index("ix_log_chunks_worker", "job_key", "attempt", "rank", "seq"),
)

checkpoints = Table(
    "checkpoints",
    metadata,
    Column("job_key", String(64), ForeignKey("jobs.job_key"), primary_key=True),
    Column("step", Integer, primary_key=True, autoincrement=False),
    Column("attempt", Integer, primary_key=True, autoincrement=False),
    Column("name", String(512), nullable=False),
    Column("sha256", String(64), nullable=False),
    Column("at", PlatformTimeColumn, nullable=False),
    # was the best one when it was written
    Column("best", Boolean, nullable=False, server_default=false()),
)
