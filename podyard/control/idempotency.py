"""`requestId`: a request that is sent again, because its answer was lost, changes nothing again (AIP-155)."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Mapping
from typing import Any

from sqlalchemy import delete, select, tuple_, update
from sqlalchemy.dialects import postgresql, sqlite

from podyard.base.errors import Code, PodyardError, invalid
from podyard.db import operations as operation_rows
from podyard.db.tables_access import request_ids
from podyard.db.unit_of_work import UnitOfWork
from podyard.domain.principal import Principal

REMEMBERED_SECONDS = 24 * 3600  # platform time
SWEPT_MAX = 100  # per new request: the table shrinks faster than it grows, and no unit is long
_UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_ZERO = "00000000-0000-0000-0000-000000000000"


def once(
    uow: UnitOfWork,
    principal: Principal,
    project: str,
    method: str,
    request_id: str,
    body: Mapping[str, Any],
    act: Callable[[], str],
) -> str:
    """The id of the operation that `act` makes, or made when the same request came before.

    `method` names the call (`nodes.create`) and `body` everything that tells one request from another: the target's
    name too. The caller has checked the permission. Raises INVALID_ARGUMENT for an id that is no UUID, and
    ALREADY_EXISTS when the id came with another body, or from another caller, within 24 h of platform time.

    An operation that has been deleted since cannot be answered, so the request counts as new: a creation then finds
    what it made before (ALREADY_EXISTS), a deletion finds nothing (NOT_FOUND).
    """
    key = {"project": project, "method": method, "request_id": _checked(request_id)}
    digest = _digest(principal, body)
    _sweep(uow)
    uow.execute(delete(request_ids).filter_by(**key).where(_is_old(uow)))
    # Written before acting: of two units with one id, PostgreSQL lets the second wait here for the first to end.
    if _claim(uow, {**key, "body_sha256": digest, "operation_id": None, "created": uow.now}):
        return _acted(uow, key, act)
    row = uow.first(select(request_ids).filter_by(**key))
    assert row is not None, "claimed by a unit that has committed"
    if row["body_sha256"] != digest:
        raise PodyardError(
            Code.ALREADY_EXISTS,
            f"requestId {request_id!r} was used for another {method} request within the last 24 hours; a new request "
            "needs a new id",
        )
    operation = None if row["operation_id"] is None else operation_rows.find(uow, row["operation_id"])
    return _acted(uow, key, act) if operation is None else operation.operation_id


def _acted(uow: UnitOfWork, key: Mapping[str, str], act: Callable[[], str]) -> str:
    operation_id = act()
    uow.execute(update(request_ids).filter_by(**key).values(operation_id=operation_id))
    return operation_id


def _claim(uow: UnitOfWork, values: Mapping[str, Any]) -> bool:
    """Whether the row is ours: no other request has it, nor is making it."""
    dialect = postgresql if uow.connection.dialect.name == "postgresql" else sqlite
    return uow.execute(dialect.insert(request_ids).values(**values).on_conflict_do_nothing()).rowcount == 1


def _checked(request_id: str) -> str:
    """The id in lower case: two spellings of one UUID are one."""
    found = request_id.lower()
    if _UUID.fullmatch(found) is None or found == _ZERO:
        raise invalid(f"requestId {request_id!r} is not a UUID, or it is the one of only zeros", "requestId")
    return found


def _digest(principal: Principal, body: Mapping[str, Any]) -> str:
    whole = {"caller": principal.email, "body": body}
    text = json.dumps(whole, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode("ascii")).hexdigest()


def _is_old(uow: UnitOfWork) -> Any:
    return request_ids.c.created <= uow.now.plus_seconds(-REMEMBERED_SECONDS)


def _sweep(uow: UnitOfWork) -> None:
    """Forgets the oldest requests. Rows that another unit is sweeping are left to it."""
    columns = (request_ids.c.project, request_ids.c.method, request_ids.c.request_id)
    old = select(*columns).where(_is_old(uow)).order_by(request_ids.c.created).limit(SWEPT_MAX)
    found = uow.execute(old.with_for_update(skip_locked=True)).all()
    if found:
        uow.execute(delete(request_ids).where(tuple_(*columns).in_([tuple(row) for row in found])))
