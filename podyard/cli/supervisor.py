"""`podyard up`: starts the processes of one data folder, keeps them running, and takes all of them down again.

The supervisor holds the listening socket, so that requests wait in its backlog while the API restarts. It imports
little before it starts the API: what a user waits for is the API's own start.
"""

from __future__ import annotations

import dataclasses
import errno
import fcntl
import http.client
import importlib.util
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping
from types import FrameType
from typing import IO, Any

from podyard.base.clock import OsClock, RealClock
from podyard.base.errors import Code, PodyardError
from podyard.cli import broker, processes
from podyard.settings import GRPC_PORT, HTTP_PORT, Settings

STOP_ORDER = ("agent", "loop", "api", "broker")  # the agent stops its replicas and says so while the API still listens
STOP_SECONDS: Mapping[str, float] = {"agent": 12.0, "loop": 4.0, "api": 4.0, "broker": 2.0}  # then SIGKILL
READY_SECONDS_MAX = 60.0  # the first start on a slow disk makes the schema; beyond this something is wrong
RESTART_SECONDS = (0.05, 0.2, 0.5, 1.0, 2.0, 5.0)  # waits before the 1st, 2nd, ... restart in a row; the last one stays
STEADY_SECONDS = 30.0  # a child that has run this long starts the row of waits anew
WATCH_SECONDS = 0.05
HTTP_BACKLOG = 512  # requests that wait while the API restarts
PROBE_SECONDS = 0.02
EXIT_SETUP = 2


@dataclasses.dataclass
class Child:
    """One supervised process."""

    name: str
    argv: list[str]
    env: dict[str, str]
    keep: tuple[int, ...] = ()
    process: subprocess.Popen[bytes] | None = None
    started: float = 0.0
    restarts: int = 0
    restart_at: float | None = None


class SetupError(PodyardError):
    """What the user can mend: one line on stderr, exit code 2."""

    def __init__(self, message: str) -> None:
        super().__init__(Code.FAILED_PRECONDITION, message)


