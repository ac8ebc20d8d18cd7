"""Usage events, one row per change of a billable resource's state in the unit of the change; and
what billing keeps: accounts, rates, commitments, credits, the ledger, issued invoices, budgets and
what they have done.

Exact amounts are the decimal text of their parts (base/money): a month of a large slice does not
fit into 64 bits.
"""

from __future__ import annotations

from sqlalchemy import (
    JSON,
    BigInteger,
    Boolean,
    Column,
    Dialect,
    Index,
    Integer,
    LargeBinary,
    String,
    Table,
    Text,
    UniqueConstraint,
    false,
    text,
)
from sqlalchemy.types import TypeDecorator
from typing_extensions import override

from podyard.base.money import Amount
from podyard.db.tables.base import metadata
from podyard.db.tables.types import Counter, Json, PlatformTimeColumn, RealTimeColumn


class AmountColumn(TypeDecorator[Amount]):
    """An exact amount, as the decimal text of its parts."""

    impl = Text
    cache_ok = True

    @override
    def process_bind_param(self, value: Amount | None, dialect: Dialect) -> str | None:
        return None if value is None else str(value.parts)

    @override
    def process_result_value(self, value: str | None, dialect: Dialect) -> Amount | None:
        return None if value is None else Amount(int(value))


usage_events = Table(
    "usage_events",
    metadata,
    Column("seq", Counter, primary_key=True, autoincrement=True),
    Column("event_id", String(64), nullable=False, unique=True),  # that of the state change
    Column("project", String(64), nullable=False),
    Column("resource_key", String(64), nullable=False),
    Column("resource_name", String(512), nullable=False),
    # the resource's version: events order by it, not by arrival
    Column("resource_seq", BigInteger, nullable=False),
    Column("zone", String(64), nullable=False),
    Column("accelerator_type", String(64), nullable=False),
    Column("usage_class", String(16), nullable=False),
    Column("state", String(32), nullable=False),
    Column("billable", Boolean, nullable=False),
    Column("at", PlatformTimeColumn, nullable=False),
    Column("labels", JSON(none_as_null=True)),  # of the node from then on; NULL: as before
    Column("created_by", String(256)),  # in the first event of a resource, if it is known
    # in the first event of a resource: its host VMs are charged apart
    Column("bills_hosts", Boolean),
    Column("kind", String(16)),  # NULL: a node; else disk, bucket or operation
    Column("bytes", BigInteger),  # of a disk or bucket from then on
    Column("operations", BigInteger),  # on a bucket since the event before
    UniqueConstraint("resource_key", "resource_seq"),
    Index("ix_usage_events_project", "project", "resource_key"),
    # what was used in a period, without its whole past
    Index("ix_usage_events_at", "project", "at", "resource_key"),
    Index(
        "ix_usage_events_labels",
        "project",
        "resource_key",
        # Also of PostgreSQL's index, as the migration says: to say it here would load that dialect,
        # which has 2 MB.
        sqlite_where=text("labels IS NOT NULL"),
    ),
)

billing_accounts = Table(
    "billing_accounts",
    metadata,
    Column("project", String(64), primary_key=True),  # each project has one
    Column("time_zone", String(64), nullable=False),
    Column("currency", String(3), nullable=False),
    Column("decimals", Integer, nullable=False),
    # the share of the subtotal that is added, as a decimal number
    Column("tax", Text, nullable=False),
    # from the end of a month until the loop closes it
    Column("grace_hours", Integer, nullable=False),
    Column("first_month", String(7), nullable=False),
    Column("next_month", String(7), nullable=False),  # the first one that has not been closed
    # why the loop could not close it; empty: nothing is in the way
    Column("held_because", Text, nullable=False),
    Column("created", PlatformTimeColumn, nullable=False),
)

# which projects other projects' accounts pay for; one without a row: its own account does
billing_links = Table(
    "billing_links",
    metadata,
    Column("project", String(64), primary_key=True),
    Column("from_second", BigInteger, primary_key=True, autoincrement=False),
    Column("account", String(64), nullable=False),  # the project whose account pays from then on
    Index("ix_billing_links_account", "account"),
)

exchange_rates = Table(
    "exchange_rates",
    metadata,
    Column("project", String(64), primary_key=True),
    Column("month", String(7), primary_key=True),
    # of the account's currency per US dollar, as a decimal number
    Column("rate", Text, nullable=False),
)

