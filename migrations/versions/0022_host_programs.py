"""what programs on hosts compiled and ran"""

import sqlalchemy as sa
from alembic import op

revision = "0022"
down_revision = "0021"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("hosts", sa.Column("programs", sa.JSON(), nullable=False, server_default="[]"))


def downgrade() -> None:
    op.drop_column("hosts", "programs")
