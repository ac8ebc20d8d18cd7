"""what keeps a host apart from its machine"""

import sqlalchemy as sa
from alembic import op

revision = "0021"
down_revision = "0020"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("hosts", sa.Column("isolation", sa.Text(), nullable=False, server_default=""))


def downgrade() -> None:
    op.drop_column("hosts", "isolation")
