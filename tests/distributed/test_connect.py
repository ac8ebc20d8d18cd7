"""`podyard connect` from a machine that reaches the door's port only, with the clients that people
use."""

from __future__ import annotations

import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.door import DoorStack, door_and_neighbour
from tests.namespaces import Neighbour
from tests.stack import PODYARD
from tests.waiting import patient, until

ZONE = "us-central1-a"
REVOKED_SECONDS_MAX = 5.0
TPU = "gcloud compute tpus tpu-vm"
GRPC = """
import os
import grpc
from google.cloud import tpu_v2
from google.cloud.tpu_v2.services.tpu.transports import TpuGrpcTransport
channel = grpc.insecure_channel(os.environ["PODYARD_GRPC_TARGET"])
client = tpu_v2.TpuClient(transport=TpuGrpcTransport(channel=channel))
parent = f"projects/demo/locations/{os.environ['PODYARD_LOCATION']}"
token = [("authorization", f"Bearer {os.environ['PODYARD_TOKEN']}")]
print([node.name for node in client.list_nodes(parent=parent, metadata=token)])
"""


class Laptop:
    """A terminal on the neighbour, after `eval "$(podyard env)"` on the folder of `podyard
    connect`."""

    def __init__(self, yard: DoorStack, other: Neighbour, folder: Path) -> None:
        self.yard, self.other, self.folder = yard, other, folder
        self.data = folder / "data"
        body = {"email": "ann@example.com", "project": "demo", "roles": ["tpu.admin"]}
        issued = yard.call("POST", "/podyard/v1/tokens", body)
        self.token, self.token_id = issued["token"], issued["tokenId"]
        state = yard.state()
        command = [
            *PODYARD, "connect", state["publicUrl"], "--data", str(self.data), "--fingerprint",
            state["fingerprint"],
            "--port", "0", "--grpc-port", "0", "--storage-port", "0",
        ]  # fmt: skip
        self.connection = other.start(command, {"PODYARD_TOKEN": self.token, "HOME": str(folder)})
        until(
            lambda: (self.data / "podyard.json").exists() or self._has_ended(), 30, "the connection"
        )

    def _has_ended(self) -> None:
        assert self.connection.poll() is None, (
            self.connection.stdout and self.connection.stdout.read()
        )

    def command(self, text: str) -> list[str]:
        podyard = shlex.join(PODYARD)
        exports = f'eval "$({podyard} env --data {self.data} --zone {ZONE})"'
        return ["sh", "-c", f'podyard() {{ {podyard} "$@"; }}\n{exports}\n{text}']

    def run(self, text: str) -> str:
        done = self.other.run(self.command(text), {"HOME": str(self.folder)})
        assert done.returncode == 0, f"{text}: {done.stdout}{done.stderr}"
        return done.stdout

    def start(self, text: str) -> subprocess.Popen[str]:
        return self.other.start(self.command(text), {"HOME": str(self.folder)})

    def close(self) -> None:
        if self.connection.poll() is None:
            self.connection.send_signal(signal.SIGINT)
        assert self.connection.wait(patient(20)) in (0, 1)
        assert self.connection.stdout is not None
        self.connection.stdout.close()


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[DoorStack, Neighbour]]:
    with door_and_neighbour(tmp_path_factory.mktemp("yard")) as found:
        yield found


@pytest.fixture
def laptop(place: tuple[DoorStack, Neighbour], tmp_path: Path) -> Iterator[Laptop]:
    found = Laptop(*place, tmp_path)
    yield found
    found.close()


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("gcloud") is None, reason="needs gcloud")
def test_gcloud_ssh_scp_storage_grpc_and_console_work_as_on_the_server(laptop: Laptop) -> None:
    create = f"{TPU} create far --zone {ZONE} --accelerator-type v2-32 --version tpu-vm-base"
    laptop.run(create)
    said = laptop.run(
        f"{TPU} ssh far --zone {ZONE} --worker=all --command 'echo $(hostname)' </dev/null"
    )
    found = sorted(line for line in said.splitlines() if line.startswith("far-w-"))
    assert found == [f"far-w-{index}" for index in range(4)]
    (laptop.folder / "notes.txt").write_text("from the laptop")
    laptop.run(f"{TPU} scp --zone {ZONE} --worker=1 {laptop.folder}/notes.txt far:copied.txt")
    assert (
        laptop.run("podyard tpu ssh far --worker 1 --command 'cat copied.txt'") == "from the laptop"
    )

    laptop.run("gcloud storage buckets create gs://far-away")
    laptop.run(f"gcloud storage cp {laptop.folder}/notes.txt gs://far-away/")
    assert laptop.run("gcloud storage cat gs://far-away/notes.txt") == "from the laptop"
    assert laptop.run("podyard storage cat gs://far-away/notes.txt") == "from the laptop"

    program = shlex.quote(GRPC)
    assert f"projects/demo/locations/{ZONE}/nodes/far" in laptop.run(
        f"{shlex.quote(sys.executable)} -c {program}"
    )
    page = laptop.run(
        'curl -sL -H "Authorization: Bearer $PODYARD_TOKEN" $PODYARD_URL/console/demo/nodes'
    )
    assert "far" in page and "<html" in page
    laptop.run(f"{TPU} delete far --zone {ZONE} --quiet")


@pytest.mark.slow
def test_a_revoked_token_ends_everything_within_five_seconds(laptop: Laptop) -> None:
    laptop.run(
        f"podyard tpu create near --accelerator-type v2-8 --version tpu-vm-base --zone {ZONE}"
    )
    laptop.run("podyard tpu ssh near --command true")
    shell = laptop.start("podyard tpu ssh near --command 'echo begun; sleep 600'")
    assert shell.stdout is not None
    assert shell.stdout.readline().strip() == "begun"

    began = time.monotonic()
    laptop.yard.call("POST", f"/podyard/v1/tokens/{laptop.token_id}:revoke")
    assert shell.wait(patient(REVOKED_SECONDS_MAX)) != 0
    shell.stdout.close()
    assert laptop.connection.wait(patient(REVOKED_SECONDS_MAX)) == 1
    assert time.monotonic() - began < patient(REVOKED_SECONDS_MAX)
    assert laptop.connection.stdout is not None
    assert "the token is not valid any more" in laptop.connection.stdout.read()
    assert not (laptop.data / "token").exists()
    assert not (laptop.data / "podyard.json").exists()
    laptop.yard.delete_node("near", ZONE)
