"""the version of the API that began an operation, tokens of one project, counted nodes"""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("operations", sa.Column("api_version", sa.String(length=16), nullable=True))
    op.add_column("tokens", sa.Column("project", sa.String(length=64), nullable=True))
    op.create_table(
        "node_counts",
        sa.Column("project", sa.String(length=64), nullable=False),
        sa.Column("usage_class", sa.String(length=16), nullable=False),
        sa.Column("zone", sa.String(length=64), nullable=False),
        sa.Column("accelerator_type", sa.String(length=64), nullable=False),
        sa.Column("topology", sa.String(length=32), nullable=False),
        sa.Column("nodes", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint(
            "project",
            "usage_class",
            "zone",
            "accelerator_type",
            "topology",
            name=op.f("pk_node_counts"),
        ),
    )
    op.execute(
        "INSERT INTO node_counts (project, usage_class, zone, accelerator_type, topology, nodes) "
        "SELECT project, usage_class, zone, accelerator_type, topology, COUNT(*) FROM nodes "
        "WHERE live_name IS NOT NULL AND queued_resource_key IS NULL "
        "GROUP BY project, usage_class, zone, accelerator_type, topology"
    )


def downgrade() -> None:
    op.drop_table("node_counts")
    op.drop_column("tokens", "project")
    op.drop_column("operations", "api_version")
