"""The list of a project's jobs, page by page. Reads only."""

from __future__ import annotations

from podyard.control.access import identity
from podyard.db.store.unit_of_work import UnitOfWork
from podyard.db.views import lists
from podyard.domain.job import Job
from podyard.domain.listing import Facet, ListQuery, RowPage
from podyard.domain.principal import Principal


def list_page(
    uow: UnitOfWork, principal: Principal, project: str, query: ListQuery
) -> RowPage[Job]:
    """The jobs of one page."""
    _check(uow, principal, project)
    return lists.job_page(uow, project, query)


def list_facets(uow: UnitOfWork, principal: Principal, project: str) -> list[Facet]:
    """Return how many jobs there are of each state, zone and type."""
    _check(uow, principal, project)
    return lists.job_facets(uow, project)


def _check(uow: UnitOfWork, principal: Principal, project: str) -> None:
    principal.require("podyard.jobs.list", project, f"projects/{project}/locations/-/jobs")
    identity.project_row(uow, project)
