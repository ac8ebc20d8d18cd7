"""indexes of nodes that leave out the rows that nobody looks for in them"""

import sqlalchemy as sa
from alembic import op

revision = "0047"
down_revision = "0046"
branch_labels = None
depends_on = None

_PLACE = ["project", "zone", "state"]
_KINDS = ["accelerator_type", "topology", "usage_class"]
_PARTIAL = {
    "ix_nodes_queued_resource": (["queued_resource_key"], "queued_resource_key IS NOT NULL"),
    "ix_nodes_first_address": (["first_address"], "first_address > 0"),
    "ix_nodes_job": (["job_key"], "job_key IS NOT NULL"),
    "ix_nodes_kinds": ([*_PLACE, *_KINDS], "live_name IS NOT NULL"),
}


def upgrade() -> None:
    op.drop_index("ix_nodes_place", "nodes")
    op.drop_index("ix_nodes_queued_resource", "nodes")
    op.drop_index("ix_nodes_first_address", "nodes")
    op.drop_index("ix_nodes_job", "nodes")
    op.drop_index("ix_nodes_kinds", "nodes")
    for name, (columns, condition) in _PARTIAL.items():
        where = sa.text(condition)
        op.create_index(name, "nodes", columns, sqlite_where=where, postgresql_where=where)


def downgrade() -> None:
    for name, (columns, _) in _PARTIAL.items():
        op.drop_index(name, "nodes")
        op.create_index(
            name,
            "nodes",
            ["project", "state", "zone", *_KINDS] if name == "ix_nodes_kinds" else columns,
        )
    op.create_index("ix_nodes_place", "nodes", _PLACE)
