"""service accounts and the roles on them; log entries; longer names of roles"""

import hashlib

import sqlalchemy as sa
from alembic import op

revision = "0051"
down_revision = "0050"
branch_labels = None
depends_on = None


def upgrade() -> None:
    with op.batch_alter_table("role_bindings") as batch:
        batch.alter_column(
            "role", existing_type=sa.String(32), type_=sa.String(64), existing_nullable=False
        )
    op.create_index("ix_role_bindings_project", "role_bindings", ["project"])
    accounts = op.create_table(
        "service_accounts",
        sa.Column("email", sa.String(256), primary_key=True),
        sa.Column("project", sa.String(64), nullable=False),
        sa.Column("unique_id", sa.String(32), nullable=False, unique=True),
        sa.Column("display_name", sa.String(256), nullable=False),
        sa.Column("description", sa.Text(), nullable=False),
        sa.Column("created", sa.BigInteger(), nullable=False),
    )
    op.create_index("ix_service_accounts_project", "service_accounts", ["project", "email"])
    op.create_table(
        "account_bindings",
        sa.Column("account", sa.String(256), primary_key=True),
        sa.Column("email", sa.String(256), primary_key=True),
        sa.Column("role", sa.String(64), primary_key=True),
    )
    _keep_accounts(accounts)
    op.create_table(
        "log_entries",
        sa.Column(
            "seq",
            sa.BigInteger().with_variant(sa.Integer(), "sqlite"),
            primary_key=True,
            autoincrement=True,
        ),
        sa.Column("project", sa.String(64), nullable=False),
        sa.Column("log_id", sa.String(512), nullable=False),
        sa.Column("at", sa.BigInteger(), nullable=False),
        sa.Column("received", sa.BigInteger(), nullable=False),
        sa.Column("severity", sa.Integer(), nullable=False),
        sa.Column("insert_id", sa.String(256), nullable=False),
        sa.Column("resource_type", sa.String(128), nullable=False),
        sa.Column("resource_labels", sa.JSON(), nullable=False),
        sa.Column("labels", sa.JSON(), nullable=False),
        sa.Column("text", sa.Text()),
        sa.Column("payload", sa.JSON()),
    )
    op.create_index("ix_log_entries_at", "log_entries", ["project", "at", "seq"])
    op.create_index("ix_log_entries_log", "log_entries", ["project", "log_id"])


def _keep_accounts(accounts: sa.Table) -> None:
    """Accounts that have a key or a role were there before they had rows."""
    connection = op.get_bind()
    projects = {row[0] for row in connection.execute(sa.text("SELECT project FROM projects"))}
    emails = connection.execute(
        sa.text("SELECT email FROM service_account_keys UNION SELECT email FROM role_bindings")
    )
    for (email,) in emails.all():
        project, dot, rest = email.partition("@")[2].partition(".")
        if f"{dot}{rest}" != ".iam.gserviceaccount.com" or project not in projects:
            continue
        digest = int.from_bytes(hashlib.sha256(email.encode()).digest(), "big")
        connection.execute(
            accounts.insert().values(
                email=email,
                project=project,
                unique_id=f"1{digest % 10**20:020d}",
                display_name="",
                description="",
                created=0,
            )
        )


def downgrade() -> None:
    op.drop_table("log_entries")
    op.drop_table("account_bindings")
    op.drop_table("service_accounts")
    op.drop_index("ix_role_bindings_project", "role_bindings")
    with op.batch_alter_table("role_bindings") as batch:
        batch.alter_column(
            "role", existing_type=sa.String(64), type_=sa.String(32), existing_nullable=False
        )
