"""webhook endpoints of projects"""

import sqlalchemy as sa
from alembic import op

revision = "0046"
down_revision = "0045"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "webhook_endpoints",
        sa.Column("endpoint_key", sa.String(64), primary_key=True),
        sa.Column("project", sa.String(64), nullable=False),
        sa.Column("name", sa.String(64), nullable=False),
        sa.Column("url", sa.Text(), nullable=False),
        sa.Column("events", sa.JSON(), nullable=False),
        sa.Column("secret", sa.Text(), nullable=False),
        sa.Column("created", sa.BigInteger(), nullable=False),
        sa.Column("created_by", sa.String(256), nullable=False),
        sa.Column("first_seq", sa.BigInteger(), nullable=False),
        sa.Column("looked_seq", sa.BigInteger(), nullable=False),
        sa.UniqueConstraint("project", "name"),
    )
    op.add_column("webhooks", sa.Column("endpoint_key", sa.String(64), nullable=True))
    op.add_column("webhooks", sa.Column("event", sa.String(64), nullable=True))
    op.add_column("webhooks", sa.Column("created", sa.BigInteger(), nullable=True))
    op.add_column(
        "webhooks", sa.Column("delivered", sa.Boolean(), nullable=False, server_default=sa.false())
    )
    op.create_index("ix_webhooks_endpoint", "webhooks", ["endpoint_key", "event_id"], unique=True)
    op.create_index("ix_webhooks_created", "webhooks", ["endpoint_key", "created"])


def downgrade() -> None:
    op.execute("DELETE FROM webhooks WHERE endpoint_key IS NOT NULL")
    op.drop_index("ix_webhooks_created", "webhooks")
    op.drop_index("ix_webhooks_endpoint", "webhooks")
    for column in ("delivered", "created", "event", "endpoint_key"):
        op.drop_column("webhooks", column)
    op.drop_table("webhook_endpoints")
