"""lines of logs in files, and a row for each chunk of them"""

import sqlalchemy as sa
from alembic import op

revision = "0027"
down_revision = "0026"
branch_labels = None
depends_on = None


def upgrade() -> None:
    whole = ("attempt", "rank", "lines", "millis", "segment", "start", "size")
    op.create_table(
        "log_chunks",
        sa.Column(
            "replica_id", sa.String(64), sa.ForeignKey("replicas.replica_id"), primary_key=True
        ),
        sa.Column("seq", sa.Integer(), primary_key=True, autoincrement=False),
        sa.Column("job_key", sa.String(64), nullable=False),
        sa.Column("first_at", sa.BigInteger(), nullable=False),
        sa.Column("last_at", sa.BigInteger(), nullable=False),
        *(sa.Column(name, sa.Integer(), nullable=False) for name in whole),
        sa.Column("text", sa.Text()),
    )
    op.create_index("ix_log_chunks_worker", "log_chunks", ["job_key", "attempt", "rank", "seq"])
    newline = "chr(10)" if op.get_bind().dialect.name == "postgresql" else "char(10)"
    op.execute(
        "INSERT INTO log_chunks (replica_id, seq, job_key, attempt, rank, lines, first_at, "
        "last_at, millis, segment,"
        " start, size, text) SELECT l.replica_id, l.seq, l.job_key, r.fence, r.rank, 1, l.at, "
        "l.at, 0, 0, 0, 0,"
        f" 'o0 ' || replace(l.line, {newline}, ' ') || {newline}"
        " FROM job_logs l JOIN replicas r ON r.replica_id = l.replica_id"
    )
    op.drop_table("job_logs")


def downgrade() -> None:
    """Leave what is in files there; it is shown no more."""
    op.create_table(
        "job_logs",
        sa.Column(
            "replica_id", sa.String(64), sa.ForeignKey("replicas.replica_id"), primary_key=True
        ),
        sa.Column("seq", sa.Integer(), primary_key=True, autoincrement=False),
        sa.Column("job_key", sa.String(64), nullable=False),
        sa.Column("at", sa.BigInteger(), nullable=False),
        sa.Column("line", sa.Text(), nullable=False),
    )
    op.create_index("ix_job_logs_job", "job_logs", ["job_key", "at"])
    op.execute(
        "INSERT INTO job_logs (replica_id, seq, job_key, at, line)"
        " SELECT replica_id, seq, job_key, first_at, substr(text, 4) FROM log_chunks WHERE "
        "text IS NOT NULL"
    )
    op.drop_table("log_chunks")
