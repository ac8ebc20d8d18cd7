"""the slices of a job after its first"""

import sqlalchemy as sa
from alembic import op

revision = "0045"
down_revision = "0044"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "job_slices",
        sa.Column("job_key", sa.String(64), sa.ForeignKey("jobs.job_key"), primary_key=True),
        sa.Column("slice_index", sa.Integer(), primary_key=True, autoincrement=False),
        sa.Column("node_key", sa.String(64), sa.ForeignKey("nodes.node_key"), nullable=False),
    )
    op.create_index("ix_job_slices_node", "job_slices", ["node_key"])
    op.create_index("ix_nodes_job", "nodes", ["job_key"])


def downgrade() -> None:
    op.drop_index("ix_nodes_job", "nodes")
    op.drop_table("job_slices")
