"""Projects and the roles in them."""

from __future__ import annotations

from collections.abc import Mapping

from sqlalchemy import bindparam, delete, select

from podyard.db.store.records import columns
from podyard.db.store.unit_of_work import UnitOfWork
from podyard.db.tables.access import projects, role_bindings
from podyard.domain.iam.policy import RoleGrant
from podyard.domain.project import Project

_PROJECT = select(projects).where(projects.c.project == bindparam("project"))
_PROJECT_LOCKED = _PROJECT.with_for_update()
_ROLES_OF = select(role_bindings).where(role_bindings.c.email == bindparam("email"))


def find(uow: UnitOfWork, project: str) -> Project | None:
    """Locked on PostgreSQL when the unit may write: units that decide on quota in one project take
    turns."""
    row = uow.first(_PROJECT_LOCKED if uow.writable else _PROJECT, {"project": project})
    return None if row is None else Project(**row)


def read(uow: UnitOfWork, project: str) -> Project | None:
    """Never locked: for what decides nothing on the project."""
    row = uow.first(_PROJECT, {"project": project})
    return None if row is None else Project(**row)


def of_number(uow: UnitOfWork, number: int) -> Project | None:
    """By its twelve digits; never locked."""
    row = uow.first(select(projects).where(projects.c.number == number))
    return None if row is None else Project(**row)


def list_all(uow: UnitOfWork) -> list[Project]:
    """By name."""
    return [Project(**row) for row in uow.all(select(projects).order_by(projects.c.project))]


def insert(uow: UnitOfWork, project: Project) -> None:
    uow.insert(projects, columns(project))


def set_compute_metadata(uow: UnitOfWork, project: str, metadata: Mapping[str, str]) -> None:
    uow.update(projects, {"project": project}, {"compute_metadata": dict(metadata)})


def set_chips_max(uow: UnitOfWork, project: str, chips_max: int | None) -> None:
    uow.update(projects, {"project": project}, {"chips_max": chips_max})


def roles_of(uow: UnitOfWork, email: str) -> dict[str, frozenset[str]]:
    """The roles of an email, by project (`*`: every one)."""
    roles: dict[str, frozenset[str]] = {}
    for row in uow.all(_ROLES_OF, {"email": email}):
        roles[row["project"]] = roles.get(row["project"], frozenset()) | {row["role"]}
    return roles


def owners(uow: UnitOfWork) -> dict[str, frozenset[str]]:
    """The emails with role owner, by project that has any. The platform's owner is in none."""
    found: dict[str, frozenset[str]] = {}
    for row in uow.all(
        select(role_bindings).where(role_bindings.c.role == "owner", role_bindings.c.project != "*")
    ):
        found[row["project"]] = found.get(row["project"], frozenset()) | {row["email"]}
    return found


def bind(uow: UnitOfWork, email: str, project: str, role: str) -> None:
    """Gives a role. One that is held already stays."""
    values = {"email": email, "project": project, "role": role}
    if uow.first(select(role_bindings).filter_by(**values)) is None:
        uow.insert(role_bindings, values)


def grants_in(uow: UnitOfWork, project: str) -> frozenset[RoleGrant]:
    """The roles that a project has granted."""
    rows = uow.all(select(role_bindings).where(role_bindings.c.project == project))
    return frozenset(RoleGrant(row["role"], row["email"]) for row in rows)


def unbind(uow: UnitOfWork, email: str, project: str, role: str) -> None:
    values = {"email": email, "project": project, "role": role}
    uow.execute(delete(role_bindings).filter_by(**values))


def unbind_everywhere(uow: UnitOfWork, email: str) -> None:
    """Takes every role in every project from an email that is no more."""
    uow.execute(delete(role_bindings).where(role_bindings.c.email == email))
