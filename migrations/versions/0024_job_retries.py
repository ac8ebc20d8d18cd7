"""when a job whose attempt has failed may try again"""

import sqlalchemy as sa
from alembic import op

revision = "0024"
down_revision = "0023"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("jobs", sa.Column("retry_at", sa.BigInteger()))


def downgrade() -> None:
    op.drop_column("jobs", "retry_at")
