"""materialised hosts"""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column(
        "hosts",
        sa.Column("metadata_address", sa.String(length=64), server_default="", nullable=False),
    )
    op.add_column(
        "hosts", sa.Column("generation", sa.Integer(), server_default="0", nullable=False)
    )
    op.add_column(
        "hosts", sa.Column("asked", sa.Boolean(), server_default=sa.false(), nullable=False)
    )
    op.add_column("hosts", sa.Column("ready_since", sa.BigInteger(), nullable=True))
    op.add_column("hosts", sa.Column("tried", sa.BigInteger(), nullable=True))
    op.add_column("hosts", sa.Column("lease_until", sa.BigInteger(), nullable=True))
    op.add_column("hosts", sa.Column("problem", sa.Text(), server_default="", nullable=False))
    op.add_column("hosts", sa.Column("ssh_host_key", sa.Text(), server_default="", nullable=False))
    op.add_column(
        "hosts", sa.Column("guest_attributes", sa.JSON(), server_default="{}", nullable=False)
    )
    op.add_column("hosts", sa.Column("scripts", sa.JSON(), server_default="{}", nullable=False))
    op.create_index("ix_hosts_agent", "hosts", ["agent_id", "state"], unique=False)


def downgrade() -> None:
    op.drop_index("ix_hosts_agent", table_name="hosts")
    for name in (
        "scripts", "guest_attributes", "ssh_host_key", "problem", "lease_until", "tried",
        "ready_since", "asked",
        "generation", "metadata_address",
    ):  # fmt: skip
        op.drop_column("hosts", name)
