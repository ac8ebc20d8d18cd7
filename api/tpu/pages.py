"""Pages of the lists of nodes, queued resources and operations, which the database cuts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from podyard.api.tpu.call import Call, page_size
from podyard.api.wire.row_lists import ListRequest, RowList, read_page
from podyard.control.access import identity
from podyard.db.store.unit_of_work import UnitOfWork
from podyard.domain.lists import filters

T = TypeVar("T")


def page(call: Call, collection: str, list_of: Callable[[int], RowList[T]]) -> dict[str, Any]:
    """`list_of`: the list, for the number of the project."""
    text = call.fields.get("filter", "")

    def work(uow: UnitOfWork) -> dict[str, Any]:
        rows = list_of(identity.project_row(uow, call.project).number)
        where = [call.version, call.method.id, call.project, str(call.zone)]
        wanted = ListRequest(
            [*where, call.principal.email, text],
            filters.parse(text),
            rows.default,
            page_size(call.fields),
            call.fields.get("pageToken"),
        )
        cut = read_page(uow, call.request, wanted, rows)
        token = {} if cut.token is None else {"nextPageToken": cut.token}
        return {collection: [shown for _, shown in cut.items], **token}

    return call.read(work)[0]
