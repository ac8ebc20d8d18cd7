"""A replica that runs a user's program on its host.

It waits for the host, ends what earlier replicas have left there, brings the files and the
packages, and starts the program as the box's user. The program is told to leave by SIGTERM, and
ends with its replica (`job_processes.py`).
"""

from __future__ import annotations

import os
import shlex
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from podyard.base import archives
from podyard.base.clock import RealClock
from podyard.base.errors import Code, PodyardError
from podyard.hardware.accelerator_types import kind_of
from podyard.workers.box import box
from podyard.workers.box.box import Box
from podyard.workers.host.job_files import JobHost
from podyard.workers.kit.http_client import JsonClient
from podyard.workers.replica.job_packages import JobPackages
from podyard.workers.replica.program_host import POLL_SECONDS, LeaveError, ProgramHost, lacks_module
from podyard.workers.replica.reporter import Reporter

if TYPE_CHECKING:
    from podyard.workers.host.programs import HostPrograms

HOST_SECONDS_MAX = 120.0  # for a host that waits for no software: a box takes a tenth of a second
HOST_ASK_SECONDS = 2.0
# For modules that have no estimate when the program ends: most have one, and others take a second.
PRICE_SECONDS_MAX = 20.0
LOOK_SECONDS = 5.0  # as a host looks at its programs: a report is a write to the database
_ESTIMATOR_VARIABLES = ("PATH", "HOME", "LANG", "PYTHONPATH", "TMPDIR")  # not the token


def run_program(
    spec: Mapping[str, Any],
    reporter: Reporter,
    api: JsonClient,
    replica_id: str,
    stopping: threading.Event,
    clock: RealClock,
) -> str | None:
    """Return what the replica reports as its end; None: it was stopped. Raises PodyardError:
    ABORTED where another attempt may go better."""
    code: int | None = None
    text, is_import = "", False
    follower: _RunFollower | None = None
    try:
        host = _host(spec, reporter, api, replica_id, stopping, clock)
        host.clear()
        if host.is_measured:
            follower = _RunFollower(_programs(spec, host, clock), replica_id, reporter)
        _bring_files(spec["run"], host, api, replica_id)
        _install(spec, host, clock)
        if spec["run"]["setup"]:
            _check("setup", host.run(spec["run"]["setup"]), host)
        code = host.run(spec["run"]["command"])
        text, is_import = host.failure(code), lacks_module(host.tail)
    except LeaveError:
        pass
    except OSError as error:
        text = f"the program cannot be run: {error}"
    if follower is not None:
        follower.finish(0.0 if stopping.is_set() or reporter.yielding() else PRICE_SECONDS_MAX)
    # After the end of the program, so that what the platform wants now is known.
    reporter.report_now()
    if stopping.is_set():
        return None
    if reporter.yielding():
        return "YIELDED"
    if code != 0 and is_import:
        text += ". Add what is missing to requirements.txt; another attempt would fail, too"
        raise PodyardError(Code.FAILED_PRECONDITION, text)
    if code != 0:
        raise PodyardError(Code.ABORTED, text)
    return "SUCCEEDED"


class _RunFollower:
    """Reports the modules that the program compiles and runs, from the files of its host."""

    def __init__(self, programs: HostPrograms, replica_id: str, reporter: Reporter) -> None:
        self._programs = programs
        self._replica = replica_id
        self._reporter = reporter
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._follow, name="program-run", daemon=True)
        self._thread.start()

    def finish(self, price_seconds: float) -> None:
        """Report the run of a program that has ended. `price_seconds`: for modules that are not
        priced yet."""
        self._over.set()
        self._thread.join()
        self._reporter.on_run(self._programs.price_run_of(self._replica, price_seconds))
        self._programs.end()

    def _follow(self) -> None:
        while not self._over.wait(LOOK_SECONDS):
            self._reporter.on_run(self._programs.run_of(self._replica))


def _programs(spec: Mapping[str, Any], host: ProgramHost, clock: RealClock) -> HostPrograms:
    folder = host.folder
    from podyard.workers.host.programs import HostPrograms  # late: one replica of a job reads runs

    cache = folder.parent.parent / "estimates"
    kind = kind_of(spec["acceleratorType"], host.topology)
    environment = {name: os.environ[name] for name in _ESTIMATOR_VARIABLES if name in os.environ}
    return HostPrograms(folder / "programs", folder / "estimates", cache, kind, environment, clock)


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

    def ask() -> Mapping[str, Any] | None:
        try:
            found: Mapping[str, Any] = api.call("GET", f"/podyard/v1/replicas/{replica_id}")["run"][
                "host"
            ]
        except PodyardError:
            return None  # the API may be restarting; the reporter hears of everything else
        return found

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
            raise PodyardError(
                Code.ABORTED, f"the host did not run within {HOST_SECONDS_MAX:.0f} s: {why}"
            )
        clock.sleep(POLL_SECONDS)
    host, host_box = found
    where = f"jobs/{run['environment']['PODYARD_JOB']}"
    environment = _environment(spec, host)
    found_host = ProgramHost(
        folder, host, host_box, replica_id, environment, where, reporter, stopping, clock
    )
    found_host.is_measured = spec["rank"] == 0
    return found_host


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
    workers = [inside if host.has_box else outside for inside, outside in spec["run"]["workers"]]
    addresses = workers or host.environment.get("TPU_WORKER_HOSTNAMES", "").split(",")
    # SkyPilot's names, for programs that come from there.
    sky = {
        "SKYPILOT_NODE_RANK": str(spec["rank"]),
        "SKYPILOT_NODE_IPS": "\n".join(addresses),
        "SKYPILOT_NUM_NODES": str(spec["processCount"]),
        "SKYPILOT_TASK_ID": f"{own['PODYARD_JOB']}-{spec['attempt']}",
    }
    return {**sky, **own}


def _bring_files(
    run: Mapping[str, Any], host: ProgramHost, api: JsonClient, replica_id: str
) -> None:
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
        command = (
            f"exec {shlex.join(words)} {to} "
            f"{shlex.quote(file['folder']) if place.endswith('/') else ''}"
        )
        pieces = api.content(f"/podyard/v1/replicas/{replica_id}:file?digest={file['digest']}")
        _check(
            f"{name} cannot be unpacked", host.run(command, stdin=pieces, as_root=is_outside), host
        )


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
