"""The storage process as a user meets it: started by the first connection, killed in the middle of
uploads, and used by `podyard storage` and gcloud."""

from __future__ import annotations

import base64
import concurrent.futures
import hashlib
import itertools
import json
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import google_crc32c
import httpx
import pytest

from podyard.base.boxes import why_not
from tests.conftest import require
from tests.gcloud import Terminal
from tests.long_runs import times
from tests.stack import PODYARD, Stack, kill, open_stack, until

UPLOADS = times(60, 200)
KIB_256 = 256 << 10
pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("stack")]


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    with open_stack(tmp_path_factory.mktemp("storage")) as found:
        yield found


def _exports(stack: Stack) -> dict[str, str]:
    found: dict[str, str] = json.loads(stack.podyard("env", "-o", "json").stdout)
    return found


def _http(stack: Stack) -> httpx.Client:
    """Trailing slash: paths are relative to it."""
    return httpx.Client(
        base_url=f"{_exports(stack)['STORAGE_EMULATOR_HOST']}/", timeout=60, trust_env=False
    )


def _process(stack: Stack, name: str) -> int | None:
    found = json.loads((stack.data / "processes.json").read_text()).get(name)
    return None if found is None else int(found["pid"])


def test_it_starts_with_the_first_connection(stack: Stack) -> None:
    assert _process(stack, "storage") is None
    rows = json.loads(stack.podyard("status", "-o", "json").stdout)["processes"]
    assert {"process": "storage", "pid": None, "state": "idle"} in rows
    with _http(stack) as http:
        assert http.get("storage/v1/b?project=demo").json()["items"] == []
    until(lambda: _process(stack, "storage"), 10, "the storage process")


def _upload(stack: Stack, number: int, data: bytes) -> bool:
    """Return whether the client was told that its object is there. It begins again as clients do,
    and may give up."""
    with _http(stack) as http:
        for _ in range(20):
            try:
                if number % 2:
                    response = http.post(
                        f"upload/storage/v1/b/kills/o?uploadType=media&name=o{number}", content=data
                    )
                else:
                    response = _in_parts(http, f"o{number}", data)
                if response.status_code == 200:
                    return True
            except httpx.TransportError:
                pass
            time.sleep(0.1)
    return False


def _in_parts(http: httpx.Client, name: str, data: bytes) -> httpx.Response:
    begun = http.post(f"upload/storage/v1/b/kills/o?uploadType=resumable&name={name}")
    if begun.status_code != 200:
        return begun
    place, first = begun.headers["Location"], 0
    for _ in range(50):
        last = min(first + KIB_256, len(data))
        header = {"Content-Range": f"bytes {first}-{last - 1}/{len(data)}"}
        try:
            response = http.put(place, content=data[first:last], headers=header)
        except httpx.TransportError:
            time.sleep(0.1)
            response = http.put(place, headers={"Content-Range": f"bytes */{len(data)}"})
        if response.status_code != 308:
            return response
        kept = response.headers.get("Range")
        first = 0 if kept is None else int(kept.rpartition("-")[2]) + 1
    return response


@pytest.mark.repeats
def test_each_upload_is_whole_or_absent_when_processes_are_killed(stack: Stack) -> None:
    """The storage process is killed five times, the API twice, in the middle of the uploads."""
    with _http(stack) as http:
        assert http.post("storage/v1/b?project=demo", json={"name": "kills"}).status_code == 200
    contents = [
        hashlib.sha256(b"%d" % number).digest() * (4096 * (1 + number % 40))
        for number in range(UPLOADS)
    ]
    kills = 0
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        waiting = {
            pool.submit(_upload, stack, number, data): number
            for number, data in enumerate(contents)
        }
        for name in itertools.cycle(("storage", "storage", "api", "storage")):
            time.sleep(0.5)
            done = sum(future.done() for future in waiting)
            if kills == 7 or done == UPLOADS:
                break
            pid = _process(stack, name)
            if pid is not None and Path(f"/proc/{pid}").exists():
                kill(pid)
                kills += 1
        told = {number for future, number in waiting.items() if future.result()}
    assert kills >= 3, "the uploads were over before the kills"
    with _http(stack) as http:
        found = {}
        query: dict[str, str] = {}
        while True:
            page = http.get("storage/v1/b/kills/o", params=query).json()
            found |= {int(item["name"][1:]): item for item in page.get("items", ())}
            if "nextPageToken" not in page:
                break
            query = {"pageToken": page["nextPageToken"]}
        for number, item in found.items():
            data = contents[number]
            assert item["size"] == str(len(data))
            assert (
                item["crc32c"]
                == base64.b64encode(google_crc32c.value(data).to_bytes(4, "big")).decode()
            )
            assert http.get(f"storage/v1/b/kills/o/o{number}?alt=media").content == data
    assert told <= set(found), "an object that its client was told of is not there"
    print(
        f"{UPLOADS} uploads, {kills} kills: {len(found)} objects whole, "
        f"{UPLOADS - len(found)} absent"
    )
    assert len(told) == UPLOADS


