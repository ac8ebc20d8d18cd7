"""whether the host VMs of a node are charged apart from it"""

import sqlalchemy as sa
from alembic import op

revision = "0016"
down_revision = "0015"
branch_labels = None
depends_on = None


def upgrade() -> None:
    # NULL in events of before: those nodes include their hosts.
    op.add_column("usage_events", sa.Column("bills_hosts", sa.Boolean(), nullable=True))


def downgrade() -> None:
    op.drop_column("usage_events", "bills_hosts")
