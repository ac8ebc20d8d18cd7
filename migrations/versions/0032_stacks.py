"""when the stacks of a job's processes were asked for"""

import sqlalchemy as sa
from alembic import op

revision = "0032"
down_revision = "0031"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("attempts", sa.Column("stacks_real", sa.BigInteger()))


def downgrade() -> None:
    op.drop_column("attempts", "stacks_real")
