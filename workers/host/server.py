"""One process for all hosts of an agent: `python -m podyard.workers.host.server NAME FOLDER`.

It hears from the API which hosts are to run and which only listen for ssh. It gives each that runs
an address with a metadata server, an ssh server and the port of TensorFlow, runs its scripts, and
reports on it. Killed, it leaves scripts and sessions running: the next one finds them by their
records and their environment. When it cannot reach the API for a whole lease it ends everything,
since by then the hosts may have been written off.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import fcntl
import json
import logging
import os
import resource
import signal
import socket
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psutil

import podyard
from podyard.base import agent_identity, boxes, log
from podyard.base.clock import OsClock, RealClock
from podyard.base.errors import PodyardError
from podyard.domain.host import (
    HAS_HOST_ADDRESSES,
    LOOPBACK,
    TUNNEL,
    NodeFacts,
    facts_of_json,
    host_address,
)
from podyard.programs import environments
from podyard.programs.datasets.published import FOLDER_VARIABLE
from podyard.workers.box import plan as box_plan
from podyard.workers.box.box import Box, Boxes, BoxSettings, sweep
from podyard.workers.box.calls import leave_keys_behind
from podyard.workers.box.plan import Shown
from podyard.workers.box.tunnel import CablePeer, Cables, SwitchPlan
from podyard.workers.host import listeners as host_listeners
from podyard.workers.host import scripts
from podyard.workers.host import storage as host_storage
from podyard.workers.host.host import Host, HostSettings
from podyard.workers.host.scripts import HostProcesses
from podyard.workers.host.software import HostSoftware
from podyard.workers.kit.agent_token import AgentToken
from podyard.workers.kit.http_client import JsonClient

logger = logging.getLogger(__name__)

BOXED = boxes.sentence("")

SYNC_SECONDS = 1.0  # what a lost poke costs
NEWS_SECONDS = 0.1  # how soon a change here is told, and how often scripts are looked at
LOOK_SECONDS = 0.05  # how old a look at the machine's processes may be
# logins with unknown keys make the server ask for newer metadata, this often at most
REFRESH_SECONDS = 0.2
# Of guest attributes and programs in one sync, which the API takes whole; the rest goes in the
# next. A host may have 256 KiB of attributes. With REPORTS_MAX reports of some 600 bytes it stays
# below the 1 MiB of a body.
REPORT_BYTES_MAX = 320 << 10
REPORTS_MAX = 1000  # in one sync
# that a connection waits for its host: one that starts on a busy machine takes a few
CONNECT_SECONDS_MAX = 60.0
CONNECT_POLL_SECONDS = 0.05
# between two questions to the API where a host is: it may be on another agent
CONNECT_AGAIN_SECONDS = 2.0
LEASE_SECONDS = 15.0  # until the API has named its own
FILES_MAX = 65_536  # open ones; more than ten thousand hosts need
EXIT_LEASE_LAPSED = 75  # EX_TEMPFAIL: the hosts may live elsewhere by now


class HostServer:
    """All hosts of one agent."""

    def __init__(
        self, agent_id: str, api: JsonClient, settings: HostSettings, clock: RealClock
    ) -> None:
        self._agent_id = agent_id
        self._path = f"/podyard/v1/agents/{agent_id}"
        self._api = api
        self._settings = settings
        self._clock = clock
        self._hosts: dict[str, Host] = {}
        self._facts: dict[str, tuple[str, NodeFacts]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._poked = asyncio.Event()
        self._syncing = asyncio.Lock()
        # when the last good, the last try began
        self._synced_at = self._asked_at = clock.monotonic_seconds()
        self._lease_seconds = LEASE_SECONDS
        self._told: dict[str, dict[str, Any]] = {}
        self._looking = asyncio.Lock()
        self._looked_at = float("-inf")
        self._table: list[scripts.Seen] = []
        self._listeners = host_listeners.HostListeners(self._connect)
        self._told_taken: dict[str, str] | None = None
        self._boxes = Boxes(settings.boxes, clock)
        self._cables = Cables(agent_id, settings.boxes.folder, settings.bind_address, clock)
        self._first_box = asyncio.Lock()
        self._no_boxes: str | None = boxes.why_not(settings.box_mode) or None
        self._has_made_box = False
        self.software = HostSoftware(settings.runtimes, settings.runtimes_folder, clock)

    def poke(self) -> None:
        self._poked.set()

    async def run(self, stopping: asyncio.Event, door_token: AgentToken | None = None) -> int:
        """Until `stopping` is set or the lease lapses; returns the exit code. No process of a host
        is left then.

        `door_token`: of an agent that has joined: its hosts reach storage through the door."""
        if door_token is not None:
            server, port = await host_storage.open_tunnels(self._settings.url, door_token)
            self._settings = dataclasses.replace(self._settings, storage=(LOOPBACK, port))
            async with server:
                return await self._run(stopping)
        return await self._run(stopping)

    async def _run(self, stopping: asyncio.Event) -> int:
        while not stopping.is_set():
            # A call over a network that was cut may hang for longer than the lease.
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(max(0.0, self._lease_left_seconds())):
                    await self.sync()
            if self._lease_left_seconds() <= 0:
                logger.error("the lease has lapsed: nobody has taken a report for that long")
                await self._stop_all()
                return EXIT_LEASE_LAPSED
            await self._wait(stopping)
        self._listeners.close()
        await self._stop_all()
        await self.sync()
        await self._cables.close()
        return 0

    def _lease_left_seconds(self) -> float:
        return self._synced_at + self._lease_seconds - self._clock.monotonic_seconds()

    async def sync(self) -> None:
        """Says what is here and does what is wanted; the API may be away."""
        async with self._syncing:
            reports = self._reports()
            self._asked_at = self._clock.monotonic_seconds()
            body: dict[str, Any] = {
                "hosts": reports,
                "known": {key: digest for key, (digest, _) in self._facts.items()},
            }
            taken = self._listeners.problems()
            if taken != self._told_taken:
                body["taken"] = taken
            try:
                answer = await asyncio.to_thread(
                    self._api.call, "POST", f"{self._path}:syncHosts", body
                )
            except PodyardError as error:
                logger.warning("sync: %s", error.message)
                return
            self._synced_at = self._asked_at
            self._told_taken = taken
            self._told |= {
                item["host"]: {**item, "guestAttributes": None, "programs": None}
                for item in reports
            }
            self._lease_seconds = float(answer["leaseSeconds"])
            for item in reports:
                host = self._hosts.get(item["host"])
                if host is not None:
                    host.on_taken(item)
            self._follow(answer)
            await self._cables.follow(self._switches(answer["switches"]))

    def listener(self, host_id: str) -> tuple[str, int] | None:
        return self._listeners.find(host_id)

    async def _connect(self, host_id: str, connection: socket.socket) -> None:
        """Makes the host of a new connection, or finds it, and serves the connection there."""
        deadline = self._clock.monotonic_seconds() + CONNECT_SECONDS_MAX
        ask_at = float("-inf")
        while (now := self._clock.monotonic_seconds()) < deadline:
            host = self._hosts.get(host_id)
            if host is not None and host.is_running:
                await host.connect(connection)
                return
            if host is not None and host.waits_for_software:
                deadline = now + CONNECT_SECONDS_MAX
            if now < ask_at:
                await asyncio.sleep(CONNECT_POLL_SECONDS)
                continue
            ask_at = now + CONNECT_AGAIN_SECONDS
            try:
                found = await asyncio.to_thread(
                    self._api.call, "POST", f"{self._path}:connectHost", {"host": host_id}
                )
            except PodyardError as error:
                logger.warning("a connection to host %s is closed: %s", host_id, error.message)
                break
            if found["state"] == "RUNNING" and found["agent"] != self._agent_id:
                await host_listeners.forward(connection, found["address"], found["port"])
                return
            self.poke()
        connection.close()

    async def refresh(self) -> None:
        """Asks the API for newer metadata; callers that ask meanwhile share the answer."""
        asked = self._clock.monotonic_seconds()
        while self._synced_at < asked:
            wait_seconds = self._asked_at + REFRESH_SECONDS - self._clock.monotonic_seconds()
            if wait_seconds <= 0:
                return await self.sync()
            await asyncio.sleep(wait_seconds)
        return None

    async def token(self, host_id: str) -> tuple[str, int]:
        """A new access token of the host's service account, and how many seconds it lives."""
        answer = await asyncio.to_thread(
            self._api.call, "POST", f"{self._path}:hostToken", {"host": host_id}
        )
        return str(answer["accessToken"]), int(answer["expiresIn"])

    async def processes(self, host: HostProcesses) -> list[psutil.Process]:
        """The living processes of a host. Hosts that look at the same time share one look at the
        machine."""
        async with self._looking:
            if self._clock.monotonic_seconds() - self._looked_at > LOOK_SECONDS:
                began = self._clock.monotonic_seconds()
                self._table = await asyncio.to_thread(scripts.process_table)
                self._looked_at = began
        return host.find(self._table)

    async def make_box(
        self, host_id: str, generation: int, facts: NodeFacts, index: int, shown: Shown
    ) -> tuple[Box | None, str]:
        """(box of the host, or None where it shares the machine; what users are told about that).

        Raises OSError if it cannot be made: where boxes were made before, or must be, hosts never
        share the machine.
        """
        if not self._has_made_box and self._no_boxes is None:
            async with self._first_box:
                if not self._has_made_box and self._no_boxes is None:
                    try:
                        box = await asyncio.to_thread(
                            self._boxes.make, host_id, generation, facts, index, shown
                        )
                    except OSError as error:
                        self._no_boxes = str(error)
                        logger.warning("there are no boxes here: %s", error)
                    else:
                        self._has_made_box = True
                        return box, BOXED
        if self._no_boxes is None:
            return await asyncio.to_thread(
                self._boxes.make, host_id, generation, facts, index, shown
            ), BOXED
        if self._settings.box_mode == boxes.BOXES_ON:
            raise OSError(f"no box can be made: {self._no_boxes} (PODYARD_BOXES is on)")
        return None, boxes.sentence(self._no_boxes)

    def _follow(self, answer: Mapping[str, Any]) -> None:
        for key, item in answer["nodes"].items():
            self._facts[key] = (item["digest"], facts_of_json(item["facts"]))
        if HAS_HOST_ADDRESSES:
            self._listeners.follow(_addresses(answer["listeners"]))
        wanted = {item["host"]: item for item in answer["hosts"]}
        for host_id, host in list(self._hosts.items()):
            item = wanted.get(host_id)
            if item is not None and item["generation"] == host.generation:
                host.update(self._facts_of(item))
                if item["desired"] == "STOP":
                    self._begin(host.stop(run_script=True))
            elif host.is_over:
                del self._hosts[host_id]
                self._told.pop(host_id, None)
            else:
                # Written off while this server could not report: its life is over, and no script
                # speaks for it.
                self._begin(host.stop(run_script=False))
        for host_id, item in wanted.items():
            if host_id not in self._hosts and item["desired"] == "RUN":
                self._start(item)
            elif host_id not in self._hosts:
                self._stop_unseen(item)
        used = {item["node"] for item in wanted.values()}
        self._facts = {key: found for key, found in self._facts.items() if key in used}

    def _switches(self, told: Sequence[Mapping[str, Any]]) -> list[SwitchPlan]:
        """Slices that have hosts of other agents, too. Without boxes there is no switch that could
        be connected."""
        return [
            SwitchPlan(
                self._boxes.switch_name(self._facts[item["node"]][1]),
                bytes.fromhex(item["key"]),
                tuple(
                    CablePeer(peer["agent"], peer["address"], peer["port"])
                    for peer in item["peers"]
                ),
            )
            for item in told
            if self._has_made_box and item["node"] in self._facts
        ]

    def _start(self, item: Mapping[str, Any]) -> None:
        host = self._make(item)
        self._begin(host.start())

    def _stop_unseen(self, item: Mapping[str, Any]) -> None:
        """A host to stop that this server never ran: an earlier server's processes may be left."""
        host = self._make(item)

        async def start_and_stop() -> None:
            await host.start(run_script=False)
            await host.stop(run_script=True)

        self._begin(start_and_stop())

    def _facts_of(self, item: Mapping[str, Any]) -> NodeFacts:
        """As the host knows them."""
        return self._facts[item["node"]][1].of_host(item["index"])

    def _make(self, item: Mapping[str, Any]) -> Host:
        host = Host(
            item["host"],
            item["generation"],
            item["index"],
            bytes.fromhex(item["keySeed"]),
            self._facts_of(item),
            self._settings,
            self,
            self._clock,
        )
        self._hosts[item["host"]] = host
        return host

    def _begin(self, work: Any) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._on_end)

    def _on_end(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self._poked.set()
        if not task.cancelled() and task.exception() is not None:
            logger.error("a host's work failed", exc_info=task.exception())

    async def _stop_all(self) -> None:
        for host in self._hosts.values():
            host.hurry()
        await self.software.leave()
        # what is starting or stopping comes to its end
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await asyncio.gather(*(host.stop(run_script=False) for host in self._hosts.values()))

    def _reports(self) -> list[dict[str, Any]]:
        """Of every host; where there are too many for one sync, those with news come first."""
        room = REPORT_BYTES_MAX
        found = []
        for _, host in sorted(self._hosts.items()):
            if host.has_begun:
                report = host.report(room)
                if self._cables.port and report["state"] == "RUNNING":
                    report["ports"] |= {TUNNEL: self._cables.port}
                room -= sum(
                    len(json.dumps(told))
                    for told in (report["guestAttributes"], report["programs"])
                    if told
                )
                found.append(report)
        found.sort(key=lambda report: self._told.get(report["host"]) == report)
        return found[:REPORTS_MAX]

    async def _wait(self, stopping: asyncio.Event) -> None:
        """Until the next sync is due: at once when poked, soon when something here has changed."""
        due = self._clock.monotonic_seconds() + SYNC_SECONDS
        while not stopping.is_set() and self._clock.monotonic_seconds() < due:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(NEWS_SECONDS):
                    await self._poked.wait()
            if self._poked.is_set():
                self._poked.clear()
                return
            heard = self._synced_at == self._asked_at
            if heard and any(
                self._told.get(report["host"]) != report for report in self._reports()
            ):
                return


def _addresses(listeners: Mapping[str, Any]) -> dict[str, str]:
    """Return where hosts listen for ssh, by their ids."""
    base = listeners["base"]
    return {
        f"{node['node']}-w-{index}": host_address(base, node["first"] + index)
        for node in listeners["nodes"]
        for index in range(node["count"])
    }


def main(argv: Sequence[str]) -> int:
    """NAME is only there to be found in the process table."""
    log.configure()
    logging.getLogger("asyncssh").setLevel(logging.WARNING)
    folder = Path(argv[1])
    env = os.environ
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < hard:
        # Each host listens on four sockets, and a session needs up to six more.
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, FILES_MAX), hard))
    lock = os.open(folder / "host_server.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        print(f"another host server runs on {folder}", file=sys.stderr)
        return 1
    shown = box_plan.Shown(
        sys.prefix, _shown_paths(env), (env["PODYARD_DATA"],), datasets=env[FOLDER_VARIABLE]
    )
    settings = HostSettings(
        folder=folder,
        bind_address=env["PODYARD_BIND_ADDRESS"],
        url=env["PODYARD_URL"],
        data=Path(env["PODYARD_DATA"]),
        storage=_storage(env),
        base_environment=base_environment(env),
        shown=shown,
        boxes=BoxSettings(folder.parent, env["PODYARD_URL"]),
        box_mode=env["PODYARD_BOXES"],
        box_network=env["PODYARD_BOX_NETWORK"],
        runtimes=env["PODYARD_RUNTIMES"],
        runtimes_folder=Path(env[environments.FOLDER_VARIABLE]),
    )
    clock = OsClock()
    if not boxes.why_not(settings.box_mode):
        leave_keys_behind()
        sweep(folder.parent, clock)
    joined = env.get(agent_identity.VARIABLE)
    token = env["PODYARD_TOKEN"] if joined is None else AgentToken(Path(joined), clock)
    server = HostServer(
        env["PODYARD_AGENT"], JsonClient(env["PODYARD_URL"], token), settings, clock
    )
    return asyncio.run(_run(server, token if isinstance(token, AgentToken) else None))


def _storage(env: Mapping[str, str]) -> tuple[str, int] | None:
    """Of an agent on the platform's own machine."""
    port = env.get("PODYARD_STORAGE_PORT")
    return (urlsplit(env["PODYARD_URL"]).hostname or LOOPBACK, int(port)) if port else None


def _shown_paths(env: Mapping[str, str]) -> tuple[str, ...]:
    """Return what a box needs to see of this process's own files: its Python, and Podyard."""
    package = Path(podyard.__file__).parent
    found = [Path(sys.base_prefix), package]
    if podyard.is_checkout(package.parent):
        found += [package.parent / name for name in (*podyard.ROOT_FOLDERS, "pyproject.toml")]
    found += [Path(entry) for entry in env.get("PYTHONPATH", "").split(os.pathsep) if entry]
    return tuple(str(path) for path in found if path.is_absolute() and os.access(path, os.R_OK))


def base_environment(env: Mapping[str, str]) -> dict[str, str]:
    """Return what every program on a host finds, from nothing: no token, no database. The Python
    that runs Podyard comes first on the path, so that `python` has JAX where Podyard has it."""
    names = ("PYTHONPATH", "LD_LIBRARY_PATH", FOLDER_VARIABLE)
    keep = {name: env[name] for name in names if name in env}
    path = env.get("PATH", os.defpath)
    return {
        **keep,
        "PATH": os.pathsep.join((str(Path(sys.executable).parent), path)),
        "LANG": env.get("LANG", "C.UTF-8"),
        "SHELL": scripts.SHELL,
    }


async def _run(server: HostServer, door_token: AgentToken | None) -> int:
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()

    def stop() -> None:
        stopping.set()
        server.poke()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop)
    loop.add_signal_handler(scripts.POKE_SIGNAL, server.poke)
    return await server.run(stopping, door_token)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
