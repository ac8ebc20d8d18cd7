"""the version of the API that began an operation, tokens of one project, an index for quotas"""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None

_ALONE = sa.text("live_name IS NOT NULL AND queued_resource_key IS NULL")


def upgrade() -> None:
    op.add_column("operations", sa.Column("api_version", sa.String(length=16), nullable=True))
    op.add_column("tokens", sa.Column("project", sa.String(length=64), nullable=True))
    op.create_index(
        "ix_nodes_alone",
        "nodes",
        ["project", "usage_class", "zone", "accelerator_type", "topology"],
        sqlite_where=_ALONE,
        postgresql_where=_ALONE,
    )


def downgrade() -> None:
    op.drop_index("ix_nodes_alone", table_name="nodes")
    op.drop_column("tokens", "project")
    op.drop_column("operations", "api_version")
