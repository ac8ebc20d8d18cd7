"""gcloud commands of services that Podyard does not serve, in a namespace whose only way out leads
to a listener.

By hand, all of them: `make gcloud-leaks` (two to four minutes; root, on Linux). The test runs the
first few.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

from tests.stack import PODYARD, Stack
from tests.waiting import patient

COMMANDS = (
    "pubsub topics list",
    "filestore instances list",
    "container clusters list",
    "run services list --region us-central1",
    "eventarc triggers list --location us-central1",
    "sql instances list",
    "functions list",
    "ai models list --region us-central1",
    "secrets list",
    "kms keyrings list --location us",
    "dns managed-zones list",
    "artifacts repositories list",
    "builds list",
    "bigtable instances list",
    "spanner instances list",
    "firestore databases list",
    "dataproc clusters list --region us-central1",
    "dataflow jobs list",
    "redis instances list --region us-central1",
    "monitoring dashboards list",
    "organizations list",
    "scheduler jobs list --location us-central1",
    "compute os-login describe-profile",
    "compute instances create vm --zone us-central1-f",
)
SERVED = (
    "projects describe demo",
    "projects get-iam-policy demo",
    "iam service-accounts list",
    "iam roles list",
    "logging read x",
    "services list",
    "billing accounts list",
    "storage buckets create gs://bucket",
    "storage cp /etc/hostname gs://bucket/x",
    "storage cat gs://bucket/x",
)
REFUSED = "is not served by Podyard; nothing was sent to Google"
_INSIDE, _OUTSIDE = "192.0.2.2", "192.0.2.1"
_LISTENER = """
import socket, struct, sys, threading
def names():
    server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    server.bind(("192.0.2.1", 53))
    while True:
        asked, who = server.recvfrom(4096)
        question = asked[12:]
        end = question.index(0) + 5
        print("name", question[1:end - 5].translate(bytes.maketrans(bytes(range(32)), b"." * 32)).decode(), flush=True)
        answer = b"\\xc0\\x0c\\x00\\x01\\x00\\x01" + struct.pack(">IH", 60, 4) + bytes([203, 0, 113, 1])
        is_a = question[end - 4:end - 2] == b"\\x00\\x01"
        head = asked[:2] + b"\\x81\\x80" + b"\\x00\\x01" + (b"\\x00\\x01" if is_a else b"\\x00\\x00") + b"\\x00" * 4
        server.sendto(head + question[:end] + (answer if is_a else b""), who)
def take(port):
    server = socket.create_server(("0.0.0.0", port))
    while True:
        connection, _ = server.accept()
        connection.settimeout(5)
        try:
            print("bytes", len(connection.recv(4096)), flush=True)
        except OSError:
            pass
        connection.close()
for work in (names, lambda: take(80), lambda: take(443)):
    threading.Thread(target=work, daemon=True).start()
print("ready", flush=True)
sys.stdin.read()
"""  # noqa: E501


@dataclasses.dataclass
class Namespace:
    """`name` is that of the namespace whose commands are watched; `heard` is what came to the
    listener."""

    name: str
    heard: list[str]

    def sent_bytes(self) -> int:
        """Return what has left by any route, of any protocol, names and addresses of the link
        included."""
        path = "/sys/class/net/out/statistics/tx_bytes"
        return int(run("ip", "netns", "exec", self.name, "cat", path))


@contextlib.contextmanager
def watched() -> Iterator[Namespace]:
    """A namespace with one way out, at whose end a listener answers for every name and address.
    Needs root."""
    inside, outside = (f"podyard-{side}-{os.getpid()}" for side in ("in", "out"))
    resolver = Path("/etc/netns") / inside
    with contextlib.ExitStack() as stack:
        for name in (inside, outside):
            run("ip", "netns", "add", name)
            stack.callback(run, "ip", "netns", "del", name)
        resolver.mkdir(parents=True)
        stack.callback(resolver.rmdir)
        (resolver / "resolv.conf").write_text(f"nameserver {_OUTSIDE}\n")
        stack.callback((resolver / "resolv.conf").unlink)
        run(
            "ip",
            "link",
            "add",
            "out",
            "netns",
            inside,
            "type",
            "veth",
            "peer",
            "name",
            "in",
            "netns",
            outside,
        )
        for name, link, address in ((inside, "out", _INSIDE), (outside, "in", _OUTSIDE)):
            within = ("ip", "netns", "exec", name)
            # Of its own IPv6 announces itself, and nobody has asked it to.
            run(*within, "sh", "-c", "echo 1 > /proc/sys/net/ipv6/conf/all/disable_ipv6")
            run(*within, "ip", "address", "add", f"{address}/24", "dev", link)
            run(*within, "ip", "link", "set", "lo", "up")
            run(*within, "ip", "link", "set", link, "up")
        run("ip", "netns", "exec", inside, "ip", "route", "add", "default", "via", _OUTSIDE)
        run(
            "ip",
            "netns",
            "exec",
            outside,
            "ip",
            "route",
            "add",
            "local",
            "203.0.113.0/24",
            "dev",
            "lo",
        )
        listener = subprocess.Popen(
            ["ip", "netns", "exec", outside, sys.executable, "-c", _LISTENER],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        stack.callback(listener.wait)
        assert listener.stdout is not None
        stack.callback(listener.stdout.close)
        assert listener.stdout.readline() == "ready\n"
        heard: list[str] = []
        thread = threading.Thread(
            target=lambda: heard.extend(line.strip() for line in listener.stdout or ())
        )
        stack.callback(thread.join)
        stack.callback(lambda: listener.stdin and listener.stdin.close())
        thread.start()
        yield Namespace(inside, heard)


class WatchedStack(Stack):
    """A stack inside a namespace: only commands that run there reach it."""

    def __init__(self, data: Path, namespace: str) -> None:
        super().__init__(data)
        self._within = ("ip", "netns", "exec", namespace)

    def podyard(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return self.run(*PODYARD, arguments[0], "--data", str(self.data), *arguments[1:])

    def run(self, *command: str) -> subprocess.CompletedProcess[str]:
        kept = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("PODYARD_", "CLOUDSDK_"))
        }
        return subprocess.run(
            [*self._within, *command],
            env=kept,
            capture_output=True,
            text=True,
            timeout=patient(120),
        )

    def gcloud(self, command: str) -> subprocess.CompletedProcess[str]:
        """As typed after the exports."""
        exports = self.podyard("env").stdout
        return self.run("sh", "-c", f"{exports}\ngcloud {command} </dev/null")


def main() -> int:
    failed = 0
    with tempfile.TemporaryDirectory() as folder, watched() as namespace:
        stack = WatchedStack(Path(folder), namespace.name)
        stack.up()
        try:
            for command in COMMANDS:
                done = stack.gcloud(command)
                said = [line for line in done.stderr.splitlines() if REFUSED in line]
                good = done.returncode != 0 and len(said) == 1
                failed += not good
                print(
                    f"{'ok  ' if good else 'FAIL'} {command}: "
                    f"{said[0] if said else done.stderr[-300:]}",
                    flush=True,
                )
        finally:
            stack.down()
        print(f"{len(COMMANDS)} commands, {failed} without one clear message")
        print(f"{namespace.sent_bytes()} bytes left; heard by the listener: {namespace.heard}")
        return 1 if failed or namespace.sent_bytes() or namespace.heard else 0


def run(*command: str) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


if __name__ == "__main__":
    sys.exit(main())
