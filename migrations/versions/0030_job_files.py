"""the contents that jobs have pinned"""

import sqlalchemy as sa
from alembic import op

revision = "0030"
down_revision = "0029"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "job_files",
        sa.Column("job_key", sa.String(length=64), nullable=False),
        sa.Column("digest", sa.String(length=64), nullable=False),
        sa.ForeignKeyConstraint(["job_key"], ["jobs.job_key"]),
        sa.PrimaryKeyConstraint("job_key", "digest"),
    )
    op.create_index("ix_job_files_digest", "job_files", ["digest"])


def downgrade() -> None:
    op.drop_index("ix_job_files_digest", table_name="job_files")
    op.drop_table("job_files")
