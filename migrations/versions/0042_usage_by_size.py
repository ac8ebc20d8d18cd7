"""usage events of buckets and disks, with their sizes"""

import json
import secrets

import sqlalchemy as sa
from alembic import op

from podyard.base.clock import OsClock

revision = "0042"
down_revision = "0041"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("usage_events", sa.Column("kind", sa.String(16), nullable=True))
    op.add_column("usage_events", sa.Column("bytes", sa.BigInteger(), nullable=True))
    op.add_column(
        "buckets", sa.Column("created_by", sa.String(256), nullable=False, server_default="")
    )
    op.add_column(
        "buckets", sa.Column("usage_key", sa.String(64), nullable=False, server_default="")
    )
    op.add_column(
        "buckets", sa.Column("usage_version", sa.BigInteger(), nullable=False, server_default="0")
    )
    op.create_table(
        "disks",
        sa.Column("disk_key", sa.String(64), primary_key=True),
        sa.Column("project", sa.String(64), nullable=False),
        sa.Column("zone", sa.String(64), nullable=False),
        sa.Column("name", sa.String(63), nullable=False),
        sa.Column("number", sa.BigInteger(), nullable=False),
        sa.Column("type", sa.String(32), nullable=False),
        sa.Column("size_gb", sa.BigInteger(), nullable=False),
        sa.Column("description", sa.Text(), nullable=False),
        sa.Column("labels", sa.JSON(), nullable=False),
        sa.Column("created", sa.BigInteger(), nullable=False),
        sa.Column("created_by", sa.String(256), nullable=False),
        sa.Column("usage_version", sa.BigInteger(), nullable=False),
        sa.UniqueConstraint("project", "zone", "name", name=op.f("uq_disks_project_zone_name")),
    )
    # Nothing has ever been charged by a price of disks: a card by which they are may say another
    # one.
    op.execute("DELETE FROM card_prices WHERE generation = 'disk' AND first_used IS NULL")
    _begin()


def downgrade() -> None:
    op.drop_table("disks")
    op.execute("DELETE FROM usage_events WHERE kind IS NOT NULL")
    for column in ("usage_version", "usage_key", "created_by"):
        op.drop_column("buckets", column)
    for column in ("bytes", "kind"):
        op.drop_column("usage_events", column)


def _begin() -> None:
    """The first usage event of each bucket that there is, at this moment: what it held before was
    never metered."""
    connection = op.get_bind()
    found = connection.execute(
        sa.text(
            "SELECT name, project, location, storage_class, labels, bytes FROM buckets "
            "ORDER BY name"
        )
    ).all()
    if not found:
        return
    mode, anchor = connection.execute(sa.text("SELECT mode, anchor_platform FROM clock")).one()
    at = max(anchor, OsClock().now().nanos) if mode == "system" else anchor
    for name, project, location, storage_class, labels, size in found:
        event = {
            "key": f"bucket-{secrets.token_hex(12)}",
            "event": f"event-{secrets.token_hex(12)}",
            "project": project,
            "name": name,
            "resource": f"projects/{project}/buckets/{name}",
            "place": location.lower(),
            "class": storage_class,
            "at": at,
            "labels": labels if isinstance(labels, str) else json.dumps(labels),
            "bytes": size,
            "true": True,
        }
        connection.execute(
            sa.text(
                "INSERT INTO usage_events (event_id, project, resource_key, resource_name, "
                "resource_seq, zone, "
                "accelerator_type, usage_class, state, billable, at, labels, kind, bytes) VALUES "
                "(:event, :project, "
                ":key, :resource, 1, :place, :class, 'on-demand', 'EXISTS', :true, :at, :labels, "
                "'bucket', :bytes)"
            ),
            event,
        )
        connection.execute(
            sa.text("UPDATE buckets SET usage_key = :key, usage_version = 1 WHERE name = :name"),
            event,
        )
