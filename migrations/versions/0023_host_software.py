"""the software that a host's runtime version has on its machine"""

import sqlalchemy as sa
from alembic import op

revision = "0023"
down_revision = "0022"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("hosts", sa.Column("software", sa.Text(), nullable=False, server_default=""))


def downgrade() -> None:
    op.drop_column("hosts", "software")
