"""exports that are made in the background"""

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "exports",
        sa.Column("export_id", sa.String(length=64), nullable=False),
        sa.Column("project", sa.String(length=64), nullable=False),
        sa.Column("format", sa.String(length=16), nullable=False),
        sa.Column("from_month", sa.String(length=7), nullable=False),
        sa.Column("until_month", sa.String(length=7), nullable=False),
        sa.Column("granularity", sa.String(length=8), nullable=False),
        sa.Column("by_job", sa.Boolean(), nullable=False),
        sa.Column("created", sa.BigInteger(), nullable=False),
        sa.Column("ended", sa.BigInteger(), nullable=True),
        sa.Column("rows_done", sa.BigInteger(), nullable=False),
        sa.Column("rows_all", sa.BigInteger(), nullable=True),
        sa.Column("tries", sa.Integer(), nullable=False),
        sa.Column("fence", sa.BigInteger(), nullable=False),
        sa.Column("next_try", sa.BigInteger(), nullable=True),
        sa.Column("error_code", sa.Integer(), nullable=True),
        sa.Column("error_message", sa.Text(), nullable=True),
        sa.Column("object_name", sa.String(length=256), nullable=True),
        sa.Column("bytes", sa.BigInteger(), nullable=True),
        sa.Column("sha256", sa.String(length=64), nullable=True),
        sa.PrimaryKeyConstraint("export_id", name=op.f("pk_exports")),
    )
    op.create_index("ix_exports_next_try", "exports", ["next_try"])
    op.create_index("ix_exports_project", "exports", ["project", "created", "export_id"])


def downgrade() -> None:
    op.drop_table("exports")
