"""by which file the data folders of a yard are known"""

import sqlalchemy as sa
from alembic import op

revision = "0035"
down_revision = "0034"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("yard", sa.Column("folders_id", sa.String(64)))


def downgrade() -> None:
    op.drop_column("yard", "folders_id")
