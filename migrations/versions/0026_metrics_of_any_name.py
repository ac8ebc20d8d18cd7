"""metrics of any name instead of loss and accuracy"""

import sqlalchemy as sa
from alembic import op

revision = "0026"
down_revision = "0025"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column(
        "job_metrics", sa.Column("metrics", sa.JSON(), nullable=False, server_default="{}")
    )
    build = "json_build_object" if op.get_bind().dialect.name == "postgresql" else "json_object"
    op.execute(f"UPDATE job_metrics SET metrics = {build}('loss', loss, 'accuracy', accuracy)")
    for name in ("loss", "accuracy"):
        op.drop_column("job_metrics", name)


def downgrade() -> None:
    is_postgresql = op.get_bind().dialect.name == "postgresql"
    for name in ("loss", "accuracy"):
        op.add_column(
            "job_metrics", sa.Column(name, sa.Float(), nullable=False, server_default="0")
        )
        found = (
            f"CAST(metrics->>'{name}' AS FLOAT)"
            if is_postgresql
            else f"json_extract(metrics, '$.{name}')"
        )
        op.execute(f"UPDATE job_metrics SET {name} = COALESCE({found}, 0)")
    op.drop_column("job_metrics", "metrics")
