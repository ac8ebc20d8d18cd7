"""kill -9 of the Celery worker in the middle of a large export, and of the worker and the API while
a webhook is under way: the file is whole and has the bytes of an undisturbed one, and the address
hears of one webhook by one id."""

from __future__ import annotations

import contextlib
import hashlib
import queue
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler
from typing import Any

import psutil
import pytest
from sqlalchemy import Table, select

from podyard.base.clock import OsClock
from podyard.db.store.unit_of_work import Database
from podyard.db.tables.billing import webhooks
from podyard.db.tables.exports import exports
from podyard.domain import months
from tests.listener import listening
from tests.stack import Stack, kill, open_stack, until

HERE = "/podyard/v1/projects/demo"
NODES = 16  # as many as the zone has room for
MONTHS = 3  # that are exported: at least 22,000 rows, a row for each hour of each node
DAYS = 31 * MONTHS + 2  # after which all of them are closed
pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("stack")]


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    with open_stack(tmp_path_factory.mktemp("export-kills"), {"PODYARD_CLOCK": "virtual"}) as found:
        yield found


def _kill_worker(stack: Stack) -> None:
    """The Celery worker and whatever it has started; returns when the agent has started another."""
    before = until(lambda: stack.celery() or None, 20, "a Celery worker")
    for worker in before:
        with contextlib.suppress(psutil.NoSuchProcess):
            for process in [*worker.children(recursive=True), worker]:
                kill(process.pid)
    gone = {process.pid for process in before}
    until(
        lambda: [p for p in stack.celery() if p.pid not in gone] or None,
        20,
        "another Celery worker",
    )


def _let_claim_lapse(stack: Stack, table: Table) -> None:
    """What the time of a claim does, at once: the loop finds that what a dead worker had claimed is
    due."""
    with contextlib.closing(
        Database(f"sqlite:///{stack.data / 'podyard.db'}", OsClock())
    ) as database:
        database.run(lambda uow: _set_due(uow, table))


def _set_due(uow: Any, table: Table) -> None:
    key = next(iter(table.primary_key)).name
    for row in uow.all(select(table).where(table.c.next_try.is_not(None))):
        uow.update(table, {key: row[key]}, {"next_try": uow.real_now})


class _Reader:
    """A reader that polls an export: each answer must stay true."""

    def __init__(self, stack: Stack, name: str) -> None:
        self._stack = stack
        self._name = f"/podyard/v1/{name}"
        self.seen: list[dict[str, Any]] = []

    def look(self) -> dict[str, Any]:
        found = self._stack.call("GET", self._name)
        state, before = found["metadata"], self.seen[-1]["metadata"] if self.seen else {}
        assert state["rowsDone"] >= before.get("rowsDone", 0), (before, state)
        assert state["tries"] >= before.get("tries", 0), (before, state)
        if "rowsAll" in before:
            assert state.get("rowsAll") == before["rowsAll"], (before, state)
        if not found["done"]:
            answer = self._stack.http.get(f"{self._name}:download")
            # It may have been finished since: then the whole file is there.
            assert answer.status_code == 400 or self._stack.call("GET", self._name)["done"], (
                answer.text
            )
        self.seen.append(found)
        return found

    def until(self, good: Callable[[dict[str, Any]], bool], what: str) -> dict[str, Any]:
        found: dict[str, Any] = until(lambda: one if good(one := self.look()) else None, 30, what)
        return found

    def file(self) -> bytes:
        answer = self._stack.http.get(f"{self._name}:download")
        assert answer.status_code == 200, answer.text
        response = self.seen[-1]["response"]
        assert hashlib.sha256(answer.content).hexdigest() == response["sha256"]
        assert len(answer.content) == response["bytes"]
        return answer.content


def _begin(stack: Stack, month: str) -> _Reader:
    last = month
    for _ in range(MONTHS - 1):
        last = months.following(last)
    body = {"format": "csv", "fromMonth": month, "untilMonth": last, "granularity": "hour"}
    return _Reader(stack, stack.call("POST", f"{HERE}/exports", body)["name"])


def test_an_export_is_finished_once_with_the_same_bytes_by_the_next_worker(stack: Stack) -> None:
    start = stack.call("GET", "/podyard/v1/clock")["platformTime"]
    for number in range(NODES):
        stack.create_node(f"n{number}", "v2-8", "us-central1-f")
    stack.call("POST", "/podyard/v1/clock:advance", {"duration": f"{DAYS}d"})
    until(
        lambda: True if "targetTime" not in stack.call("GET", "/podyard/v1/clock") else None,
        60,
        "the months",
    )
    disturbed = _begin(stack, start[:7])
    half = disturbed.until(lambda found: found["metadata"]["rowsDone"] > 0, "progress")
    assert not half["done"], half
    _kill_worker(stack)
    killed = disturbed.look()
    assert not killed["done"], killed
    folder = stack.data / "objects" / "exports" / "demo"
    assert [path.name for path in folder.iterdir() if not path.name.startswith(".")] == []
    _let_claim_lapse(stack, exports)
    done = disturbed.until(lambda found: bool(found["done"]), "the export")
    assert done["metadata"]["tries"] == 2
    calm = _begin(stack, start[:7])
    assert (
        calm.until(lambda found: bool(found["done"]), "the other export")["metadata"]["tries"] == 1
    )
    assert disturbed.file() == calm.file()
    assert len(list(folder.iterdir())) == 2  # nothing of the first try is left
    assert disturbed.look() == done


class _Address:
    """The address of a webhook. A request waits until it is told how to be answered; `ids` are
    those that came."""

    def __init__(self) -> None:
        self.ids: list[str] = []
        self.answers: queue.Queue[int] = queue.Queue()

    @contextlib.contextmanager
    def open(self) -> Iterator[str]:
        def answer(request: BaseHTTPRequestHandler, _: bytes) -> None:
            self.ids.append(request.headers["Podyard-Webhook"])
            status = self.answers.get()
            with contextlib.suppress(OSError):  # its sender is dead
                request.send_response(status)
                request.end_headers()

        with listening(answer) as url:
            try:
                yield f"{url}/hook"
            finally:
                self.answers.put(204)  # for those that still wait

    def wait_for(self, count: int) -> None:
        until(lambda: True if len(self.ids) >= count else None, 20, f"request {count}")


def test_a_webhook_arrives_by_one_id_whatever_is_killed_while_it_is_under_way(stack: Stack) -> None:
    address = _Address()
    with address.open() as url:
        stack.call(
            "PUT",
            f"{HERE}/budgets/b",
            {"amount": "1", "period": "total", "actions": [f"notify:{url}"]},
        )
        address.wait_for(1)
        _kill_worker(stack)  # nobody will say how the first try went
        address.answers.put(204)
        _let_claim_lapse(stack, webhooks)
        address.wait_for(2)
        kill(stack.pid("api"))
        address.answers.put(204)

        def sent() -> Any:
            (event,) = stack.call("GET", f"{HERE}/budgetEvents")["events"]
            (hook,) = event["webhooks"]
            return hook if hook["done"] else None

        hook = until(sent, 20, "the record")
    assert (hook["tries"], hook["outcome"]) == (2, "204")
    assert len(address.ids) == 2
    assert len(set(address.ids)) == 1
