"""A replica that runs a user's program on its host.

It waits for the host, ends what earlier replicas have left there, brings the files and the packages, and starts the
program as the box's user. The program is told to leave by SIGTERM, and ends with its replica (`job_processes.py`).
"""

from __future__ import annotations

<<<<<<< HEAD
=======
import collections
import contextlib
>>>>>>> f3d99c7 (What a job's processes are doing is written to its log on demand)
import os
import shlex
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from podyard.base import archives
from podyard.base.clock import RealClock
from podyard.base.errors import Code, PodyardError
from podyard.workers import box
from podyard.workers.box import Box
from podyard.workers.http_client import JsonClient
from podyard.workers.job_host import JobHost
from podyard.workers.job_packages import JobPackages
from podyard.workers.program_host import POLL_SECONDS, LeaveError, ProgramHost
from podyard.workers.reporter import Reporter

HOST_SECONDS_MAX = 120.0  # for a host that waits for no software: a box takes a tenth of a second
HOST_ASK_SECONDS = 2.0
<<<<<<< HEAD
=======
GRACE_SECONDS = 8.0  # from SIGTERM to SIGKILL, within what the agent gives the replica
TOLD_SECONDS = 3.0  # the host server tells the programs of a node that is taken back; past it nobody has
DRAIN_SECONDS = 2.0  # for the last lines, once every process is gone
TAIL_LINES = 20
STACKS_SIGNAL = signal.SIGQUIT  # sitecustomize.py has faulthandler answer it
LINE_CHARACTERS_MAX = 8192
>>>>>>> f3d99c7 (What a job's processes are doing is written to its log on demand)


class ProgramFailedError(Exception):
    """Why the program, and with it the attempt, has failed; another attempt may go better."""


def run_program(
    spec: Mapping[str, Any],
    reporter: Reporter,
    api: JsonClient,
    replica_id: str,
    stopping: threading.Event,
    clock: RealClock,
) -> str | None:
    """What the replica reports as its end; None: it was stopped. Raises ProgramFailedError, or PodyardError for what no
    other attempt would do better."""
    code: int | None = None
    text = ""
    try:
        host = _host(spec, reporter, api, replica_id, stopping, clock)
        host.clear()
        _bring_files(spec["run"], host, api, replica_id)
        _install(spec, host, clock)
        if spec["run"]["setup"]:
            _check("setup", host.run(spec["run"]["setup"]), host)
        code = host.run(spec["run"]["command"])
        text = host.failure(code)
    except LeaveError:
        pass
    except OSError as error:
        text = f"the program cannot be run: {error}"
    # After the end of the program, so that what the platform wants now is known.
    reporter.report_now()
    if stopping.is_set():
        return None
    if reporter.yielding():
        return "YIELDED"
    if code != 0:
        raise ProgramFailedError(text)
    return "SUCCEEDED"


def _host(
    spec: Mapping[str, Any],
    reporter: Reporter,
    api: JsonClient,
    replica_id: str,
    stopping: threading.Event,
    clock: RealClock,
) -> ProgramHost:
    """The host, once it runs in the life that the attempt has asked for."""
    run = spec["run"]
    folder = Path(os.environ["PODYARD_AGENT_FOLDER"], "hosts", run["host"]["host"])

<<<<<<< HEAD
    def ask() -> Mapping[str, Any] | None:
=======

class _ProgramReplica:
    def __init__(
        self,
        spec: Mapping[str, Any],
        reporter: Reporter,
        api: JsonClient,
        replica_id: str,
        stopping: threading.Event,
        clock: RealClock,
    ) -> None:
        self._spec = spec
        self._run: Mapping[str, Any] = spec["run"]
        self._reporter = reporter
        self._api = api
        self._replica = replica_id
        self._stopping = stopping
        self._clock = clock
        self._agent_folder = Path(os.environ["PODYARD_AGENT_FOLDER"])
        self._folder = self._agent_folder / "hosts" / self._run["host"]["host"]
        reporter.on_stacks = self._log_stacks
        self._tail: collections.deque[str] = collections.deque(maxlen=TAIL_LINES)

    def run(self) -> str | None:
>>>>>>> f3d99c7 (What a job's processes are doing is written to its log on demand)
        try:
            found: Mapping[str, Any] = api.call("GET", f"/podyard/v1/replicas/{replica_id}")["run"]["host"]
        except PodyardError:
            return None  # the API may be restarting; the reporter hears of everything else
        return found

<<<<<<< HEAD
    wanted, said = run["host"], ""
    ask_at = clock.monotonic_seconds() + HOST_ASK_SECONDS
    deadline = clock.monotonic_seconds() + HOST_SECONDS_MAX
    while (found := _running(folder, wanted["generation"])) is None:
        if stopping.is_set() or reporter.yielding():
            raise LeaveError
        now = clock.monotonic_seconds()
        if now >= ask_at:
            ask_at, wanted = now + HOST_ASK_SECONDS, ask() or wanted
            deadline = now + HOST_SECONDS_MAX if wanted["software"] else deadline
            text = wanted["software"] or wanted["problem"]
            if text and text != said:
                said = text
                reporter.log(f"waiting for the host: {text}", "platform")
        if now > deadline:
            why = wanted["problem"] or "it does not answer"
            raise ProgramFailedError(f"the host did not run within {HOST_SECONDS_MAX:.0f} s: {why}")
        clock.sleep(POLL_SECONDS)
    host, host_box = found
    where = f"jobs/{run['environment']['PODYARD_JOB']}"
    environment = _environment(spec, host)
    found_host = ProgramHost(folder, host, host_box, replica_id, environment, where, reporter, stopping, clock)
    found_host.is_measured = spec["rank"] == 0
    return found_host
=======
    def _clear(self) -> None:
        """Ends what earlier replicas have left on the host."""
        cgroups = box.program_cgroups(self._agent_folder) if self._box is not None else None
        self._cgroup = None if cgroups is None else cgroups / self._folder.name
        if self._box is not None and not why_not("on"):
            box.leave_keys_behind()
        (self._folder / job_processes.FOLDER).mkdir(mode=0o700, exist_ok=True)
        for left in job_processes.on_host(self._folder, self._cgroup):
            if not left.end(self._clock):
                raise OSError("processes of an earlier attempt do not end")

    def _execute_or_refuse(self, stage: str, text: str) -> None:
        code = self._execute(stage, text)
        if code != 0:
            self._check_leaving()
            raise PodyardError(Code.FAILED_PRECONDITION, f"{stage}: {self._failure(code)}")

    def _execute(self, stage: str, text: str) -> int:
        """Runs a script of the user's on the host to its end; what it writes is the log. Returns its exit code."""
        self._check_leaving()
        self._tail.clear()
        script = self._place(f"{self._replica}-{stage}.sh", text)
        start = self._place(f"{self._replica}-{stage}", self._launcher(script))
        process = self._start((start,), stdin=subprocess.DEVNULL)
        return self._follow(process)

    def _launcher(self, script: str) -> str:
        """Sets the environment and goes to the working folder, inside: the program's shell has both from its start."""
        variables = {**self._host.environment, **self._environment(), PROGRAM_VARIABLE: self._replica}
        lines = [f"export {name}={shlex.quote(value)}" for name, value in variables.items()]
        where = shlex.quote(f"jobs/{self._run['environment']['PODYARD_JOB']}")
        go = f'mkdir -p "$HOME"/{where} && cd "$HOME"/{where} || exit 1'
        return "\n".join(
            (f"#!{scripts.SHELL}", *lines, go, f"exec {shlex.quote(scripts.SHELL)} {shlex.quote(script)}", "")
        )

    def _environment(self) -> dict[str, str]:
        addresses = self._host.environment.get("TPU_WORKER_HOSTNAMES", "").split(",")
        rank, count = self._spec["rank"], self._spec["processCount"]
        # SkyPilot's names, for programs that come from there.
        sky = {
            "SKYPILOT_NODE_RANK": str(rank),
            "SKYPILOT_NODE_IPS": "\n".join(addresses),
            "SKYPILOT_NUM_NODES": str(count),
            "SKYPILOT_TASK_ID": f"{self._run['environment']['PODYARD_JOB']}-{self._spec['attempt']}",
        }
        return {**sky, **self._run["environment"]}

    def _place(self, name: str, text: str) -> str:
        """Writes a program where the host finds it, and its user does not change it."""
        if self._box is not None:
            return self._box.place(name, text)
        path = self._folder / job_processes.FOLDER / name
        path.write_text(text, encoding="utf-8")
        path.chmod(0o700)
        return str(path)

    def _start(self, command: Sequence[str], stdin: int) -> subprocess.Popen[bytes]:
        """Starts a command on the host. Its processes are found by the record."""
        folder, cgroup = self._folder / job_processes.FOLDER, None
        process_group.write_record(folder, ProcessRecord(self._replica, self._spec["fence"], 0, 0.0))
        if self._box is None:
            argv = ["/bin/sh", "-c", 'exec "$@"', "sh", *command]
            env = {"PATH": os.environ.get("PATH", os.defpath), "HOME": self._host.environment["HOME"]}
        else:
            assert self._cgroup is not None
            cgroup = self._cgroup / self._replica
            cgroup.mkdir(exist_ok=True)
            argv = self._box.enter(command, cgroup=cgroup)
            env = {"PATH": box_plan.PATH, "HOME": str(box_plan.HOME)}
        process = subprocess.Popen(
            argv, env={**env, PROGRAM_VARIABLE: self._replica}, stdin=stdin, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, start_new_session=True, umask=scripts.USERS_UMASK,
        )  # fmt: skip
        started = process_group.start_of(process.pid) or 0.0
        record = ProcessRecord(self._replica, self._spec["fence"], process.pid, started)
        process_group.write_record(folder, record)
        self._processes = JobProcesses(folder, record, cgroup)
        return process

    def _follow(self, process: subprocess.Popen[bytes]) -> int:
        """The exit code of a process, whose lines are passed on. No process of the program is left then. Raises _Leave
        after the platform has asked for the end."""
        readers = [
            threading.Thread(target=self._read, args=(pipe, stream), daemon=True)
            for pipe, stream in ((process.stdout, "stdout"), (process.stderr, "stderr"))
        ]
        for reader in readers:
            reader.start()
        told_at, yield_at = None, None
        while process.poll() is None or (told_at is not None and self._processes.pids()):
            now = self._clock.monotonic_seconds()
            if self._reporter.yielding() and yield_at is None:
                yield_at = now
            if told_at is None and (self._stopping.is_set() or self._has_to_tell(yield_at, now)):
                # The process that entered the box for it is not the program's: it waits for the exit code.
                self._processes.signal(signal.SIGTERM, but=() if self._box is None else (process.pid,))
                told_at = now
            if self._stopping.is_set() and told_at is not None and now > told_at + GRACE_SECONDS:
                self._processes.signal(signal.SIGKILL)
            self._clock.sleep(POLL_SECONDS)
        is_over = self._processes.end(self._clock)
        for reader in readers:
            reader.join(DRAIN_SECONDS)
        if not is_over:
            raise OSError("processes of the program do not end")
        if self._stopping.is_set() or told_at is not None:
            raise _Leave
        return process.returncode

    def _has_to_tell(self, yield_at: float | None, now: float) -> bool:
        """Whether the program is to leave and has not been told yet: of a node that is taken back the host server tells
        all programs, and twice might disturb one that is saving."""
        if yield_at is None:
            return False
        host = JobHost.read(self._folder)
        if host is not None and host.is_told:
            return False
        return now > yield_at + TOLD_SECONDS

    def _read(self, pipe: IO[bytes] | None, stream: str) -> None:
        assert pipe is not None
        with open(pipe.fileno(), encoding="utf-8", errors="replace", closefd=False) as lines:
            while line := lines.readline(LINE_CHARACTERS_MAX):
                text = line.removesuffix("\n")
                self._reporter.log(text, stream)
                if stream == "stdout" and self._spec["rank"] == 0:
                    self._reporter.measure(text)
                if stream == "stderr" and text.strip():
                    self._tail.append(text)

    def _log_stacks(self) -> None:
        """A Python that the hook has prepared writes its stacks to stderr; of others, what the kernel says."""
        processes = getattr(self, "_processes", None)
        for pid in [] if processes is None else processes.pids():
            if job_processes.catches(pid, STACKS_SIGNAL):
                with contextlib.suppress(OSError):
                    os.kill(pid, STACKS_SIGNAL)
                self._say(f"process {pid} ({job_processes.title(pid)}): its stacks are on stderr")
            else:
                self._say(f"process {pid} ({job_processes.title(pid)}): {job_processes.waits_for(pid)}")

    def _check_leaving(self) -> None:
        if self._stopping.is_set() or self._reporter.yielding():
            raise _Leave

    def _say(self, text: str) -> None:
        self._reporter.log(text, "platform")

    def _failure(self, code: int | None) -> str:
        said = "\n".join(self._tail)
        return _exit_text(code) + (f"\n{said}" if said else "")
>>>>>>> f3d99c7 (What a job's processes are doing is written to its log on demand)


def _running(folder: Path, generation: int) -> tuple[JobHost, Box | None] | None:
    host = JobHost.read(folder)
    if host is None or host.generation < generation:
        return None
    if not host.has_box:
        return host, None
    found = box.find(folder)
    return None if found is None else (host, found[0])


def _environment(spec: Mapping[str, Any], host: JobHost) -> dict[str, str]:
    own: dict[str, str] = spec["run"]["environment"]
    # SkyPilot's names, for programs that come from there.
    sky = {
        "SKYPILOT_NODE_RANK": str(spec["rank"]),
        "SKYPILOT_NODE_IPS": "\n".join(host.environment.get("TPU_WORKER_HOSTNAMES", "").split(",")),
        "SKYPILOT_NUM_NODES": str(spec["processCount"]),
        "SKYPILOT_TASK_ID": f"{own['PODYARD_JOB']}-{spec['attempt']}",
    }
    return {**sky, **own}


def _bring_files(run: Mapping[str, Any], host: ProgramHost, api: JsonClient, replica_id: str) -> None:
    """Each is written, or unpacked, by a process inside: what it names is the host's."""
    for file in run["files"]:
        name, target = file["name"], file["target"]
        is_outside = target.startswith("/") and not target.startswith(f"{host.home}/")
        if is_outside and not host.has_box:
            text = f"{target}: a host without a box shares the machine's files: use a path below ~"
            raise PodyardError(Code.FAILED_PRECONDITION, text)
        words = [sys.executable, "-I", "-S", str(Path(archives.__file__).resolve()), name]
        place = target or (name if name.endswith(".whl") else "./")
        to = f'"$HOME"/{shlex.quote(place[2:])}' if place.startswith("~/") else shlex.quote(place)
        command = f"exec {shlex.join(words)} {to} {shlex.quote(file['folder']) if place.endswith('/') else ''}"
        pieces = api.content(f"/podyard/v1/replicas/{replica_id}:file?digest={file['digest']}")
        _check(f"{name} cannot be unpacked", host.run(command, stdin=pieces, as_root=is_outside), host)


def _install(spec: Mapping[str, Any], host: ProgramHost, clock: RealClock) -> None:
    run = spec["run"]
    if run["packages"]:
        cache, project = Path(os.environ["PODYARD_CACHE"]), spec["job"].split("/")[1]
        packages = JobPackages(host, cache, project, run["packages"], run["packagesKey"], clock)
        if why := packages.install():
            raise PodyardError(Code.FAILED_PRECONDITION, why)
        host.activate(packages.path)


def _check(what: str, code: int, host: ProgramHost) -> None:
    """Raises FAILED_PRECONDITION, which no other attempt repeats, unless the code is 0."""
    if code != 0:
        host.check_leaving()
        raise PodyardError(Code.FAILED_PRECONDITION, f"{what}: {host.failure(code)}")
