"""nodes under notice, and what the end of a gang that yields counts as"""

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("nodes", sa.Column("reclaim_at", sa.BigInteger(), nullable=True))
    op.add_column("attempts", sa.Column("yield_outcome", sa.String(length=32), nullable=True))


def downgrade() -> None:
    op.drop_column("attempts", "yield_outcome")
    op.drop_column("nodes", "reclaim_at")
