"""modules of users' programs in jobs"""

import sqlalchemy as sa
from alembic import op

revision = "0048"
down_revision = "0047"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "job_runs",
        sa.Column("job_key", sa.String(64), sa.ForeignKey("jobs.job_key"), primary_key=True),
        sa.Column("attempt", sa.Integer(), primary_key=True, autoincrement=False),
        sa.Column("run", sa.JSON(), nullable=False),
    )


def downgrade() -> None:
    op.drop_table("job_runs")
