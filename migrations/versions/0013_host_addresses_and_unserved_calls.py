"""the yard's secret, hosts' loopback addresses, metadata of Compute Engine's projects, calls that
are not served"""

import sqlalchemy as sa
from alembic import op

from podyard.base.rng import Streams, secret_token
from podyard.domain.host import ADDRESSES, external_address

revision = "0013"
down_revision = "0012"
branch_labels = None
depends_on = None

# How addresses were made until now: host number n of the platform had 10.128.0.2 + n inside and
# 34.64.0.2 + n outside.
_INTERNAL_BASE = (10 << 24) + (128 << 16) + 2
_EXTERNAL_BASE = (34 << 24) + (64 << 16) + 2


def upgrade() -> None:
    op.create_table(
        "yard",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("secret", sa.String(length=64), nullable=False),
        sa.Column("address_base", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_yard")),
    )
    op.add_column(
        "projects", sa.Column("compute_metadata", sa.JSON(), server_default="{}", nullable=False)
    )
    op.create_table(
        "unserved_calls",
        sa.Column("host", sa.String(length=128), nullable=False),
        sa.Column("method", sa.String(length=16), nullable=False),
        sa.Column("path", sa.String(length=256), nullable=False),
        sa.Column("calls", sa.BigInteger(), nullable=False),
        sa.Column("last", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("host", "method", "path", name=op.f("pk_unserved_calls")),
    )
    op.create_index("ix_unserved_calls_last", "unserved_calls", ["last"], unique=False)
    _give_hosts_their_addresses()


def downgrade() -> None:
    connection = op.get_bind()
    for host_id, number in _hosts(connection):
        _set(connection, host_id, _dotted_text(_EXTERNAL_BASE + number))
    op.drop_index("ix_unserved_calls_last", table_name="unserved_calls")
    op.drop_table("unserved_calls")
    op.drop_column("projects", "compute_metadata")
    op.drop_table("yard")


def _give_hosts_their_addresses() -> None:
    connection = op.get_bind()
    found = _hosts(connection)
    if not found:
        return  # the first host makes the row
    base = Streams().stream("addresses").randrange(ADDRESSES)
    yard = sa.text("INSERT INTO yard (id, secret, address_base) VALUES (1, :secret, :base)")
    connection.execute(yard, {"secret": secret_token(), "base": base})
    for host_id, number in found:
        _set(connection, host_id, external_address(base, number))


def _hosts(connection: sa.Connection) -> list[tuple[str, int]]:
    rows = connection.execute(sa.text("SELECT host_id, internal_ip FROM hosts")).all()
    return [(row.host_id, _number(row.internal_ip) - _INTERNAL_BASE) for row in rows]


def _set(connection: sa.Connection, host_id: str, address: str) -> None:
    text = sa.text("UPDATE hosts SET external_ip = :address WHERE host_id = :host")
    connection.execute(text, {"address": address, "host": host_id})


def _number(address: str) -> int:
    return int.from_bytes(bytes(int(part) for part in address.split(".")), "big")


def _dotted_text(number: int) -> str:
    return ".".join(str(number >> shift & 255) for shift in (24, 16, 8, 0))
