"""the version of the API that began an operation"""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("operations", sa.Column("api_version", sa.String(length=16), nullable=True))


def downgrade() -> None:
    op.drop_column("operations", "api_version")
