"""queued resources, reservations, maintenance"""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def _node_columns() -> list[sa.Column[object]]:
    """Nodes that were made before have the defaults. Not in batches: those would create a new table
    and copy it, and slices, hosts and jobs refer to its rows."""
    return [
        sa.Column("queued_resource_key", sa.String(length=64), nullable=True),
        sa.Column("queued_resource", sa.String(length=256), server_default="", nullable=False),
        sa.Column("slice_index", sa.Integer(), server_default="0", nullable=False),
        sa.Column("slice_count", sa.Integer(), server_default="1", nullable=False),
        sa.Column("reservation_key", sa.String(length=64), nullable=True),
        sa.Column("health", sa.String(length=32), server_default="HEALTHY", nullable=False),
        sa.Column("health_description", sa.Text(), server_default="", nullable=False),
        sa.Column("symptoms", sa.JSON(), nullable=True),
        sa.Column("upcoming_maintenance", sa.JSON(), nullable=True),
        sa.Column("maintenance_workers", sa.JSON(), nullable=True),
        sa.Column("termination", sa.BigInteger(), nullable=True),
    ]


def upgrade() -> None:
    op.create_table(
        "queued_resources",
        sa.Column("queued_resource_key", sa.String(length=64), nullable=False),
        sa.Column("project", sa.String(length=64), nullable=False),
        sa.Column("zone", sa.String(length=64), nullable=False),
        sa.Column("queued_resource_id", sa.String(length=64), nullable=False),
        sa.Column("live_name", sa.String(length=256), nullable=True),
        sa.Column("state", sa.String(length=32), nullable=False),
        sa.Column("version", sa.BigInteger(), nullable=False),
        sa.Column("usage_class", sa.String(length=16), nullable=False),
        sa.Column("spec", sa.JSON(), nullable=False),
        sa.Column("created", sa.BigInteger(), nullable=False),
        sa.Column("valid_after", sa.BigInteger(), nullable=True),
        sa.Column("valid_until", sa.BigInteger(), nullable=True),
        sa.Column("activated", sa.BigInteger(), nullable=True),
        sa.Column("state_initiator", sa.String(length=16), nullable=False),
        sa.Column("error_code", sa.Integer(), nullable=True),
        sa.Column("error_message", sa.Text(), nullable=False),
        sa.Column("error_details", sa.JSON(), nullable=False),
        sa.Column("wait_reason", sa.Text(), nullable=False),
        sa.Column("pending_operation", sa.String(length=64), nullable=True),
        sa.Column("repaired", sa.JSON(), nullable=False),
        sa.PrimaryKeyConstraint("queued_resource_key", name=op.f("pk_queued_resources")),
        sa.UniqueConstraint("live_name", name=op.f("uq_queued_resources_live_name")),
    )
    op.create_index("ix_queued_resources_project", "queued_resources", ["project", "zone"])
    op.create_index("ix_queued_resources_state", "queued_resources", ["state"])
    op.create_table(
        "reservations",
        sa.Column("reservation_key", sa.String(length=64), nullable=False),
        sa.Column("project", sa.String(length=64), nullable=False),
        sa.Column("zone", sa.String(length=64), nullable=False),
        sa.Column("reservation_id", sa.String(length=64), nullable=False),
        sa.Column("live_name", sa.String(length=256), nullable=True),
        sa.Column("state", sa.String(length=32), nullable=False),
        sa.Column("version", sa.BigInteger(), nullable=False),
        sa.Column("generation", sa.String(length=16), nullable=False),
        sa.Column("size", sa.BigInteger(), nullable=False),
        sa.Column("units", sa.String(length=16), nullable=False),
        sa.Column("starts", sa.BigInteger(), nullable=True),
        sa.Column("ends", sa.BigInteger(), nullable=True),
        sa.Column("created", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("reservation_key", name=op.f("pk_reservations")),
        sa.UniqueConstraint("live_name", name=op.f("uq_reservations_live_name")),
    )
    op.create_index("ix_reservations_project", "reservations", ["project", "zone"])
    op.create_index("ix_reservations_state", "reservations", ["state"])
    for column in _node_columns():
        op.add_column("nodes", column)
    op.create_index("ix_nodes_queued_resource", "nodes", ["queued_resource_key"])


def downgrade() -> None:
    op.drop_index("ix_nodes_queued_resource", "nodes")
    for column in reversed(_node_columns()):
        op.drop_column("nodes", column.name)
    op.drop_table("reservations")
    op.drop_table("queued_resources")
