"""rated records of invoices; one table of the prices that invoices went by"""

import sqlalchemy as sa
from alembic import op

revision = "0017"
down_revision = "0016"
branch_labels = None
depends_on = None

_CARD = (
    "version_id",
    "sku_id",
    "generation",
    "accelerator_type",
    "region",
    "usage",
    "unit",
    "effective_from",
    "nanos",
)
_USED = ("version_id", "sku_id", "unit", "nanos", "first_used")


def upgrade() -> None:
    op.create_table(
        "invoice_records",
        sa.Column("project", sa.String(length=64), nullable=False),
        sa.Column("month", sa.String(length=7), nullable=False),
        sa.Column("position", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("data", sa.LargeBinary(), nullable=False),
        sa.Column("sha256", sa.String(length=64), nullable=False),
        sa.PrimaryKeyConstraint("project", "month", "position", name=op.f("pk_invoice_records")),
    )
    used = {row["version_id"]: row for row in _rows("price_versions_used", _USED)}
    told = _rows("card_prices", _CARD)
    nothing: dict[str, object] = dict.fromkeys(_CARD)
    known = {row["version_id"] for row in told}
    kept = [
        {**row, "first_used": used.get(row["version_id"], {}).get("first_used")} for row in told
    ]
    kept += [{**nothing, **row} for version, row in used.items() if version not in known]
    op.drop_table("price_versions_used")
    op.drop_table("card_prices")
    _create_card_prices(known_only=False)
    _fill("card_prices", (*_CARD, "first_used"), kept)


def downgrade() -> None:
    kept = _rows("card_prices", (*_CARD, "first_used"))
    op.drop_table("card_prices")
    op.drop_table("invoice_records")
    _create_card_prices(known_only=True)
    op.create_table(
        "price_versions_used",
        sa.Column("version_id", sa.String(length=256), nullable=False),
        sa.Column("sku_id", sa.String(length=128), nullable=False),
        sa.Column("unit", sa.String(length=16), nullable=False),
        sa.Column("nanos", sa.BigInteger(), nullable=False),
        sa.Column("first_used", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("version_id", name=op.f("pk_price_versions_used")),
    )
    _fill("card_prices", _CARD, [row for row in kept if row["effective_from"] is not None])
    _fill("price_versions_used", _USED, [row for row in kept if row["first_used"] is not None])


def _create_card_prices(*, known_only: bool) -> None:
    """`known_only`: of every price it is known what it is for, and from when on it holds."""
    columns: list[sa.Column[object]] = [
        sa.Column("version_id", sa.String(length=256), nullable=False),
        sa.Column("sku_id", sa.String(length=128), nullable=False),
        sa.Column("generation", sa.String(length=16), nullable=not known_only),
        sa.Column("accelerator_type", sa.String(length=64), nullable=True),
        sa.Column("region", sa.String(length=64), nullable=not known_only),
        sa.Column("usage", sa.String(length=32), nullable=not known_only),
        sa.Column("unit", sa.String(length=16), nullable=False),
        sa.Column("effective_from", sa.BigInteger(), nullable=not known_only),
        sa.Column("nanos", sa.BigInteger(), nullable=False),
    ]
    if not known_only:
        columns.append(sa.Column("first_used", sa.BigInteger(), nullable=True))
    op.create_table(
        "card_prices", *columns, sa.PrimaryKeyConstraint("version_id", name=op.f("pk_card_prices"))
    )


def _rows(table: str, columns: tuple[str, ...]) -> list[dict[str, object]]:
    found = op.get_bind().execute(sa.text(f"SELECT {', '.join(columns)} FROM {table}"))
    return [dict(row) for row in found.mappings()]


def _fill(table: str, columns: tuple[str, ...], rows: list[dict[str, object]]) -> None:
    if rows:
        names = ", ".join(columns)
        values = ", ".join(f":{name}" for name in columns)
        statement = sa.text(f"INSERT INTO {table} ({names}) VALUES ({values})")
        op.get_bind().execute(statement, [{name: row[name] for name in columns} for row in rows])
