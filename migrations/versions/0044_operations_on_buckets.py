"""operations on buckets as usage events"""

import sqlalchemy as sa
from alembic import op

revision = "0044"
down_revision = "0043"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("usage_events", sa.Column("operations", sa.BigInteger(), nullable=True))


def downgrade() -> None:
    op.execute("DELETE FROM usage_events WHERE kind = 'operation'")
    op.drop_column("usage_events", "operations")
