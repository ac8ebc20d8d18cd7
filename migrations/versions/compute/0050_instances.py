"""instances of Compute Engine, next to nodes"""

import sqlalchemy as sa
from alembic import op

revision = "0050"
down_revision = "0049"
branch_labels = None
depends_on = None


_KINDS = ["project", "zone", "state", "accelerator_type", "topology", "usage_class"]
_LIVES = sa.text("live_name IS NOT NULL")


def _index(columns: list[str]) -> None:
    op.drop_index("ix_nodes_kinds", "nodes")
    op.create_index(
        "ix_nodes_kinds", "nodes", columns, sqlite_where=_LIVES, postgresql_where=_LIVES
    )


def upgrade() -> None:
    op.add_column("nodes", sa.Column("road", sa.String(16), nullable=False, server_default="tpu"))
    _index([*_KINDS, "road"])
    op.create_table(
        "instances",
        sa.Column("instance_key", sa.String(64), primary_key=True),
        sa.Column("number", sa.BigInteger(), nullable=False),
        sa.Column("project", sa.String(64), nullable=False),
        sa.Column("zone", sa.String(64), nullable=False),
        sa.Column("name", sa.String(63), nullable=False),
        sa.Column("node_key", sa.String(64), sa.ForeignKey("nodes.node_key"), nullable=False),
        sa.Column("host_index", sa.Integer(), nullable=False),
        sa.Column("group_key", sa.String(64), nullable=True),
        sa.Column("created", sa.BigInteger(), nullable=False),
        sa.UniqueConstraint("node_key", "host_index"),
    )
    op.create_index("ix_instances_name", "instances", ["project", "zone", "name"])
    where = sa.text("group_key IS NOT NULL")
    op.create_index(
        "ix_instances_group",
        "instances",
        ["group_key"],
        sqlite_where=where,
        postgresql_where=where,
    )
    op.create_table(
        "instance_groups",
        sa.Column("group_key", sa.String(64), primary_key=True),
        sa.Column("number", sa.BigInteger(), nullable=False),
        sa.Column("project", sa.String(64), nullable=False),
        sa.Column("place", sa.String(64), nullable=False),
        sa.Column("zone", sa.String(64), nullable=False),
        sa.Column("name", sa.String(63), nullable=False),
        sa.Column("target_size", sa.Integer(), nullable=False),
        sa.Column("spec", sa.JSON(), nullable=False),
        sa.Column("created", sa.BigInteger(), nullable=False),
        sa.Column("created_by", sa.String(256), nullable=False),
        sa.UniqueConstraint("project", "place", "name"),
    )


def downgrade() -> None:
    op.drop_table("instance_groups")
    op.drop_table("instances")
    _index(_KINDS)
    op.drop_column("nodes", "road")
