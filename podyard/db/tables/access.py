"""Projects, tokens, role bindings, keys, request ids."""

from __future__ import annotations

from sqlalchemy import BigInteger, Boolean, Column, Index, Integer, String, Table, Text

from podyard.db.tables.base import metadata
from podyard.db.tables.types import Counter, Json, PlatformTimeColumn, RealTimeColumn

projects = Table(
    "projects",
    metadata,
    Column("project", String(64), primary_key=True),
    Column("number", BigInteger, nullable=False),
    Column("labels", Json, nullable=False),
    Column("created", PlatformTimeColumn, nullable=False),
    Column(
        "compute_metadata", Json, nullable=False, default=dict
    ),  # commonInstanceMetadata of Compute Engine's project
    Column("chips_max", BigInteger),  # null: no limit but the fleet's
)

# Links that sign a browser in, each once and for a minute.
sign_in_links = Table(
    "sign_in_links",
    metadata,
    Column("code_hash", String(64), primary_key=True),
    Column("token", Text, nullable=False),  # sealed
    Column("expires", RealTimeColumn, nullable=False),
)

tokens = Table(
    "tokens",
    metadata,
    Column("token_hash", String(64), primary_key=True),  # SHA-256: the token itself is never stored
    Column("email", String(256), nullable=False),
    Column("token_id", String(64)),  # null: the token of an agent or a job, or made with a key
    Column("agent_id", String(64)),
    Column("attempt_id", String(64)),
    # the only one that it is good for; null: every one that its email has roles in
    Column("project", String(64)),
    Column("key_id", String(64)),  # the service-account key that it was exchanged for
    Column("created", RealTimeColumn, nullable=False),
    Column("minted_by", String(256)),  # the email of its creator
    Column("expires", RealTimeColumn),
    Column("revoked", RealTimeColumn),
    Column("last_used", RealTimeColumn),
    Index("ix_tokens_key", "key_id"),
    Index("ix_tokens_project", "project"),
    Index("ix_tokens_token_id", "token_id", unique=True),
    Index("ix_tokens_expires", "expires"),
)

invitations = Table(
    "invitations",
    metadata,
    Column("invitation_id", String(64), primary_key=True),
    # SHA-256: the code itself is never stored
    Column("code_hash", String(64), nullable=False, unique=True),
    Column("email", String(256), nullable=False),
    Column("project", String(64), nullable=False),
    Column("roles", Json, nullable=False),
    Column("invited_by", String(256), nullable=False),
    Column("created", RealTimeColumn, nullable=False),
    Column("expires", RealTimeColumn, nullable=False),
    Column("accepted", RealTimeColumn),
    Column("revoked", RealTimeColumn),
    Index("ix_invitations_project", "project"),
)

role_bindings = Table(
    "role_bindings",
    metadata,
    Column("email", String(256), primary_key=True),
    Column("project", String(64), primary_key=True),  # "*": every project
    Column("role", String(64), primary_key=True),
    Index("ix_role_bindings_project", "project"),
)

# The accounts that a project has made. The one that hosts have by default is in every project, and
# has no row until it has a description.
service_accounts = Table(
    "service_accounts",
    metadata,
    Column("email", String(256), primary_key=True),
    Column("project", String(64), nullable=False),
    Column("unique_id", String(32), nullable=False, unique=True),
    Column("display_name", String(256), nullable=False),
    Column("description", Text, nullable=False),
    Column("created", RealTimeColumn, nullable=False),
    Index("ix_service_accounts_project", "project", "email"),
)

# Roles on a service account itself: who may act as it.
account_bindings = Table(
    "account_bindings",
    metadata,
    Column("account", String(256), primary_key=True),
    Column("email", String(256), primary_key=True),
    Column("role", String(64), primary_key=True),
)

service_account_keys = Table(
    "service_account_keys",
    metadata,
    # `private_key_id` of the JSON file, `kid` of its JWTs
    Column("key_id", String(64), primary_key=True),
    Column("project", String(64), nullable=False),
    Column("email", String(256), nullable=False),
    Column("public_key", Text, nullable=False),  # PEM; the private key is never stored
    # as the JSON file has it: one of the audiences of its JWTs
    Column("token_uri", String(512), nullable=False),
    Column("created", RealTimeColumn, nullable=False),
    Index("ix_service_account_keys_email", "project", "email"),
)

api_keys = Table(
    "api_keys",
    metadata,
    Column("key_id", String(64), primary_key=True),
    # SHA-256: the key itself is never stored
    Column("key_hash", String(64), nullable=False, unique=True),
    Column("project", String(64), nullable=False),  # the only one in which it is good for anything
    Column("email", String(256), nullable=False),
    Column("created", RealTimeColumn, nullable=False),
    Index("ix_api_keys_project", "project"),
)

# Calls of Google's APIs that nothing here answers, so that users and developers see what is
# missing.
unserved_calls = Table(
    "unserved_calls",
    metadata,
    Column("host", String(128), primary_key=True),
    Column("method", String(16), primary_key=True),
    Column("path", String(256), primary_key=True),  # without its query
    Column("calls", BigInteger, nullable=False),
    Column("last", RealTimeColumn, nullable=False),
    Index("ix_unserved_calls_last", "last"),
)

audit_log = Table(
    "audit_log",
    metadata,
    Column("seq", Counter, primary_key=True, autoincrement=True),
    Column("at", RealTimeColumn, nullable=False),
    Column("actor", String(256), nullable=False),  # "": no credential was accepted
    Column("address", String(64), nullable=False),
    Column("by_door", Boolean, nullable=False),
    Column("method", String(16), nullable=False),
    Column("path", Text, nullable=False),  # without its query
    Column("status", Integer, nullable=False),
    Column("request_id", String(64), nullable=False),
    Index("ix_audit_log_at", "at"),
    Index("ix_audit_log_actor", "actor", "seq"),
)

# What programs have written to Cloud Logging, and nothing that is in other tables.
log_entries = Table(
    "log_entries",
    metadata,
    Column("seq", Counter, primary_key=True, autoincrement=True),
    Column("project", String(64), nullable=False),
    Column("log_id", String(512), nullable=False),
    Column("at", RealTimeColumn, nullable=False),
    Column("received", RealTimeColumn, nullable=False),
    Column("severity", Integer, nullable=False),
    Column("insert_id", String(256), nullable=False),
    Column("resource_type", String(128), nullable=False),
    Column("resource_labels", Json, nullable=False),
    Column("labels", Json, nullable=False),
    Column("text", Text),
    Column("payload", Json),
    Index("ix_log_entries_at", "project", "at", "seq"),
    Index("ix_log_entries_log", "project", "log_id"),
)

request_ids = Table(
    "request_ids",
    metadata,
    Column("project", String(64), primary_key=True),
    Column("method", String(64), primary_key=True),
    Column("request_id", String(36), primary_key=True),
    Column("body_sha256", String(64), nullable=False),
    Column("operation_id", String(64)),  # null only inside the unit that makes the operation
    Column("created", PlatformTimeColumn, nullable=False),
    Index("ix_request_ids_created", "created"),
)
