"""the first schema"""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "agents",
        sa.Column("agent_id", sa.String(length=64), nullable=False),
        sa.Column("bind_address", sa.String(length=64), nullable=False),
        sa.Column("replicas_max", sa.Integer(), nullable=False),
        sa.Column("hosts_max", sa.Integer(), nullable=False),
        sa.Column("pid", sa.BigInteger(), nullable=False),
        sa.Column("fence", sa.BigInteger(), nullable=False),
        sa.Column("registered", sa.BigInteger(), nullable=False),
        sa.Column("seen", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("agent_id", name=op.f("pk_agents")),
    )
    op.create_table(
        "clock",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("mode", sa.String(length=16), nullable=False),
        sa.Column("anchor_platform", sa.BigInteger(), nullable=False),
        sa.Column("anchor_real", sa.BigInteger(), nullable=False),
        sa.Column("running", sa.Boolean(), nullable=False),
        sa.Column("rate_millionths", sa.BigInteger(), nullable=False),
        sa.Column("target", sa.BigInteger(), nullable=True),
        sa.Column("loop_fence", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_clock")),
    )
    op.create_table(
        "leases",
        sa.Column("name", sa.String(length=128), nullable=False),
        sa.Column("owner", sa.String(length=128), nullable=False),
        sa.Column("fence", sa.BigInteger(), nullable=False),
        sa.Column("until", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_leases")),
    )
    op.create_table(
        "nodes",
        sa.Column("node_key", sa.String(length=64), nullable=False),
        sa.Column("number", sa.BigInteger(), nullable=False),
        sa.Column("project", sa.String(length=64), nullable=False),
        sa.Column("zone", sa.String(length=64), nullable=False),
        sa.Column("node_id", sa.String(length=64), nullable=False),
        sa.Column("live_name", sa.String(length=256), nullable=True),
        sa.Column("state", sa.String(length=32), nullable=False),
        sa.Column("version", sa.BigInteger(), nullable=False),
        sa.Column("accelerator_type", sa.String(length=64), nullable=False),
        sa.Column("topology", sa.String(length=32), nullable=False),
        sa.Column("usage_class", sa.String(length=16), nullable=False),
        sa.Column("runtime_version", sa.String(length=128), nullable=False),
        sa.Column("spec", sa.JSON(), nullable=False),
        sa.Column("created", sa.BigInteger(), nullable=False),
        sa.Column("ready_since", sa.BigInteger(), nullable=True),
        sa.Column("state_reason", sa.Text(), nullable=False),
        sa.Column("wait_reason", sa.Text(), nullable=False),
        sa.Column("pending_operation", sa.String(length=64), nullable=True),
        sa.Column("host_count", sa.Integer(), nullable=False),
        sa.Column("first_address", sa.BigInteger(), nullable=False),
        sa.Column("job_key", sa.String(length=64), nullable=True),
        sa.PrimaryKeyConstraint("node_key", name=op.f("pk_nodes")),
        sa.UniqueConstraint("live_name", name=op.f("uq_nodes_live_name")),
    )
    with op.batch_alter_table("nodes", schema=None) as batch_op:
        batch_op.create_index("ix_nodes_place", ["project", "zone", "state"], unique=False)
        batch_op.create_index("ix_nodes_state", ["state"], unique=False)

    op.create_table(
        "operations",
        sa.Column("operation_id", sa.String(length=64), nullable=False),
        sa.Column("project", sa.String(length=64), nullable=False),
        sa.Column("zone", sa.String(length=64), nullable=False),
        sa.Column("verb", sa.String(length=32), nullable=False),
        sa.Column("target_kind", sa.String(length=32), nullable=False),
        sa.Column("target_key", sa.String(length=64), nullable=False),
        sa.Column("target_name", sa.String(length=512), nullable=False),
        sa.Column("state", sa.String(length=32), nullable=False),
        sa.Column("version", sa.BigInteger(), nullable=False),
        sa.Column("created", sa.BigInteger(), nullable=False),
        sa.Column("ended", sa.BigInteger(), nullable=True),
        sa.Column("error_code", sa.Integer(), nullable=True),
        sa.Column("error_message", sa.Text(), nullable=True),
        sa.Column("error_details", sa.JSON(), nullable=False),
        sa.Column("response", sa.JSON(), nullable=True),
        sa.Column("cancel_requested", sa.Boolean(), nullable=False),
        sa.PrimaryKeyConstraint("operation_id", name=op.f("pk_operations")),
    )
    with op.batch_alter_table("operations", schema=None) as batch_op:
        batch_op.create_index("ix_operations_place", ["project", "zone", "created"], unique=False)
        batch_op.create_index("ix_operations_target", ["target_key"], unique=False)

    op.create_table(
        "outbox",
        sa.Column(
            "message_id",
            sa.BigInteger().with_variant(sa.Integer(), "sqlite"),
            autoincrement=True,
            nullable=False,
        ),
        sa.Column("queue", sa.String(length=128), nullable=False),
        sa.Column("task", sa.String(length=128), nullable=False),
        sa.Column("args", sa.JSON(), nullable=False),
        sa.Column("created", sa.BigInteger(), nullable=False),
        sa.Column("sent", sa.BigInteger(), nullable=True),
        sa.PrimaryKeyConstraint("message_id", name=op.f("pk_outbox")),
    )
    with op.batch_alter_table("outbox", schema=None) as batch_op:
        batch_op.create_index("ix_outbox_sent", ["sent", "message_id"], unique=False)

    op.create_table(
        "projects",
        sa.Column("project", sa.String(length=64), nullable=False),
        sa.Column("number", sa.BigInteger(), nullable=False),
        sa.Column("labels", sa.JSON(), nullable=False),
        sa.Column("created", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("project", name=op.f("pk_projects")),
    )
    op.create_table(
        "role_bindings",
        sa.Column("email", sa.String(length=256), nullable=False),
        sa.Column("project", sa.String(length=64), nullable=False),
        sa.Column("role", sa.String(length=32), nullable=False),
        sa.PrimaryKeyConstraint("email", "project", "role", name=op.f("pk_role_bindings")),
    )
    op.create_table(
        "state_changes",
        sa.Column(
            "seq",
            sa.BigInteger().with_variant(sa.Integer(), "sqlite"),
            autoincrement=True,
            nullable=False,
        ),
        sa.Column("event_id", sa.String(length=64), nullable=False),
        sa.Column("machine", sa.String(length=32), nullable=False),
        sa.Column("resource_key", sa.String(length=64), nullable=False),
        sa.Column("resource_name", sa.String(length=512), nullable=False),
        sa.Column("project", sa.String(length=64), nullable=False),
        sa.Column("version", sa.BigInteger(), nullable=False),
        sa.Column("event", sa.String(length=32), nullable=False),
        sa.Column("from_state", sa.String(length=32), nullable=False),
        sa.Column("to_state", sa.String(length=32), nullable=False),
        sa.Column("at", sa.BigInteger(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("actor", sa.String(length=256), nullable=False),
        sa.PrimaryKeyConstraint("seq", name=op.f("pk_state_changes")),
        sa.UniqueConstraint("event_id", name=op.f("uq_state_changes_event_id")),
    )
    with op.batch_alter_table("state_changes", schema=None) as batch_op:
        batch_op.create_index("ix_state_changes_project", ["project", "seq"], unique=False)
        batch_op.create_index("ix_state_changes_resource", ["resource_key", "version"], unique=True)

    op.create_table(
        "timers",
        sa.Column(
            "timer_id",
            sa.BigInteger().with_variant(sa.Integer(), "sqlite"),
            autoincrement=True,
            nullable=False,
        ),
        sa.Column("due", sa.BigInteger(), nullable=False),
        sa.Column("kind", sa.String(length=32), nullable=False),
        sa.Column("resource_key", sa.String(length=64), nullable=False),
        sa.Column("version", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("timer_id", name=op.f("pk_timers")),
    )
    with op.batch_alter_table("timers", schema=None) as batch_op:
        batch_op.create_index("ix_timers_due", ["due", "timer_id"], unique=False)
        batch_op.create_index("ix_timers_resource", ["resource_key"], unique=False)

    op.create_table(
        "tokens",
        sa.Column("token_hash", sa.String(length=64), nullable=False),
        sa.Column("email", sa.String(length=256), nullable=False),
        sa.Column("agent_id", sa.String(length=64), nullable=True),
        sa.Column("attempt_id", sa.String(length=64), nullable=True),
        sa.Column("created", sa.BigInteger(), nullable=False),
        sa.Column("expires", sa.BigInteger(), nullable=True),
        sa.Column("revoked", sa.BigInteger(), nullable=True),
        sa.PrimaryKeyConstraint("token_hash", name=op.f("pk_tokens")),
    )
    op.create_table(
        "usage_events",
        sa.Column(
            "seq",
            sa.BigInteger().with_variant(sa.Integer(), "sqlite"),
            autoincrement=True,
            nullable=False,
        ),
        sa.Column("event_id", sa.String(length=64), nullable=False),
        sa.Column("project", sa.String(length=64), nullable=False),
        sa.Column("resource_key", sa.String(length=64), nullable=False),
        sa.Column("resource_name", sa.String(length=512), nullable=False),
        sa.Column("resource_seq", sa.BigInteger(), nullable=False),
        sa.Column("zone", sa.String(length=64), nullable=False),
        sa.Column("accelerator_type", sa.String(length=64), nullable=False),
        sa.Column("usage_class", sa.String(length=16), nullable=False),
        sa.Column("state", sa.String(length=32), nullable=False),
        sa.Column("billable", sa.Boolean(), nullable=False),
        sa.Column("at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("seq", name=op.f("pk_usage_events")),
        sa.UniqueConstraint("event_id", name=op.f("uq_usage_events_event_id")),
        sa.UniqueConstraint(
            "resource_key", "resource_seq", name=op.f("uq_usage_events_resource_key_resource_seq")
        ),
    )
    with op.batch_alter_table("usage_events", schema=None) as batch_op:
        batch_op.create_index("ix_usage_events_project", ["project", "resource_key"], unique=False)

    op.create_table(
        "hosts",
        sa.Column("host_id", sa.String(length=64), nullable=False),
        sa.Column("node_key", sa.String(length=64), nullable=False),
        sa.Column("host_index", sa.Integer(), nullable=False),
        sa.Column("internal_ip", sa.String(length=64), nullable=False),
        sa.Column("external_ip", sa.String(length=64), nullable=False),
        sa.Column("state", sa.String(length=32), nullable=False),
        sa.Column("version", sa.BigInteger(), nullable=False),
        sa.Column("agent_id", sa.String(length=64), nullable=True),
        sa.Column("bind_address", sa.String(length=64), nullable=True),
        sa.Column("port_map", sa.JSON(), nullable=False),
        sa.ForeignKeyConstraint(["node_key"], ["nodes.node_key"], name=op.f("fk_hosts_node_key")),
        sa.PrimaryKeyConstraint("host_id", name=op.f("pk_hosts")),
        sa.UniqueConstraint("node_key", "host_index", name=op.f("uq_hosts_node_key_host_index")),
    )
    op.create_table(
        "jobs",
        sa.Column("job_key", sa.String(length=64), nullable=False),
        sa.Column("project", sa.String(length=64), nullable=False),
        sa.Column("zone", sa.String(length=64), nullable=False),
        sa.Column("job_id", sa.String(length=64), nullable=False),
        sa.Column("state", sa.String(length=32), nullable=False),
        sa.Column("state_reason", sa.Text(), nullable=False),
        sa.Column("version", sa.BigInteger(), nullable=False),
        sa.Column("spec", sa.JSON(), nullable=False),
        sa.Column("node_key", sa.String(length=64), nullable=False),
        sa.Column("node_id", sa.String(length=64), nullable=False),
        sa.Column("accelerator_type", sa.String(length=64), nullable=False),
        sa.Column("topology", sa.String(length=32), nullable=False),
        sa.Column("owns_node", sa.Boolean(), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("failures", sa.Integer(), nullable=False),
        sa.Column("preemptions", sa.Integer(), nullable=False),
        sa.Column("steps_done", sa.Integer(), nullable=False),
        sa.Column("latest", sa.JSON(), nullable=False),
        sa.Column("wall_seconds", sa.Float(), nullable=False),
        sa.Column("modelled_seconds", sa.Float(), nullable=False),
        sa.Column("estimate_model", sa.String(length=32), nullable=False),
        sa.Column("created", sa.BigInteger(), nullable=False),
        sa.Column("started", sa.BigInteger(), nullable=True),
        sa.Column("ended", sa.BigInteger(), nullable=True),
        sa.Column("error_code", sa.Integer(), nullable=True),
        sa.Column("error_message", sa.Text(), nullable=True),
        sa.ForeignKeyConstraint(["node_key"], ["nodes.node_key"], name=op.f("fk_jobs_node_key")),
        sa.PrimaryKeyConstraint("job_key", name=op.f("pk_jobs")),
        sa.UniqueConstraint("project", "zone", "job_id", name=op.f("uq_jobs_project_zone_job_id")),
    )
    with op.batch_alter_table("jobs", schema=None) as batch_op:
        batch_op.create_index("ix_jobs_node", ["node_key"], unique=False)
        batch_op.create_index("ix_jobs_state", ["state"], unique=False)

    op.create_table(
        "slices",
        sa.Column("slice_id", sa.String(length=64), nullable=False),
        sa.Column("node_key", sa.String(length=64), nullable=False),
        sa.Column("zone", sa.String(length=64), nullable=False),
        sa.Column("pod_id", sa.String(length=64), nullable=False),
        sa.Column("origin", sa.JSON(), nullable=False),
        sa.Column("shape", sa.JSON(), nullable=False),
        sa.Column("chips", sa.Text(), nullable=False),
        sa.Column("created", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(["node_key"], ["nodes.node_key"], name=op.f("fk_slices_node_key")),
        sa.PrimaryKeyConstraint("slice_id", name=op.f("pk_slices")),
        sa.UniqueConstraint("node_key", name=op.f("uq_slices_node_key")),
    )
    with op.batch_alter_table("slices", schema=None) as batch_op:
        batch_op.create_index("ix_slices_zone", ["zone"], unique=False)

    op.create_table(
        "attempts",
        sa.Column("attempt_id", sa.String(length=64), nullable=False),
        sa.Column("job_key", sa.String(length=64), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("state", sa.String(length=32), nullable=False),
        sa.Column("version", sa.BigInteger(), nullable=False),
        sa.Column("resume_step", sa.Integer(), nullable=False),
        sa.Column("resume_name", sa.String(length=512), nullable=True),
        sa.Column("outcome", sa.String(length=32), nullable=True),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("ring_key", sa.String(length=64), nullable=False),
        sa.Column("started", sa.BigInteger(), nullable=False),
        sa.Column("ended", sa.BigInteger(), nullable=True),
        sa.Column("started_real", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(["job_key"], ["jobs.job_key"], name=op.f("fk_attempts_job_key")),
        sa.PrimaryKeyConstraint("attempt_id", name=op.f("pk_attempts")),
        sa.UniqueConstraint("job_key", "attempt", name=op.f("uq_attempts_job_key_attempt")),
    )
    op.create_table(
        "checkpoints",
        sa.Column("job_key", sa.String(length=64), nullable=False),
        sa.Column("step", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("attempt", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("name", sa.String(length=512), nullable=False),
        sa.Column("sha256", sa.String(length=64), nullable=False),
        sa.Column("at", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(["job_key"], ["jobs.job_key"], name=op.f("fk_checkpoints_job_key")),
        sa.PrimaryKeyConstraint("job_key", "step", "attempt", name=op.f("pk_checkpoints")),
    )
    op.create_table(
        "job_metrics",
        sa.Column("job_key", sa.String(length=64), nullable=False),
        sa.Column("step", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("attempt", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("loss", sa.Float(), nullable=False),
        sa.Column("accuracy", sa.Float(), nullable=False),
        sa.Column("wall_seconds", sa.Float(), nullable=False),
        sa.Column("modelled_seconds", sa.Float(), nullable=False),
        sa.ForeignKeyConstraint(["job_key"], ["jobs.job_key"], name=op.f("fk_job_metrics_job_key")),
        sa.PrimaryKeyConstraint("job_key", "step", "attempt", name=op.f("pk_job_metrics")),
    )
    op.create_table(
        "replicas",
        sa.Column("replica_id", sa.String(length=64), nullable=False),
        sa.Column("attempt_id", sa.String(length=64), nullable=False),
        sa.Column("job_key", sa.String(length=64), nullable=False),
        sa.Column("rank", sa.Integer(), nullable=False),
        sa.Column("host_indices", sa.JSON(), nullable=False),
        sa.Column("agent_id", sa.String(length=64), nullable=False),
        sa.Column("state", sa.String(length=32), nullable=False),
        sa.Column("desired", sa.String(length=8), nullable=False),
        sa.Column("version", sa.BigInteger(), nullable=False),
        sa.Column("fence", sa.BigInteger(), nullable=False),
        sa.Column("token", sa.String(length=128), nullable=False),
        sa.Column("address", sa.String(length=128), nullable=True),
        sa.Column("outcome", sa.String(length=32), nullable=True),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("lease_until", sa.BigInteger(), nullable=True),
        sa.ForeignKeyConstraint(
            ["attempt_id"], ["attempts.attempt_id"], name=op.f("fk_replicas_attempt_id")
        ),
        sa.PrimaryKeyConstraint("replica_id", name=op.f("pk_replicas")),
        sa.UniqueConstraint("attempt_id", "rank", name=op.f("uq_replicas_attempt_id_rank")),
    )
    with op.batch_alter_table("replicas", schema=None) as batch_op:
        batch_op.create_index("ix_replicas_agent", ["agent_id", "state"], unique=False)

    op.create_table(
        "job_logs",
        sa.Column("replica_id", sa.String(length=64), nullable=False),
        sa.Column("seq", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("job_key", sa.String(length=64), nullable=False),
        sa.Column("at", sa.BigInteger(), nullable=False),
        sa.Column("line", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(
            ["replica_id"], ["replicas.replica_id"], name=op.f("fk_job_logs_replica_id")
        ),
        sa.PrimaryKeyConstraint("replica_id", "seq", name=op.f("pk_job_logs")),
    )
    with op.batch_alter_table("job_logs", schema=None) as batch_op:
        batch_op.create_index("ix_job_logs_job", ["job_key", "at"], unique=False)


def downgrade() -> None:
    with op.batch_alter_table("job_logs", schema=None) as batch_op:
        batch_op.drop_index("ix_job_logs_job")

    op.drop_table("job_logs")
    with op.batch_alter_table("replicas", schema=None) as batch_op:
        batch_op.drop_index("ix_replicas_agent")

    op.drop_table("replicas")
    op.drop_table("job_metrics")
    op.drop_table("checkpoints")
    op.drop_table("attempts")
    with op.batch_alter_table("slices", schema=None) as batch_op:
        batch_op.drop_index("ix_slices_zone")

    op.drop_table("slices")
    with op.batch_alter_table("jobs", schema=None) as batch_op:
        batch_op.drop_index("ix_jobs_state")
        batch_op.drop_index("ix_jobs_node")

    op.drop_table("jobs")
    op.drop_table("hosts")
    with op.batch_alter_table("usage_events", schema=None) as batch_op:
        batch_op.drop_index("ix_usage_events_project")

    op.drop_table("usage_events")
    op.drop_table("tokens")
    with op.batch_alter_table("timers", schema=None) as batch_op:
        batch_op.drop_index("ix_timers_resource")
        batch_op.drop_index("ix_timers_due")

    op.drop_table("timers")
    with op.batch_alter_table("state_changes", schema=None) as batch_op:
        batch_op.drop_index("ix_state_changes_resource")
        batch_op.drop_index("ix_state_changes_project")

    op.drop_table("state_changes")
    op.drop_table("role_bindings")
    op.drop_table("projects")
    with op.batch_alter_table("outbox", schema=None) as batch_op:
        batch_op.drop_index("ix_outbox_sent")

    op.drop_table("outbox")
    with op.batch_alter_table("operations", schema=None) as batch_op:
        batch_op.drop_index("ix_operations_target")
        batch_op.drop_index("ix_operations_place")

    op.drop_table("operations")
    with op.batch_alter_table("nodes", schema=None) as batch_op:
        batch_op.drop_index("ix_nodes_state")
        batch_op.drop_index("ix_nodes_place")

    op.drop_table("nodes")
    op.drop_table("leases")
    op.drop_table("clock")
    op.drop_table("agents")
