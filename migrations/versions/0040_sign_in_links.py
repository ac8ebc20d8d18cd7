"""links that sign a browser in; quotas of projects"""

import sqlalchemy as sa
from alembic import op

revision = "0040"
down_revision = "0039"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "sign_in_links",
        sa.Column("code_hash", sa.String(64), primary_key=True),
        sa.Column("token", sa.Text(), nullable=False),
        sa.Column("expires", sa.BigInteger(), nullable=False),
    )
    op.add_column("projects", sa.Column("chips_max", sa.BigInteger(), nullable=True))


def downgrade() -> None:
    with op.batch_alter_table("projects") as batch:
        batch.drop_column("chips_max")
    op.drop_table("sign_in_links")
