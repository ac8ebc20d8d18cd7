"""the sweep that a job is one of"""

import sqlalchemy as sa
from alembic import op

revision = "0028"
down_revision = "0027"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("jobs", sa.Column("sweep_id", sa.String(64), nullable=False, server_default=""))
    op.add_column("jobs", sa.Column("sweep_index", sa.Integer()))
    op.create_index("ix_jobs_sweep", "jobs", ["sweep_id"])


def downgrade() -> None:
    op.drop_index("ix_jobs_sweep", "jobs")
    op.drop_column("jobs", "sweep_index")
    op.drop_column("jobs", "sweep_id")
