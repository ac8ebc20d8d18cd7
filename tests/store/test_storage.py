"""Buckets, objects and uploads from inside: what a unit of work changes and what stays on disk, on
both databases."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import pytest

from podyard.base.clock import NANOS_PER_SECOND, ManualClock
from podyard.base.contents import DISK_FULL, SWEEP_AGE_SECONDS, Content, Contents
from podyard.base.errors import Code, PodyardError
from podyard.control.storage import buckets, objects, refusals, sweep, uploads
from podyard.db.store.unit_of_work import Database
from podyard.domain.principal import PLATFORM, Principal
from podyard.domain.stored import ObjectFields, Preconditions
from tests.builders import PROJECT, Play
from tests.conftest import START

NOBODY = Principal("stranger@example.com", {})
VIEWER = Principal("viewer@example.com", {PROJECT: frozenset({"tpu.viewer"})})


@pytest.fixture
def contents(tmp_path: Path) -> Contents:
    return Contents(tmp_path / "contents")


def _content(contents: Contents, data: bytes) -> Content:
    incoming = contents.incoming(1 << 20)
    incoming.write(data)
    return incoming.store()


def _reason(database: Database, body: object) -> tuple[Code, str | None]:
    with pytest.raises(PodyardError) as refused:
        database.run(body)  # type: ignore[arg-type]
    return refused.value.code, refusals.reason_of(refused.value)


def test_an_object_is_found_as_it_was_put(play: Play, contents: Contents) -> None:
    content = _content(contents, b"hello")
    assert contents.path(content.digest).read_bytes() == b"hello"
    assert (content.size, content.crc32c, content.md5) == (
        5,
        0x9A71BB4C,
        "5d41402abc4b2a76b9719d911017c592",
    )
    play.database.run(lambda uow: buckets.create(uow, PLATFORM, PROJECT, "b-1"))
    fields = ObjectFields(content_type="text/plain", metadata={"a": "é"})
    made = play.database.run(lambda uow: objects.put(uow, PLATFORM, "b-1", "x/ü", content, fields))
    assert play.database.read(lambda uow: objects.find(uow, VIEWER, "b-1", "x/ü")) == made
    bucket = play.database.read(lambda uow: buckets.get(uow, VIEWER, "b-1"))
    assert (bucket.objects, bucket.bytes) == (1, 5)
    again = play.database.run(
        lambda uow: objects.put(uow, PLATFORM, "b-1", "x/ü", _content(contents, b"second"))
    )
    assert again.generation > made.generation
    bucket = play.database.read(lambda uow: buckets.get(uow, VIEWER, "b-1"))
    assert (bucket.objects, bucket.bytes) == (1, 6)
    play.database.run(lambda uow: objects.delete(uow, PLATFORM, "b-1", "x/ü", Preconditions()))
    play.database.run(lambda uow: buckets.delete(uow, PLATFORM, "b-1", Preconditions()))


def test_preconditions_and_roles_refuse(play: Play, contents: Contents) -> None:
    content = _content(contents, b"1")
    play.database.run(lambda uow: buckets.create(uow, PLATFORM, PROJECT, "b-1"))
    new = Preconditions(generation=0)
    made = play.database.run(lambda uow: objects.put(uow, PLATFORM, "b-1", "o", content, when=new))
    for when in (
        new,
        Preconditions(not_generation=made.generation),
        Preconditions(metageneration=2),
    ):
        found = _reason(
            play.database,
            lambda uow, when=when: objects.put(uow, PLATFORM, "b-1", "o", content, when=when),
        )
        assert found == (Code.FAILED_PRECONDITION, refusals.CONDITION_NOT_MET)
    found = _reason(play.database, lambda uow: objects.put(uow, VIEWER, "b-1", "o", content))
    assert found == (Code.PERMISSION_DENIED, refusals.FORBIDDEN)
    find = _reason(play.database, lambda uow: objects.find(uow, NOBODY, "b-1", "o"))
    assert find == (Code.PERMISSION_DENIED, refusals.FORBIDDEN)
    assert (
        _reason(play.database, lambda uow: objects.find(uow, PLATFORM, "b-2", "o"))[0]
        is Code.NOT_FOUND
    )
    twice = _reason(play.database, lambda uow: buckets.create(uow, PLATFORM, PROJECT, "b-1"))
    assert twice == (Code.ALREADY_EXISTS, refusals.CONFLICT)
    full = _reason(play.database, lambda uow: buckets.delete(uow, PLATFORM, "b-1", Preconditions()))
    assert full == (Code.ALREADY_EXISTS, refusals.CONFLICT)


@pytest.mark.parametrize(
    "name", ["A", "ab", "-ab", "a..b", "1.2.3.4", "google-x", "goog1", "a b", "ü-1", "x" * 64, ""]
)
def test_bad_names_of_buckets(play: Play, name: str) -> None:
    with pytest.raises(PodyardError, match="Invalid bucket name"):
        play.database.run(lambda uow: buckets.create(uow, PLATFORM, PROJECT, name))


@pytest.mark.parametrize(
    "name", ["", ".", "..", "a\nb", "a\rb", "é" * 513, "\ud800", ".well-known/acme-challenge/x"]
)
def test_bad_names_of_objects(play: Play, contents: Contents, name: str) -> None:
    content = _content(contents, b"1")
    play.database.run(lambda uow: buckets.create(uow, PLATFORM, PROJECT, "b-1"))
    with pytest.raises(PodyardError) as refused:
        play.database.run(lambda uow: objects.put(uow, PLATFORM, "b-1", name, content))
    assert refused.value.code is Code.INVALID_ARGUMENT


def _listed(play: Play, most: int = 1000, **how: object) -> tuple[list[str], list[str], str | None]:
    page = play.database.read(lambda uow: objects.list_objects(uow, VIEWER, "b-1", most, **how))  # type: ignore[arg-type]
    return [one.name for one in page.objects], page.prefixes, page.following


def test_lists_go_by_bytes_and_sum_up_prefixes(
    play: Play, contents: Contents, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(objects, "_BATCH", 3)
    content = _content(contents, b"1")
    play.database.run(lambda uow: buckets.create(uow, PLATFORM, PROJECT, "b-1"))
    names = [
        "B",
        "a",
        "a/",
        "a/1",
        "a/2",
        "a/b/3",
        "a0",
        "b/x",
        "é",
        "\U0001f600/y",
        "\U0010ffff",
        "\U0010ffff/",
    ]
    for name in reversed(names):
        play.database.run(lambda uow, name=name: objects.put(uow, PLATFORM, "b-1", name, content))
    assert _listed(play) == (names, [], None)
    assert _listed(play, delimiter="/") == (
        ["B", "a", "a0", "é", "\U0010ffff"],
        ["a/", "b/", "\U0001f600/", "\U0010ffff/"],
        None,
    )
    assert _listed(play, prefix="a/", delimiter="/") == (["a/", "a/1", "a/2"], ["a/b/"], None)
    assert _listed(play, prefix="a", delimiter="/", with_trailing_delimiter=True)[0] == [
        "a",
        "a/",
        "a0",
    ]
    assert _listed(play, start="a/2", end="b")[0] == ["a/2", "a/b/3", "a0"]
    assert _listed(play, prefix="\U0010ffff")[0] == ["\U0010ffff", "\U0010ffff/"]
    pages: list[str] = []
    start: str | None = ""
    while start is not None:
        some, prefixes, start = _listed(play, 1, delimiter="/", start=start)
        assert len(some) + len(prefixes) == 1
        pages += some + prefixes
    assert pages == ["B", "a", "a/", "a0", "b/", "é", "\U0001f600/", "\U0010ffff", "\U0010ffff/"]


def test_the_bucket_of_jobs_is_made_once_and_another_name_if_it_is_taken(play: Play) -> None:
    first = play.database.run(lambda uow: buckets.of_jobs(uow, PROJECT))
    assert first.name == f"{PROJECT}-podyard-jobs"
    assert play.database.run(lambda uow: buckets.of_jobs(uow, PROJECT)) == first
    taken = f"{'p' * 46}-podyard-jobs"
    play.database.run(lambda uow: buckets.create(uow, PLATFORM, PROJECT, taken))
    assert play.database.run(lambda uow: buckets.of_jobs(uow, "p" * 60)).name == f"{taken}2"


def test_an_upload_in_parts_goes_on_where_it_was_and_is_finished_once(
    play: Play, contents: Contents
) -> None:
    play.database.run(lambda uow: buckets.create(uow, PLATFORM, PROJECT, "b-1"))
    upload = play.database.run(
        lambda uow: uploads.begin(
            uow, PLATFORM, "b-1", "o", ObjectFields(), Preconditions(), crc32c=0x9A71BB4C
        )
    )
    incoming = contents.resume(upload.upload_id, 100)
    incoming.write(b"hel")
    incoming.suspend()
    incoming = contents.resume(upload.upload_id, 100)
    assert incoming.size == 3
    incoming.write(b"lo")
    content = incoming.store()
    other = _reason(
        play.database, lambda uow: uploads.finish(uow, VIEWER, upload.upload_id, content)
    )
    assert other[0] is Code.NOT_FOUND
    made = play.database.run(lambda uow: uploads.finish(uow, PLATFORM, upload.upload_id, content))
    assert (
        play.database.run(lambda uow: uploads.finish(uow, PLATFORM, upload.upload_id, content))
        == made
    )
    wrong = play.database.run(
        lambda uow: uploads.begin(
            uow, PLATFORM, "b-1", "o", ObjectFields(), Preconditions(), md5="0" * 32
        )
    )
    code, reason = _reason(
        play.database, lambda uow: uploads.finish(uow, PLATFORM, wrong.upload_id, content)
    )
    assert (code, reason) == (Code.INVALID_ARGUMENT, uploads.DIGEST_MISMATCH)
    play.database.run(lambda uow: uploads.cancel(uow, PLATFORM, wrong.upload_id))
    assert (
        _reason(play.database, lambda uow: uploads.find(uow, PLATFORM, wrong.upload_id))[0]
        is Code.NOT_FOUND
    )


def _files(folder: Path) -> Mapping[str, float]:
    return {path.name: path.stat().st_mtime for path in folder.rglob("*") if path.is_file()}


def test_the_sweep_removes_what_no_row_names_once_it_is_old(
    play: Play, contents: Contents, tmp_path: Path
) -> None:
    play.database.run(lambda uow: buckets.create(uow, PLATFORM, PROJECT, "b-1"))
    kept, lost, young = (_content(contents, data) for data in (b"kept", b"lost", b"young"))
    play.database.run(lambda uow: objects.put(uow, PLATFORM, "b-1", "o", kept))
    begun = play.database.run(
        lambda uow: uploads.begin(uow, PLATFORM, "b-1", "u", ObjectFields(), Preconditions())
    )
    for name in (begun.upload_id, "new-left"):
        part = contents.resume(name, 10)
        part.write(b"part")
        part.suspend()
    clock = ManualClock(START)
    now = START.nanos / NANOS_PER_SECOND
    before = now - SWEEP_AGE_SECONDS - 1
    for path in (tmp_path / "contents").rglob("*"):
        if path.is_file():
            os.utime(path, (now, now) if path.name == young.digest else (before, before))
    assert sweep.sweep(play.database, contents, clock) == 1
    assert set(_files(tmp_path / "contents")) == {kept.digest, young.digest, begun.upload_id}
    assert not contents.path(lost.digest).exists()
    # Written again between the look and the removal: it stays.
    assert not contents.remove(young.digest, before)
    assert contents.path(young.digest).exists()


def test_what_is_too_large_and_a_full_disk_are_refused_and_leave_nothing(
    contents: Contents, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    incoming = contents.incoming(4)
    with pytest.raises(PodyardError, match="larger than 4 bytes"):
        incoming.write(b"12345")
    incoming.discard()
    full = os.statvfs_result((4096, 4096, 10, 0, 0, 10, 10, 10, 0, 255))
    monkeypatch.setattr(os, "statvfs", lambda _: full)
    with pytest.raises(PodyardError) as refused:
        contents.incoming(4)
    assert refusals.reason_of(refused.value) == DISK_FULL
    assert _files(tmp_path / "contents") == {}
