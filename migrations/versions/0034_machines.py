"""agents of other machines: what they declare, their states, and one-time tokens to join with"""

from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0034"
down_revision = "0032"
branch_labels = None
depends_on = None


def _columns() -> tuple[sa.Column[Any], ...]:
    return (
        sa.Column("state", sa.String(16), nullable=False, server_default="READY"),
        sa.Column("version", sa.Integer(), nullable=False, server_default="1"),
        sa.Column("release", sa.String(64), nullable=False, server_default=""),
        sa.Column("host_name", sa.String(256), nullable=False, server_default=""),
        sa.Column("place", sa.String(64), nullable=False, server_default=""),
        sa.Column("cores", sa.Integer(), nullable=False, server_default="0"),
        sa.Column("memory_bytes", sa.BigInteger(), nullable=False, server_default="0"),
        sa.Column("kernels", sa.String(256), nullable=False, server_default=""),
        sa.Column("runtimes", sa.JSON(), nullable=False, server_default="[]"),
        sa.Column("labels", sa.JSON(), nullable=False, server_default="{}"),
        sa.Column("clock_offset_millis", sa.BigInteger(), nullable=False, server_default="0"),
        sa.Column("joined", sa.BigInteger()),
        sa.Column("joined_by", sa.String(256), nullable=False, server_default=""),
        sa.Column("problem", sa.Text(), nullable=False, server_default=""),
    )


def upgrade() -> None:
    for column in _columns():
        op.add_column("agents", column)
    op.create_table(
        "join_tokens",
        sa.Column("token_hash", sa.String(64), primary_key=True),
        sa.Column("created", sa.BigInteger(), nullable=False),
        sa.Column("created_by", sa.String(256), nullable=False),
        sa.Column("expires", sa.BigInteger(), nullable=False),
        sa.Column("used", sa.BigInteger()),
        sa.Column("used_by", sa.String(64)),
    )


def downgrade() -> None:
    op.drop_table("join_tokens")
    with op.batch_alter_table("agents") as batch:
        for column in reversed(_columns()):
            batch.drop_column(column.name)