@pytest.mark.smoke
def test_podyard_storage(stack: Stack, tmp_path: Path) -> None:
    def run(*arguments: str, code: int = 0) -> tuple[str, str]:
        env = {name: value for name, value in os.environ.items() if not name.startswith("PODYARD_")}
        command = [*PODYARD, "storage", *arguments]
        env["PODYARD_DATA"] = str(stack.data)
        done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=120)
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout, done.stderr

    source = tmp_path / "src"
    (source / "sub").mkdir(parents=True)
    (source / "a b").write_text("one")
    (source / "sub" / "ü").write_bytes(os.urandom(9 << 20))
    run("mb", "gs://commands")
    run("cp", "-r", str(source), "gs://commands/")
    run("cp", str(source / "a b"), "gs://commands/copy")
    run("cp", "gs://commands/copy", "gs://commands/other")
    assert run("ls", "gs://commands")[0].split("\n")[:3] == [
        "gs://commands/copy",
        "gs://commands/other",
        "gs://commands/src/",
    ]
    assert run("cat", "gs://commands/src/a b")[0] == "one"
    run("cp", "-r", "gs://commands/src", str(tmp_path / "back"))
    assert (tmp_path / "back/src/sub/ü").read_bytes() == (source / "sub" / "ü").read_bytes()
    (source / "a b").write_text("two")
    assert "1 copied, 0 deleted, 1 unchanged" in run("sync", str(source), "gs://commands/src")[1]
    (source / "sub" / "ü").unlink()
    assert (
        "0 copied, 1 deleted, 1 unchanged"
        in run("sync", str(source), "gs://commands/src", "--delete")[1]
    )
    with _http(stack) as http:
        for name in ("..%2F..%2Fevil", "%2Fabs", "a%2F..%2Fb"):
            http.post(
                f"upload/storage/v1/b/commands/o?uploadType=media&name=hostile%2F{name}",
                content=b"evil",
            )
    before = set(tmp_path.rglob("*"))
    assert (
        "cannot be a file"
        in run("cp", "-r", "gs://commands/hostile", str(tmp_path / "in"), code=1)[1]
    )
    assert set(tmp_path.rglob("*")) == before
    assert "matches no object" in run("rm", "gs://commands/nothing", code=1)[1]
    assert "use -r" in run("cp", str(source), "gs://commands/x", code=2)[1]
    assert "bucket does not exist" in run("ls", "gs://there-is-none", code=1)[1]
    run("rm", "-r", "gs://commands")
    assert "commands" not in run("ls")[0]


def test_gcloud_storage(stack: Stack, tmp_path: Path) -> None:
    require(shutil.which("gcloud"), "gcloud")
    source = tmp_path / "src"
    (source / "sub").mkdir(parents=True)
    (source / "small").write_text("small\n")
    (source / "sub" / "large").write_bytes(os.urandom(12 << 20))
    terminal = Terminal(stack, tmp_path)
    commands = [
        "gcloud storage buckets create gs://by-gcloud",
        f"gcloud storage cp {source}/small gs://by-gcloud/one",
        f"gcloud storage cp -r {source} gs://by-gcloud/",
        "gcloud storage cat gs://by-gcloud/one",
        "gcloud storage ls -r 'gs://by-gcloud/**'",
        f"gcloud storage rsync -r {source} gs://by-gcloud/mirror",
        f"mkdir {tmp_path}/back && gcloud storage rsync -r gs://by-gcloud/mirror {tmp_path}/back",
        "gcloud storage mv gs://by-gcloud/one gs://by-gcloud/two",
        "gcloud storage rm gs://by-gcloud/two",
        "gcloud storage rm -r gs://by-gcloud",
    ]
    for command in commands:
        process = terminal.start(command)
        stdout, stderr = process.communicate(timeout=120)
        assert process.returncode == 0, (command, stdout, stderr)
        if " cat " in command:
            assert stdout == "small\n"
        if " ls " in command:
            assert stdout.split() == [
                f"gs://by-gcloud/{name}" for name in ("one", "src/small", "src/sub/large")
            ]
    print(f"gcloud storage: {len(commands)} commands")
    assert (tmp_path / "back/sub/large").read_bytes() == (source / "sub" / "large").read_bytes()


def test_hosts_reach_the_buckets_of_their_project_without_a_setting(stack: Stack) -> None:
    """In a box also as TensorFlow asks: over TLS, at Google's names."""
    with _http(stack) as http:
        assert http.post("storage/v1/b?project=demo", json={"name": "of-hosts"}).status_code == 200
    stack.create_node("h", "v2-8", "us-central1-f")
    place = "upload/storage/v1/b/of-hosts/o?uploadType"
    script = (
        f'curl -sS -X POST "$STORAGE_EMULATOR_HOST/{place}=media&name=plain" '
        "--data-binary plain "
        "-o /dev/null"
    )
    if why_not("on") is None:
        begin = (
            f"curl -sS -i -X POST 'https://www.googleapis.com/{place}=resumable&name=tls' -H "
            "'Content-Length: 0'"
        )
        script += (
            f" && L=$({begin} -H 'Transfer-Encoding: identity' | tr -d '\\r' | sed -n "
            "'s/^Location: //p')"
            ' && printf tls > t && curl -sS -T t "$L" -o /dev/null && curl -sS '
            "https://storage.googleapis.com/of-hosts/tls"
        )
    env = {name: value for name, value in os.environ.items() if not name.startswith("PODYARD_")}
    command = [
        *PODYARD,
        "tpu",
        "exec",
        "h",
        "--zone",
        "us-central1-f",
        "--data",
        str(stack.data),
        "--",
    ]
    done = subprocess.run(
        [*command, "bash", "-c", script], env=env, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    with _http(stack) as http:
        assert http.get("of-hosts/plain").content == b"plain"
        if why_not("on") is None:
            assert done.stdout == "tls"
    stack.delete_node("h", "us-central1-f")
