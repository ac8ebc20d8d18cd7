"""what replicas have taken of their machines"""

import sqlalchemy as sa
from alembic import op

revision = "0018"
down_revision = "0017"
branch_labels = None
depends_on = None

_COLUMNS = ("cpu_micros", "memory_kib_seconds")


def upgrade() -> None:
    for name in _COLUMNS:
        op.add_column("replicas", sa.Column(name, sa.BigInteger(), nullable=True))


def downgrade() -> None:
    for name in _COLUMNS:
        op.drop_column("replicas", name)
