"""One host on this machine: its folder, its address with three ports, its scripts, and its orderly
end."""

from __future__ import annotations

import asyncio
import copy
import dataclasses
import hashlib
import json
import logging
import signal
import socket
from collections.abc import Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Any, Protocol

import asyncssh
import psutil

from podyard.base.clock import RealClock
from podyard.base.files import read_json, write_atomically
from podyard.domain.host import (
    HAS_HOST_ADDRESSES,
    HOST_KEYS_NAMESPACE,
    LOOPBACK,
    NOTEBOOK,
    SHUTDOWN_SCRIPT,
    SSH_PORT,
    STARTUP_SCRIPT,
    NodeFacts,
    worker_environment,
)
from podyard.domain.host_key import notebook_token
from podyard.domain.ran_module import RanModule
from podyard.http.gcloud_authority import Contexts
from podyard.programs import environments, hook_environment
from podyard.programs.slice import RUN_VARIABLE
from podyard.settings import BOX_NETWORK_NONE, STORAGE_PORT
from podyard.workers.box import limit as box_limit
from podyard.workers.box import network as box_network
from podyard.workers.box import plan as box_plan
from podyard.workers.box.box import Box, BoxSettings
from podyard.workers.box.devices import DISKS_PORT
from podyard.workers.box.plan import Shown
from podyard.workers.host import addresses, metadata, metadata_server, ssh, tensorflow_port
from podyard.workers.host import storage as host_storage
from podyard.workers.host.inside import HostInside
from podyard.workers.host.job_files import JobHost
from podyard.workers.host.notebooks.notebook import Notebook
from podyard.workers.host.programs import HostPrograms
from podyard.workers.host.scripts import HOST_VARIABLE, HostProcesses, signal_all
from podyard.workers.host.software import HostSoftware, wait_for
from podyard.workers.kit.process_group import KILL_SECONDS_MAX, STOP_GRACE_SECONDS

logger = logging.getLogger(__name__)

SHUTDOWN_SCRIPT_SECONDS = 30.0  # what Compute Engine gives a preempted machine
RECLAIM_SECONDS = 30.0  # the same for its programs, from SIGTERM on
# a token that expires sooner is replaced, as Google's metadata server does
TOKEN_LEFT_SECONDS_MIN = 300.0
QUICK_GRACE_SECONDS = 1.0  # what processes have after SIGTERM when the whole server leaves
POLL_SECONDS = 0.1


class HostPhase(StrEnum):
    STARTING = "STARTING"
    RUNNING = "RUNNING"
    STOPPING = "STOPPING"
    OVER = "OVER"


@dataclasses.dataclass(frozen=True, slots=True)
class HostSettings:
    """Settings that all hosts of a server share. `folder` holds a folder for each host."""

    folder: Path
    bind_address: str
    url: str
    data: Path
    # where this machine reaches Cloud Storage's APIs; None: nowhere
    storage: tuple[str, int] | None
    base_environment: Mapping[str, str]
    shown: Shown
    boxes: BoxSettings
    box_mode: str
    box_network: str
    runtimes: str
    runtimes_folder: Path


class HostApi(Protocol):
    """The interface between a host and its server."""

    async def refresh(self) -> None: ...
    def listener(self, host_id: str) -> tuple[str, int] | None: ...
    async def token(self, host_id: str) -> tuple[str, int]: ...
    async def processes(self, host: HostProcesses) -> list[psutil.Process]: ...
    @property
    def software(self) -> HostSoftware: ...
    async def make_box(
        self, host_id: str, generation: int, facts: NodeFacts, index: int, shown: Shown
    ) -> tuple[Box | None, str]: ...


