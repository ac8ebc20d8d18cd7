"""elastic attempts, evaluations, the best checkpoint"""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "job_evaluations",
        sa.Column("job_key", sa.String(length=64), nullable=False),
        sa.Column("step", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("attempt", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("metrics", sa.JSON(), nullable=False),
        sa.ForeignKeyConstraint(
            ["job_key"], ["jobs.job_key"], name=op.f("fk_job_evaluations_job_key")
        ),
        sa.PrimaryKeyConstraint("job_key", "step", "attempt", name=op.f("pk_job_evaluations")),
    )
    # Not in batches: those would create a new table and copy it, and replicas refer to its rows.
    op.add_column("attempts", sa.Column("host_count", sa.Integer(), nullable=True))
    op.add_column("attempts", sa.Column("global_batch", sa.Integer(), nullable=True))
    op.add_column("attempts", sa.Column("yield_real", sa.BigInteger(), nullable=True))
    op.drop_column("attempts", "resume_name")
    op.add_column(
        "checkpoints", sa.Column("best", sa.Boolean(), server_default=sa.false(), nullable=False)
    )


def downgrade() -> None:
    op.drop_column("checkpoints", "best")
    op.add_column("attempts", sa.Column("resume_name", sa.String(length=512), nullable=True))
    # What an attempt resumes from was kept twice: the checkpoint of its first step has the name.
    op.execute(
        "UPDATE attempts SET resume_name = (SELECT name FROM checkpoints WHERE "
        "checkpoints.job_key = attempts.job_key "
        "AND checkpoints.step = attempts.resume_step AND checkpoints.attempt < attempts.attempt "
        "ORDER BY checkpoints.attempt DESC LIMIT 1)"
    )
    op.drop_column("attempts", "yield_real")
    op.drop_column("attempts", "global_batch")
    op.drop_column("attempts", "host_count")
    op.drop_table("job_evaluations")
