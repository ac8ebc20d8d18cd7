"""labels of nodes as facts of usage events; who created nodes and jobs"""

import sqlalchemy as sa
from alembic import op

revision = "0015"
down_revision = "0014"
branch_labels = None
depends_on = None

_GIVEN = sa.text("labels IS NOT NULL")


def upgrade() -> None:
    op.add_column("usage_events", sa.Column("labels", sa.JSON(), nullable=True))
    op.add_column("usage_events", sa.Column("created_by", sa.String(length=256), nullable=True))
    for table in ("nodes", "jobs"):
        op.add_column(
            table, sa.Column("created_by", sa.String(length=256), nullable=False, server_default="")
        )
    _name_creators()
    _keep_labels()
    op.create_index(
        "ix_usage_events_labels",
        "usage_events",
        ["project", "resource_key"],
        unique=False,
        sqlite_where=_GIVEN,
        postgresql_where=_GIVEN,
    )


def downgrade() -> None:
    op.drop_index("ix_usage_events_labels", table_name="usage_events")
    for table in ("jobs", "nodes"):
        op.drop_column(table, "created_by")
    for column in ("created_by", "labels"):
        op.drop_column("usage_events", column)


def _name_creators() -> None:
    """Name the writer of the first line of its history; of a node that was made for a queued
    resource or a job, of that."""
    for table, key in (
        ("nodes", "coalesce(queued_resource_key, job_key, node_key)"),
        ("jobs", "job_key"),
    ):
        first = f"SELECT actor FROM state_changes WHERE version = 1 AND resource_key = {key}"
        op.execute(f"UPDATE {table} SET created_by = coalesce(({first}), '')")


def _keep_labels() -> None:
    """The labels that a node has now, or had when it went, count from its first event on: nothing
    better is known."""
    of_node = (
        "json_extract(n.spec, '$.labels')"
        if op.get_bind().dialect.name == "sqlite"
        else "n.spec -> 'labels'"
    )
    op.execute(
        "UPDATE usage_events SET "
        f"labels = coalesce((SELECT {of_node} FROM nodes n WHERE n.node_key = "
        f"usage_events.resource_key), '{{}}'), "
        "created_by = (SELECT nullif(n.created_by, '') FROM nodes n WHERE n.node_key = "
        "usage_events.resource_key) "
        "WHERE NOT EXISTS (SELECT 1 FROM usage_events e WHERE e.resource_key = "
        "usage_events.resource_key "
        "AND e.resource_seq < usage_events.resource_seq)"
    )
