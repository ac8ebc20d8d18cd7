"""tokens that are listed, expire and are revoked; the platform's owner; invitations"""

import sqlalchemy as sa
from alembic import op

from podyard.base.ids import row_id
from podyard.base.rng import Streams

revision = "0014"
down_revision = "0013"
branch_labels = None
depends_on = None

_OWNER_EMAIL = "owner@podyard.local"


def upgrade() -> None:
    op.add_column("tokens", sa.Column("token_id", sa.String(length=64), nullable=True))
    op.add_column("tokens", sa.Column("minted_by", sa.String(length=256), nullable=True))
    op.add_column("tokens", sa.Column("last_used", sa.BigInteger(), nullable=True))
    op.create_index("ix_tokens_project", "tokens", ["project"], unique=False)
    op.create_index("ix_tokens_token_id", "tokens", ["token_id"], unique=True)
    op.create_table(
        "invitations",
        sa.Column("invitation_id", sa.String(length=64), nullable=False),
        sa.Column("code_hash", sa.String(length=64), nullable=False),
        sa.Column("email", sa.String(length=256), nullable=False),
        sa.Column("project", sa.String(length=64), nullable=False),
        sa.Column("roles", sa.JSON(), nullable=False),
        sa.Column("invited_by", sa.String(length=256), nullable=False),
        sa.Column("created", sa.BigInteger(), nullable=False),
        sa.Column("expires", sa.BigInteger(), nullable=False),
        sa.Column("accepted", sa.BigInteger(), nullable=True),
        sa.Column("revoked", sa.BigInteger(), nullable=True),
        sa.PrimaryKeyConstraint("invitation_id", name=op.f("pk_invitations")),
        sa.UniqueConstraint("code_hash", name=op.f("uq_invitations_code_hash")),
    )
    op.create_index("ix_invitations_project", "invitations", ["project"], unique=False)
    _set_role("owner", "platform.owner")
    _bind_tokens()


def downgrade() -> None:
    _set_role("platform.owner", "owner")
    op.drop_table("invitations")
    op.drop_index("ix_tokens_token_id", table_name="tokens")
    op.drop_index("ix_tokens_project", table_name="tokens")
    for column in ("last_used", "minted_by", "token_id"):
        op.drop_column("tokens", column)


def _set_role(before: str, after: str) -> None:
    """An owner of all projects was the platform's owner."""
    change = sa.text(
        "UPDATE role_bindings SET role = :after WHERE project = '*' AND role = :before"
    )
    op.get_bind().execute(change, {"before": before, "after": after})


def _bind_tokens() -> None:
    """Until now a token had what its email had anywhere, and nobody knows which project had made
    it. Where the email
    has roles in one place, it was that one; any other is revoked at the time that it was made,
    because an owner of one project may have made it in the name of a person who has roles in
    another."""
    connection, ids = op.get_bind(), Streams().stream("tokens")
    held = sa.text(
        "SELECT token_hash, email, project, created FROM tokens "
        "WHERE agent_id IS NULL AND attempt_id IS NULL AND key_id IS NULL AND expires IS NULL"
    )
    for token_hash, email, project, created in connection.execute(held).all():
        found = project
        if project is None and email != _OWNER_EMAIL:
            places = sa.text("SELECT DISTINCT project FROM role_bindings WHERE email = :email")
            names = [name for (name,) in connection.execute(places, {"email": email})]
            found = names[0] if len(names) == 1 else None
        ended = found is None and email != _OWNER_EMAIL
        change = sa.text(
            "UPDATE tokens SET token_id = :id, project = :project, revoked = "
            "coalesce(revoked, :revoked) "
            "WHERE token_hash = :hash"
        )
        values = {
            "id": row_id(ids, "token"),
            "project": found,
            "revoked": created if ended else None,
        }
        connection.execute(change, {**values, "hash": token_hash})
