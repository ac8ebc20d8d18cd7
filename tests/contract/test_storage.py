"""Cloud Storage's APIs on the wire: what clients depend on, and what is refused."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import json
import os
import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

import google_crc32c
import httpx
import pytest

from podyard.api import server
from podyard.api.storage.app import create_storage_app
from podyard.base import contents
from podyard.base.clock import OsClock
from podyard.domain.fleet_file import instant_fleet
from podyard.settings import from_environment
from tests.contract.storage_yard import PROJECT, StorageYard, open_storage
from tests.waiting import until

KIB_256 = 256 << 10


@pytest.fixture(scope="module")
def module_yard(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StorageYard]:
    with open_storage(tmp_path_factory.mktemp("storage") / "data") as yard:
        yard.add_project("other")
        yield yard


@pytest.fixture
def yard(module_yard: StorageYard, request: pytest.FixtureRequest) -> StorageYard:
    return module_yard


@pytest.fixture
def bucket(yard: StorageYard, request: pytest.FixtureRequest) -> str:
    digest = hashlib.sha256(request.node.name.encode()).hexdigest()[:16]
    return yard.bucket(f"b-{digest}")


def _ok(response: httpx.Response, status: int = 200) -> Any:
    assert response.status_code == status, response.text
    return response.json() if response.content else None


def _refused(response: httpx.Response, status: int, reason: str) -> str:
    error = response.json()["error"]
    assert (response.status_code, error["code"], error["errors"][0]["reason"]) == (
        status,
        status,
        reason,
    ), error
    assert error["message"] == error["errors"][0]["message"]
    return str(error["message"])


def _begin(yard: StorageYard, bucket: str, name: str, **query: str) -> str:
    response = yard.http.post(
        f"/upload/storage/v1/b/{bucket}/o",
        params={"uploadType": "resumable", **query},
        json={"name": name},
    )
    assert response.status_code == 200, response.text
    return response.headers["Location"]


def _content(yard: StorageYard, bucket: str, name: str) -> bytes:
    response = yard.http.get(f"/storage/v1/b/{bucket}/o/{name}", params={"alt": "media"})
    assert response.status_code == 200, response.text
    return response.content


def test_an_object_has_what_cloud_storage_says_of_one(yard: StorageYard, bucket: str) -> None:
    made = _ok(yard.put(bucket, "a/b", b"hello"))
    assert (made["kind"], made["id"]) == ("storage#object", f"{bucket}/a/b/{made['generation']}")
    assert (made["size"], made["crc32c"], made["md5Hash"]) == (
        "5",
        "mnG7TA==",
        "XUFAKrxLKna5cZ2REBfFkg==",
    )
    assert made["contentType"] == "text/plain"
    assert _ok(yard.http.get(made["selfLink"])) == made
    assert yard.http.get(made["mediaLink"]).content == b"hello"
    media = yard.http.get(f"/download/storage/v1/b/{bucket}/o/a%2Fb", params={"alt": "media"})
    assert media.headers["X-Goog-Hash"] == "crc32c=mnG7TA==,md5=XUFAKrxLKna5cZ2REBfFkg=="
    assert media.headers["X-Goog-Generation"] == made["generation"]
    head = yard.http.head(f"/{bucket}/a/b")
    assert (head.headers["Content-Length"], head.headers["ETag"]) == (
        "5",
        '"5d41402abc4b2a76b9719d911017c592"',
    )


def test_links_lead_back_by_the_capability_that_the_client_came_by(
    yard: StorageYard, bucket: str
) -> None:
    made = _ok(
        httpx.post(
            f"{yard.emulator_host}/upload/storage/v1/b/{bucket}/o?uploadType=media&name=x",
            content=b"1",
        )
    )
    assert made["mediaLink"].startswith(f"{yard.emulator_host}/download/")
    assert httpx.get(made["mediaLink"]).content == b"1"
    begun = httpx.post(
        f"{yard.emulator_host}/upload/storage/v1/b/{bucket}/o?uploadType=resumable&name=y"
    )
    assert httpx.put(begun.headers["Location"], content=b"22").json()["size"] == "2"


@pytest.mark.parametrize(
    ("asked", "status", "found", "span"),
    [
        ("bytes=0-0", 206, b"0", "bytes 0-0/10"),
        ("bytes=3-5", 206, b"345", "bytes 3-5/10"),
        ("bytes=7-", 206, b"789", "bytes 7-9/10"),
        ("bytes=-4", 206, b"6789", "bytes 6-9/10"),
        ("bytes=5-500", 206, b"56789", "bytes 5-9/10"),
        ("bytes=-400", 206, b"0123456789", "bytes 0-9/10"),
        ("lines=1-2", 200, b"0123456789", None),
        ("bytes=1-2,4-5", 200, b"0123456789", None),
        ("bytes=10-", 416, None, "bytes */10"),
        ("bytes=-0", 416, None, "bytes */10"),
    ],
)
@pytest.mark.parametrize("path", ["/storage/v1/b/{}/o/x?alt=media", "/{}/x"])
def test_ranges(
    yard: StorageYard,
    bucket: str,
    path: str,
    asked: str,
    status: int,
    found: bytes | None,
    span: str | None,
) -> None:
    yard.put(bucket, "x", b"0123456789")
    response = yard.http.get(path.format(bucket), headers={"Range": asked})
    assert (response.status_code, response.headers.get("Content-Range")) == (status, span)
    assert found is None or response.content == found


def test_multipart_bodies_of_both_line_ends_and_with_boundaries_inside(
    yard: StorageYard, bucket: str
) -> None:
    for number, end in enumerate((b"\r\n", b"\n")):
        data = b"--other\r\n\r\n--BOUNDAR" + end + b"--BOUNDAR\n" + bytes(range(256)) * 3000
        lines = [
            b"--BOUNDARY",
            b"Content-Type: application/json",
            b"",
            json.dumps({"name": f"m{number}"}).encode(),
        ]
        lines += [b"--BOUNDARY", b"Content-Type: x/y", b"", data, b"--BOUNDARY--"]
        made = _ok(
            yard.http.post(
                f"/upload/storage/v1/b/{bucket}/o?uploadType=multipart",
                content=end.join(lines),
                headers={"Content-Type": 'multipart/related; boundary="BOUNDARY"'},
            )
        )
        assert made["contentType"] == "x/y"
        assert _content(yard, bucket, f"m{number}") == data


@pytest.mark.parametrize(
    "body", [b"", b"--B", b"--B\r\n\r\n{}", b"--X\r\n\r\n{}\r\n--X--", b'--B\r\n\r\n{"name":1']
)
def test_broken_multipart_bodies_are_refused_and_leave_nothing(
    yard: StorageYard, bucket: str, body: bytes
) -> None:
    before = yard.files()
    response = yard.http.post(
        f"/upload/storage/v1/b/{bucket}/o?uploadType=multipart",
        content=body,
        headers={"Content-Type": "multipart/related; boundary=B"},
    )
    _refused(response, 400, "invalid")
    assert yard.files() == before


def test_an_upload_in_parts_says_how_far_it_is_and_takes_overlaps(
    yard: StorageYard, bucket: str
) -> None:
    data = bytes(range(256)) * 3 * 1024 + b"end"
    place = _begin(yard, bucket, "parts")
    total = len(data)

    def send(first: int, last: int, of: object = "*", method: str = "PUT") -> httpx.Response:
        header = {"Content-Range": f"bytes {first}-{last - 1}/{of}"}
        return yard.http.request(method, place, content=data[first:last], headers=header)

    def ask() -> httpx.Response:
        return yard.http.put(place, headers={"Content-Range": "bytes */*"})

    assert (ask().status_code, ask().headers.get("Range")) == (308, None)
    first = send(0, KIB_256)
    assert (first.status_code, first.headers["Range"]) == (308, f"bytes=0-{KIB_256 - 1}")
    # Not a multiple of 256 KiB: what is over does not count.
    assert send(KIB_256, KIB_256 + 100, method="POST").headers["Range"] == f"bytes=0-{KIB_256 - 1}"
    _refused(send(2 * KIB_256, 2 * KIB_256 + 1), 400, "invalid")
    assert send(KIB_256, 2 * KIB_256).headers["Range"] == f"bytes=0-{2 * KIB_256 - 1}"
    assert send(0, KIB_256).headers["Range"] == f"bytes=0-{2 * KIB_256 - 1}"
    made = _ok(send(2 * KIB_256, total, total))
    assert made["size"] == str(total)
    assert _content(yard, bucket, "parts") == data
    # The answer was lost: asked again, it is the same.
    assert _ok(ask()) == made
    assert yard.http.put(place, headers={"Content-Range": "nonsense"}).status_code == 200


def test_an_upload_of_unknown_length_ends_with_an_empty_part(
    yard: StorageYard, bucket: str
) -> None:
    place = _begin(yard, bucket, "unknown")
    data = b"x" * KIB_256
    assert (
        yard.http.put(
            place, content=data, headers={"Content-Range": f"bytes 0-{KIB_256 - 1}/*"}
        ).status_code
        == 308
    )
    made = _ok(yard.http.put(place, headers={"Content-Range": f"bytes */{KIB_256}"}))
    assert made["crc32c"] == base64.b64encode(google_crc32c.value(data).to_bytes(4, "big")).decode()
    empty = _begin(yard, bucket, "empty")
    assert _ok(yard.http.put(empty, headers={"Content-Range": "bytes */0"}))["size"] == "0"


def test_a_cancelled_upload_is_not_known_any_more(yard: StorageYard, bucket: str) -> None:
    place = _begin(yard, bucket, "cancelled")
    yard.http.put(
        place, content=b"x" * KIB_256, headers={"Content-Range": f"bytes 0-{KIB_256 - 1}/*"}
    )
    assert yard.http.delete(place).status_code == 499
    _refused(yard.http.put(place, content=b"x"), 404, "notFound")
    _refused(yard.http.get(f"/storage/v1/b/{bucket}/o/cancelled"), 404, "notFound")


def test_what_is_cut_off_makes_no_object_and_can_go_on_in_parts(
    yard: StorageYard, bucket: str
) -> None:
    host, port = yard.url.removeprefix("http://").split(":")
    place = _begin(yard, bucket, "cut")
    paths = [
        f"/upload/storage/v1/b/{bucket}/o?uploadType=media&name=cut",
        place.removeprefix(yard.url),
    ]
    for method, path in zip(("POST", "PUT"), paths, strict=True):
        with socket.create_connection((host, int(port))) as connection:
            head = (
                f"{method} {path} HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer "
                f"{yard.token}\r\n"
            )
            connection.sendall(f"{head}Content-Length: 1000000\r\n\r\n".encode() + b"x" * 600_000)
    _refused(yard.http.get(f"/storage/v1/b/{bucket}/o/cut"), 404, "notFound")

    def kept() -> int | None:
        found = yard.http.put(place, headers={"Content-Range": "bytes */1000000"}).headers.get(
            "Range"
        )
        return None if found is None else int(found.rpartition("-")[2]) + 1

    assert until(kept, 10, "what has come of the part") == 2 * KIB_256
    header = {"Content-Range": f"bytes {2 * KIB_256}-999999/1000000"}
    made = _ok(yard.http.put(place, content=b"x" * (1_000_000 - 2 * KIB_256), headers=header))
    assert made["size"] == "1000000"


def test_chunked_bodies(yard: StorageYard, bucket: str) -> None:
    def pieces() -> Iterator[bytes]:
        for _ in range(300):
            yield b"0123456789" * 1000

    response = yard.http.post(
        f"/upload/storage/v1/b/{bucket}/o?uploadType=media&name=chunked", content=pieces()
    )
    assert _ok(response)["size"] == "3000000"


def test_preconditions(yard: StorageYard, bucket: str) -> None:
    made = _ok(yard.put(bucket, "x", b"1"))
    path, generation = f"/storage/v1/b/{bucket}/o/x", made["generation"]
    assert yard.http.get(path, params={"ifGenerationNotMatch": generation}).status_code == 304
    assert (
        yard.http.get(path, params={"ifMetagenerationNotMatch": "1", "alt": "media"}).status_code
        == 304
    )
    for query in ({"ifGenerationMatch": "1"}, {"ifMetagenerationMatch": "2"}):
        for method in ("GET", "PATCH", "DELETE"):
            body = {} if method == "PATCH" else None
            _refused(
                yard.http.request(method, path, params=query, json=body), 412, "conditionNotMet"
            )
    _refused(
        yard.http.patch(path, params={"ifGenerationNotMatch": generation}, json={}),
        412,
        "conditionNotMet",
    )
    _refused(yard.http.get(path, params={"generation": "1"}), 404, "notFound")
    _refused(yard.http.get(path, params={"ifGenerationMatch": "x"}), 400, "invalid")
    place = _begin(yard, bucket, "x", ifGenerationMatch=generation)
    assert _ok(yard.http.put(place, content=b"2"))["generation"] > generation
    again = yard.http.post(
        f"/upload/storage/v1/b/{bucket}/o?uploadType=resumable&name=x&ifGenerationMatch=0", json={}
    )
    _refused(again, 412, "conditionNotMet")


def test_metadata_is_merged_by_patch_and_replaced_by_put(yard: StorageYard, bucket: str) -> None:
    yard.put(bucket, "x", b"1")
    path = f"/storage/v1/b/{bucket}/o/x"
    _ok(yard.http.patch(path, json={"metadata": {"a": "1", "b": "2"}, "cacheControl": "no-store"}))
    found = _ok(
        yard.http.patch(path, json={"metadata": {"a": None, "c": "3"}, "contentType": None})
    )
    assert (found["metadata"], found["metageneration"]) == ({"b": "2", "c": "3"}, "3")
    assert (found["contentType"], found["cacheControl"]) == ("application/octet-stream", "no-store")
    found = _ok(yard.http.put(path, json={"metadata": {"d": "4"}}))
    assert found["metadata"] == {"d": "4"}
    assert "cacheControl" not in found
    assert yard.http.get(f"/{bucket}/x").headers["X-Goog-Meta-d"] == "4"


BAD_FIELDS: list[dict[str, Any]] = [
    {"metadata": {"a": "x" * 9000}},
    {"metadata": ["a"]},
    {"metadata": {"a": {"b": 1}}},
    {"contentType": "a\r\nX-Evil: 1"},
    {"contentType": "a\x00b"},
    {"storageClass": "GOLD"},
    {"customTime": "yesterday"},
    {"contentDisposition": 7 * "x" * 9000},
]


@pytest.mark.parametrize("body", BAD_FIELDS)
def test_bad_fields_are_refused(yard: StorageYard, bucket: str, body: dict[str, Any]) -> None:
    yard.put(bucket, "x", b"1")
    _refused(yard.http.patch(f"/storage/v1/b/{bucket}/o/x", json=body), 400, "invalid")


@pytest.mark.parametrize(
    "name",
    ["..%2F..%2Fetc", "%2Fabs", "a%2F..%2Fb", "%2e%2e", ".", "a%0Ab", "%ff", "x" * 1025, "a%00"],
)
def test_hostile_names_are_names_or_refused_and_lead_nowhere(
    yard: StorageYard, bucket: str, name: str
) -> None:
    before = {path for path in yard.data.parent.rglob("*") if "contents" not in path.parts}
    raw = f"/upload/storage/v1/b/{bucket}/o?uploadType=media&name={name}"
    response = yard.http.post(raw, content=b"evil")
    assert response.status_code in (200, 400)
    if response.status_code == 200:
        assert _content(yard, bucket, name) == b"evil"
    written = {
        path for path in yard.data.parent.rglob("*") if "contents" not in path.parts
    } - before
    assert {path.name for path in written} <= {"podyard.db-wal", "podyard.db-shm"}


def test_other_projects_buckets_are_closed(yard: StorageYard) -> None:
    theirs = yard.bucket("theirs", "other")
    yard.put(theirs, "secret", b"1")
    viewer = yard.client(yard.token_of("v@example.com", PROJECT, "tpu.viewer"))
    runner = yard.client(yard.token_of("r@example.com", PROJECT, "jobs.runner"))
    for client in (viewer, runner):
        for method, path in (
            ("GET", f"/storage/v1/b/{theirs}"),
            ("GET", f"/storage/v1/b/{theirs}/o"),
            ("GET", f"/storage/v1/b/{theirs}/o/secret"),
            ("GET", f"/storage/v1/b/{theirs}/o/nothing"),
            ("DELETE", f"/storage/v1/b/{theirs}/o/secret"),
            ("POST", f"/upload/storage/v1/b/{theirs}/o?uploadType=media&name=x"),
            ("POST", f"/storage/v1/b/{theirs}/o/secret/copyTo/b/{theirs}/o/x"),
            ("GET", "/storage/v1/b?project=other"),
            ("POST", "/storage/v1/b?project=other"),
        ):
            body = {"name": "new-bucket"} if method == "POST" else None
            _refused(client.request(method, path, json=body), 403, "forbidden")
        assert client.get(f"/{theirs}/secret").status_code == 403
    mine = yard.bucket("mine-1")
    copied = yard.http.post(f"/storage/v1/b/{theirs}/o/secret/copyTo/b/{mine}/o/x", json={})
    assert copied.status_code == 200  # the owner of the platform may
    _refused(
        viewer.post(f"/upload/storage/v1/b/{mine}/o?uploadType=media&name=x", content=b"1"),
        403,
        "forbidden",
    )
    assert (
        runner.post(
            f"/upload/storage/v1/b/{mine}/o?uploadType=media&name=y", content=b"1"
        ).status_code
        == 200
    )
    assert viewer.get(f"/{mine}/y").content == b"1"
    _refused(viewer.delete(f"/storage/v1/b/{mine}"), 403, "forbidden")
    for client in (viewer, runner):
        client.close()
    assert httpx.get(f"{yard.url}/{theirs}/secret").status_code == 401
    # The name of a bucket is taken for all projects.
    _refused(
        yard.http.post(f"/storage/v1/b?project={PROJECT}", json={"name": theirs}), 409, "conflict"
    )


def test_a_list_has_pages_prefixes_and_globs(yard: StorageYard, bucket: str) -> None:
    for name in ("a", "d/1", "d/2", "d/e/3", "z"):
        yard.put(bucket, name, b"1")
    path = f"/storage/v1/b/{bucket}/o"

    def list_objects(**query: str) -> tuple[list[str], list[str]]:
        names, prefixes, token = [], [], ""
        while True:
            found = _ok(
                yard.http.get(path, params={**query, **({"pageToken": token} if token else {})})
            )
            names += [item["name"] for item in found.get("items", ())]
            prefixes += found.get("prefixes", ())
            token = found.get("nextPageToken", "")
            if not token:
                return names, prefixes

    assert list_objects() == list_objects(maxResults="1") == (["a", "d/1", "d/2", "d/e/3", "z"], [])
    assert (
        list_objects(delimiter="/")
        == list_objects(delimiter="/", maxResults="1")
        == (["a", "z"], ["d/"])
    )
    assert list_objects(prefix="d/", delimiter="/") == (["d/1", "d/2"], ["d/e/"])
    assert list_objects(matchGlob="d/[!2]") == (["d/1"], [])
    assert list_objects(startOffset="d/2", endOffset="z") == (["d/2", "d/e/3"], [])
    _refused(yard.http.get(path, params={"pageToken": "é"}), 400, "invalid")
    xml = yard.http.get(f"/{bucket}", params={"prefix": "d/", "delimiter": "/"}).text
    assert "<Key>d/1</Key>" in xml
    assert "<CommonPrefixes><Prefix>d/e/</Prefix></CommonPrefixes>" in xml


def test_compose_rewrite_and_move(yard: StorageYard, bucket: str) -> None:
    parts = [b"one", b"two"]
    for number, data in enumerate(parts):
        yard.put(bucket, f"p{number}", data)
    path = f"/storage/v1/b/{bucket}/o"
    sources = [{"name": f"p{number}"} for number in range(2)]
    made = _ok(yard.http.post(f"{path}/both/compose", json={"sourceObjects": sources}))
    assert (made["componentCount"], "md5Hash" in made) == (2, False)
    assert (
        made["crc32c"]
        == base64.b64encode(google_crc32c.value(b"onetwo").to_bytes(4, "big")).decode()
    )
    again = _ok(
        yard.http.post(f"{path}/both/compose", json={"sourceObjects": [{"name": "both"}, *sources]})
    )
    assert again["componentCount"] == 4
    _refused(
        yard.http.post(f"{path}/x/compose", json={"sourceObjects": sources * 17}), 400, "invalid"
    )
    _refused(
        yard.http.post(f"{path}/x/compose", json={"sourceObjects": [{"name": "no"}]}),
        404,
        "notFound",
    )
    wrong = [{"name": "p0", "objectPreconditions": {"ifGenerationMatch": "1"}}]
    _refused(
        yard.http.post(f"{path}/x/compose", json={"sourceObjects": wrong}), 412, "conditionNotMet"
    )
    rewritten = _ok(
        yard.http.post(f"{path}/both/rewriteTo/b/{bucket}/o/a%2Fb", json={"contentType": "a/b"})
    )
    assert (rewritten["done"], rewritten["resource"]["contentType"]) == (True, "a/b")
    moved = _ok(yard.http.post(f"{path}/a%2Fb/moveTo/o/c", json={}))
    assert moved["name"] == "c"
    _refused(yard.http.get(f"{path}/a%2Fb"), 404, "notFound")


def test_buckets_say_what_is_not_supported(yard: StorageYard, bucket: str) -> None:
    path = f"/storage/v1/b/{bucket}"
    _refused(yard.http.patch(path, json={"versioning": {"enabled": True}}), 400, "invalid")
    _ok(yard.http.patch(path, json={"versioning": {"enabled": False}, "labels": {"a": "b"}}))
    _refused(yard.http.get(f"{path}/acl"), 400, "invalid")
    assert _ok(yard.http.get(f"{path}/storageLayout"))["hierarchicalNamespace"] == {
        "enabled": False
    }
    assert yard.http.put(f"{path}/iam", json={}).status_code == 501
    assert yard.http.get("/storage/v1/nonsense").status_code == 404
    assert yard.http.request("TRACE", f"/{bucket}/x").status_code == 501


def test_a_wrong_digest_is_refused_and_leaves_nothing(yard: StorageYard, bucket: str) -> None:
    before = yard.files()
    wrong = {"X-Goog-Hash": "crc32c=AAAAAA=="}
    _refused(yard.put(bucket, "x", b"hello", **wrong), 400, "invalid")
    assert (
        yard.http.put(
            f"/{bucket}/x", content=b"1", headers={"Content-MD5": "A" * 22 + "=="}
        ).status_code
        == 400
    )
    _refused(yard.put(bucket, "x", b"hello", **{"X-Goog-Hash": "crc32c=short"}), 400, "invalid")
    assert yard.files() == before
    assert _ok(yard.put(bucket, "x", b"hello", **{"X-Goog-Hash": "crc32c=mnG7TA=="}))["size"] == "5"


def test_the_xml_api_writes_and_deletes(yard: StorageYard, bucket: str) -> None:
    made = yard.http.put(
        f"/{bucket}/a/b", content=b"xml", headers={"x-goog-meta-k": "v", "Content-Type": "a/b"}
    )
    assert (made.status_code, made.headers["ETag"]) == (200, f'"{hashlib.md5(b"xml").hexdigest()}"')
    found = yard.http.get(f"/{bucket}/a/b")
    assert (found.content, found.headers["Content-Type"], found.headers["X-Goog-Meta-k"]) == (
        b"xml",
        "a/b",
        "v",
    )
    assert (
        yard.http.get(f"/{bucket}/a/b", headers={"If-None-Match": made.headers["ETag"]}).status_code
        == 304
    )
    copied = yard.http.put(f"/{bucket}/c", headers={"x-goog-copy-source": f"/{bucket}/a%2Fb"})
    assert copied.status_code == 200
    missing = yard.http.get(f"/{bucket}/no")
    assert (missing.status_code, "<Code>NoSuchKey</Code>" in missing.text) == (404, True)
    assert "<Code>NoSuchBucket</Code>" in yard.http.get("/no-such-bucket").text
    begun = yard.http.post(f"/{bucket}/d", headers={"x-goog-resumable": "start"})
    assert begun.status_code == 201
    assert yard.http.put(begun.headers["Location"], content=b"123").status_code == 200
    assert yard.http.delete(f"/{bucket}/d").status_code == 204
    assert yard.http.delete(f"/{bucket}/d").status_code == 404
    assert (
        f"<Name>{bucket}</Name>" in yard.http.get("/", headers={"x-goog-project-id": PROJECT}).text
    )


def test_parts_of_the_xml_api_are_joined_in_their_order(yard: StorageYard, bucket: str) -> None:
    begun = yard.http.post(f"/{bucket}/multi?uploads").text
    upload = begun.partition("<UploadId>")[2].partition("<")[0]
    tags = {}
    for number in (2, 1, 1):
        response = yard.http.put(
            f"/{bucket}/multi?partNumber={number}&uploadId={upload}", content=b"%d" % number * 3
        )
        tags[number] = response.headers["ETag"]

    def complete(*named: tuple[int, str]) -> httpx.Response:
        listed = "".join(
            f"<Part><PartNumber>{n}</PartNumber><ETag>{tag}</ETag></Part>" for n, tag in named
        )
        body = f"<CompleteMultipartUpload>{listed}</CompleteMultipartUpload>"
        return yard.http.post(f"/{bucket}/multi?uploadId={upload}", content=body)

    assert complete().status_code == 400
    assert complete((2, tags[2]), (1, tags[1])).status_code == 400
    assert complete((1, tags[2]), (2, tags[2])).status_code == 400
    assert complete((3, tags[2])).status_code == 400
    assert complete((1, tags[1]), (2, tags[2])).status_code == 200
    assert yard.http.get(f"/{bucket}/multi").content == b"111222"
    bomb = (
        b'<!DOCTYPE x [<!ENTITY a "aaaa">]><CompleteMultipartUpload>&a;</CompleteMultipartUpload>'
    )
    assert yard.http.post(f"/{bucket}/multi?uploadId={upload}", content=bomb).status_code == 400


def test_a_batch_answers_each_call(yard: StorageYard, bucket: str) -> None:
    for name in "xy":
        yard.put(bucket, name, b"1")
    calls = [
        f"GET /storage/v1/b/{bucket}/o/y",
        f"DELETE /storage/v1/b/{bucket}/o/x",
        f"GET /storage/v1/b/{bucket}/o/no",
    ]
    parts = "".join(
        f"--B\r\nContent-Type: application/http\r\nContent-ID: <{number}>\r\n\r\n{call} "
        "HTTP/1.1\r\n\r\n\r\n"
        for number, call in enumerate(calls)
    )
    headers = {"Content-Type": "multipart/mixed; boundary=B"}
    found = yard.http.post("/batch/storage/v1", content=f"{parts}--B--", headers=headers)
    assert found.status_code == 200
    for number, status in enumerate((200, 204, 404)):
        assert f"<response-{number}>\r\n\r\nHTTP/1.1 {status} " in found.text
    assert yard.http.post("/batch/storage/v1", content="{}").status_code == 400


def test_a_refused_upload_is_answered_before_its_body_has_come(
    yard: StorageYard, bucket: str
) -> None:
    response = yard.http.post(
        "/upload/storage/v1/b/there-is-none/o?uploadType=media&name=x", content=b"x" * (4 << 20)
    )
    _refused(response, 404, "notFound")


def test_a_disk_that_fills_up_in_the_middle_is_said_and_leaves_nothing(
    yard: StorageYard, bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = yard.files()
    looks = iter(range(100))
    real = contents.os.statvfs

    def statvfs(path: Any) -> Any:
        if next(looks) < 1:
            return real(path)
        return os.statvfs_result((4096, 4096, 10, 0, 0, 10, 10, 10, 0, 255))

    monkeypatch.setattr(contents.os, "statvfs", statvfs)
    message = _refused(yard.put(bucket, "full", b"x" * (40 << 20)), 507, "insufficientStorage")
    assert "the disk is full" in message
    monkeypatch.undo()
    assert yard.files() == before
    _refused(yard.http.get(f"/storage/v1/b/{bucket}/o/full"), 404, "notFound")


def test_the_process_ends_when_it_is_quiet_and_not_before(
    yard: StorageYard, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "QUIET_SECONDS", 1.0)
    monkeypatch.setattr(server, "TICK_SECONDS", 0.05)
    settings = from_environment({"PODYARD_DATA": str(yard.data)})
    app = create_storage_app(settings, yard.database, instant_fleet(), OsClock())
    with socket.create_server(("127.0.0.1", 0)) as listener:
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        child = socket.socket(fileno=os.dup(listener.fileno()))
        thread = threading.Thread(target=server.serve_storage, args=(app, child, lambda: None))
        monkeypatch.setattr(server.QuietServer, "capture_signals", contextlib.nullcontext)
        thread.start()
        with httpx.Client(base_url=url, headers={"Authorization": f"Bearer {yard.token}"}) as http:
            for _ in range(15):  # an open connection keeps it
                assert http.get("/storage/v1/b?project=demo").status_code == 200
                time.sleep(0.1)
            assert thread.is_alive()
        thread.join(10)
        assert not thread.is_alive()
        # A client that comes now waits for the next process: the socket is open.
        socket.create_connection(("127.0.0.1", listener.getsockname()[1])).close()