class Supervisor:
    """Runs one stack in the foreground until SIGTERM or SIGINT. `announce` prints to the user once it is ready."""

    def __init__(self, settings: Settings, clock: RealClock | None = None) -> None:
        self.settings = settings
        self._clock = clock or OsClock()
        self._children: dict[str, Child] = {}
        self._stopping = False
        self._lock: int | None = None
        self._log: IO[bytes] | None = None
        self._listener: socket.socket | None = None  # held open: a restarted API gets it again

    def start(self) -> str:
        """Starts everything; returns the URL once `/readyz` is green. Raises SetupError, with nothing left running."""
        try:
            self._claim_folder()
            listener = self._listener = self._listen()
            port = listener.getsockname()[1]
            self.settings = dataclasses.replace(self.settings, port=port, grpc_port=self._grpc_port())
            url = f"http://{_url_host(self.settings.bind_address)}:{port}"
            left = processes.stop_orphans(self.settings.data, self._clock, STOP_ORDER)
            if left:
                print(f"stopped what an earlier podyard left running: {', '.join(left)}", file=sys.stderr)
            self.settings.fleet_record_path.write_text(f"{self.settings.fleet}\n", encoding="utf-8")
            self._start_all(listener, url)
            self._await(lambda: _answers(url, "/readyz"))
            self._write_state(url, port)
        except BaseException:
            self.stop()
            raise
        return url

    def watch(self) -> None:
        """Restarts children that die, until a signal asks for the end."""
        while not self._stopping:
            self._revive()
            self._clock.sleep(WATCH_SECONDS)

    def stop(self) -> None:
        """Stops all children in order, each within its time; nothing is left running."""
        self._stopping = True
        for name in STOP_ORDER:
            child = self._children.get(name)
            if child is not None and child.process is not None:
                _end(child.process, STOP_SECONDS[name])
        if self._lock is not None:
            self.settings.state_path.unlink(missing_ok=True)
            (self.settings.data / processes.PROCESSES_FILE).unlink(missing_ok=True)
            os.close(self._lock)
            self._lock = None

    def on_signal(self, _number: int, _frame: FrameType | None) -> None:
        self._stopping = True

    def _claim_folder(self) -> None:
        data = self.settings.data
        try:
            data.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._lock = os.open(data / "up.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            self._log = (data / "podyard.log").open("ab")
        except OSError as error:
            self._lock = None
            raise SetupError(f"cannot write to {data}: {error.strerror}; choose another folder with --data") from None
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(self._lock)
            self._lock = None
            raise SetupError(f"a podyard runs on {data} already; stop it with `podyard down --data {data}`") from None

    def _listen(self) -> socket.socket:
        address = (self.settings.bind_address, self.settings.port)
        family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        # Named as TCP, so that asyncio switches Nagle off: without it answers may wait 40 ms for an ACK.
        listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind(address)
        except OSError as error:
            listener.close()
            if error.errno == errno.EADDRINUSE:
                text = f"port {address[1]} is taken; choose another with --port, or --port 0 for any free one"
                raise SetupError(text) from None
            raise SetupError(f"cannot listen on {address[0]}:{address[1]}: {error.strerror}") from None
        listener.listen(HTTP_BACKLOG)
        listener.set_inheritable(True)
        return listener

    def _grpc_port(self) -> int | None:
        """The port that the API shall serve gRPC on; None where gRPC is not installed. Of a free one it is only known
        that it is free now: gRPC takes no socket that is open already."""
        if importlib.util.find_spec("grpc") is None or importlib.util.find_spec("google.longrunning") is None:
            return None
        wanted = self.settings.grpc_port
        if wanted is None:
            wanted = GRPC_PORT if self.settings.port == HTTP_PORT else 0
        family = socket.AF_INET6 if ":" in self.settings.bind_address else socket.AF_INET
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((self.settings.bind_address, wanted))
            except OSError as error:
                text = f"port {wanted} for gRPC: {error.strerror}; choose another with --grpc-port"
                raise SetupError(text) from None
            return int(probe.getsockname()[1])

    def _start_all(self, listener: socket.socket, url: str) -> None:
        self._add("api", _python("api"), {"PODYARD_HTTP_SOCKET": str(listener.fileno())}, (listener.fileno(),))
        if self.settings.broker_url is None:
            server = broker.find_server()
            if server is None:
                self.settings = dataclasses.replace(self.settings, broker_url="memory://")
            else:
                path, broker_url = broker.configure(self.settings.data)
                self.settings = dataclasses.replace(self.settings, broker_url=broker_url)
                self._add("broker", [server, str(path)], {})
        # The API first, alone on the machine: what a user waits for is its answer. The others need it anyway.
        self._await(lambda: _answers(url, "/healthz"))
        self._add("loop", _python("loop"), {})
        self._add("agent", _python("agent"), {"PODYARD_URL": url})

    def _add(self, name: str, argv: list[str], extra: Mapping[str, str], keep: tuple[int, ...] = ()) -> None:
        env = {**os.environ, **self.settings.environment(), **extra}
        self._children[name] = Child(name, argv, env, keep)
        self._spawn(self._children[name])

    def _spawn(self, child: Child) -> None:
        assert self._log is not None
        child.process = subprocess.Popen(
            child.argv,
            env=child.env,
            pass_fds=child.keep,
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=self._log,
            # A Ctrl-C in the terminal reaches the supervisor only, which then stops its children in order.
            start_new_session=True,
        )
        child.started = self._clock.monotonic_seconds()
        child.restart_at = None
        self._record()

    def _record(self) -> None:
        entries: dict[str, Mapping[str, Any]] = {}
        for child in self._children.values():
            if child.process is not None and child.process.poll() is None:
                started = processes.started_at(child.process.pid)
                if started is not None:
                    entries[child.name] = {"pid": child.process.pid, "started": started}
        processes.record(self.settings.data, entries)

    def _revive(self) -> None:
        now = self._clock.monotonic_seconds()
        for child in self._children.values():
            assert child.process is not None
            if child.restart_at is not None:
                if now >= child.restart_at:
                    self._spawn(child)
            elif child.process.poll() is not None:
                if now - child.started > STEADY_SECONDS:
                    child.restarts = 0
                wait = RESTART_SECONDS[min(child.restarts, len(RESTART_SECONDS) - 1)]
                child.restarts += 1
                child.restart_at = now + wait
                text = f"{child.name} ended with {child.process.returncode}; it is started again in {wait} s"
                self._say(text)

    def _say(self, text: str) -> None:
        assert self._log is not None
        print(text, file=sys.stderr)
        self._log.write(f"podyard up: {text}\n".encode())
        self._log.flush()

    def _await(self, good: Callable[[], bool]) -> None:
        """Waits for `good`, restarting what dies. Raises SetupError when a process refuses, or it takes too long."""
        deadline = self._clock.monotonic_seconds() + READY_SECONDS_MAX
        while not self._stopping:
            for child in self._children.values():
                assert child.process is not None
                if child.process.poll() == EXIT_SETUP:
                    raise SetupError(self._last_words(child.name))
            self._revive()
            if good():
                return
            if self._clock.monotonic_seconds() > deadline:
                log = self.settings.data / "podyard.log"
                raise SetupError(f"podyard was not ready within {READY_SECONDS_MAX:.0f} s; {log} says more")
            self._clock.sleep(PROBE_SECONDS)

    def _last_words(self, name: str) -> str:
        """The one line that a process printed before it refused to start."""
        lines = (self.settings.data / "podyard.log").read_text(encoding="utf-8", errors="replace").splitlines()
        prefix = f"podyard {name}: "
        said = [line.removeprefix(prefix) for line in lines if line.startswith(prefix)]
        return said[-1] if said else f"the {name} process refused to start; podyard.log says more"

    def _write_state(self, url: str, port: int) -> None:
        entries = processes.read_json(self.settings.data / processes.PROCESSES_FILE)
        own = {"pid": os.getpid(), "started": processes.started_at(os.getpid())}
        state: dict[str, Any] = {"url": url, "ports": {"http": port}, "pids": {"supervisor": own, **entries}}
        if self.settings.grpc_port is not None:
            state["ports"]["grpc"] = state["grpcPort"] = self.settings.grpc_port
        processes.write_json(self.settings.state_path, state)


def run(settings: Settings) -> int:
    """`podyard up` in the foreground. Returns the exit code."""
    supervisor = Supervisor(settings)
    signal.signal(signal.SIGTERM, supervisor.on_signal)
    signal.signal(signal.SIGINT, supervisor.on_signal)
    try:
        url = supervisor.start()
        if not supervisor._stopping:
            print(f"Podyard is ready: {url}  (console {url}/console, data {settings.data})")
            print(f'In another terminal: eval "$(podyard env --data {settings.data})"', flush=True)
        supervisor.watch()
    except SetupError as error:
        print(f"podyard up: {error.message}", file=sys.stderr)
        return EXIT_SETUP
    finally:
        supervisor.stop()
    return 0


def _python(process: str) -> list[str]:
    return [sys.executable, "-m", "podyard.main", process]


def _url_host(bind_address: str) -> str:
    """Where the bound address is reached from this machine."""
    if bind_address in ("0.0.0.0", "::"):
        return "127.0.0.1"
    return f"[{bind_address}]" if ":" in bind_address else bind_address


def _answers(url: str, path: str) -> bool:
    connection = http.client.HTTPConnection(url.removeprefix("http://"), timeout=2)
    try:
        connection.request("GET", path)
        return connection.getresponse().status == 200
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def _end(process: subprocess.Popen[bytes], seconds: float) -> None:
    if process.poll() is None:
        process.terminate()
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
