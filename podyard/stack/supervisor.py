"""`podyard up`: starts the processes of one data folder, keeps them running, and takes all of them
down again.

The supervisor holds the listening socket, so that requests wait in its backlog while the API
restarts. It imports little before it starts the API: what a user waits for is the API's own start.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import select
import signal
import socket
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import FrameType
from typing import IO, Any

from podyard.base import boxes
from podyard.base.clock import OsClock, RealClock
from podyard.base.interpreter import python_command
from podyard.settings import (
    AGENT,
    API,
    BROKER,
    GRPC_PORT,
    HTTP_PORT,
    LOOP,
    NO_DRIVER,
    STORAGE,
    STORAGE_PORT,
    UMASK,
    Settings,
)
from podyard.stack import broker, disk, modes, ports, processes
from podyard.stack.child import Child
from podyard.stack.errors import EXIT_SETUP, SetupError
from podyard.stack.progress import STALL_SECONDS_MAX, StartProgress

# In this order, each with so long before SIGKILL. The agent stops its replicas and says so while
# the API listens.
STOP_SECONDS: Mapping[str, float] = {
    "agent": 12.0,
    "loop": 4.0,
    "storage": 4.0,
    "api": 4.0,
    "broker": 2.0,
}
# As above, for what a killed supervisor left. The agent gets no time to stop its replicas: the next
# one adopts them, and their job goes on.
TAKE_OVER_SECONDS: Mapping[str, float] = {**STOP_SECONDS, "agent": 0.0}
# waits before the 1st, 2nd, ... restart in a row; the last one stays
RESTART_SECONDS = (0.05, 0.2, 0.5, 1.0, 2.0, 5.0)
STEADY_SECONDS = 30.0  # a child that has run this long starts again with the first wait
# between two looks; a signal, as of a child that has ended, makes it look at once
WATCH_SECONDS = 1.0
SIGNALS_BYTES = 4096
LOG_LOOK_SECONDS = 60.0
PROBE_SECONDS = 0.02
# A tick that comes this much later than the one before: the machine slept or is starved, and
# silence proves nothing.
LATE_SECONDS_MAX = 5.0
LATE_SHARE_MAX = 0.25  # of the limit for heartbeats, where that is short


class Supervisor:
    """Runs one stack in the foreground until SIGTERM or SIGINT."""

    def __init__(self, settings: Settings, clock: RealClock | None = None) -> None:
        self.settings = settings
        self._clock = clock or OsClock()
        self._children: dict[str, Child] = {}
        self._stopping = False
        self._claim: int | None = None
        self._log: IO[bytes] | None = None
        self._listener: socket.socket | None = None  # held open: a restarted API gets it again
        self._storage: socket.socket | None = None
        self._door: socket.socket | None = None
        self._written: set[Path] = set()  # what this process has written, and alone may delete
        self._ticked: float | None = None
        self._log_looked_at = float("-inf")

    def start(self) -> str:
        """Starts everything; returns the URL once `/readyz` is green, or without an API an empty
        text once all have
        sent a heartbeat. Raises SetupError, with nothing left running that it has started, and
        OSError where the folder cannot be written."""
        try:
            self._claim_folder()
            self._take_over()
            # Only now: until here the API of a killed supervisor may have had the ports.
            url = self._open_ports()
            self._record_settings()
            self._start_all(url)
            # The loop of another machine may start after this one.
            path = "/readyz" if LOOP in self.settings.roles else "/healthz"
            self._await(lambda: ports.answers(url, path) if url else self._have_beaten())
            self._write_state(url)
        except BaseException:
            self.stop()
            raise
        return url

    def _record_settings(self) -> None:
        """Write what later commands on the folder have to know: its fleet, and its database if that
        is a server."""
        settings = self.settings
        settings.fleet_record_path.write_text(f"{settings.fleet}\n", encoding="utf-8")
        if settings.database_path is None:
            settings.database_record_path.touch(mode=0o600)
            settings.database_record_path.write_text(f"{settings.database_url}\n", encoding="utf-8")
        else:
            settings.database_record_path.unlink(missing_ok=True)

    def _open_ports(self) -> str:
        """Opens the ports of this machine's roles; returns the API's URL, or an empty text."""
        roles, own = self.settings.roles, self.settings.port == HTTP_PORT
        address = self.settings.bind_address
        if STORAGE in roles:
            wanted = self.settings.storage_port
            wanted = (STORAGE_PORT if own else 0) if wanted is None else wanted
            self._storage = ports.listen("PODYARD_STORAGE_PORT", address, wanted)
            self.settings = dataclasses.replace(
                self.settings, storage_port=self._storage.getsockname()[1]
            )
        if API not in roles:
            return ""
        self._listener = ports.listen("PODYARD_PORT", address, self.settings.port)
        self._open_door()
        port, wanted = self._listener.getsockname()[1], self.settings.grpc_port
        if wanted is None:
            wanted = GRPC_PORT if own else 0
        grpc_port = ports.free_grpc_port(address, wanted)
        self.settings = dataclasses.replace(self.settings, port=port, grpc_port=grpc_port)
        return f"http://{ports.in_url(address)}:{port}"

    def _have_beaten(self) -> bool:
        return all(
            child.has_beaten
            for child in self._children.values()
            if child.beats and child.listener is None
        )

    def watch(self) -> None:
        """Restarts children that die or stand still, until a signal asks for the end."""
        read_end, write_end = os.pipe()
        os.set_blocking(read_end, False)
        os.set_blocking(write_end, False)
        signal.set_wakeup_fd(write_end, warn_on_full_buffer=False)
        while not self._stopping:
            self._tick()
            waiting = [child for child in self._children.values() if child.waits]
            listeners = {child.listener: child for child in waiting if child.listener is not None}
            watched: list[int | socket.socket] = [read_end, *listeners]
            for ready in select.select(watched, [], [], self._pause_seconds())[0]:
                if isinstance(ready, socket.socket):
                    self._restart(listeners[ready], self._clock.monotonic_seconds())
                else:
                    os.read(ready, SIGNALS_BYTES)
        signal.set_wakeup_fd(-1)
        os.close(read_end)
        os.close(write_end)

    def _pause_seconds(self) -> float:
        now = self._clock.monotonic_seconds()
        restarts = [
            child.restart_at - now
            for child in self._children.values()
            if child.restart_at is not None
        ]
        return max(0.0, min(WATCH_SECONDS, self._late_seconds() / 2, *restarts))

    def _late_seconds(self) -> float:
        return min(LATE_SECONDS_MAX, LATE_SHARE_MAX * self.settings.heartbeat_seconds)

    def stop(self) -> None:
        """Stops all children in order, each within its time; nothing that was started here is left
        running."""
        self._stopping = True
        for name, seconds in STOP_SECONDS.items():
            if name in self._children:
                self._children[name].end(seconds)
        while self._written:
            self._written.pop().unlink(missing_ok=True)
        if self._claim is not None:
            os.close(self._claim)
            self._claim = None

    def on_signal(self, _number: int, _frame: FrameType | None) -> None:
        self._stopping = True

    def _claim_folder(self) -> None:
        data = self.settings.data
        if self.settings.lacks_driver:
            raise SetupError(NO_DRIVER)
        try:
            data.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._claim = processes.claim(data)
            if self._claim is None:
                raise SetupError(_claimed_by_another(data))
            disk.check_disk(data)
            # a full disk must not keep half a line back
            self._log = (data / "podyard.log").open("ab", buffering=0)
            modes.close_to_others(data, self.settings.database_path)
        except OSError as error:
            if disk.is_full(error):
                raise SetupError(disk.full_disk(data)) from None
            raise SetupError(
                f"cannot write to {data}: {error.strerror}; choose another folder with --data"
            ) from None

    def _take_over(self) -> None:
        """Stops what a killed supervisor left. This one is recorded first, so that `status` shows
        both meanwhile."""
        orphans = [one for one in processes.living(self.settings.data) if one.pid != os.getpid()]
        self._record()
        stopped = processes.stop_orphans(orphans, self._clock, TAKE_OVER_SECONDS)
        if stopped:
            self._say(
                f"took over from a supervisor that was killed; restarted: {', '.join(stopped)}"
            )

    def _open_door(self) -> None:
        """The port that other machines reach, if there is one, and the URL by which they do."""
        address = self.settings.public_address
        if address is None:
            return
        self._door = ports.listen("PODYARD_PUBLIC_PORT", address, self.settings.public_port)
        port = self._door.getsockname()[1]
        scheme = "http" if self.settings.behind_proxy else "https"
        url = (
            self.settings.public_url
            or f"{scheme}://{ports.in_url(ports.own_address(address))}:{port}"
        )
        self.settings = dataclasses.replace(self.settings, public_port=port, public_url=url)

    def _start_all(self, url: str) -> None:
        roles = self.settings.roles
        own_broker = {}
        if self._listener is not None:
            held = {"PODYARD_HTTP_SOCKET": self._listener.fileno()}
            if self._door is not None:
                held["PODYARD_DOOR_SOCKET"] = self._door.fileno()
            self._add(
                API,
                python_process("api"),
                {name: str(fd) for name, fd in held.items()},
                tuple(held.values()),
            )
        if self.settings.broker_url is None:
            server = broker.find_server() if BROKER in roles else None
            if server is None:
                self.settings = dataclasses.replace(self.settings, broker_url="memory://")
            else:
                path, broker_url = broker.configure(self.settings.data)
                self.settings = dataclasses.replace(self.settings, broker_url=broker_url)
                own_broker = {"PODYARD_OWN_BROKER": "1"}
                self._add("broker", [server, str(path)], {}, beats=False)
        if url:
            # The API first, alone on the machine: what a user waits for is its answer. The others
            # need it anyway.
            self._await(lambda: ports.answers(url, "/healthz"))
        if LOOP in roles:
            self._add(LOOP, python_process("loop"), own_broker)
        if AGENT in roles:
            self._add(AGENT, python_process("agent"), {"PODYARD_URL": url, **own_broker})
        if self._storage is not None:
            descriptor = self._storage.fileno()
            env = {
                **os.environ,
                **self.settings.environment(),
                "PODYARD_STORAGE_SOCKET": str(descriptor),
            }
            self._children[STORAGE] = Child(
                STORAGE, python_process("storage"), env, (descriptor,), listener=self._storage
            )

    def _add(
        self,
        name: str,
        argv: list[str],
        extra: Mapping[str, str],
        keep: tuple[int, ...] = (),
        *,
        beats: bool = True,
        without: Sequence[str] = (),
    ) -> None:
        env = {**os.environ, **self.settings.environment(), **extra}
        for variable in without:
            env.pop(variable, None)
        self._children[name] = Child(name, argv, env, keep, beats)
        self._spawn(self._children[name])

    def _spawn(self, child: Child) -> None:
        assert self._log is not None
        child.spawn(self._log, self._clock.monotonic_seconds())
        self._record()

    def _record(self) -> None:
        pids = {processes.SUPERVISOR: os.getpid()}
        pids |= {
            child.name: child.process.pid
            for child in self._children.values()
            if child.process is not None
        }
        found = [processes.find_process(name, pid) for name, pid in pids.items()]
        processes.record(self.settings.data, [process for process in found if process is not None])
        self._written.add(self.settings.data / processes.PROCESSES_FILE)

    def _tick(self) -> None:
        now = self._clock.monotonic_seconds()
        was_late = self._ticked is not None and now - self._ticked > self._late_seconds()
        self._ticked = now
        for child in self._children.values():
            child.listen(now)
            if was_late or child.gets_on(now):
                child.quiet_since = now
            self._revive(child, now)
        if now - self._log_looked_at > LOG_LOOK_SECONDS:
            self._log_looked_at = now
            disk.keep_log_short(self.settings.data / "podyard.log")

    def _revive(self, child: Child, now: float) -> None:
        if child.restart_at is not None:
            if now >= child.restart_at:
                self._restart(child, now)
        elif child.process is None:
            return
        elif child.process.poll() == 0 and child.listener is not None:
            child.rest()
            self._record()
        elif child.process.poll() is not None:
            if now - child.started > STEADY_SECONDS:
                child.restarts = 0
            wait = RESTART_SECONDS[min(child.restarts, len(RESTART_SECONDS) - 1)]
            child.restarts += 1
            child.restart_at = now + wait
            why = f" ({words})" if (words := child.last_words()) else ""
            self._say(
                f"{child.name} ended with {child.process.returncode}{why}; it is started "
                f"again in {wait} s"
            )
        elif child.beats and now - child.quiet_since > self._patience_seconds(child):
            self._say(
                f"{child.name} has sent no heartbeat for {now - child.quiet_since:.0f} s; "
                "it is killed"
            )
            child.quiet_since = now
            child.kill()

    def _patience_seconds(self, child: Child) -> float:
        limit = self.settings.heartbeat_seconds
        return limit if child.has_beaten else max(limit, STALL_SECONDS_MAX)

    def _restart(self, child: Child, now: float) -> None:
        """A full disk must not end the supervisor: a process without a record is found by its
        marks."""
        try:
            self._spawn(child)
        except OSError as error:
            self._say(f"{child.name} cannot be started or recorded: {error.strerror}")
            if child.restart_at is not None or child.process is None:
                child.restart_at = now + RESTART_SECONDS[-1]

    def _say(self, text: str) -> None:
        assert self._log is not None
        with contextlib.suppress(OSError):
            print(text, file=sys.stderr, flush=True)
        with contextlib.suppress(OSError):
            self._log.write(f"podyard up: {text}\n".encode())

    def _await(self, good: Callable[[], bool]) -> None:
        """Wait for `good`. Raises SetupError when a process refuses or dies, and when the start
        makes no progress."""
        log = self.settings.data / "podyard.log"
        progress = StartProgress(self._clock.monotonic_seconds())
        while not self._stopping:
            for child in self._children.values():
                self._check_start(child, log)
            self._tick()
            if good():
                return
            now = self._clock.monotonic_seconds()
            children = [child for child in self._children.values() if child.process is not None]
            progress.look([child.pid for child in children], now)
            if progress.is_stalled(now):
                silent = [child.name for child in children if child.beats and not child.has_beaten]
                names = " and ".join(silent or [child.name for child in children])
                raise SetupError(
                    f"the start of {names} has made no progress for {STALL_SECONDS_MAX:.0f} s; "
                    f"{log} says more"
                )
            self._clock.sleep(PROBE_SECONDS)

    def _check_start(self, child: Child, log: Path) -> None:
        """Raise SetupError for a process that has ended in its start. With a database server it is
        tried again: the server may come up next to it."""
        code = None if child.process is None else child.process.poll()
        if code == EXIT_SETUP:
            text = f"the {child.name} process refused to start; podyard.log says more"
            raise SetupError(child.last_words() or text)
        if code is None or code <= 0 or child.has_beaten or self.settings.database_path is None:
            return
        line = child.last_words() or disk.last_line(log)
        raise SetupError(f"the {child.name} process ended with exit code {code}: {line}")

    def _write_state(self, url: str) -> None:
        pids = {
            process.name: process.as_json()
            for process in processes.recorded_processes(self.settings.data)
        }
        wanted = (
            ("http", self._listener, self.settings.port),
            ("storage", self._storage, self.settings.storage_port),
        )
        ports = {name: port for name, listener, port in wanted if listener is not None}
        state: dict[str, Any] = {
            "url": url,
            "ports": ports,
            "pids": pids,
            "roles": list(self.settings.roles),
        }
        if self.settings.grpc_port is not None:
            state["ports"]["grpc"] = state["grpcPort"] = self.settings.grpc_port
        if self.settings.public_url is not None:
            state["ports"]["public"], state["publicUrl"] = (
                self.settings.public_port,
                self.settings.public_url,
            )
            state["fingerprint"] = (
                self.settings.fingerprint_path.read_text(encoding="ascii").strip() or None
            )
        processes.write_json(self.settings.state_path, state)
        self._written.add(self.settings.state_path)


def run(settings: Settings) -> int:
    """`podyard up` in the foreground. Returns the exit code."""
    os.umask(UMASK)
    supervisor = Supervisor(settings)
    signal.signal(signal.SIGTERM, supervisor.on_signal)
    signal.signal(signal.SIGINT, supervisor.on_signal)
    # without a handler it would not wake the supervisor
    signal.signal(signal.SIGCHLD, lambda _number, _frame: None)
    try:
        url = supervisor.start()
        if not supervisor._stopping:
            print(ready_line(url, settings))
            if (line := door_line(supervisor.settings.public_url)) is not None:
                print(line)
            print(boxes.sentence(boxes.why_not(settings.boxes)))
            if url:
                print(f'In another terminal: eval "$(podyard env --data {settings.data})"')
            sys.stdout.flush()
        supervisor.watch()
    except SetupError as error:
        print(f"podyard up: {error.message}", file=sys.stderr)
        return EXIT_SETUP
    except OSError as error:
        what = (
            disk.full_disk(settings.data)
            if disk.is_full(error)
            else f"{error.filename or settings.data}: {error.strerror}"
        )
        print(f"podyard up: {what}", file=sys.stderr)
        return EXIT_SETUP
    finally:
        supervisor.stop()
    return 0


def ready_line(url: str, settings: Settings) -> str:
    if not url:
        return f"Podyard is ready: {', '.join(settings.roles)}  (data {settings.data})"
    return f"Podyard is ready: {url}  (console {url}/console, data {settings.data})"


def door_line(public_url: str | None) -> str | None:
    """Return what people are told about the door, if there is one."""
    return None if public_url is None else f"Other machines reach it at {public_url}"


def python_process(process: str) -> list[str]:
    return python_command("-m", "podyard.main", process)


def _claimed_by_another(data: Path) -> str:
    if processes.supervisor(data) is not None:
        return f"a podyard runs on {data} already; stop it with `podyard down --data {data}`"
    return f"another `podyard up` or `podyard down` is at work on {data}; try again in a moment"
