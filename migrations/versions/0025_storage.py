"""buckets, objects and uploads in parts"""

import sqlalchemy as sa
from alembic import op

revision = "0025"
down_revision = "0024"
branch_labels = None
depends_on = None


def _name() -> sa.types.TypeEngine[str]:
    return sa.String(length=1024).with_variant(sa.String(length=1024, collation="C"), "postgresql")


def upgrade() -> None:
    op.create_table(
        "buckets",
        sa.Column("name", sa.String(length=222), nullable=False),
        sa.Column("project", sa.String(length=64), nullable=False),
        sa.Column("location", sa.String(length=64), nullable=False),
        sa.Column("storage_class", sa.String(length=32), nullable=False),
        sa.Column("labels", sa.JSON(), nullable=False),
        sa.Column("metageneration", sa.BigInteger(), nullable=False),
        sa.Column("objects", sa.BigInteger(), nullable=False),
        sa.Column("bytes", sa.BigInteger(), nullable=False),
        sa.Column("created", sa.BigInteger(), nullable=False),
        sa.Column("updated", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_buckets")),
    )
    op.create_index("ix_buckets_project", "buckets", ["project", "name"])
    op.create_table(
        "objects",
        sa.Column("bucket", sa.String(length=222), nullable=False),
        sa.Column("name", _name(), nullable=False),
        sa.Column("generation", sa.BigInteger(), nullable=False),
        sa.Column("metageneration", sa.BigInteger(), nullable=False),
        sa.Column("digest", sa.String(length=64), nullable=False),
        sa.Column("size", sa.BigInteger(), nullable=False),
        sa.Column("crc32c", sa.BigInteger(), nullable=False),
        sa.Column("md5", sa.String(length=32), nullable=False),
        sa.Column("component_count", sa.Integer(), nullable=False),
        sa.Column("fields", sa.JSON(), nullable=False),
        sa.Column("created", sa.BigInteger(), nullable=False),
        sa.Column("updated", sa.BigInteger(), nullable=False),
        sa.Column("created_by", sa.String(length=256), nullable=False),
        sa.ForeignKeyConstraint(["bucket"], ["buckets.name"], name=op.f("fk_objects_bucket")),
        sa.PrimaryKeyConstraint("bucket", "name", name=op.f("pk_objects")),
    )
    op.create_index("ix_objects_digest", "objects", ["digest"])
    op.create_table(
        "uploads",
        sa.Column("upload_id", sa.String(length=64), nullable=False),
        sa.Column("bucket", sa.String(length=222), nullable=False),
        sa.Column("name", _name(), nullable=False),
        sa.Column("fields", sa.JSON(), nullable=False),
        sa.Column("preconditions", sa.JSON(), nullable=False),
        sa.Column("size", sa.BigInteger(), nullable=True),
        sa.Column("crc32c", sa.BigInteger(), nullable=True),
        sa.Column("md5", sa.String(length=32), nullable=True),
        sa.Column("created", sa.BigInteger(), nullable=False),
        sa.Column("created_by", sa.String(length=256), nullable=False),
        sa.Column("generation", sa.BigInteger(), nullable=True),
        sa.PrimaryKeyConstraint("upload_id", name=op.f("pk_uploads")),
    )
    op.create_index("ix_uploads_bucket", "uploads", ["bucket", "created"])
    op.create_index("ix_uploads_created", "uploads", ["created"])


def downgrade() -> None:
    op.drop_table("uploads")
    op.drop_table("objects")
    op.drop_table("buckets")
