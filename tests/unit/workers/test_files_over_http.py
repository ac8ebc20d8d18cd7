"""Objects and folders of the platform over HTTP: whole or not at all, once per machine, and never
of another job."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import httpx
import pytest

from podyard.base.clock import OsClock
from podyard.base.errors import Code, PodyardError
from podyard.workers.kit.fetched_folder import bring
from podyard.workers.kit.http_client import JsonClient
from podyard.workers.kit.http_store import PIECE_BYTES, HttpStore
from podyard.workers.replica.event_writer import EventWriter
from tests.unit.control.gang import Gang
from tests.yard import Yard, open_yard

LARGE = bytes(range(256)) * (2 * PIECE_BYTES // 256) + b"and a rest"


@pytest.fixture
def yard(tmp_path: Path) -> Iterator[Yard]:
    (tmp_path / "platform").mkdir()
    with open_yard(tmp_path / "platform") as found:
        yield found


class Running:
    """A replica of a job, as far as the API can tell."""

    def __init__(self, yard: Yard, job: str = "j", node: str = "n", **fields: Any) -> None:
        yard.create(node)
        self.gang = Gang(yard)
        before = [one["replica"] for one in self.gang.sync()]
        yard.ok(
            "POST",
            f"{yard.jobs()}?jobId={job}",
            {"recipe": "digits-cnn", "node": node, "steps": 10, **fields},
        )
        yard.step()
        (self.replica,) = (one for one in self.gang.sync() if one["replica"] not in before)
        self.yard = yard
        self.api = JsonClient(yard.url, self.replica["token"])
        yard.others.append(cast(httpx.Client, self.api))  # it is closed with them

    def store(self, of: str = "objects", patience: float = 0.0) -> HttpStore:
        return HttpStore(self.api, self.replica["replica"], OsClock(), patience, of)

    def folder(self) -> Path:
        prefix = self.gang.specification(self.replica)["objectsPrefix"]
        return self.yard.data / "objects" / prefix


def test_what_is_put_is_read_listed_and_deleted(yard: Yard) -> None:
    running = Running(yard)
    store = running.store()
    for name, data in {
        "checkpoints/1.bin": LARGE,
        "checkpoints/1.json": b"{}",
        "empty": b"",
    }.items():
        store.put(name, data)
        assert store.get(name) == data
    assert store.list("checkpoints/") == ["checkpoints/1.bin", "checkpoints/1.json"]
    store.put("checkpoints/1.json", b"other")
    assert (running.folder() / "checkpoints/1.json").read_bytes() == b"other"
    store.delete("checkpoints/1.bin")
    store.delete("checkpoints/1.bin")
    assert store.list("") == ["checkpoints/1.json", "empty"]
    with pytest.raises(PodyardError) as caught:
        store.get("checkpoints/1.bin")
    assert caught.value.code is Code.NOT_FOUND


def test_half_an_object_has_no_name(yard: Yard) -> None:
    running = Running(yard)
    store = running.store()
    store.put("kept", b"before")
    digest = hashlib.sha256(LARGE).hexdigest()
    query = {"name": "kept", "bytes": len(LARGE), "digest": digest}
    store._send("object", {**query, "offset": 0}, LARGE[:PIECE_BYTES])
    assert store.get("kept") == b"before"
    assert store.list("") == ["kept"]
    # A piece that leaves a gap, and one that changes the bytes, are refused; the name keeps what it
    # had.
    with pytest.raises(PodyardError, match="and 1048576 bytes are there"):
        store._send("object", {**query, "offset": 2 * PIECE_BYTES}, LARGE[2 * PIECE_BYTES :])
    store._send("object", {**query, "offset": PIECE_BYTES}, b"x" * PIECE_BYTES)
    with pytest.raises(PodyardError, match="does not have the digest"):
        store._send("object", {**query, "offset": 2 * PIECE_BYTES}, LARGE[2 * PIECE_BYTES :])
    assert store.get("kept") == b"before"
    # The same piece twice is one.
    for offset in (0, PIECE_BYTES, PIECE_BYTES, 2 * PIECE_BYTES):
        store._send("object", {**query, "offset": offset}, LARGE[offset : offset + PIECE_BYTES])
    assert store.get("kept") == LARGE


@pytest.mark.parametrize("name", ["../other/x", "/etc/passwd", "a//b", "", ".unfinished-x"])
def test_names_do_not_lead_out(yard: Yard, name: str) -> None:
    store = Running(yard).store()
    with pytest.raises(PodyardError) as caught:
        store.put(name, b"x")
    assert caught.value.code is Code.INVALID_ARGUMENT


def test_another_jobs_files_are_not_there(yard: Yard) -> None:
    running = Running(yard)
    other = Running(yard, "k", "m")
    other.store().put("secret", b"x")
    with pytest.raises(PodyardError, match="Permission"):
        HttpStore(running.api, other.replica["replica"], OsClock(), 0.0).get("secret")
    for of in ("source", "data", "programs", "nonsense"):
        with pytest.raises(PodyardError, match="was not found"):
            running.store(of).list("")


def test_a_replica_that_has_ended_writes_no_more(yard: Yard) -> None:
    running = Running(yard)
    store = running.store()
    store.put("a", b"1")
    running.gang.exit_all()
    with pytest.raises(PodyardError) as caught:
        store.put("a", b"2")
    assert caught.value.code in (Code.ABORTED, Code.UNAUTHENTICATED, Code.PERMISSION_DENIED)
    assert (running.folder() / "a").read_bytes() == b"1"


def test_events_grow_and_a_repeated_piece_is_written_once(yard: Yard) -> None:
    running = Running(yard)
    store = running.store()
    writer = EventWriter(store, 1, 0, 10, OsClock())
    writer.add(1, {"loss": 1.0}, is_rare=True)
    writer.add(2, {"loss": 0.5}, is_rare=True)
    (name,) = store.list("events/")
    there = store.get(name)
    store.append(name, 0, there[:10])
    assert store.get(name) == there
    with pytest.raises(PodyardError, match="only names below events/"):
        store.append("checkpoints/1.json", 0, b"x")


def test_a_data_set_is_fetched_once_and_follows_the_platforms(yard: Yard, tmp_path: Path) -> None:
    there = yard.data / "datasets" / "faces" / "train"
    there.mkdir(parents=True)
    (there / "a.bin").write_bytes(LARGE)
    (there / "b.bin").write_bytes(b"b")
    running = Running(yard, recipe="cifar10-cnn", arguments={"data": "faces"})
    said: list[str] = []
    here = tmp_path / "datasets"
    here.mkdir()

    def fetch() -> None:
        bring(running.store("data"), here, "faces", OsClock(), said.append, lambda: False)

    fetch()
    assert (here / "faces/train/a.bin").read_bytes() == LARGE
    assert said == ["fetching faces: 2 files, 2.0 MiB"]
    fetch()
    assert len(said) == 1
    (there / "b.bin").write_bytes(b"changed")
    (there / "a.bin").unlink()
    fetch()
    assert said[1:] == ["fetching faces: 1 files, 0.0 MiB"]
    assert {path.name: path.read_bytes() for path in (here / "faces/train").iterdir()} == {
        "b.bin": b"changed"
    }
    with pytest.raises(PodyardError, match="not a folder below"):
        bring(running.store("data"), here, "../elsewhere", OsClock(), said.append, lambda: False)
