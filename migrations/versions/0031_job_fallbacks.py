"""where else the node of a job may be"""

import sqlalchemy as sa
from alembic import op

revision = "0031"
down_revision = "0030"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("jobs", sa.Column("node_zone", sa.String(64), nullable=False, server_default=""))
    op.add_column(
        "jobs", sa.Column("fallbacks_used", sa.Integer(), nullable=False, server_default="0")
    )


def downgrade() -> None:
    op.drop_column("jobs", "fallbacks_used")
    op.drop_column("jobs", "node_zone")
