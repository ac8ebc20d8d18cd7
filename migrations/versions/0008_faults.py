"""fault rules and what they break; the node with the last address is found by an index"""

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column(
        "clock", sa.Column("fault_rules", sa.Integer(), server_default="0", nullable=False)
    )
    op.add_column("nodes", sa.Column("last_pod", sa.String(length=64), nullable=True))
    op.add_column("operations", sa.Column("lost", sa.Boolean(), nullable=True))
    op.add_column("queued_resources", sa.Column("late_until", sa.BigInteger(), nullable=True))
    op.create_index("ix_nodes_first_address", "nodes", ["first_address"])
    op.create_table(
        "faults",
        sa.Column(
            "seq",
            sa.BigInteger().with_variant(sa.Integer(), "sqlite"),
            autoincrement=True,
            nullable=False,
        ),
        sa.Column("fault_id", sa.String(length=64), nullable=False),
        sa.Column("effect", sa.String(length=32), nullable=False),
        sa.Column("match", sa.JSON(), nullable=False),
        sa.Column("probability", sa.Float(), nullable=False),
        sa.Column("count", sa.BigInteger(), nullable=True),
        sa.Column("starts", sa.BigInteger(), nullable=False),
        sa.Column("ends", sa.BigInteger(), nullable=True),
        sa.Column("every_seconds", sa.Float(), nullable=True),
        sa.Column("parameters", sa.JSON(), nullable=False),
        sa.Column("created", sa.BigInteger(), nullable=False),
        sa.Column("fired", sa.BigInteger(), nullable=False),
        sa.Column("over", sa.Boolean(), nullable=False),
        sa.PrimaryKeyConstraint("seq", name=op.f("pk_faults")),
        sa.UniqueConstraint("fault_id", name=op.f("uq_faults_fault_id")),
    )
    op.create_table(
        "broken_chips",
        sa.Column("break_id", sa.String(length=64), nullable=False),
        sa.Column("fault_id", sa.String(length=64), nullable=False),
        sa.Column("pod_id", sa.String(length=64), nullable=False),
        sa.Column("chips", sa.Text(), nullable=False),
        sa.Column("until", sa.BigInteger(), nullable=True),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("node_key", sa.String(length=64), nullable=False),
        sa.Column("node_version", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("break_id", name=op.f("pk_broken_chips")),
    )
    op.create_index("ix_broken_chips_pod", "broken_chips", ["pod_id"])
    op.create_index("ix_broken_chips_fault", "broken_chips", ["fault_id"])
    op.create_table(
        "node_faults",
        sa.Column("node_fault_id", sa.String(length=64), nullable=False),
        sa.Column("fault_id", sa.String(length=64), nullable=False),
        sa.Column("node_key", sa.String(length=64), nullable=False),
        sa.Column("node_version", sa.BigInteger(), nullable=False),
        sa.Column("kind", sa.String(length=16), nullable=False),
        sa.Column("at", sa.BigInteger(), nullable=True),
        sa.Column("factor", sa.Float(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("node_fault_id", name=op.f("pk_node_faults")),
    )
    op.create_index("ix_node_faults_node", "node_faults", ["node_key"])
    op.create_index("ix_node_faults_fault", "node_faults", ["fault_id"])


def downgrade() -> None:
    op.drop_table("node_faults")
    op.drop_table("broken_chips")
    op.drop_table("faults")
    op.drop_index("ix_nodes_first_address", "nodes")
    op.drop_column("queued_resources", "late_until")
    op.drop_column("operations", "lost")
    op.drop_column("nodes", "last_pod")
    op.drop_column("clock", "fault_rules")
