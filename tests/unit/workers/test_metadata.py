"""The metadata server: what Compute Engine's says, byte for byte where clients look."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import socket
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import pytest

from podyard.base.errors import Code, PodyardError
from podyard.domain.host import NodeFacts
from podyard.workers.host.metadata import (
    GUEST_BYTES_MAX,
    VALUE_BYTES_MAX,
    Answer,
    MetadataHandler,
    MetadataSource,
)
from podyard.workers.host.metadata_server import HEAD_BYTES_MAX, listen

T = TypeVar("T")

ACCOUNT = "12-compute@developer.gserviceaccount.com"
FACTS = NodeFacts(
    node_key="n", project="demo", project_number=12, zone="us-central2-b", node_id="pod", number=42,
    state="READY",
    accelerator_type="v4-16", topology="2x2x2", runtime_version="tpu-vm-v4-base",
    usage_class="spot",
    description="a pod", tags=("a", "b"), metadata={"startup-script": "echo", "odd_Key-name": "1"},
    service_account=ACCOUNT, scopes=("s1", "s2"), network="default",
    internal_ips=("10.128.0.2", "10.128.0.3"),
    external_ips=("34.64.0.2", "34.64.0.3"),
)  # fmt: skip
HEADER = {"metadata-flavor": "Google"}
V1 = "/computeMetadata/v1"


class Case:
    def __init__(self, facts: NodeFacts = FACTS) -> None:
        self.asked = 0
        self.changes = 0
        self.source = MetadataSource(facts, 1, 77, {}, self._token, self._changed)
        self.handler = MetadataHandler(self.source)

    async def _token(self) -> tuple[str, int]:
        self.asked += 1
        return "secret", 3599

    def _changed(self) -> None:
        self.changes += 1

    def ask(self, path: str, method: str = "GET", body: bytes = b"", **headers: str) -> Answer:
        return asyncio.run(self.handler.answer(method, path, headers or HEADER, body))

    def text(self, path: str) -> str:
        answer = self.ask(V1 + path)
        assert answer.status == 200, answer
        assert answer.content_type == "text/plain"
        return answer.body


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("/instance/attributes/agent-worker-number", "1"),
        ("/instance/attributes/accelerator-type", "v4-16"),
        ("/instance/attributes/instance-id", "pod"),
        ("/instance/attributes/odd_Key-name", "1"),
        (
            "/instance/attributes/worker-network-endpoints",
            "unknown:unknown:10.128.0.2,unknown:unknown:10.128.0.3",
        ),
        ("/instance/id", "77"),
        ("/instance/name", "pod-w-1"),
        ("/instance/hostname", "pod-w-1.us-central2-b.c.demo.internal"),
        ("/instance/zone", "projects/12/zones/us-central2-b"),
        ("/instance/tags", '["a", "b"]'),
        ("/instance/preempted", "FALSE"),
        ("/instance/maintenance-event", "NONE"),
        ("/instance/scheduling/preemptible", "TRUE"),
        ("/instance/scheduling/automatic-restart", "FALSE"),
        ("/instance/network-interfaces/0/ip", "10.128.0.3"),
        ("/instance/network-interfaces/0/mac", "42:01:0a:80:00:03"),
        ("/instance/network-interfaces/0/access-configs/0/external-ip", "34.64.0.3"),
        ("/instance/service-accounts/default/email", ACCOUNT),
        (f"/instance/service-accounts/{ACCOUNT}/scopes", "s1\ns2\n"),
        ("/instance/service-accounts/", f"default/\n{ACCOUNT}/\n"),
        ("/instance/service-accounts/default/", "aliases\nemail\nidentity\nscopes\ntoken\n"),
        ("/instance/network-interfaces/", "0/\n"),
        ("/project/project-id", "demo"),
        ("/project/numeric-project-id", "12"),
        ("/universe/universe-domain", "googleapis.com"),
        ("/", "instance/\nproject/\nuniverse/\n"),
    ],
)
def test_a_key_says(path: str, text: str) -> None:
    assert Case().text(path) == text


def test_the_environment_has_the_lines_that_clients_parse() -> None:
    text = Case().text("/instance/attributes/tpu-env")
    lines = dict(line.split(": ", 1) for line in text.splitlines())
    assert lines["TPU_PROCESS_BOUNDS"] == "'1,1,2'"
    assert lines["TOPOLOGY"] == "'2x2x2'"
    assert lines["WORKER_ID"] == "'1'"
    assert all(value.startswith("'") and value.endswith("'") for value in lines.values())


def test_without_googles_header_nothing_is_said() -> None:
    case = Case()
    for headers in ({"host": "x"}, {"metadata-flavor": "Other"}):
        answer = case.ask(f"{V1}/instance/name", **headers)
        assert answer.status == 403
        assert "Missing Metadata-Flavor:Google header." in answer.body
        assert "pod-w-1" not in answer.body
    forwarded = asyncio.run(
        case.handler.answer("GET", f"{V1}/instance/name", {**HEADER, "x-forwarded-for": "1"}, b"")
    )
    assert forwarded.status == 403
    assert case.ask("/", host="x").status == 200  # google-auth's ping
    assert case.ask("/", host="x").body == "computeMetadata/\n"


@pytest.mark.parametrize(
    "path",
    ["/instance/nothing", "/instance/network-interfaces/1/ip", "/instance/network-interfaces/x/",
        "/instance/name/x",
     "/instance/service-accounts/else@where/token", "/instance/upcoming-maintenance"],
)  # fmt: skip
def test_an_unknown_key_is_not_found(path: str) -> None:
    answer = Case().ask(V1 + path)
    assert answer.status == 404
    assert "was not found on this server" in answer.body


def test_markup_in_a_path_stays_text() -> None:
    assert "<script>" not in Case().ask(f"{V1}/<script>").body


def test_a_folder_without_its_slash_is_elsewhere() -> None:
    answer = Case().ask(f"{V1}/instance/attributes")
    assert (answer.status, answer.headers) == (301, (("Location", f"{V1}/instance/attributes/"),))


def test_a_recursive_answer_is_camel_case_but_for_attributes() -> None:
    answer = Case().ask(f"{V1}/?recursive=true")
    assert answer.content_type == "application/json"
    found = json.loads(answer.body)
    assert found["instance"]["id"] == 77
    assert found["instance"]["attributes"]["odd_Key-name"] == "1"
    assert (
        found["instance"]["networkInterfaces"][0]["accessConfigs"][0]["externalIp"] == "34.64.0.3"
    )
    assert found["instance"]["serviceAccounts"][ACCOUNT] == {
        "aliases": ["default"], "email": ACCOUNT, "scopes": ["s1", "s2"],
    }  # fmt: skip
    assert found["project"] == {"attributes": {}, "numericProjectId": 12, "projectId": "demo"}
    assert "secret" not in answer.body
    below = json.loads(Case().ask(f"{V1}/instance/attributes/?recursive=true").body)
    assert below["odd_Key-name"] == "1"
    assert json.loads(Case().ask(f"{V1}/instance/name?alt=json").body) == "pod-w-1"
    flat = Case().ask(f"{V1}/instance/scheduling/?recursive=true&alt=text").body
    assert flat == "automatic-restart FALSE\non-host-maintenance TERMINATE\npreemptible TRUE\n"


def test_a_token_is_made_when_it_is_asked_for() -> None:
    case = Case()
    answer = case.ask(f"{V1}/instance/service-accounts/default/token?scopes=x")
    assert json.loads(answer.body) == {
        "access_token": "secret",
        "expires_in": 3599,
        "token_type": "Bearer",
    }
    assert answer.content_type == "application/json"
    assert case.asked == 1
    assert case.ask(f"{V1}/instance/service-accounts/default/identity").status == 400
    assert case.ask(f"{V1}/instance/service-accounts/default/identity?audience=a").status == 501


def test_a_refused_token_says_why() -> None:
    async def refused() -> tuple[str, int]:
        raise PodyardError(Code.PERMISSION_DENIED, "none of this project")

    case = Case()
    case.source.tokens = refused
    answer = case.ask(f"{V1}/instance/service-accounts/default/token")
    assert (answer.status, answer.body) == (403, "none of this project")


def test_guest_attributes_are_put_where_they_are_switched_on() -> None:
    case = Case(dataclasses.replace(FACTS, metadata={"enable-guest-attributes": "TRUE"}))
    path = f"{V1}/instance/guest-attributes/space/key"
    assert case.ask(path, "PUT", b"value").status == 200
    assert case.ask(path).body == "value"
    assert case.text("/instance/guest-attributes/") == "space/\n"
    assert json.loads(case.ask(f"{V1}/instance/guest-attributes/?recursive=true").body) == {
        "space": {"key": "value"}
    }
    assert case.ask(path, "DELETE").status == 204
    assert case.ask(path, "DELETE").status == 404
    assert case.ask(path).status == 404
    assert case.changes == 2


def test_guest_attributes_that_are_off_leave_the_host_keys() -> None:
    case = Case()
    path = f"{V1}/instance/guest-attributes/space/key"
    for method in ("PUT", "GET", "DELETE"):
        answer = case.ask(path, method, b"v")
        assert answer.status == 403
        assert "Guest attributes endpoint access is disabled." in answer.body
    assert (
        case.ask(f"{V1}/instance/guest-attributes/hostkeys/ssh-ed25519", "PUT", b"AAA").status
        == 200
    )
    assert case.text("/instance/guest-attributes/hostkeys/ssh-ed25519") == "AAA"


def test_guest_attributes_have_limits() -> None:
    case = Case(dataclasses.replace(FACTS, metadata={"enable-guest-attributes": "true"}))
    path = f"{V1}/instance/guest-attributes/space"
    assert case.ask(f"{path}/key", "PUT", b"x" * (VALUE_BYTES_MAX + 1)).status == 400
    codes = [
        case.ask(f"{path}/k{index}", "PUT", b"x" * VALUE_BYTES_MAX).status
        for index in range(GUEST_BYTES_MAX // VALUE_BYTES_MAX)
    ]
    assert codes == [200] * (len(codes) - 1) + [400]
    # in place of what was there
    assert case.ask(f"{path}/k0", "PUT", b"y" * VALUE_BYTES_MAX).status == 200
    for bad in (f"{path}/a/b", path, f"{path}/a%20b", f"{path}/{'a' * 129}"):
        assert case.ask(bad, "PUT", b"v").status == 400
    for method, where in (("POST", f"{path}/key"), ("PUT", f"{V1}/instance/name")):
        assert case.ask(where, method, b"v").status == 405


def test_the_state_of_the_node_and_its_maintenance_are_seen() -> None:
    upcoming = {"type": "SCHEDULED", "can_reschedule": True}
    facts = dataclasses.replace(
        FACTS, reclaimed=True, maintenance_workers=(1,), upcoming_maintenance=upcoming
    )
    case = Case(facts)
    assert case.text("/instance/preempted") == "TRUE"
    assert case.text("/instance/maintenance-event") == "TERMINATE_ON_HOST_MAINTENANCE"
    assert case.text("/instance/upcoming-maintenance/can_reschedule") == "TRUE"
    found = json.loads(case.ask(f"{V1}/instance/upcoming-maintenance/?recursive=true").body)
    assert found == {"canReschedule": "TRUE", "type": "SCHEDULED"}


def _while(case: Case, path: str, act: Callable[[], object]) -> Answer:
    async def body() -> Answer:
        waiting = asyncio.ensure_future(case.handler.answer("GET", path, HEADER, b""))
        await asyncio.sleep(0)
        assert not waiting.done()
        act()
        async with asyncio.timeout(5):
            return await waiting

    return asyncio.run(body())


def test_who_waits_for_a_change_hears_of_it() -> None:
    case = Case()

    def preempt() -> None:
        case.source.facts = dataclasses.replace(FACTS, description="other")
        case.source.on_change()  # not of what is waited for
        case.source.facts = dataclasses.replace(FACTS, reclaimed=True)
        case.source.on_change()

    assert _while(case, f"{V1}/instance/preempted?wait_for_change=true", preempt).body == "TRUE"


def test_who_waits_with_an_old_etag_is_answered_at_once() -> None:
    case = Case()
    etag = dict(case.ask(f"{V1}/instance/preempted").headers)["ETag"]
    path = f"{V1}/instance/preempted?wait_for_change=true&timeout_sec=0"
    assert case.ask(f"{path}&last_etag=other").body == "FALSE"
    assert case.ask(f"{path}&last_etag={etag}").body == "FALSE"  # after the time-out


class Wire:
    """Raw bytes to a served connection and back."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    async def ask(self, text: str) -> tuple[str, dict[str, str], str]:
        self.writer.write(text.replace("\n", "\r\n").encode())
        head = (await self.reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        headers = {
            name.lower(): value
            for name, value in (line.split(": ", 1) for line in head[1:] if line)
        }
        length = 0 if text.startswith("HEAD") else int(headers["content-length"])
        return head[0], headers, (await self.reader.readexactly(length)).decode()


def _served(case: Case, body: Callable[[Wire], Awaitable[T]]) -> T:
    async def run() -> T:
        listener = socket.socket()
        listener.bind(("127.0.0.1", 0))
        server = await listen(case.handler, listener)
        reader, writer = await asyncio.open_connection(*listener.getsockname())
        try:
            async with asyncio.timeout(10):
                return await body(Wire(reader, writer))
        finally:
            writer.close()
            server.close()

    return asyncio.run(run())


def test_one_connection_takes_many_requests() -> None:
    async def body(wire: Wire) -> list[Any]:
        get = f"GET {V1}/instance/name HTTP/1.1\nHost: h\nMetadata-Flavor: Google\n\n"
        return [
            await wire.ask(get),
            await wire.ask(get.replace("GET", "HEAD")),
            await wire.ask(get),
        ]

    first, head, again = _served(Case(), body)
    assert first == again
    assert (first[0], first[2]) == ("HTTP/1.1 200 OK", "pod-w-1")
    assert {name: first[1][name] for name in ("metadata-flavor", "server", "content-type")} == {
        "metadata-flavor": "Google", "server": "Metadata Server for VM",
        "content-type": "text/plain",
    }  # fmt: skip
    assert len(first[1]["etag"]) == 16
    assert (head[1]["content-length"], head[2]) == ("7", "")


def test_a_refusal_carries_the_header_too() -> None:
    status, headers, _ = _served(
        Case(), lambda wire: wire.ask(f"GET {V1}/instance/name HTTP/1.1\nHost: h\n\n")
    )
    assert (status, headers["metadata-flavor"]) == ("HTTP/1.1 403 Forbidden", "Google")


@pytest.mark.parametrize(
    ("request_text", "status"),
    [
        ("nonsense\n\n", b"400"),
        (f"GET / HTTP/1.1\nHost: h\nA: {'a' * HEAD_BYTES_MAX}", b"400"),
        (
            (
                "PUT / HTTP/1.1\nHost: h\nContent-Length: "
                f"{VALUE_BYTES_MAX + 1}\n\n{'x' * (VALUE_BYTES_MAX + 1)}"
            ),
            b"413",
        ),
    ],
    ids=["no HTTP", "head too long", "body too long"],
)
def test_what_is_no_fair_request_ends_the_connection(request_text: str, status: bytes) -> None:
    async def body(wire: Wire) -> bytes:
        wire.writer.write(request_text.replace("\n", "\r\n").encode())
        return await wire.reader.read()

    assert _served(Case(), body).split()[1] == status


def test_a_client_that_hangs_up_while_it_waits_leaves_nothing_behind() -> None:
    async def body(wire: Wire) -> int:
        path = f"{V1}/instance/preempted?wait_for_change=true"
        wire.writer.write(
            f"GET {path} HTTP/1.1\r\nHost: h\r\nMetadata-Flavor: Google\r\n\r\n".encode()
        )
        while len(asyncio.all_tasks()) < 3:
            await asyncio.sleep(0.001)
        wire.writer.close()
        while len(asyncio.all_tasks()) > 1:
            await asyncio.sleep(0.001)
        return len(asyncio.all_tasks())

    assert _served(Case(), body) == 1
