"""The agent of a machine: pulls over HTTP which replicas and hosts to run here, and runs them.

It syncs each second, at once when it is poked (a Celery message), and at once when a replica exits.
The API may
be away: replicas go on, and the agent asks again. A restarted agent adopts the replicas that it
finds.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import logging
import os
import signal
import stat
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import FrameType

from podyard.base import agent_identity, pokes
from podyard.base.clock import RealClock
from podyard.base.errors import Code, PodyardError
from podyard.base.interpreter import python_command
from podyard.engine.collectives.left_over import remove_left_over
from podyard.http.trust import CA_VARIABLE
from podyard.programs import environments
from podyard.programs.datasets import published
from podyard.settings import BOX_NETWORKS, BOXES, RUNTIMES, Leases, one_of
from podyard.workers.agent import celery_child
from podyard.workers.agent.celery_child import CeleryChild
from podyard.workers.agent.registration import Registration
from podyard.workers.box import box
from podyard.workers.host.hosts import HostServerChild
from podyard.workers.kit import process_group
from podyard.workers.kit.agent_state import (
    Forget,
    Instruction,
    Known,
    KnownReplicas,
    ReplicaPhase,
    Start,
    Stop,
    Wanted,
)
from podyard.workers.kit.agent_token import AgentToken
from podyard.workers.kit.http_client import JsonClient
from podyard.workers.kit.process_group import Group
from podyard.workers.replica import job_processes

logger = logging.getLogger(__name__)

SYNC_SECONDS = 1.0  # what a lost poke costs; the usual lease is ten times as long
# on another machine without a broker: a job there starts within a second
UNPOKED_SYNC_SECONDS = 0.4
# while nothing runs here, and a Celery worker takes pokes; a third of the usual lease
IDLE_SYNC_SECONDS = 3.3
# at least, however short the lease is: two lost ones must not cost the replicas
SYNCS_PER_LEASE = 3.0
WATCH_SECONDS = 0.05  # how soon the end of a process is seen
# between two looks while there is no process; well inside the shortest limit for heartbeats
IDLE_SECONDS = 0.5
REPLICA_GRACE_SECONDS = 10.0  # from SIGTERM to SIGKILL; a user's program has most of it for saving
LOCK_SECONDS_MAX = 10.0  # a predecessor that is being stopped is gone by then
REMOVED_TEXT = (
    "the platform does not know this agent any more: it was removed (`podyard agent remove`). To "
    "join again, end it, "
    "delete agent.json in its data folder, and use a new token (`podyard agent token`)"
)
_SHARED_MEMORY = Path("/dev/shm")


class Agent:
    """One agent. `replica_command` is followed by the replica's id."""

    def __init__(  # noqa: PLR0913
        self,
        agent_id: str,
        api: JsonClient,
        folder: Path,
        registration: Registration,
        replica_command: Sequence[str],
        replica_env: Mapping[str, str],
        clock: RealClock,
        hosts: HostServerChild | None = None,
        lease_seconds: float = Leases().replica_seconds,
        token: AgentToken | None = None,
    ) -> None:
        self._agent_id = agent_id
        self._api = api
        self._folder = folder
        self._registration = registration
        self._refused = ""
        self._command = tuple(replica_command)
        self._env = dict(replica_env)
        self._clock = clock
        self._hosts = hosts
        self._token = token
        self._state = KnownReplicas(lease_seconds)
        self._groups: dict[str, Group] = {}
        self._kill_at: dict[str, float] = {}
        self._fence: int | None = None
        self._leaving = False
        self.sync_seconds = SYNC_SECONDS
        self.idle_sync_seconds = SYNC_SECONDS

    def adopt(self) -> None:
        """Takes over what an earlier agent of this folder has left."""
        if self._hosts is not None:
            self._hosts.adopt()
        for record in process_group.records(self._folder):
            group = process_group.adopt(record)
            if group is None:
                self._end_program(record.replica)
                self._state.on_found_dead(record.replica, record.fence)
            else:
                started = process_group.ProcessRecord(
                    record.replica, record.fence, group.pid, group.started
                )
                process_group.write_record(self._folder, started)
                self._groups[record.replica] = group
                self._state.on_adopted(record.replica, record.fence, group.pid)
                logger.info("adopted replica %s, pid %s", record.replica, group.pid)

    def sync(self) -> bool:
        """Says what is here and does what is wanted; False while the API is away."""
        path = f"/podyard/v1/agents/{self._agent_id}"
        try:
            if self._fence is None:
                self._fence = self._register(path)
            reported = self._state.reports()
            folders = self._hosts.folders() if self._hosts is not None else {}
            body = {
                "fence": self._fence,
                "replicas": [_to_api(item) for item in reported],
                **folders,
            }
            answer = self._api.call("POST", f"{path}:sync", body)
            longest = float(answer["leaseSeconds"]) / SYNCS_PER_LEASE
            self.sync_seconds, self.idle_sync_seconds = (
                min(SYNC_SECONDS, longest),
                min(IDLE_SYNC_SECONDS, longest),
            )
        except PodyardError as error:
            if error.code is Code.ABORTED:
                # another process took this agent's name meanwhile; the newest one has it
                self._fence = None
            is_removed = error.code is Code.UNAUTHENTICATED and self.has_joined
            text = REMOVED_TEXT if is_removed else error.message
            if text != self._refused:  # what is refused for good is said once, and tried again
                logger.warning("sync: %s", text)
            self._refused = text
            return False
        self._refused = ""
        if self._token is not None:
            self._token.renew(self._api)
        if self._leaving:
            return True  # only said good-bye: what is wanted now is for the next agent
        wanted = [
            Wanted(item["replica"], item["fence"], item["desired"] == "RUN", item["token"])
            for item in answer["replicas"]
        ]
        self._follow(self._state.on_synced(wanted, reported))
        if self._hosts is not None:
            self._hosts.follow(answer["hosts"], answer["goneHosts"], listeners=answer["listeners"])
            self._hosts.remove_disks(answer.get("goneDisks", ()))
        return True

    def _register(self, path: str) -> int:
        with self._registration.message() as message:
            answer = self._api.call("POST", f"{path}:register", message)
        for warning in answer.get("warnings", ()):
            logger.warning("%s", warning)
        return int(answer["fence"])

    def watch(self) -> bool:
        """Looks at the processes; True when one has gone and the server should hear of it."""
        news = False
        if self._hosts is not None and not self._leaving:
            self._hosts.watch()
        for name, group in list(self._groups.items()):
            ended, code = group.exit_code()
            if not ended:
                if self._clock.monotonic_seconds() >= self._kill_at.get(name, float("inf")):
                    process_group.signal_kill(group)
                continue
            # The leader is gone: whatever it left in its group goes too, before the chips are given
            # back.
            if not group.is_gone():
                process_group.signal_kill(group)
                continue
            self._end_program(name)
            del self._groups[name]
            self._kill_at.pop(name, None)
            self._state.on_exited(name, code)
            news = True
        return news

    @property
    def has_joined(self) -> bool:
        """Return whether it is of another machine than the platform's."""
        return self._token is not None

    def is_idle(self) -> bool:
        """Return whether there is no process whose end it would have to see."""
        return not self._groups and (self._hosts is None or self._hosts.is_idle())

    def shut_down(self) -> None:
        """Stops every replica and host, waits for the last process, and says so. Nothing is started
        from here on."""
        self._leaving = True
        if self._hosts is not None:
            self._hosts.begin_stop()
        self._follow(self._state.on_shutdown(), process_group.STOP_GRACE_SECONDS)
        deadline = (
            self._clock.monotonic_seconds()
            + process_group.STOP_GRACE_SECONDS
            + process_group.KILL_SECONDS_MAX
        )
        while self._groups and self._clock.monotonic_seconds() < deadline:
            self.watch()
            self._clock.sleep(WATCH_SECONDS)
        if self._hosts is not None:
            self._hosts.finish_stop()
        self.sync()

    def _end_program(self, replica: str) -> None:
        """Ends what a replica has left of a user's program on one of our hosts."""
        hosts = self._folder.parent / "hosts"
        if any(hosts.glob(f"*/{job_processes.FOLDER}/{replica}.json")):
            for left in job_processes.of_replica(
                hosts, replica, box.program_cgroups(self._folder.parent)
            ):
                left.end(self._clock)

    def _follow(
        self, instructions: Sequence[Instruction], grace_seconds: float = REPLICA_GRACE_SECONDS
    ) -> None:
        for instruction in instructions:
            if isinstance(instruction, Start):
                self._start(instruction)
            elif isinstance(instruction, Stop):
                group = self._groups.get(instruction.replica)
                if group is not None:
                    process_group.signal_stop(group)
                    self._kill_at[instruction.replica] = (
                        self._clock.monotonic_seconds() + grace_seconds
                    )
            elif isinstance(instruction, Forget):
                process_group.remove_record(self._folder, instruction.replica)

    def _start(self, wanted: Start) -> None:
        env = {
            **self._env,
            "PODYARD_REPLICA": wanted.replica,
            "PODYARD_REPLICA_FENCE": str(wanted.fence),
            "PODYARD_TOKEN": wanted.token,
        }
        try:
            group = process_group.start(
                self._folder, wanted.replica, wanted.fence, (*self._command, wanted.replica), env
            )
        except OSError as error:
            self._state.on_start_failed(wanted.replica, f"the process cannot be started: {error}")
            return
        self._groups[wanted.replica] = group
        self._state.on_started(wanted.replica, group.pid)


