"""checkpoints that other jobs start from"""

import sqlalchemy as sa
from alembic import op

revision = "0029"
down_revision = "0028"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("jobs", sa.Column("pinned_steps", sa.JSON(), nullable=False, server_default="[]"))


def downgrade() -> None:
    op.drop_column("jobs", "pinned_steps")
