"""credit notes"""

import sqlalchemy as sa
from alembic import op

revision = "0019"
down_revision = "0018"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "credit_notes",
        sa.Column("number", sa.String(length=96), nullable=False),
        sa.Column("project", sa.String(length=64), nullable=False),
        sa.Column("subject", sa.String(length=16), nullable=False),
        sa.Column("subject_id", sa.String(length=64), nullable=False),
        sa.Column("line", sa.String(length=256), nullable=False),
        sa.Column("currency", sa.String(length=3), nullable=False),
        sa.Column("decimals", sa.Integer(), nullable=False),
        sa.Column("minor", sa.BigInteger(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("created_by", sa.String(length=256), nullable=False),
        sa.Column("created", sa.BigInteger(), nullable=False),
        sa.Column("ends_second", sa.BigInteger(), nullable=True),
        sa.Column("ends_month", sa.String(length=7), nullable=True),
        sa.PrimaryKeyConstraint("number", name=op.f("pk_credit_notes")),
    )
    op.create_index(
        "ix_credit_notes_project", "credit_notes", ["project", "created", "number"], unique=False
    )


def downgrade() -> None:
    op.drop_table("credit_notes")
