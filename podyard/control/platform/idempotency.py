"""`requestId`: a request that is sent again, because its answer was lost, changes nothing again
(AIP-155)."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Mapping
from typing import Any

from podyard.base.errors import Code, PodyardError, invalid_field
from podyard.db.compute import operations
from podyard.db.store import request_ids
from podyard.db.store.request_ids import Key
from podyard.db.store.unit_of_work import UnitOfWork
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

    `method` names the call (`nodes.create`) and `body` everything that tells one request from
    another: the target's name too. The caller has checked the permission. Raises INVALID_ARGUMENT
    for an id that is not a UUID, and ALREADY_EXISTS when the id came with another body, or from
    another caller, within 24 h of platform time.

    An operation that has been deleted since cannot be answered, so the request counts as new: a
    creation then finds what it made before (ALREADY_EXISTS), a deletion finds nothing (NOT_FOUND).
    """
    key = (project, method, _check_id(request_id))
    digest = _digest(principal, body)
    too_old = uow.now.plus_seconds(-REMEMBERED_SECONDS)
    request_ids.sweep(uow, too_old, SWEPT_MAX)
    request_ids.forget(uow, key, too_old)
    # Written before acting: of two units with one id, PostgreSQL lets the second wait here for the
    # first to end.
    if request_ids.claim(uow, key, digest):
        return _act(uow, key, act)
    earlier = request_ids.find(uow, key)
    assert earlier is not None, "claimed by a unit that has committed"
    if earlier.body_sha256 != digest:
        raise PodyardError(
            Code.ALREADY_EXISTS,
            f"requestId {request_id!r} was used for another {method} request within the last 24 "
            "hours; a new request "
            "needs a new id",
        )
    operation = None if earlier.operation_id is None else operations.find(uow, earlier.operation_id)
    return _act(uow, key, act) if operation is None else operation.operation_id


def _act(uow: UnitOfWork, key: Key, act: Callable[[], str]) -> str:
    operation_id = act()
    request_ids.set_operation(uow, key, operation_id)
    return operation_id


def _check_id(request_id: str) -> str:
    """The id in lower case: two spellings of one UUID are one."""
    found = request_id.lower()
    if _UUID.fullmatch(found) is None or found == _ZERO:
        raise invalid_field(
            f"requestId {request_id!r} is not a valid UUID: use a UUID other than all zeros",
            "request_id",
        )
    return found


def _digest(principal: Principal, body: Mapping[str, Any]) -> str:
    whole = {"caller": principal.email, "body": body}
    text = json.dumps(whole, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode("ascii")).hexdigest()
