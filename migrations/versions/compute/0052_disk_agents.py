"""the agents that have the contents of disks"""

import sqlalchemy as sa
from alembic import op

revision = "0052"
down_revision = "0051"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("disks", sa.Column("agent_id", sa.String(64)))


def downgrade() -> None:
    op.drop_column("disks", "agent_id")
