"""The rows that the database is asked for by one page of a list."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import quote

import pytest

from podyard.db.store.unit_of_work import UnitOfWork
from tests.yard import ZONE, Yard

COUNT = 7
SIZE = 2
DISKS = f"/compute/v1/projects/demo/zones/{ZONE}"
TPUS = f"/v2/projects/demo/locations/{ZONE}"


RAY = (
    "((labels.a = b) AND (labels.a = b)) AND ((status = STAGING) OR (status = RUNNING)) AND "
    "(creationTimestamp < 2027-01-01T00:00:00-08:00)"
)


class Counter:
    """The most rows that one statement about a table has given."""

    def __init__(self) -> None:
        self.most: dict[str, int] = {}

    def add(self, row: Mapping[str, Any] | None, rows: int) -> None:
        kinds = {"disk_key": "disks", "operation_id": "operations", "node_key": "nodes"}
        for key, kind in kinds.items():
            if row is not None and key in row and "project" in row:
                self.most[kind] = max(rows, self.most.get(kind, 0))


@pytest.fixture
def counter(monkeypatch: pytest.MonkeyPatch) -> Iterator[Counter]:
    counted, read = Counter(), UnitOfWork.all

    def all_rows(self: UnitOfWork, *arguments: Any) -> list[Mapping[str, Any]]:
        rows = read(self, *arguments)
        counted.add(rows[0] if rows else None, len(rows))
        return rows

    monkeypatch.setattr(UnitOfWork, "all", all_rows)
    yield counted


@pytest.mark.parametrize(
    ("kind", "path", "size"),
    [
        ("disks", f"{DISKS}/disks?filter=labels.a%3Db", "maxResults"),
        ("disks", "/compute/v1/projects/demo/aggregated/disks?filter=", "maxResults"),
        ("disks", f"{DISKS}/disks?filter=creationTimestamp>2026-01-01T00:00:00Z", "maxResults"),
        ("disks", f"{DISKS}/disks?filter=(status=READY) AND (labels.a=b)", "maxResults"),
        ("nodes", f"{DISKS}/instances?filter={RAY}", "maxResults"),
        ("operations", f"{DISKS}/operations?filter=", "maxResults"),
        ("operations", f"{DISKS}/operations?filter=status=DONE", "maxResults"),
        ("operations", f"{TPUS}/operations?filter=metadata.verb%3Dcreate", "pageSize"),
    ],
)
def test_a_page_reads_one_row_more_than_it_has(
    yard: Yard, counter: Counter, kind: str, path: str, size: str
) -> None:
    for index in range(COUNT):
        yard.ok("POST", f"{DISKS}/disks", {"name": f"d-{index}", "labels": {"a": "b"}})
        if kind == "nodes":
            body = {"name": f"i-{index}", "machineType": "e2-micro", "labels": {"a": "b"}}
            yard.ok("POST", f"{DISKS}/instances", body)
        if kind == "operations":
            body = {"acceleratorType": "v2-8", "runtimeVersion": "tpu-vm-base"}
            yard.ok("POST", f"{TPUS}/nodes?nodeId=n-{index}", body)
    token, pages = "", 0
    path = quote(path, safe="/?&=-.%")
    while pages == 0 or token:
        counter.most.clear()
        page = yard.ok("GET", f"{path}&{size}={SIZE}&pageToken={token}")
        assert counter.most[kind] <= SIZE + 1
        token, pages = page.get("nextPageToken", ""), pages + 1
    assert pages == -(-COUNT // SIZE)


def test_a_page_of_nodes_reads_one_more_than_it_has(yard: Yard, counter: Counter) -> None:
    for index in range(COUNT):
        yard.create(f"n-{index}")
    token, names = "", list[str]()
    for _ in range(-(-COUNT // SIZE)):
        counter.most.clear()
        page = yard.ok("GET", f"{yard.nodes()}?pageSize={SIZE}&pageToken={token}")
        assert counter.most["nodes"] <= SIZE + 1
        names += [node["name"].rpartition("/")[2] for node in page["nodes"]]
        token = page.get("nextPageToken", "")
    assert (token, names) == ("", [f"n-{index}" for index in range(COUNT)])


def test_a_filter_that_nothing_passes_ends(yard: Yard) -> None:
    yard.ok("POST", f"{DISKS}/disks", {"name": "d"})
    page = yard.ok("GET", f"{DISKS}/disks?filter=description%3Dnothing")
    assert "items" not in page
    assert "nextPageToken" not in page