class Host:
    """One life of a host."""

    def __init__(  # noqa: PLR0913
        self,
        host_id: str,
        generation: int,
        index: int,
        key_seed: bytes,
        facts: NodeFacts,
        settings: HostSettings,
        api: HostApi,
        clock: RealClock,
    ) -> None:
        self.host_id = host_id
        self.generation = generation
        self._settings = settings
        self._api = api
        self._clock = clock
        self._phase = HostPhase.STARTING
        self._folder = settings.folder / host_id
        self._address = ""
        self._metadata_address = ""
        self._hurry = False
        self._ports: dict[str, int] = {}
        self._host_key = ssh.host_key(key_seed)
        self._notebook_token = notebook_token(key_seed)
        self._key = ssh.public_text(self._host_key)
        self._ssh: ssh.SshHost | None = None
        self._connections: set[asyncssh.SSHServerConnection] = set()
        self._problem = ""
        self._closing: list[Any] = []
        self._processes: HostProcesses | None = None
        self._box: Box | None = None
        self._inside: HostInside | None = None
        self._isolation = ""
        self._watching: asyncio.Task[None] | None = None
        self._ended = ""  # why the box's programs were ended, if they were
        self._leaving = asyncio.Event()
        self._software: Path | None = None
        self._software_text = ""
        self._reclaimed_at: float | None = None  # when its programs were told
        self._notice: asyncio.Task[None] | None = None
        self._told_pids: set[int] = set()
        self._programs = HostPrograms(
            self._folder / "programs", self._folder / "estimates",
            settings.folder.parent / "estimates", facts.kind,
            settings.base_environment, clock,
        )  # fmt: skip
        self._programs_told: tuple[RanModule, ...] = ()
        self._token: tuple[str, float] | None = None
        self._storage_address = ""
        self._token_lock = asyncio.Lock()
        self._guest_told = False
        number = int.from_bytes(hashlib.sha256(host_id.encode()).digest()[:8], "big") >> 1
        self._source = metadata.MetadataSource(
            facts, index, number, {}, self._access_token, self._guest_changed
        )

    @property
    def is_over(self) -> bool:
        return self._phase is HostPhase.OVER

    @property
    def is_running(self) -> bool:
        return self._phase is HostPhase.RUNNING

    @property
    def has_begun(self) -> bool:
        """Return whether there is anything to report: the API knows that it is starting."""
        return self._phase is not HostPhase.STARTING or self.waits_for_software

    @property
    def waits_for_software(self) -> bool:
        """Return whether its environment is being made: `environments.MAKE_SECONDS_MAX` at most."""
        return bool(self._progress())

    async def start(self, *, run_script: bool = True) -> None:
        """Brings everything up; what cannot be is reported as the end of this life."""
        try:
            for name in ("home", "programs", "tmp"):
                (self._folder / name).mkdir(parents=True, exist_ok=True, mode=0o700)
            facts, index = self._source.facts, self._source.index
            # Without the script nothing is to run here any more.
            making = self._api.software.begin(facts.runtime_version) if run_script else None
            if making is not None:
                await wait_for(making, self._leaving)
            if self._leaving.is_set():
                self._phase = HostPhase.OVER
                return
            self._software, self._software_text = self._api.software.find(facts.runtime_version)
            self._box, self._isolation = await self._api.make_box(
                self.host_id, self.generation, facts, index, self._what_is_shown()
            )
            self._processes = HostProcesses(self._folder, self.host_id, self.generation, self._box)
            await self._serve(self._processes)
            script = self._source.facts.metadata.get(STARTUP_SCRIPT)
            if script and run_script:
                self._processes.run_script(STARTUP_SCRIPT, script, self.environment())
        except (OSError, ValueError, asyncssh.Error) as error:
            self._problem = f"the host cannot be started: {error}"
            logger.error("%s: %s", self.host_id, self._problem)
            await self._close()
            await self._end_box()
            self._phase = HostPhase.OVER
            return
        self._phase = HostPhase.RUNNING
        if self._box is not None:
            self._watching = asyncio.ensure_future(
                box_limit.watch(self._box, self._on_programs_ended)
            )
        self._write_for_jobs()
        logger.info("host %s runs on %s, ports %s", self.host_id, self._address, self._ports)

    async def connect(self, connection: socket.socket) -> None:
        """Serves ssh on a connection that the host's listener has accepted; the host runs."""
        assert self._ssh is not None
        try:
            served = await ssh.serve(self._ssh, connection, self._host_key)
        except (OSError, asyncssh.Error) as error:
            connection.close()
            logger.info("%s: a client did not log in: %s", self.host_id, error)
            return
        self._connections.add(served)
        await served.wait_closed()
        self._connections.discard(served)

    def update(self, facts: NodeFacts) -> None:
        """The node has changed: clients that wait for a change of its metadata get an answer."""
        if facts != self._source.facts:
            self._source.facts = facts
            self._source.on_change()
            if self.is_running:
                self._write_for_jobs()
                if self._inside is not None:
                    self._inside.update()
        if facts.reclaimed and self._reclaimed_at is None and self.is_running:
            self._reclaimed_at = self._clock.monotonic_seconds()
            self._notice = asyncio.ensure_future(self._tell_programs())

    async def stop(self, *, run_script: bool) -> None:
        """Runs the shutdown script, then ends every process. Returns at once when that is under
        way."""
        self._leaving.set()
        if self._phase is not HostPhase.RUNNING:
            return
        self._phase = HostPhase.STOPPING
        JobHost.remove(self._folder)
        if self._notice is not None:
            await self._notice  # before the shutdown script, which it must not end
        script = self._source.facts.metadata.get(SHUTDOWN_SCRIPT)
        assert self._processes is not None
        if script and run_script:
            await self._run_shutdown_script(self._processes, script)
        self._hurry = self._hurry or not run_script
        await self._end_processes(self._processes)
        await self._close()
        await self._end_box()
        try:
            self._processes.forget_all()
        except OSError as error:
            self._problem = f"its records cannot be removed: {error}"
        self._phase = HostPhase.OVER
        logger.info("host %s is over", self.host_id)

    def hurry(self) -> None:
        """There is no time left for a shutdown script, nor for leaving slowly."""
        self._hurry = True
        self._leaving.set()

    def environment(self) -> dict[str, str]:
        """Of everything that runs here."""
        base, facts = self._settings.base_environment, self._source.facts
        metadata_address = self._metadata_address
        own = {"HOME": str(self._folder / "home"), "TMPDIR": str(self._folder / "tmp")}
        own[RUN_VARIABLE] = str(self._folder / "programs")
        if self._box is not None:
            facts, metadata_address = box_plan.facts_inside(facts), box_plan.METADATA_ADDRESS
            has_proxy = self._settings.box_network != BOX_NETWORK_NONE
            own = box_plan.environment(base, self._what_is_shown(), facts, has_proxy=has_proxy)
        if self._settings.storage is not None:
            inside = f"{LOOPBACK}:{STORAGE_PORT}"
            own |= host_storage.environment(self._storage_address if self._box is None else inside)
            if self._box is not None:
                own["CURL_CA_BUNDLE"] = f"{own['HOME']}/{host_storage.ROOTS_FILE}"  # TensorFlow's
        if self._software is not None:
            own |= environments.activate({**base, **own}, self._software)
        return {
            **base,
            **own,
            **hook_environment(base),
            **worker_environment(
                facts, self._source.index, metadata_address=metadata_address, url=self._settings.url
            ),
            HOST_VARIABLE: self.host_id,
        }

    def _progress(self) -> str:
        """Return how far the environment is that the host waits for; empty if it does not wait."""
        waits = self._phase is HostPhase.STARTING
        return self._api.software.progress(self._source.facts.runtime_version) if waits else ""

    def _what_is_shown(self) -> Shown:
        """Return what a box of this host sees of the platform's files: the environment of its
        runtime version, if any, as the one that it may change."""
        shown = self._settings.shown
        if self._software is None:
            return shown
        paths, name = (*shown.paths, shown.prefix), f"software-{self._software.name}"
        return dataclasses.replace(shown, prefix=str(self._software), paths=paths, layer=name)

    def report(self, room_bytes: int) -> dict[str, Any]:
        """Return what the API hears. Guest attributes and programs only when they have changed and
        fit into `room_bytes`."""
        guest, programs, found = None, None, self._programs.look()
        if not self._guest_told and len(json.dumps(self._source.guest)) <= room_bytes:
            guest = copy.deepcopy(self._source.guest)
            room_bytes -= len(json.dumps(guest))
        if found != self._programs_told:
            told = [dataclasses.asdict(module) for module in found]
            programs = told if len(json.dumps(told)) <= room_bytes else None
        return {
            "host": self.host_id,
            "generation": self.generation,
            "state": "EXITED"
            if self.is_over
            else "STARTING"
            if self._phase is HostPhase.STARTING
            else "RUNNING",
            "address": self._address,
            "metadataAddress": self._metadata_address,
            "ports": dict(self._ports),
            "sshHostKey": self._key,
            "scripts": {} if self._processes is None else self._processes.tell(),
            "guestAttributes": guest,
            "problem": self._problem or (self._ended if self.is_running else ""),
            "isolation": self._isolation,
            "software": self._progress() or self._software_text,
            "programs": programs,
        }

    def on_taken(self, report: Mapping[str, Any]) -> None:
        """The API has taken this report."""
        if report["guestAttributes"] is not None:
            self._guest_told = self._source.guest == report["guestAttributes"]
        if report["programs"] is not None:
            self._programs_told = tuple(RanModule(**module) for module in report["programs"])

    async def _serve(self, processes: HostProcesses) -> None:
        kind, public = self._key.split()
        self._source.guest |= self._stored_guest()
        self._source.guest[HOST_KEYS_NAMESPACE] = {kind: public}
        listener = self._api.listener(self.host_id)
        local, sockets = addresses.open_sockets(
            self._settings.bind_address, self._own_address(), addresses.read_ports(self._folder),
            listens=listener is not None,
        )  # fmt: skip
        self._ports = {name: found.getsockname()[1] for name, found in sockets.items()}
        if "ssh" in sockets:
            self._address = str(sockets["ssh"].getsockname()[0])
        else:
            assert listener is not None
            self._address, self._ports["ssh"] = listener
        self._metadata_address = f"{local}:{self._ports['metadata']}"
        addresses.store_ports(self._folder, self._ports)
        handler = metadata.MetadataHandler(self._source)
        self._closing.append(await metadata_server.listen(handler, sockets["metadata"]))
        self._closing.append(
            await asyncio.start_server(tensorflow_port.serve_connection, sock=sockets["tensorflow"])
        )
        self._storage_address = f"{local}:{self._ports['storage']}"
        await self._relay_storage(sockets["storage"])
        notebook = Notebook(
            self._folder, self._notebook_token, processes, self.environment, self._clock
        )
        self._closing.append(await notebook.listen(sockets[NOTEBOOK]))
        self._ssh = ssh.SshHost(
            self._source, self._folder / "home", processes, self.environment, self._api.refresh,
            self._clock, notebook,
        )  # fmt: skip
        if "ssh" in sockets:
            self._closing.append(await ssh.listen(self._ssh, sockets["ssh"], self._host_key))
        if self._box is not None:
            await self._serve_inside(self._box, handler, self._ssh)

    async def _serve_inside(
        self, box: Box, handler: metadata.MetadataHandler, server: ssh.SshHost
    ) -> None:
        """The same services at the addresses that the box knows, and the way to the API."""
        url = self._settings.url

        async def listen(address: str, port: int) -> socket.socket:
            return await asyncio.to_thread(box.listen, address, port, addresses.LISTEN_BACKLOG)

        async def listen_at_gate(port: int) -> socket.socket:
            return await asyncio.to_thread(box.listen_at_gate, port, addresses.LISTEN_BACKLOG)

        gate = await listen_at_gate(addresses.USUAL_PORTS["metadata"])
        self._closing.append(await metadata_server.listen(handler, gate))
        self._closing.append(
            await ssh.listen(server, await listen("0.0.0.0", SSH_PORT), self._host_key)
        )
        self._closing.append(await box_network.relay(await listen(*box_plan.api_inside(url)), url))
        await self._relay_storage(await listen(LOOPBACK, STORAGE_PORT))
        await self._relay_storage(
            await listen(LOOPBACK, host_storage.TLS_PORT), box_plan.STORAGE_NAMES
        )
        self._inside = HostInside(self._folder, box, self._source, self._clock, self.environment)
        self._closing.append(await self._inside.serve(await listen_at_gate(DISKS_PORT)))
        if self._settings.box_network != BOX_NETWORK_NONE:
            way_out = await listen_at_gate(box_plan.PROXY_PORT)
            self._closing.append(await box_network.proxy(way_out, self._settings.box_network))

    async def _relay_storage(self, listener: socket.socket, names: Sequence[str] = ()) -> None:
        """`names`: over TLS, as these hosts."""
        there = self._settings.storage
        if there is None:
            listener.close()
            return
        context = None
        if names:
            home, data = self._folder / "home", self._settings.data
            await asyncio.to_thread(host_storage.write_roots, data, home, self._clock)
            context = await asyncio.to_thread(Contexts(data, self._clock).of, *names)
        self._closing.append(await host_storage.relay(listener, there, self._access_token, context))

    async def _end_box(self) -> None:
        if self._box is not None and not await asyncio.to_thread(self._box.end, self._clock):
            self._problem = "processes of its box do not end"
        if self._inside is not None:
            await asyncio.to_thread(self._inside.wait_ended)

    async def _run_shutdown_script(self, processes: HostProcesses, script: str) -> None:
        try:
            processes.run_script(SHUTDOWN_SCRIPT, script, self.environment())
        except OSError as error:
            self._problem = f"the shutdown script cannot be started: {error}"
            return
        deadline = self._clock.monotonic_seconds() + SHUTDOWN_SCRIPT_SECONDS
        while (
            processes.is_running(SHUTDOWN_SCRIPT)
            and self._clock.monotonic_seconds() < deadline
            and not self._hurry
        ):
            await asyncio.sleep(POLL_SECONDS)

    async def _tell_programs(self) -> None:
        """SIGTERM, as when a machine that is taken back shuts down: programs have RECLAIM_SECONDS
        to write what they have. Who logs in afterwards hears nothing."""
        assert self._processes is not None
        told = await self._api.processes(self._processes)
        signal_all(told, signal.SIGTERM)
        self._told_pids = {process.pid for process in told}
        self._write_for_jobs()

    def _on_programs_ended(self, why: str) -> None:
        logger.warning("host %s: %s", self.host_id, why)
        self._ended = why
        self._write_for_jobs()

    def _write_for_jobs(self) -> None:
        """Write the environment that programs of jobs are started with."""
        software = "" if self._software is None else str(self._software)
        is_told = self._reclaimed_at is not None and bool(self._told_pids)
        ends = 0 if self._box is None else self._box.ends
        JobHost(
            self.generation, self.environment(), self._box is not None, software, is_told, ends
        ).write(self._folder)

    def _grace_seconds(self) -> float:
        """From now on, until SIGKILL."""
        if self._hurry:
            return QUICK_GRACE_SECONDS
        if self._reclaimed_at is None:
            return STOP_GRACE_SECONDS
        return max(
            STOP_GRACE_SECONDS,
            self._reclaimed_at + RECLAIM_SECONDS - self._clock.monotonic_seconds(),
        )

    async def _end_processes(self, processes: HostProcesses) -> None:
        """SIGTERM, SIGKILL, until two looks in a row find nothing: one might miss a process that is
        being made."""
        started = self._clock.monotonic_seconds()
        allowed_seconds = self._grace_seconds()
        termed: set[int] = set(self._told_pids)
        empty_looks = 0
        while empty_looks < 2:
            left = await self._api.processes(processes)
            seconds = self._clock.monotonic_seconds() - started
            grace_seconds = QUICK_GRACE_SECONDS if self._hurry else allowed_seconds
            empty_looks = 0 if left else empty_looks + 1
            if seconds > grace_seconds and self._box is not None:
                self._box.kill()
            if seconds > grace_seconds:
                signal_all(left, signal.SIGKILL)
            else:
                signal_all(
                    [process for process in left if process.pid not in termed], signal.SIGTERM
                )
                termed |= {process.pid for process in left}
            if seconds > grace_seconds + KILL_SECONDS_MAX and left:
                self._problem = f"{len(left)} processes do not end, the first is {left[0].pid}"
            await asyncio.sleep(POLL_SECONDS if left else 0)

    async def _close(self) -> None:
        self._programs.end()
        if self._watching is not None:
            self._watching.cancel()
        for server in self._closing:
            server.close()
        self._closing.clear()
        for connection in self._connections:
            connection.close()

    async def _access_token(self) -> tuple[str, int]:
        async with self._token_lock:
            now = self._clock.monotonic_seconds()
            if self._token is None or self._token[1] - now < TOKEN_LEFT_SECONDS_MIN:
                made, seconds = await self._api.token(self.host_id)
                self._token = (made, now + seconds)
            return self._token[0], int(self._token[1] - now)

    def _guest_changed(self) -> None:
        self._guest_told = False
        write_atomically(
            self._folder / "guest-attributes.json", json.dumps(self._source.guest).encode()
        )

    def _stored_guest(self) -> dict[str, dict[str, str]]:
        found = read_json(self._folder / "guest-attributes.json")
        return {str(space): dict(values) for space, values in found.items()}

    def _own_address(self) -> str | None:
        own = self._source.facts.host_addresses
        return own[self._source.index] if HAS_HOST_ADDRESSES and own else None