def run_agent(  # noqa: PLR0913
    *,
    agent_id: str,
    url: str,
    token: str | AgentToken,
    data: Path,
    broker_url: str | None,
    registration: Registration,
    clock: RealClock,
    lease_seconds: float,
    is_poked_by_loop: bool = False,
    replica_command: Sequence[str] | None = None,
    beat: Callable[[], None] = lambda: None,
) -> None:
    """Runs until SIGTERM or SIGINT, then stops every replica. Killed, it leaves them for the next
    agent to adopt."""
    folder = data / "agents" / agent_id / "replicas"
    folder.mkdir(parents=True, exist_ok=True)
    with (
        _only_one(folder.parent / "agent.lock", clock),
        pokes.listen(pokes.path_of_agent(data, agent_id)) as poke,
        _windows(folder.parent) as windows,
    ):
        stopping = False

        def stop(_number: int, _frame: FrameType | None) -> None:
            nonlocal stopping
            stopping = True
            poke.wake()

        signal.signal(signal.SIGTERM, stop)
        signal.signal(signal.SIGINT, stop)
        host_env = _host_server_env(agent_id, url, token, registration.bind_address, data)
        agent = Agent(
            agent_id,
            JsonClient(url, token),
            folder,
            registration,
            replica_command or python_command("-m", "podyard.workers.replica.replica"),
            {
                **_replica_env(url, data, is_joined=not isinstance(token, str)),
                "PODYARD_WINDOWS": str(windows),
                "PODYARD_AGENT_FOLDER": str(folder.parent),
            },
            clock,
            HostServerChild(folder.parent / "hosts", host_env, clock),
            lease_seconds,
            None if isinstance(token, str) else token,
        )
        agent.adopt()
        celery = celery_child.make(
            agent_id, broker_url, pokes.path_of_agent(data, agent_id), clock, is_poked_by_loop
        )
        _loop(agent, celery, poke, lambda: stopping, clock, beat)
        agent.shut_down()
        if celery is not None:
            celery.stop()


