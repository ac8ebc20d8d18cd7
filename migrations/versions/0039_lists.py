"""indices of the lists in the console"""

import sqlalchemy as sa
from alembic import op

revision = "0039"
down_revision = "0038"
branch_labels = None
depends_on = None

_LIVES = sa.text("live_name IS NOT NULL")
_NODES = {
    "ix_nodes_name": ["project", "node_id", "node_key"],
    "ix_nodes_kinds": ["project", "state", "zone", "accelerator_type", "topology", "usage_class"],
}
_JOBS = {
    "ix_jobs_created": ["project", "created", "job_key"],
    "ix_jobs_facets": ["project", "state", "zone", "accelerator_type"],
}


def upgrade() -> None:
    op.create_index(
        "ix_nodes_name",
        "nodes",
        _NODES["ix_nodes_name"],
        sqlite_where=_LIVES,
        postgresql_where=_LIVES,
    )
    op.create_index("ix_nodes_kinds", "nodes", _NODES["ix_nodes_kinds"])
    for name, columns in _JOBS.items():
        op.create_index(name, "jobs", columns)


def downgrade() -> None:
    for table, names in (("nodes", _NODES), ("jobs", _JOBS)):
        for name in names:
            op.drop_index(name, table)