commitments = Table(
    "commitments",
    metadata,
    Column("commitment_id", String(64), primary_key=True),
    Column("project", String(64), nullable=False),
    Column("sku_id", String(128), nullable=False),
    Column("unit", String(16), nullable=False),
    Column("quantity", BigInteger, nullable=False),
    Column("years", Integer, nullable=False),
    # of a US dollar per unit and hour, as it was bought
    Column("nanos", BigInteger, nullable=False),
    Column("version_id", String(256), nullable=False),
    Column("source", Text, nullable=False),
    Column("verified", Boolean, nullable=False),
    # what was paid at the purchase; null: it is paid for every second of its term
    Column("upfront", AmountColumn),
    Column("stated", Boolean, nullable=False),  # that payment is a line of the invoice of its month
    Column("start_second", BigInteger, nullable=False),
    Column("end_second", BigInteger, nullable=False),
    Column("created", PlatformTimeColumn, nullable=False),
    Index("ix_commitments_project", "project", "start_second", "commitment_id"),
)

credits = Table(
    "credits",
    metadata,
    Column("credit_id", String(64), primary_key=True),
    Column("project", String(64), nullable=False),
    Column("amount", AmountColumn, nullable=False),  # US dollars
    Column("from_month", String(7), nullable=False),
    Column("until_month", String(7), nullable=False),
    Column("reason", Text, nullable=False),
    Column("created", PlatformTimeColumn, nullable=False),
    Index("ix_credits_project", "project", "credit_id"),
)

# What the rate card said of the time of issued invoices. Of a version that was used before all of
# it was kept, only the price is known.
card_prices = Table(
    "card_prices",
    metadata,
    Column("version_id", String(256), primary_key=True),
    Column("sku_id", String(128), nullable=False),
    Column("generation", String(16)),
    Column("accelerator_type", String(64)),
    Column("region", String(64)),
    Column("usage", String(32)),
    Column("unit", String(16), nullable=False),
    Column("effective_from", PlatformTimeColumn),
    Column("nanos", BigInteger, nullable=False),
    # when the first month that used it was closed; null: none has
    Column("first_used", PlatformTimeColumn),
)

# Since when the rate card of the last invoice charges disks, buckets and operations; no row: they
# are free.
charge_starts = Table(
    "charge_starts",
    metadata,
    Column("kind", String(16), primary_key=True),
    Column("start", PlatformTimeColumn, nullable=False),
)

ledger_transactions = Table(
    "ledger_transactions",
    metadata,
    Column("seq", Counter, primary_key=True, autoincrement=True),
    # what it books: the same thing is booked once
    Column("source_id", String(192), nullable=False, unique=True),
    Column("project", String(64), nullable=False),
    Column("month", String(7), nullable=False),
    Column("booked", PlatformTimeColumn, nullable=False),
    Column("text", Text, nullable=False),
    Index("ix_ledger_transactions_project", "project", "seq"),
)

ledger_entries = Table(
    "ledger_entries",
    metadata,
    Column("source_id", String(192), primary_key=True),
    Column("position", Integer, primary_key=True, autoincrement=False),
    Column("account", String(256), nullable=False),
    Column("currency", String(3), nullable=False),
    Column("amount", AmountColumn, nullable=False),
)

invoices = Table(
    "invoices",
    metadata,
    Column("project", String(64), primary_key=True),
    Column("month", String(7), primary_key=True),
    Column("number", String(96), nullable=False, unique=True),
    Column("document", LargeBinary, nullable=False),  # what was issued, byte for byte
    Column("sha256", String(64), nullable=False),
    Column("currency", String(3), nullable=False),
    Column("decimals", Integer, nullable=False),
    Column("total", BigInteger, nullable=False),  # in the minor unit of the currency
    Column("re_rated", BigInteger, nullable=False),  # the same without adjustments of other months
    Column("as_of", PlatformTimeColumn, nullable=False),
    Column("last_event_seq", BigInteger, nullable=False),  # the usage events that it knew of
    Column("issued_at", PlatformTimeColumn, nullable=False),
)

credit_notes = Table(
    "credit_notes",
    metadata,
    Column("number", String(96), primary_key=True),
    Column("project", String(64), nullable=False),
    Column("subject", String(16), nullable=False),  # invoice, commitment, credit
    Column("subject_id", String(64), nullable=False),
    Column("line", String(256), nullable=False),
    Column("currency", String(3), nullable=False),
    Column("decimals", Integer, nullable=False),
    Column("minor", BigInteger, nullable=False),
    Column("reason", Text, nullable=False),
    Column("created_by", String(256), nullable=False),
    Column("created", PlatformTimeColumn, nullable=False),
    Column("ends_second", BigInteger),
    Column("ends_month", String(7)),
    Index("ix_credit_notes_project", "project", "created", "number"),
)