def _loop(
    agent: Agent,
    celery: CeleryChild | None,
    poke: pokes.Pokes,
    stopping: Callable[[], bool],
    clock: RealClock,
    beat: Callable[[], None],
) -> None:
    sync_at = float("-inf")
    while not stopping():
        beat()
        if agent.watch() or clock.monotonic_seconds() >= sync_at:
            agent.sync()
            if celery is not None:
                # After the first sync: what a user waits for is the agent, not its Celery worker.
                celery.watch()
            is_poked = celery is not None and celery.takes_pokes()
            pause = agent.idle_sync_seconds if is_poked and agent.is_idle() else agent.sync_seconds
            if agent.has_joined and not is_poked:
                pause = min(pause, UNPOKED_SYNC_SECONDS)
            sync_at = clock.monotonic_seconds() + pause
        if poke.wait(IDLE_SECONDS if agent.is_idle() else WATCH_SECONDS):
            sync_at = float("-inf")
            if celery is not None:
                celery.want()


def _replica_env(url: str, data: Path, *, is_joined: bool) -> dict[str, str]:
    """A replica's environment, from nothing: no database, no broker, no token but its own."""
    scratch = data / "scratch"
    own = () if is_joined else (data / "objects",)
    for folder in (scratch, *own, data / "cache", data / "datasets"):
        folder.mkdir(parents=True, exist_ok=True)
    # Replicas run what lies here, so nobody else may write into it.
    programs = data / "programs"
    programs.mkdir(mode=0o700, exist_ok=True)
    keep = {
        name: os.environ[name]
        for name in ("PATH", "PYTHONPATH", "LD_LIBRARY_PATH", CA_VARIABLE)
        if name in os.environ
    }
    return {
        **keep,
        "HOME": str(scratch),
        "TMPDIR": str(scratch),
        "LANG": os.environ.get("LANG", "C.UTF-8"),
        "JAX_PLATFORMS": "cpu",
        "TPU_SKIP_MDS_QUERY": "1",
        "PODYARD_URL": url,
        # An agent that has joined has none of the platform's folders: its replicas fetch what they
        # need.
        **({} if is_joined else {"PODYARD_OBJECTS": str(data / "objects")}),
        "PODYARD_CACHE": str(data / "cache"),
        "PODYARD_DATASETS": os.environ.get("PODYARD_DATASETS", str(data / "datasets")),
        "PODYARD_PROGRAMS": os.environ.get("PODYARD_PROGRAMS", str(programs)),
    }


