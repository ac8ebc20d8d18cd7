"""slices that were given back, for the maps of the past day"""

import sqlalchemy as sa
from alembic import op

revision = "0041"
down_revision = "0040"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "past_slices",
        sa.Column("slice_id", sa.String(64), primary_key=True),
        sa.Column("node_key", sa.String(64), sa.ForeignKey("nodes.node_key"), nullable=False),
        sa.Column("pod_id", sa.String(64), nullable=False),
        sa.Column("chips", sa.Text(), nullable=False),
        sa.Column("placed", sa.BigInteger(), nullable=False),
        sa.Column("released", sa.BigInteger(), nullable=False),
    )
    op.create_index("ix_past_slices_pod", "past_slices", ["pod_id", "released"])
    op.create_index("ix_past_slices_released", "past_slices", ["released"])


def downgrade() -> None:
    op.drop_table("past_slices")
