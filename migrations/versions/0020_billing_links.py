"""accounts that pay for several projects"""

import sqlalchemy as sa
from alembic import op

revision = "0020"
down_revision = "0019"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "billing_links",
        sa.Column("project", sa.String(length=64), nullable=False),
        sa.Column("from_second", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("account", sa.String(length=64), nullable=False),
        sa.PrimaryKeyConstraint("project", "from_second", name=op.f("pk_billing_links")),
    )
    op.create_index("ix_billing_links_account", "billing_links", ["account"], unique=False)


def downgrade() -> None:
    op.drop_table("billing_links")
