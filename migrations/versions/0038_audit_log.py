"""the audit log; room for sealed secrets"""

import sqlalchemy as sa
from alembic import op

revision = "0038"
down_revision = "0035"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "audit_log",
        sa.Column(
            "seq",
            sa.BigInteger().with_variant(sa.Integer(), "sqlite"),
            primary_key=True,
            autoincrement=True,
        ),
        sa.Column("at", sa.BigInteger(), nullable=False),
        sa.Column("actor", sa.String(256), nullable=False),
        sa.Column("address", sa.String(64), nullable=False),
        sa.Column("by_door", sa.Boolean(), nullable=False),
        sa.Column("method", sa.String(16), nullable=False),
        sa.Column("path", sa.Text(), nullable=False),
        sa.Column("status", sa.Integer(), nullable=False),
        sa.Column("request_id", sa.String(64), nullable=False),
    )
    op.create_index("ix_audit_log_at", "audit_log", ["at"])
    op.create_index("ix_audit_log_actor", "audit_log", ["actor", "seq"])
    for table in ("budgets", "webhooks"):
        with op.batch_alter_table(table) as batch:
            batch.alter_column(
                "secret", existing_type=sa.String(64), type_=sa.Text(), existing_nullable=False
            )


def downgrade() -> None:
    for table in ("budgets", "webhooks"):
        with op.batch_alter_table(table) as batch:
            batch.alter_column(
                "secret", existing_type=sa.Text(), type_=sa.String(64), existing_nullable=False
            )
    op.drop_table("audit_log")
