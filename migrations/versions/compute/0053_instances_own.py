"""labels, metadata and tags of single instances of a slice; images of disks"""

import sqlalchemy as sa
from alembic import op

revision = "0053"
down_revision = "0052"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("instances", sa.Column("own", sa.JSON(), nullable=False, server_default="{}"))
    op.add_column("disks", sa.Column("source", sa.String(512), nullable=False, server_default=""))


def downgrade() -> None:
    op.drop_column("disks", "source")
    op.drop_column("instances", "own")
