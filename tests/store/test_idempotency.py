"""One request id, one change: also when two requests come at once, and on both databases."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from sqlalchemy import delete, func, insert, select

from podyard.base.clock import ManualClock
from podyard.base.errors import BadRequest, Code, FieldViolation, PodyardError
from podyard.control.platform import idempotency
from podyard.control.platform.idempotency import REMEMBERED_SECONDS, SWEPT_MAX
from podyard.control.platform.operations import begin
from podyard.db.store.unit_of_work import Database, UnitOfWork
from podyard.db.tables.access import request_ids
from podyard.db.tables.compute import operations
from podyard.domain.machine import ResourceKind
from podyard.domain.operation import OperationTarget, OperationVerb
from podyard.domain.principal import Principal

ID = "6f1c2d4e-0000-4000-8000-00000000000a"
ANNA = Principal("anna@x.org", {})
BERT = Principal("bert@x.org", {})
BODY = {"node": {"acceleratorType": "v2-8", "labels": {"a": "1", "b": "2"}}, "nodeId": "n"}


def _operation(uow: UnitOfWork) -> str:
    return begin(
        uow,
        OperationTarget(ResourceKind.NODE, "n", "p", "us-central1-f", "n"),
        OperationVerb.CREATE,
    ).operation_id


def _send(
    database: Database,
    request_id: str = ID,
    *,
    who: Principal = ANNA,
    project: str = "p",
    method: str = "nodes.create",
    body: Any = BODY,
    act: Callable[[UnitOfWork], str] = _operation,
) -> str:
    return database.run(
        lambda uow: idempotency.once(uow, who, project, method, request_id, body, lambda: act(uow))
    )


def _count(database: Database, table: Any) -> int:
    return database.read(
        lambda uow: int(uow.execute(select(func.count()).select_from(table)).scalar() or 0)
    )


def test_the_same_request_is_answered_with_the_first_operation(
    database: Database, clock: ManualClock
) -> None:
    first = _send(database)
    clock.advance(REMEMBERED_SECONDS - 1)
    turned = {"nodeId": "n", "node": {"labels": {"b": "2", "a": "1"}, "acceleratorType": "v2-8"}}
    assert _send(database, ID.upper(), body=turned) == first
    assert _count(database, operations) == 1


def test_another_body_or_caller_with_the_id_is_refused(database: Database) -> None:
    first = _send(database)
    for options in ({"body": {**BODY, "nodeId": "m"}}, {"who": BERT}):
        with pytest.raises(PodyardError, match=ID) as refused:
            _send(database, **options)
        assert refused.value.code is Code.ALREADY_EXISTS
    assert _send(database) == first
    assert _count(database, operations) == 1


def test_another_project_method_or_id_is_another_request(database: Database) -> None:
    found = {
        _send(database),
        _send(database, project="q"),
        _send(database, method="nodes.delete"),
        _send(database, ID[:-1] + "b"),
    }
    assert len(found) == 4


def test_a_day_later_the_id_may_be_used_again(database: Database, clock: ManualClock) -> None:
    first = _send(database)
    clock.advance(REMEMBERED_SECONDS)
    second = _send(database, body={})
    assert second != first
    assert _send(database, body={}) == second
    assert _count(database, request_ids) == 1


def test_what_failed_may_be_tried_again_with_its_id(database: Database) -> None:
    def failing(_uow: UnitOfWork) -> str:
        raise PodyardError(Code.FAILED_PRECONDITION, "not now")

    with pytest.raises(PodyardError, match="not now"):
        _send(database, act=failing)
    assert _count(database, request_ids) == 0
    assert _send(database, body={}) == _send(database, body={})


def test_a_request_whose_operation_was_deleted_counts_as_new(database: Database) -> None:
    first = _send(database)
    database.run(lambda uow: uow.execute(delete(operations)))
    second = _send(database)
    assert second != first
    assert _send(database) == second
    with pytest.raises(PodyardError, match="another"):
        _send(database, body={})


@pytest.mark.parametrize(
    "bad",
    [
        "",
        "x",
        "00000000-0000-0000-0000-000000000000",
        ID[:-1],
        f"{ID}\n",
        f"{{{ID}}}",
        ID.replace("-", ""),
    ],
)
def test_an_id_that_is_no_uuid_is_refused(database: Database, bad: str) -> None:
    with pytest.raises(PodyardError) as refused:
        _send(database, bad)
    assert refused.value.code is Code.INVALID_ARGUMENT
    assert refused.value.details == (
        BadRequest((FieldViolation("requestId", refused.value.message),)),
    )


def test_old_requests_are_forgotten_a_few_at_a_time(database: Database, clock: ManualClock) -> None:
    def fill(uow: UnitOfWork) -> None:
        for index in range(SWEPT_MAX + 20):
            key = {"project": "p", "method": "nodes.create", "request_id": f"{index:036d}"}
            uow.execute(
                insert(request_ids).values(**key, body_sha256="", operation_id="o", created=uow.now)
            )

    database.run(fill)
    clock.advance(REMEMBERED_SECONDS)
    _send(database)
    assert _count(database, request_ids) == 20 + 1
    _send(database, ID[:-1] + "b")
    assert _count(database, request_ids) == 2


@pytest.mark.parametrize("same", [True, False])
def test_two_at_once_make_one_operation(database: Database, same: bool) -> None:
    both = threading.Barrier(2)

    def send(number: int) -> str | None:
        both.wait()
        try:
            return _send(database, body={} if same else {"number": number})
        except PodyardError as error:
            assert error.code is Code.ALREADY_EXISTS
            return None

    for turn in range(5):
        with ThreadPoolExecutor(2) as pool:
            answers = list(pool.map(send, range(2)))
        assert _count(database, operations) == turn + 1
        assert len(set(answers)) == (1 if same else 2)
        assert any(answers)
        database.run(lambda uow: uow.execute(delete(request_ids)))


def test_the_second_waits_until_the_first_has_failed_and_then_acts(database: Database) -> None:
    acting, second_sent = threading.Event(), threading.Event()

    def slow(_uow: UnitOfWork) -> str:
        acting.set()
        second_sent.wait(5)
        raise PodyardError(Code.ABORTED, "late")

    def first() -> None:
        with pytest.raises(PodyardError, match="late"):
            _send(database, act=slow)

    def second() -> str:
        second_sent.set()
        return _send(database)

    with ThreadPoolExecutor(2) as pool:
        failing = pool.submit(first)
        assert acting.wait(5)
        found = pool.submit(second).result(10)
        failing.result(10)
    assert _send(database) == found
    assert _count(database, operations) == 1
