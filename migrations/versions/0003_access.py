"""service-account keys, API keys, request ids"""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "service_account_keys",
        sa.Column("key_id", sa.String(length=64), nullable=False),
        sa.Column("project", sa.String(length=64), nullable=False),
        sa.Column("email", sa.String(length=256), nullable=False),
        sa.Column("public_key", sa.Text(), nullable=False),
        sa.Column("token_uri", sa.String(length=512), nullable=False),
        sa.Column("created", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("key_id", name=op.f("pk_service_account_keys")),
    )
    op.create_index("ix_service_account_keys_email", "service_account_keys", ["project", "email"])
    op.create_table(
        "api_keys",
        sa.Column("key_id", sa.String(length=64), nullable=False),
        sa.Column("key_hash", sa.String(length=64), nullable=False),
        sa.Column("project", sa.String(length=64), nullable=False),
        sa.Column("email", sa.String(length=256), nullable=False),
        sa.Column("created", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("key_id", name=op.f("pk_api_keys")),
        sa.UniqueConstraint("key_hash", name=op.f("uq_api_keys_key_hash")),
    )
    op.create_index("ix_api_keys_project", "api_keys", ["project"])
    op.create_table(
        "request_ids",
        sa.Column("project", sa.String(length=64), nullable=False),
        sa.Column("method", sa.String(length=64), nullable=False),
        sa.Column("request_id", sa.String(length=36), nullable=False),
        sa.Column("body_sha256", sa.String(length=64), nullable=False),
        sa.Column("operation_id", sa.String(length=64), nullable=True),
        sa.Column("created", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("project", "method", "request_id", name=op.f("pk_request_ids")),
    )
    op.create_index("ix_request_ids_created", "request_ids", ["created"])
    op.add_column("tokens", sa.Column("key_id", sa.String(length=64), nullable=True))
    op.create_index("ix_tokens_key", "tokens", ["key_id"])
    op.create_index("ix_tokens_expires", "tokens", ["expires"])


def downgrade() -> None:
    op.drop_index("ix_tokens_expires", "tokens")
    op.drop_index("ix_tokens_key", "tokens")
    # Tokens of keys outlive neither their key nor the means to revoke them with it.
    op.execute("DELETE FROM tokens WHERE key_id IS NOT NULL")
    op.drop_column("tokens", "key_id")
    op.drop_table("request_ids")
    op.drop_table("api_keys")
    op.drop_table("service_account_keys")
