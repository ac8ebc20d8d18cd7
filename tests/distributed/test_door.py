"""The door, with real processes, real TLS, and a network namespace that reaches nothing but its
port."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.door import DoorStack, door_and_neighbour
from tests.namespaces import Neighbour
from tests.waiting import until

ASK = """
import json, os, sys
from podyard.base.errors import PodyardError
from podyard.http import trust
from podyard.workers.kit.http_client import JsonClient
url, token, fingerprint = sys.argv[1:]
context = trust.context(authority=trust.fetch_authority(url, fingerprint))
print(json.dumps(JsonClient(url, token, context=context).call("GET", "/podyard/v1/agents")))
"""


@pytest.fixture(scope="module")
def yard(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[DoorStack, Neighbour]]:
    with door_and_neighbour(tmp_path_factory.mktemp("door")) as found:
        yield found


def test_another_machine_reaches_the_door_and_nothing_else(
    yard: tuple[DoorStack, Neighbour],
) -> None:
    stack, other = yard
    url, ports = stack.state()["publicUrl"], stack.state()["ports"]
    assert url == f"https://{other.gateway}:{ports['public']}"
    fingerprint = json.loads(stack.podyard("status", "-o", "json").stdout)["fingerprint"]
    asked = other.run([sys.executable, "-c", ASK, url, stack.token, fingerprint])
    assert json.loads(asked.stdout)["agents"], asked.stderr
    for name in ("http", "grpc", "storage"):
        reached = other.run(["bash", "-c", f"exec 3<>/dev/tcp/{other.gateway}/{ports[name]}"])
        assert reached.returncode != 0, name


def test_curl_needs_the_authority_and_a_token(yard: tuple[DoorStack, Neighbour]) -> None:
    stack, other = yard
    url = f"{stack.state()['publicUrl']}/podyard/v1/clock"
    authority = ["--cacert", str(stack.data / "tls" / "ca.pem")]

    def curl(*arguments: str) -> subprocess.CompletedProcess[str]:
        return other.run(["curl", "-s", "-o", "/dev/null", "-w", "%{http_code}", *arguments, url])

    # no authority of the machine's
    assert curl("-H", f"Authorization: Bearer {stack.token}").returncode == 60
    assert curl(*authority).stdout == "401"
    assert curl(*authority, "-H", f"Authorization: Bearer {stack.token}").stdout == "200"
    foreign = curl(
        *authority, "-H", "Host: evil.example", "-H", f"Authorization: Bearer {stack.token}"
    )
    assert foreign.stdout == "403"


def test_the_door_stays_open_while_the_api_is_killed(yard: tuple[DoorStack, Neighbour]) -> None:
    stack, other = yard
    os.kill(stack.state()["pids"]["api"]["pid"], 9)
    authority = ["--cacert", str(stack.data / "tls" / "ca.pem")]
    header = f"Authorization: Bearer {stack.token}"
    # A connection waits in the socket that the supervisor holds; it is answered by the next API.
    done = other.run(
        ["curl", "-s", "--max-time", "60", "-o", "/dev/null", "-w", "%{http_code}", *authority,
            "-H", header,
         f"{stack.state()['publicUrl']}/podyard/v1/clock"]
    )  # fmt: skip
    assert done.stdout == "200", done


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (("--bind", "0.0.0.0"), "add --tls"),
        (("--tls-cert", "none.pem", "--tls-key", "none.key"), "--tls-cert: cannot read "),
        (("--tls", "--behind-proxy"), "exclude each other"),
    ],
)
def test_a_door_that_cannot_be_opened_is_one_sentence(
    tmp_path: Path, options: tuple[str, ...], why: str
) -> None:
    stack = DoorStack(tmp_path)
    stack.options = options
    done = stack.podyard("up", *stack.up_options())
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.count("\n") == 1
    assert done.stderr.startswith("podyard up: ")
    assert why in done.stderr


def test_a_public_port_in_use_is_one_sentence(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        stack = DoorStack(tmp_path)
        port = str(taken.getsockname()[1])
        done = stack.podyard(
            "up", "--port", "0", "--storage-port", "0", "--tls", "--public-port", port
        )
    assert done.returncode == 2
    assert done.stderr == (
        f"podyard up: port {port} is taken by another program; use --public-port to "
        "choose another, "
        "or --public-port 0\n"
    )


def test_changes_and_refusals_are_in_the_audit_log_with_who_and_from_where(
    yard: tuple[DoorStack, Neighbour],
) -> None:
    stack, other = yard
    url = f"{stack.state()['publicUrl']}/podyard/v1/projects"
    curl = [
        "curl",
        "-s",
        "-D",
        "-",
        "--cacert",
        str(stack.data / "tls" / "ca.pem"),
        "-o",
        "/dev/null",
    ]
    body = ["-H", "Content-Type: application/json", "-d", '{"projectId": "far"}']
    made = other.run([*curl, "-H", f"Authorization: Bearer {stack.token}", *body, url])
    refused = other.run(
        [*curl, "-H", "Authorization: Bearer pdy_wrong", *body, f"{url}?key=secret"]
    )
    assert "401" in refused.stdout.splitlines()[0]

    def ask() -> list[dict[str, Any]] | None:
        found = stack.call("GET", "/podyard/v1/audit")["lines"]
        lines = [line for line in found if line["path"] == "/podyard/v1/projects"]
        return lines if len(lines) == 2 else None

    wrong, right = until(ask, 10, "the audit log")
    assert (right["actor"], right["address"], right["byDoor"], right["method"],
        right["status"]) == (
        "owner@podyard.local", other.address, True, "POST", 200,
    )  # fmt: skip
    assert f"x-request-id: {right['requestId']}" in made.stdout
    assert (wrong["actor"], wrong["address"], wrong["status"]) == ("", other.address, 401)
    listed = json.loads(stack.admin("audit", "--refused", "-o", "json").stdout)
    assert all(line["status"] in (401, 403, 429) for line in listed)
    assert wrong in listed


def test_an_address_that_guesses_tokens_is_stopped(yard: tuple[DoorStack, Neighbour]) -> None:
    stack, other = yard
    program = (
        "import ssl, sys, httpx\n"
        "url, ca = sys.argv[1:]\n"
        "with httpx.Client(verify=ssl.create_default_context(cafile=ca)) as client:\n"
        "    for n in range(100):\n"
        "        found = client.get(url, headers={'Authorization': f'Bearer pdy_{n}'})\n"
        "        if found.status_code == 429:\n"
        "            break\n"
        "print(found.status_code, found.headers['retry-after'], found.json()['error']['status'])\n"
    )
    url, ca = f"{stack.state()['publicUrl']}/podyard/v1/clock", str(stack.data / "tls" / "ca.pem")
    done = other.run([sys.executable, "-c", program, url, ca])
    assert done.stdout.split() == ["429", "1", "RESOURCE_EXHAUSTED"], done
    assert stack.call("GET", "/podyard/v1/clock")  # others go on
