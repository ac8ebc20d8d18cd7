"""resources of Compute Engine; who asked for an operation, and the number of its target"""

import hashlib
from collections.abc import Iterator

import sqlalchemy as sa
from alembic import op

revision = "0049"
down_revision = "0048"
branch_labels = None
depends_on = None

_COLUMNS = (
    "resource_key", "project", "kind", "place", "name", "number", "spec", "created", "created_by",
)  # fmt: skip
_NETWORK = {
    "auto_subnetworks": True,
    "description": "Default network for the project",
    "mtu": 1460,
    "routing_mode": "REGIONAL",
    "extras": {},
}
_RULE = {
    "network": "default", "description": "", "priority": 65534, "direction": "INGRESS",
    "disabled": False, "allowed": [], "denied": [], "source_ranges": [], "destination_ranges": [],
    "source_tags": [], "target_tags": [], "source_accounts": [], "target_accounts": [],
    "logs": False,
}  # fmt: skip
_INSIDE, _ANYWHERE = "10.128.0.0/9", "0.0.0.0/0"
_RULES: tuple[tuple[str, str, str, list[tuple[str, list[str]]]], ...] = (
    (
        "internal", "Allow internal traffic on the default network", _INSIDE,
        [("tcp", ["0-65535"]), ("udp", ["0-65535"]), ("icmp", [])],
    ),
    ("ssh", "Allow SSH from anywhere", _ANYWHERE, [("tcp", ["22"])]),
    ("rdp", "Allow RDP from anywhere", _ANYWHERE, [("tcp", ["3389"])]),
    ("icmp", "Allow ICMP from anywhere", _ANYWHERE, [("icmp", [])]),
)  # fmt: skip


def upgrade() -> None:
    op.add_column("operations", sa.Column("created_by", sa.String(256)))
    op.add_column("operations", sa.Column("target_number", sa.BigInteger()))
    op.create_table(
        "compute_resources",
        sa.Column("resource_key", sa.String(64), primary_key=True),
        sa.Column("project", sa.String(64), nullable=False),
        sa.Column("kind", sa.String(32), nullable=False),
        sa.Column("place", sa.String(64), nullable=False),
        sa.Column("name", sa.String(63), nullable=False),
        sa.Column("number", sa.BigInteger(), nullable=False),
        sa.Column("spec", sa.JSON(), nullable=False),
        sa.Column("created", sa.BigInteger(), nullable=False),
        sa.Column("created_by", sa.String(256), nullable=False),
        sa.UniqueConstraint("project", "kind", "place", "name"),
    )
    _add_default_networks()


def _add_default_networks() -> None:
    """Each project has one, with Google's four rules: as `domain/compute` makes them for new
    projects."""
    projects = sa.table("projects", *(sa.column(name) for name in ("project", "created")))
    rows = sa.table(
        "compute_resources",
        *(sa.column(name) for name in _COLUMNS if name != "spec"),
        sa.column("spec", sa.JSON()),
    )
    connection = op.get_bind()
    for project, created in connection.execute(sa.select(projects.c.project, projects.c.created)):
        for kind, name, spec in (("network", "default", _NETWORK), *_rules()):
            digest = hashlib.sha256(f"{project}/{kind}/global/{name}".encode()).hexdigest()
            row = (
                f"{kind}-{digest[:24]}", project, kind, "global", name,
                int(digest[:15], 16) + 1, spec, created, "",
            )  # fmt: skip
            connection.execute(rows.insert(), dict(zip(_COLUMNS, row, strict=True)))


def _rules() -> Iterator[tuple[str, str, dict[str, object]]]:
    for name, text, source, entries in _RULES:
        allowed = [{"protocol": kind, "ports": ports} for kind, ports in entries]
        spec = {**_RULE, "description": text, "source_ranges": [source], "allowed": allowed}
        yield "firewall", f"default-allow-{name}", spec


def downgrade() -> None:
    op.drop_table("compute_resources")
    for column in ("target_number", "created_by"):
        op.drop_column("operations", column)
