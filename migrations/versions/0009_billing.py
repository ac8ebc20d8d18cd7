"""billing: accounts, rates, commitments, credits, ledger, invoices, budgets; who used anything has
an account"""

import sqlalchemy as sa
from alembic import op

from podyard.base.clock import PlatformTime

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None

TABLES = (
    "adjustments",
    "billing_accounts",
    "budget_events",
    "budgets",
    "commitments",
    "credits",
    "exchange_rates",
    "invoices",
    "ledger_entries",
    "ledger_transactions",
    "price_versions_used",
    "webhooks",
)


def upgrade() -> None:
    _tables()
    _accounts()


def _tables() -> None:
    op.create_table(
        "adjustments",
        sa.Column("project", sa.String(length=64), nullable=False),
        sa.Column("corrects_month", sa.String(length=7), nullable=False),
        sa.Column("booked_month", sa.String(length=7), nullable=False),
        sa.Column("minor", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint(
            "project", "corrects_month", "booked_month", name=op.f("pk_adjustments")
        ),
    )
    op.create_table(
        "billing_accounts",
        sa.Column("project", sa.String(length=64), nullable=False),
        sa.Column("time_zone", sa.String(length=64), nullable=False),
        sa.Column("currency", sa.String(length=3), nullable=False),
        sa.Column("decimals", sa.Integer(), nullable=False),
        sa.Column("tax", sa.Text(), nullable=False),
        sa.Column("grace_hours", sa.Integer(), nullable=False),
        sa.Column("first_month", sa.String(length=7), nullable=False),
        sa.Column("next_month", sa.String(length=7), nullable=False),
        sa.Column("held_because", sa.Text(), nullable=False),
        sa.Column("created", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("project", name=op.f("pk_billing_accounts")),
    )
    op.create_table(
        "budget_events",
        sa.Column(
            "seq",
            sa.BigInteger().with_variant(sa.Integer(), "sqlite"),
            autoincrement=True,
            nullable=False,
        ),
        sa.Column("event_id", sa.String(length=64), nullable=False),
        sa.Column("budget_key", sa.String(length=64), nullable=False),
        sa.Column("project", sa.String(length=64), nullable=False),
        sa.Column("name", sa.String(length=64), nullable=False),
        sa.Column("period", sa.String(length=7), nullable=False),
        sa.Column("kind", sa.String(length=16), nullable=False),
        sa.Column("detail", sa.String(length=256), nullable=False),
        sa.Column("at", sa.BigInteger(), nullable=False),
        sa.Column("cost", sa.Text(), nullable=False),
        sa.Column("amount", sa.Text(), nullable=False),
        sa.Column("text", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("seq", name=op.f("pk_budget_events")),
        sa.UniqueConstraint(
            "budget_key",
            "period",
            "kind",
            "detail",
            name=op.f("uq_budget_events_budget_key_period_kind_detail"),
        ),
        sa.UniqueConstraint("event_id", name=op.f("uq_budget_events_event_id")),
    )
    op.create_index("ix_budget_events_project", "budget_events", ["project", "seq"])
    op.create_table(
        "budgets",
        sa.Column("budget_key", sa.String(length=64), nullable=False),
        sa.Column("project", sa.String(length=64), nullable=False),
        sa.Column("name", sa.String(length=64), nullable=False),
        sa.Column("scope", sa.String(length=16), nullable=False),
        sa.Column("scope_value", sa.String(length=512), nullable=False),
        sa.Column("amount", sa.Text(), nullable=False),
        sa.Column("period", sa.String(length=8), nullable=False),
        sa.Column("thresholds", sa.JSON(), nullable=False),
        sa.Column("forecasts", sa.JSON(), nullable=False),
        sa.Column("actions", sa.JSON(), nullable=False),
        sa.Column("secret", sa.String(length=64), nullable=False),
        sa.Column("created", sa.BigInteger(), nullable=False),
        sa.Column("looked_seq", sa.BigInteger(), nullable=False),
        sa.Column("reached_at", sa.BigInteger(), nullable=True),
        sa.Column("notice_for", sa.BigInteger(), nullable=True),
        sa.PrimaryKeyConstraint("budget_key", name=op.f("pk_budgets")),
        sa.UniqueConstraint("project", "name", name=op.f("uq_budgets_project_name")),
    )
    op.create_table(
        "commitments",
        sa.Column("commitment_id", sa.String(length=64), nullable=False),
        sa.Column("project", sa.String(length=64), nullable=False),
        sa.Column("sku_id", sa.String(length=128), nullable=False),
        sa.Column("unit", sa.String(length=16), nullable=False),
        sa.Column("quantity", sa.BigInteger(), nullable=False),
        sa.Column("years", sa.Integer(), nullable=False),
        sa.Column("nanos", sa.BigInteger(), nullable=False),
        sa.Column("version_id", sa.String(length=256), nullable=False),
        sa.Column("source", sa.Text(), nullable=False),
        sa.Column("verified", sa.Boolean(), nullable=False),
        sa.Column("upfront", sa.Text(), nullable=True),
        sa.Column("start_second", sa.BigInteger(), nullable=False),
        sa.Column("end_second", sa.BigInteger(), nullable=False),
        sa.Column("created", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("commitment_id", name=op.f("pk_commitments")),
    )
    op.create_index(
        "ix_commitments_project", "commitments", ["project", "start_second", "commitment_id"]
    )
    op.create_table(
        "credits",
        sa.Column("credit_id", sa.String(length=64), nullable=False),
        sa.Column("project", sa.String(length=64), nullable=False),
        sa.Column("amount", sa.Text(), nullable=False),
        sa.Column("from_month", sa.String(length=7), nullable=False),
        sa.Column("until_month", sa.String(length=7), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("created", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("credit_id", name=op.f("pk_credits")),
    )
    op.create_index("ix_credits_project", "credits", ["project", "credit_id"])
    op.create_table(
        "exchange_rates",
        sa.Column("project", sa.String(length=64), nullable=False),
        sa.Column("month", sa.String(length=7), nullable=False),
        sa.Column("rate", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("project", "month", name=op.f("pk_exchange_rates")),
    )
    op.create_table(
        "invoices",
        sa.Column("project", sa.String(length=64), nullable=False),
        sa.Column("month", sa.String(length=7), nullable=False),
        sa.Column("number", sa.String(length=96), nullable=False),
        sa.Column("document", sa.LargeBinary(), nullable=False),
        sa.Column("sha256", sa.String(length=64), nullable=False),
        sa.Column("currency", sa.String(length=3), nullable=False),
        sa.Column("decimals", sa.Integer(), nullable=False),
        sa.Column("total", sa.BigInteger(), nullable=False),
        sa.Column("re_rated", sa.BigInteger(), nullable=False),
        sa.Column("as_of", sa.BigInteger(), nullable=False),
        sa.Column("last_event_seq", sa.BigInteger(), nullable=False),
        sa.Column("issued_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("project", "month", name=op.f("pk_invoices")),
        sa.UniqueConstraint("number", name=op.f("uq_invoices_number")),
    )
    op.create_table(
        "ledger_entries",
        sa.Column("source_id", sa.String(length=192), nullable=False),
        sa.Column("position", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("account", sa.String(length=256), nullable=False),
        sa.Column("currency", sa.String(length=3), nullable=False),
        sa.Column("amount", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("source_id", "position", name=op.f("pk_ledger_entries")),
    )
    op.create_table(
        "ledger_transactions",
        sa.Column(
            "seq",
            sa.BigInteger().with_variant(sa.Integer(), "sqlite"),
            autoincrement=True,
            nullable=False,
        ),
        sa.Column("source_id", sa.String(length=192), nullable=False),
        sa.Column("project", sa.String(length=64), nullable=False),
        sa.Column("month", sa.String(length=7), nullable=False),
        sa.Column("booked", sa.BigInteger(), nullable=False),
        sa.Column("text", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("seq", name=op.f("pk_ledger_transactions")),
        sa.UniqueConstraint("source_id", name=op.f("uq_ledger_transactions_source_id")),
    )
    op.create_index("ix_ledger_transactions_project", "ledger_transactions", ["project", "seq"])
    op.create_table(
        "price_versions_used",
        sa.Column("version_id", sa.String(length=256), nullable=False),
        sa.Column("sku_id", sa.String(length=128), nullable=False),
        sa.Column("unit", sa.String(length=16), nullable=False),
        sa.Column("nanos", sa.BigInteger(), nullable=False),
        sa.Column("first_used", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("version_id", name=op.f("pk_price_versions_used")),
    )
    op.create_table(
        "webhooks",
        sa.Column("webhook_id", sa.String(length=64), nullable=False),
        sa.Column("event_id", sa.String(length=64), nullable=False),
        sa.Column("project", sa.String(length=64), nullable=False),
        sa.Column("url", sa.Text(), nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.Column("secret", sa.String(length=64), nullable=False),
        sa.Column("tries", sa.Integer(), nullable=False),
        sa.Column("fence", sa.BigInteger(), nullable=False),
        sa.Column("next_try", sa.BigInteger(), nullable=True),
        sa.Column("outcome", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("webhook_id", name=op.f("pk_webhooks")),
    )
    op.create_index("ix_webhooks_event", "webhooks", ["event_id"])
    op.create_index("ix_webhooks_next_try", "webhooks", ["next_try"])


def _accounts() -> None:
    """An account, in UTC, for every project that has used something. Its timer is due at once: the
    loop then closes the months that are over, one after the other."""
    connection = op.get_bind()
    found = connection.execute(
        sa.text(
            "SELECT project, MIN(at), MAX(at) FROM usage_events GROUP BY project ORDER BY project"
        )
    ).all()
    for project, first, last in found:
        account = {"project": project, "month": PlatformTime(first).rfc3339()[:7], "at": last}
        connection.execute(
            sa.text(
                "INSERT INTO billing_accounts "
                "(project, time_zone, currency, decimals, tax, grace_hours, first_month, "
                "next_month, held_because, "
                "created) VALUES (:project, 'UTC', 'USD', 2, '0', 0, :month, :month, '', :at)"
            ),
            account,
        )
        connection.execute(
            sa.text(
                "INSERT INTO timers (due, kind, resource_key, version) VALUES (:at, "
                "'invoice.close', :project, 0)"
            ),
            account,
        )


def downgrade() -> None:
    op.execute("DELETE FROM timers WHERE kind LIKE 'invoice.%' OR kind LIKE 'budget.%'")
    for table in TABLES:
        op.drop_table(table)
