"""Processes of a yard on this machine: what `podyard up --roles` may ask for."""

from __future__ import annotations

from podyard.base.errors import invalid
from podyard.settings import AGENT, API, LOOP, Settings


def check(settings: Settings) -> None:
    """Raises INVALID_ARGUMENT where the processes of this machine could not find those that run
    elsewhere."""
    missing = " and ".join(role for role in (API, LOOP) if role not in settings.roles)
    if AGENT in settings.roles and API not in settings.roles:
        raise invalid(
            "the role agent needs the role api: on other machines use `podyard agent join`"
        )
    if missing and settings.database_path is not None:
        raise invalid(
            f"without {missing} this machine needs the database of the others: name a PostgreSQL "
            "with --database-url"
        )
    if missing and settings.broker_url is None:
        raise invalid(
            f"without {missing} this machine needs the Redis of the others: name it with "
            "--broker-url"
        )