def _host_server_env(
    agent_id: str, url: str, token: str | AgentToken, bind_address: str, data: Path
) -> dict[str, str]:
    """The host server speaks as this agent; what it starts gets another environment, without the
    token."""
    kept = (
        "PATH",
        "PYTHONPATH",
        "LD_LIBRARY_PATH",
        CA_VARIABLE,
        agent_identity.VARIABLE,
        "LANG",
        "HOME",
        "TMPDIR",
        "SSL_CERT_FILE",
        "XDG_CACHE_HOME",
    )
    # What pip needs to make environments of runtime versions; programs on hosts do not get it.
    pip = [
        name for name in os.environ if name.startswith("PIP_") or name.lower().endswith("_proxy")
    ]
    return {
        **{name: os.environ[name] for name in pip},
        "PODYARD_RUNTIMES": one_of(os.environ, "PODYARD_RUNTIMES", RUNTIMES),
        environments.FOLDER_VARIABLE: str(environments.default_folder()),
        "PODYARD_BOXES": one_of(os.environ, "PODYARD_BOXES", BOXES),
        "PODYARD_STORAGE_PORT": os.environ.get("PODYARD_STORAGE_PORT", ""),
        "PODYARD_BOX_NETWORK": one_of(os.environ, "PODYARD_BOX_NETWORK", BOX_NETWORKS),
        **{name: os.environ[name] for name in kept if name in os.environ},
        "PODYARD_AGENT": agent_id,
        "PODYARD_URL": url,
        # The token of an agent that has joined changes: its server reads it from the file.
        **({"PODYARD_TOKEN": token} if isinstance(token, str) else {}),
        "PODYARD_BIND_ADDRESS": bind_address,
        "PODYARD_DATA": str(data),
        published.FOLDER_VARIABLE: _mirror(data),
    }


def _mirror(data: Path) -> str:
    """Return the folder of published data sets, "" where it cannot be made."""
    folder = Path(os.environ.get("PODYARD_DATASETS", data / "datasets"), published.FOLDER)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        folder.chmod(published.FOLDER_MODE)
    except OSError:  # a folder that others own
        return ""
    return str(folder)


def _to_api(item: Known) -> dict[str, object]:
    state = ReplicaPhase.RUNNING if item.phase is ReplicaPhase.STOPPING else item.phase
    return {
        "replica": item.replica,
        "fence": item.fence,
        "state": str(state),
        "pid": item.pid,
        "exitCode": item.exit_code,
        "reason": item.reason,
        "released": item.released,
    }


@contextlib.contextmanager
def _windows(own_folder: Path) -> Iterator[Path]:
    """Yield where the replicas of this machine share memory: a folder in memory if the system has
    one, and is ours alone. What replicas that were killed have left there is removed."""
    name = hashlib.sha256(str(own_folder.resolve()).encode()).hexdigest()[:16]
    folder = own_folder / "windows"
    if _SHARED_MEMORY.is_dir() and os.access(_SHARED_MEMORY, os.W_OK):
        in_memory = _SHARED_MEMORY / f"podyard-{os.getuid()}-{name}"
        with contextlib.suppress(FileExistsError):
            in_memory.mkdir(mode=0o700)
        found = in_memory.lstat()
        # Anybody may make folders there, this name included.
        if (
            stat.S_ISDIR(found.st_mode)
            and found.st_uid == os.getuid()
            and not found.st_mode & 0o077
        ):
            folder = in_memory
    folder.mkdir(mode=0o700, exist_ok=True)
    remove_left_over(folder)
    yield folder
    remove_left_over(folder)
    # Replicas that outlive this agent may still need it.
    with contextlib.suppress(OSError):
        folder.rmdir()


@contextlib.contextmanager
def _only_one(path: Path, clock: RealClock) -> Iterator[None]:
    """One agent per folder, however it was started."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    deadline = clock.monotonic_seconds() + LOCK_SECONDS_MAX
    try:
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if clock.monotonic_seconds() > deadline:
                    text = f"another agent runs on {path.parent}"
                    raise PodyardError(Code.FAILED_PRECONDITION, text) from None
                clock.sleep(WATCH_SECONDS)
        yield
    finally:
        os.close(descriptor)