invoice_records = Table(  # the rated records of an invoice, in chunks: pricing/issued_records.py
    "invoice_records",
    metadata,
    Column("project", String(64), primary_key=True),
    Column("month", String(7), primary_key=True),
    Column("position", Integer, primary_key=True, autoincrement=False),
    Column("data", LargeBinary, nullable=False),
    Column("sha256", String(64), nullable=False),  # of `data`
)

adjustments = Table(
    "adjustments",
    metadata,
    Column("project", String(64), primary_key=True),
    Column("corrects_month", String(7), primary_key=True),
    Column("booked_month", String(7), primary_key=True),
    Column("minor", BigInteger, nullable=False),
)

budgets = Table(
    "budgets",
    metadata,
    Column("budget_key", String(64), primary_key=True),
    Column("project", String(64), nullable=False),
    Column("name", String(64), nullable=False),
    Column("scope", String(16), nullable=False),  # account, project, label, user, job, node
    Column("scope_value", String(512), nullable=False),
    Column("amount", AmountColumn, nullable=False),  # US dollars
    Column("period", String(8), nullable=False),  # month, total
    Column("thresholds", Json, nullable=False),  # shares of the amount, as decimal numbers in texts
    Column("forecasts", Json, nullable=False),  # the same, of what the period is expected to cost
    Column("actions", Json, nullable=False),
    Column("secret", Text, nullable=False),  # sealed; signs what is sent to the owner's own address
    Column("created", PlatformTimeColumn, nullable=False),
    # the last change of the project that it has taken into account
    Column("looked_seq", BigInteger, nullable=False),
    # when the amount is used up in this period, as far as is known
    Column("reached_at", PlatformTimeColumn),
    # the moment for which its nodes have been given notice
    Column("notice_for", PlatformTimeColumn),
    UniqueConstraint("project", "name"),
)

budget_events = Table(
    "budget_events",
    metadata,
    Column("seq", Counter, primary_key=True, autoincrement=True),
    Column("event_id", String(64), nullable=False, unique=True),
    Column("budget_key", String(64), nullable=False),
    Column("project", String(64), nullable=False),
    Column("name", String(64), nullable=False),
    Column("period", String(7), nullable=False),  # the month, or "total"
    Column("kind", String(16), nullable=False),  # threshold, forecast, notice, stop, refuse
    Column("detail", String(256), nullable=False),  # the threshold, or what was acted on
    Column("at", PlatformTimeColumn, nullable=False),
    Column("cost", AmountColumn, nullable=False),
    Column("amount", AmountColumn, nullable=False),
    Column("text", Text, nullable=False),
    UniqueConstraint("budget_key", "period", "kind", "detail"),
    Index("ix_budget_events_project", "project", "seq"),
)

webhooks = Table(
    "webhooks",
    metadata,
    Column("webhook_id", String(64), primary_key=True),
    Column("event_id", String(64), nullable=False),
    Column("project", String(64), nullable=False),
    Column("url", Text, nullable=False),
    Column("body", Text, nullable=False),
    Column("secret", Text, nullable=False),  # sealed
    Column("tries", Integer, nullable=False),
    Column("fence", BigInteger, nullable=False),  # of the try that may write its result
    Column("next_try", RealTimeColumn),  # null: nothing more is to be done
    Column("outcome", Text, nullable=False),  # of the last try
    Column("endpoint_key", String(64)),  # null: a budget sends it
    Column("event", String(64)),  # of WEBHOOK_EVENTS
    Column("created", RealTimeColumn),
    Column("delivered", Boolean, nullable=False, server_default=false()),
    Index("ix_webhooks_next_try", "next_try"),
    Index("ix_webhooks_event", "event_id"),
    Index("ix_webhooks_endpoint", "endpoint_key", "event_id", unique=True),  # a change is told once
    Index("ix_webhooks_created", "endpoint_key", "created"),
)

webhook_endpoints = Table(
    "webhook_endpoints",
    metadata,
    Column("endpoint_key", String(64), primary_key=True),
    Column("project", String(64), nullable=False),
    Column("name", String(64), nullable=False),
    Column("url", Text, nullable=False),
    Column("events", Json, nullable=False),
    Column("secret", Text, nullable=False),  # sealed
    Column("created", RealTimeColumn, nullable=False),
    Column("created_by", String(256), nullable=False),
    # state changes up to this number were there before it
    Column("first_seq", BigInteger, nullable=False),
    Column("looked_seq", BigInteger, nullable=False),  # the last one that it has looked at
    UniqueConstraint("project", "name"),
)
