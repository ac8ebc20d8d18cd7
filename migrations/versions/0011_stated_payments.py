"""payments upfront that invoices state, prices that issued invoices went by, usage events by
time"""

import json
from typing import Any

import sqlalchemy as sa
from alembic import op

from podyard.base.clock import NANOS_PER_SECOND, PlatformTime

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column(
        "commitments", sa.Column("stated", sa.Boolean(), nullable=False, server_default=sa.true())
    )
    _leave_issued_invoices_as_they_are()
    op.create_table(
        "card_prices",
        sa.Column("version_id", sa.String(length=256), nullable=False),
        sa.Column("sku_id", sa.String(length=128), nullable=False),
        sa.Column("generation", sa.String(length=16), nullable=False),
        sa.Column("accelerator_type", sa.String(length=64), nullable=True),
        sa.Column("region", sa.String(length=64), nullable=False),
        sa.Column("usage", sa.String(length=32), nullable=False),
        sa.Column("unit", sa.String(length=16), nullable=False),
        sa.Column("effective_from", sa.BigInteger(), nullable=False),
        sa.Column("nanos", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("version_id", name=op.f("pk_card_prices")),
    )
    op.create_index("ix_usage_events_at", "usage_events", ["project", "at", "resource_key"])


def downgrade() -> None:
    op.drop_index("ix_usage_events_at", table_name="usage_events")
    op.drop_table("card_prices")
    op.drop_column("commitments", "stated")


def _leave_issued_invoices_as_they_are() -> None:
    """A payment whose month was issued without it is on no invoice."""
    connection = op.get_bind()
    paid = sa.text(
        "SELECT commitment_id, project, start_second FROM commitments WHERE upfront IS NOT NULL"
    )
    documents = sa.text("SELECT document FROM invoices WHERE project = :project")
    not_stated = sa.text("UPDATE commitments SET stated = false WHERE commitment_id = :id")
    for row in connection.execute(paid).all():
        issued = [
            json.loads(found.document)
            for found in connection.execute(documents, {"project": row.project})
        ]
        if any(
            _is_of(document, row.start_second) and not _has(document, row.commitment_id)
            for document in issued
        ):
            connection.execute(not_stated, {"id": row.commitment_id})


def _is_of(document: Any, second: int) -> bool:
    start, end = (
        PlatformTime.from_rfc3339(document[name]) for name in ("periodStart", "periodEnd")
    )
    return start <= PlatformTime(second * NANOS_PER_SECOND) < end


def _has(document: Any, commitment_id: str) -> bool:
    return any(
        line["sku"] == f"commitment:{commitment_id}/upfront-payment" for line in document["lines"]
    )
