"""Machines for tests: network namespaces on one bridge. Each has an agent of its own that has
joined over TLS, a data folder that the others do not see, and shared memory of its own. None of
them sees the platform's data folder."""

from __future__ import annotations

import contextlib
import os
import secrets
import signal
import subprocess
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from typing_extensions import override

from tests.stack import PODYARD, Stack, until
from tests.waiting import patient

JOIN_SECONDS = 30.0


class Platform(Stack):
    """A stack with a door on the bridge."""

    def __init__(self, data: Path, address: str, env: dict[str, str] | None = None) -> None:
        super().__init__(data, env)
        self.address = address
        self.public_port = 0

    @override
    def up_options(self) -> list[str]:
        return [
            *super().up_options(),
            "--bind",
            self.address,
            "--tls",
            "--public-port",
            str(self.public_port),
        ]

    @override
    def up(self) -> None:
        super().up()
        self.public_port = int(self.state()["ports"]["public"])

    def join_arguments(self, *options: str) -> list[str]:
        """Return what `podyard agent token` prints, without the program's name."""
        done = self.podyard("agent", "token", *options)
        assert done.returncode == 0, done.stderr
        command = done.stdout.split()
        assert command[:3] == ["podyard", "agent", "join"], command
        return command[1:]

    @override
    def podyard(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        # Groups take their options after the name of the command.
        words = 2 if arguments[0] in ("agent", "job", "storage", "tpu") else 1
        env = {
            name: value for name, value in os.environ.items() if not name.startswith("PODYARD_")
        } | self.env
        command = [*PODYARD, *arguments[:words], "--data", str(self.data), *arguments[words:]]
        return subprocess.run(
            command, env=env, capture_output=True, text=True, timeout=patient(120)
        )


class YardMachine:
    """One namespace. `hidden`: folders that its processes find empty."""

    def __init__(self, yard: MachineYard, number: int) -> None:
        self.yard = yard
        self.name = f"machine-{number}"
        self.space = f"pdm-{yard.mark}-{number}"
        self.link = f"pm{yard.mark}{number}"
        self.address = f"{yard.prefix}.{10 + number}"
        self.data = yard.root / self.name
        self.data.mkdir()
        self.log = yard.root / f"{self.name}.log"
        self._agent: subprocess.Popen[bytes] | None = None

    def attach(self) -> None:
        _ip("netns", "add", self.space)
        _ip("link", "add", self.link, "type", "veth", "peer", "name", "eth0", "netns", self.space)
        _ip("link", "set", self.link, "master", self.yard.bridge)
        _ip("link", "set", self.link, "up")
        for command in (
            ["link", "set", "lo", "up"],
            ["addr", "add", f"{self.address}/24", "dev", "eth0"],
            ["link", "set", "eth0", "up"],
        ):
            _ip("-n", self.space, *command)

    def command(self, argv: Sequence[str]) -> list[str]:
        """`argv` on this machine: in its network, and without the folders of the others."""
        hidden = [
            self.yard.platform.data,
            *(one.data for one in self.yard.machines if one is not self),
        ]
        mounts = " && ".join(
            f"mount -t tmpfs none '{path}'" for path in (*hidden, "/dev/shm", "/run/netns")
        )
        inside = ["unshare", "--mount", "sh", "-c", f'{mounts} && exec "$@"', "sh", *argv]
        # Not `ip netns exec`: its /sys has no control groups.
        return ["nsenter", f"--net=/run/netns/{self.space}", *inside]

    def podyard(self, *arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
        command = self.command([*PODYARD, *arguments])
        return subprocess.run(
            command, env=_environment(env), capture_output=True, text=True, timeout=patient(120)
        )

    def join(self, *options: str, **env: str) -> None:
        """Joins with a fresh token, and runs the agent until `stop` or `kill`."""
        arguments = [*self.yard.platform.join_arguments(), "--name", self.name, *options]
        self.start(*arguments, **env)

    def start(self, *arguments: str, **env: str) -> None:
        """`podyard agent join`; without arguments with the identity that it has."""
        command = self.command(
            [*PODYARD, *(arguments or ("agent", "join")), "--data", str(self.data)]
        )
        with self.log.open("ab") as log:
            self._agent = subprocess.Popen(
                command,
                env=_environment(env),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def wait_ready(self) -> dict[str, Any]:
        """Return what the platform knows of it, once it is READY."""
        return self.wait_state("READY")

    def wait_state(self, state: str) -> dict[str, Any]:

        def ask() -> dict[str, Any] | None:
            assert self._agent is not None
            assert self._agent.poll() is None, self.said()
            found = {
                one["agent"]: one
                for one in self.yard.platform.call("GET", "/podyard/v1/agents")["agents"]
            }
            return found[self.name] if found.get(self.name, {}).get("state") == state else None

        found: dict[str, Any] = until(ask, JOIN_SECONDS, f"{self.name} is {state}")
        return found

    def wait_end(self, seconds: float = 30) -> int:
        assert self._agent is not None
        return self._agent.wait(patient(seconds))

    def said(self) -> str:
        return self.log.read_text()

    def pids(self) -> list[int]:
        done = subprocess.run(
            ["ip", "netns", "pids", self.space], capture_output=True, text=True, check=True
        )
        return [int(word) for word in done.stdout.split()]

    def replicas(self) -> list[int]:
        """The pids of replicas that run here."""
        return [pid for pid in self.pids() if "podyard.workers.replica.replica" in _command(pid)]

    def stop(self) -> None:
        if self._agent is not None:
            self._agent.terminate()
            self._agent.wait(patient(40))
            self._agent = None

    def kill(self) -> None:
        """The machine loses its power."""
        for pid in self.pids():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        until(lambda: True if not self.pids() else None, 10, f"{self.name} is off")
        if self._agent is not None:
            self._agent.wait(10)
            self._agent = None

    def cut(self) -> None:
        """Nobody reaches it, and it reaches nobody. Its processes go on."""
        _ip("link", "set", self.link, "down")

    def heal(self) -> None:
        _ip("link", "set", self.link, "up")

    def detach(self) -> None:
        with contextlib.suppress(subprocess.CalledProcessError, AssertionError):
            self.kill()
        subprocess.run(["ip", "netns", "del", self.space], check=False)


class MachineYard:
    """A platform and its machines on one bridge."""

    def __init__(self, root: Path, env: dict[str, str] | None = None) -> None:
        self.root = root
        self.mark = secrets.token_hex(3)
        self.bridge = f"pm{self.mark}"
        self.prefix = f"10.199.{secrets.randbelow(254) + 1}"
        self.platform = Platform(root / "platform", f"{self.prefix}.1", env)
        self.machines: list[YardMachine] = []

    def add(self) -> YardMachine:
        machine = YardMachine(self, len(self.machines) + 1)
        self.machines.append(machine)
        machine.attach()
        return machine


@contextlib.contextmanager
def open_machines(
    root: Path,
    count: int,
    env: dict[str, str] | None = None,
    prepare: Callable[[MachineYard], None] = lambda _: None,
) -> Iterator[MachineYard]:
    """A running platform and `count` machines whose agents have not joined yet. Nothing of them is
    left afterwards.

    `prepare` is called once the network stands, before the platform is started.
    """
    yard = MachineYard(root, env)
    yard.platform.data.mkdir()
    _ip("link", "add", yard.bridge, "type", "bridge")
    try:
        _ip("addr", "add", f"{yard.prefix}.1/24", "dev", yard.bridge)
        _ip("link", "set", yard.bridge, "up")
        for _ in range(count):
            yard.add()
        prepare(yard)
        yard.platform.up()
        yield yard
        for machine in yard.machines:
            machine.stop()
    finally:
        for machine in yard.machines:
            machine.detach()
        yard.platform.down()
        yard.platform.http.close()
        subprocess.run(["ip", "link", "del", yard.bridge], check=False)
        until(lambda: True if not yard.platform.processes() else None, 20, "the last process")
    assert yard.platform.violations() == []


def _command(pid: int) -> str:
    try:
        return (
            Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        )
    except (FileNotFoundError, ProcessLookupError):
        return ""


def _environment(more: dict[str, str]) -> dict[str, str]:
    return {
        name: value for name, value in os.environ.items() if not name.startswith("PODYARD_")
    } | more


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True)
