"""Another machine for tests: a network namespace with one link to this one."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import secrets
import subprocess
from collections.abc import Iterator, Mapping, Sequence

from tests.waiting import patient


@dataclasses.dataclass(frozen=True, slots=True)
class Neighbour:
    """`gateway`: the address of this machine on the link. `address`: the neighbour's."""

    name: str
    gateway: str
    address: str

    def run(
        self, command: Sequence[str], env: Mapping[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self.inside(command),
            env=self._environment(env),
            capture_output=True,
            text=True,
            timeout=patient(120),
        )

    def start(
        self, command: Sequence[str], env: Mapping[str, str] | None = None
    ) -> subprocess.Popen[str]:
        return subprocess.Popen(
            self.inside(command),
            env=self._environment(env),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

    def inside(self, command: Sequence[str]) -> list[str]:
        return ["ip", "netns", "exec", self.name, *command]

    def _environment(self, env: Mapping[str, str] | None) -> dict[str, str]:
        kept = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("PODYARD_", "CLOUDSDK_"))
        }
        return {**kept, **(env or {})}


@contextlib.contextmanager
def neighbour() -> Iterator[Neighbour]:
    """A namespace with loopback, one link and no route elsewhere. It is removed at the end, also
    after a failure."""
    mark = secrets.token_hex(4)
    name, link = f"pdy-{mark}", f"pd{mark}"
    second, third = secrets.randbelow(64) + 64, secrets.randbelow(250)
    other = Neighbour(
        name, f"100.{second}.{third}.1", f"100.{second}.{third}.2"
    )  # RFC 6598: no yard and no box uses it
    _ip("netns", "add", name)
    try:
        _ip("link", "add", f"{link}a", "type", "veth", "peer", "name", f"{link}b", "netns", name)
        _ip("addr", "add", f"{other.gateway}/30", "dev", f"{link}a")
        _ip("link", "set", f"{link}a", "up")
        for command in (
            ["link", "set", "lo", "up"],
            ["addr", "add", f"{other.address}/30", "dev", f"{link}b"],
            ["link", "set", f"{link}b", "up"],
        ):
            _ip("-n", name, *command)
        yield other
    finally:
        subprocess.run(["ip", "netns", "del", name], check=False)


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True)
