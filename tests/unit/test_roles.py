"""`podyard up --roles`: what may run on one machine, and why not."""

from __future__ import annotations

import pytest

from podyard.base.errors import PodyardError
from podyard.settings import ROLES, from_environment
from podyard.stack.roles import check

SERVER = {"PODYARD_DATABASE_URL": "postgresql://x@db/y", "PODYARD_BROKER_URL": "rediss://r:6379/0"}


@pytest.mark.parametrize(
    ("roles", "env", "reason"),
    [
        ("loop", {}, "without api this machine needs the database of the others"),
        ("storage,broker", {}, "without api and loop this machine needs the database"),
        ("api", {}, "without loop this machine needs the database"),
        (
            "api",
            {"PODYARD_DATABASE_URL": "postgresql://x@db/y"},
            "without loop this machine needs the Redis",
        ),
        ("agent,loop", SERVER, "the role agent needs the role api"),
        ("api,cook", SERVER, "unknown role 'cook': use api, loop, agent, storage, broker"),
    ],
)
def test_a_machine_that_could_not_find_the_others_is_refused(
    roles: str, env: dict[str, str], reason: str
) -> None:
    with pytest.raises(PodyardError) as refused:
        check(from_environment({**env, "PODYARD_ROLES": roles}))
    assert reason in refused.value.message


@pytest.mark.parametrize(
    ("roles", "env"),
    [
        ("", {}),
        ("api,loop", {}),
        ("loop", SERVER),
        ("api, storage", SERVER),
        (",".join(ROLES), SERVER),
    ],
)
def test_roles_that_fit_are_kept_in_one_order(roles: str, env: dict[str, str]) -> None:
    settings = from_environment({**env, "PODYARD_ROLES": roles})
    check(settings)
    assert set(settings.roles) == (
        {word.strip() for word in roles.split(",")} if roles else set(ROLES)
    )
    assert list(settings.roles) == [role for role in ROLES if role in settings.roles]
    assert from_environment(settings.environment()).roles == settings.roles
