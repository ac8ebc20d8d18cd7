"""since when disks and buckets are charged, next to the prices that issued invoices went by"""

import sqlalchemy as sa
from alembic import op

revision = "0043"
down_revision = "0042"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "charge_starts",
        sa.Column("kind", sa.String(16), primary_key=True),
        sa.Column("start", sa.BigInteger(), nullable=False),
    )
    # The first price that was kept begins where its kind began to be charged, or later.
    op.execute(
        "INSERT INTO charge_starts (kind, start) SELECT CASE generation WHEN 'disk' THEN 'disk' "
        "ELSE 'bucket' END, "
        "MIN(effective_from) FROM card_prices WHERE generation IN ('disk', 'object') AND "
        "effective_from IS NOT NULL "
        "GROUP BY generation"
    )


def downgrade() -> None:
    op.drop_table("charge_starts")
