"""`podyard up|down|status`: the stack of one data folder."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import click

from podyard.base import boxes
from podyard.base.clock import LAG_SECONDS_SHOWN, OsClock, RealClock
from podyard.base.durations import duration_for_people
from podyard.base.errors import Code, PodyardError
from podyard.base.files import read_json
from podyard.cli.kit.client import LOCATION_DEFAULT, PROJECT_DEFAULT, Client, Target, read_token
from podyard.cli.kit.options import data_option, output_option, settings_of
from podyard.cli.kit.output import emit, say
from podyard.cli.kit.terminal import confirm
from podyard.settings import CLOCK_MODES, FLEET_NAMES, Settings, fleet_name, roles_of
from podyard.stack import processes
from podyard.stack.detached import start_detached
from podyard.stack.door_options import with_door
from podyard.stack.roles import check as check_roles
from podyard.stack.supervisor import STOP_SECONDS, door_line, ready_line, run

EXIT_NOT_RUNNING = 1
LAG_ANSWER_SECONDS_MAX = 2.0  # `status` must answer while the API stands still
EXIT_SETUP = 2
DOWN_SECONDS_MAX = sum(STOP_SECONDS.values()) + 5.0  # every child may take its whole time
_POLL_SECONDS = 0.05
FILE = click.Path(dir_okay=False, path_type=Path)


@click.command()
@data_option
@click.option(
    "--port", type=click.IntRange(0, 65535), help="HTTP port (default: 8700); 0 picks a free port."
)
@click.option(
    "--grpc-port",
    type=click.IntRange(0, 65535),
    help="gRPC port (default: 8701); 0 picks a free port.",
)
@click.option(
    "--storage-port",
    type=click.IntRange(0, 65535),
    help="Port of Cloud Storage's APIs (default: 8703); 0 picks a free port.",
)
@click.option(
    "--bind",
    "bind_address",
    metavar="ADDRESS",
    help=(
        "Address to listen on (default: 127.0.0.1). Beyond loopback only the public port is "
        "opened, with TLS."
    ),
)
@click.option(
    "--public-port", type=click.IntRange(0, 65535), help="Port for other machines (default: 8743)."
)
@click.option(
    "--public-url", metavar="URL", help="URL by which other machines reach the public port."
)
@click.option(
    "--tls",
    is_flag=True,
    help="Use a certificate that Podyard makes, signed by an authority of this yard.",
)
@click.option(
    "--tls-cert",
    type=FILE,
    metavar="FILE",
    help="Certificate of the public port (PEM), with its chain.",
)
@click.option("--tls-key", type=FILE, metavar="FILE", help="Private key of the certificate (PEM).")
@click.option("--behind-proxy", is_flag=True, help="Serve HTTP for a proxy that terminates TLS.")
@click.option(
    "--fleet",
    metavar="NAME|FILE",
    help="Fleet to emulate: default, instant (no delays, no quotas), or a fleet file (YAML).",
)
@click.option(
    "--clock", "clock_mode", type=click.Choice(CLOCK_MODES), help="Mode of the platform clock."
)
@click.option(
    "--roles",
    metavar="ROLE,...",
    help="Processes to run on this machine: api, loop, agent, storage, broker (default: all).",
)
@click.option(
    "--database-url",
    metavar="URL",
    help="Database server: postgresql://USER@HOST/NAME?sslmode=verify-full.",
)
@click.option(
    "--broker-url",
    metavar="URL",
    help="Redis server, instead of one of this machine: rediss://HOST:6379/0.",
)
@click.option(
    "--detach",
    is_flag=True,
    help="Run in the background and return once Podyard is ready. Stop it with `podyard down`.",
)
def up(  # noqa: PLR0913
    data: str | None,
    port: int | None,
    grpc_port: int | None,
    storage_port: int | None,
    bind_address: str | None,
    public_port: int | None,
    public_url: str | None,
    tls: bool,
    tls_cert: Path | None,
    tls_key: Path | None,
    behind_proxy: bool,
    fleet: str | None,
    clock_mode: str | None,
    roles: str | None,
    database_url: str | None,
    broker_url: str | None,
    detach: bool,
) -> int:
    """Start Podyard. Ctrl-C stops it."""
    settings = settings_of(
        data,
        roles=None if roles is None else roles_of(roles),
        database_url=database_url,
        broker_url=broker_url,
        port=port,
        grpc_port=grpc_port,
        storage_port=storage_port,
        bind_address=bind_address,
        public_port=public_port,
        public_url=public_url,
        tls=tls or None,
        tls_cert=None if tls_cert is None else tls_cert.absolute(),
        tls_key=None if tls_key is None else tls_key.absolute(),
        behind_proxy=behind_proxy or None,
        fleet=None if fleet is None else fleet_name(fleet),
        clock_mode=clock_mode,
    )
    problem = _fleet_problem(settings.fleet)
    if problem is not None:
        say(f"podyard up: {problem}")
        return EXIT_SETUP
    try:
        settings = with_door(settings)
        check_roles(settings)
    except PodyardError as error:
        say(f"podyard up: {error.message}")
        return EXIT_SETUP
    return _start_detached(settings) if detach else run(settings)


@click.command()
@data_option
@click.option(
    "--delete-data", is_flag=True, help="Delete the data folder afterwards, after confirmation."
)
@click.option("--yes", is_flag=True, help="Skip confirmation.")
def down(data: str | None, delete_data: bool, yes: bool) -> int:
    """Stop Podyard, including processes that a killed `up` left behind."""
    settings = settings_of(data)
    folder = settings.data
    if delete_data and not yes:
        confirm(f"Delete {folder} with all nodes, jobs and bills?", "--yes")
    if not folder.exists():
        return 0
    clock = OsClock()
    claim = _claimed_for_down(folder, clock)
    try:
        stopped = processes.stop_orphans(processes.living(folder), clock, STOP_SECONDS)
        if stopped:
            say(f"stopped what was left running: {', '.join(stopped)}")
        # The folder is ours and nothing runs on it, so what these files name is gone.
        for path in (settings.state_path, folder / processes.PROCESSES_FILE):
            path.unlink(missing_ok=True)
        if delete_data:
            shutil.rmtree(folder)
            say(f"deleted {folder}")
    finally:
        os.close(claim)
    return 0


def _claimed_for_down(folder: Path, clock: RealClock) -> int:
    """The claim on a folder whose supervisor has ended. Raises ABORTED when another one started
    meanwhile."""
    supervisor: processes.StackProcess | None = None
    deadline = clock.monotonic_seconds() + DOWN_SECONDS_MAX
    while (claim := processes.claim(folder)) is None:
        living = processes.supervisor(folder)
        if supervisor is None and living is not None:
            supervisor = living
            supervisor.ask_to_end()
        elif living is not None and living != supervisor:
            raise PodyardError(
                Code.ABORTED,
                f"another `podyard up` started on {folder} meanwhile; it was left running",
            )
        if clock.monotonic_seconds() > deadline:
            if supervisor is None:
                raise PodyardError(
                    Code.ABORTED, f"another `podyard down` is running on {folder}; try again"
                )
            supervisor.signal(signal.SIGKILL)
            if not supervisor.wait_gone(clock, processes.KILL_SECONDS_MAX):
                raise PodyardError(
                    Code.ABORTED, f"the supervisor (pid {supervisor.pid}) did not stop"
                )
        clock.sleep(_POLL_SECONDS)
    if supervisor is not None:
        supervisor.wait_gone(clock, processes.KILL_SECONDS_MAX)
    return claim


def _shell_uses() -> str:
    """Return what is to be added where the shell points at a Podyard (`podyard env`)."""
    url = os.environ.get("PODYARD_URL")
    if not url:
        return ""
    port = urlsplit(url).port
    folder = None if port is None else processes.folder_with("PODYARD_PORT", str(port))
    command = "" if folder is None else f": `podyard status --data {folder}`"
    return f"; this shell uses {url}{command}"


@click.command()
@data_option
@output_option
def status(data: str | None, output: str) -> int:
    """Show what is running. Exit code 1 if Podyard is not running."""
    settings = settings_of(data)
    state = read_json(settings.state_path)
    url = state.get("url")
    living = processes.living(settings.data)
    names = {process.name for process in living}
    dead = [
        process
        for process in processes.recorded_processes(settings.data)
        if process.name not in names
    ]
    if not living and not dead:
        say(f"no Podyard runs on {settings.data}{_shell_uses()}")
        return EXIT_NOT_RUNNING
    rows: list[dict[str, Any]] = [
        {
            "process": process.name,
            "pid": process.pid,
            "state": _state(process, process in living),
        }
        for process in sorted([*living, *dead], key=_in_order)
    ]
    if (
        "storage" in state.get("ports", {})
        and "storage" not in names
        and processes.SUPERVISOR in names
    ):
        # starts with its first connection
        rows.append({"process": "storage", "pid": None, "state": "idle"})
    if output == "table":
        where = "not ready yet" if url is None else url or "no API on this machine"
        say(f"{where}  (data {settings.data})")
        if url and (lag := _lag(settings, str(url))):
            say(lag)
        if door := _door(state):
            say(
                f"Other machines reach it at {door['publicUrl']}  (fingerprint "
                f"{door['fingerprint'] or 'none'})"
            )
        emit(rows, output, {"PROCESS": "process", "PID": "pid", "STATE": "state"})
    else:
        emit({"url": url, "data": str(settings.data), "processes": rows, **_door(state)}, output)
    frozen = [process for process in living if process.is_frozen]
    if frozen:
        say(_frozen_note(frozen))
    if processes.SUPERVISOR in names:
        return EXIT_NOT_RUNNING if any(one.name == processes.SUPERVISOR for one in frozen) else 0
    if living:
        say(
            "The supervisor was killed. The other processes go on, but nothing restarts them.\n"
            f"Take over with `podyard up --data {settings.data}`, "
            f"or stop them with `podyard down --data {settings.data}`."
        )
    else:
        say(
            "Nothing runs: Podyard was killed. Start it again with `podyard up --data "
            f"{settings.data}`."
        )
    return EXIT_NOT_RUNNING


def _state(process: processes.StackProcess, is_alive: bool) -> str:
    if not is_alive:
        return "dead"
    return "frozen" if process.is_frozen else "running"


def _frozen_note(frozen: Sequence[processes.StackProcess]) -> str:
    """Tell what is stopped, what that means, and how it goes on."""
    names = " and ".join(process.name for process in frozen)
    pids = " ".join(str(process.pid) for process in frozen)
    if any(process.name == processes.SUPERVISOR for process in frozen):
        meaning = "nothing restarts processes that die, and storage does not start"
    else:
        meaning = "the supervisor restarts it once its heartbeats are missed for too long"
    return (
        f"Stopped by a signal or a debugger: {names}. Until it goes on, {meaning}.\n"
        f"Let it go on with `kill -CONT {pids}`."
    )


def _lag(settings: Settings, url: str) -> str:
    """Return how far platform time is behind UTC, in words; empty when it is not, or when the API
    does not answer."""
    try:
        target = Target(url, read_token(settings.token_path), PROJECT_DEFAULT, LOCATION_DEFAULT)
        client = Client(target, timeout_seconds=LAG_ANSWER_SECONDS_MAX)
        try:
            seconds = float(client.call("GET", "/podyard/v1/clock").get("lagSeconds", 0.0))
        finally:
            client.close()
    except (PodyardError, OSError):
        return ""
    if seconds < LAG_SECONDS_SHOWN:
        return ""
    lag = duration_for_people(round(seconds))
    return (
        f"Platform time is {lag} behind UTC: it stands still while Podyard is down or the "
        "machine sleeps."
    )


def _door(state: Mapping[str, Any]) -> dict[str, Any]:
    """The door's URL and the fingerprint by which clients trust it; empty where there is none."""
    if "publicUrl" not in state:
        return {}
    return {"publicUrl": state["publicUrl"], "fingerprint": state.get("fingerprint")}


def _in_order(process: processes.StackProcess) -> int:
    order = (processes.SUPERVISOR, "api", processes.BROKER, "loop", "agent", "storage")
    return order.index(process.name) if process.name in order else len(order)


def _fleet_problem(fleet: str) -> str | None:
    if fleet in FLEET_NAMES:
        return None
    from podyard.stack.fleets import read_fleet

    try:
        read_fleet(fleet)
    except PodyardError as error:
        return error.message
    return None


def _start_detached(settings: Settings) -> int:
    """Starts `podyard up` in a new session and waits until it is ready or has failed."""
    arguments: list[str] = ["--data", str(settings.data), "--port", str(settings.port)]
    arguments += ["--bind", settings.public_address or settings.bind_address]
    arguments += [
        "--clock",
        settings.clock_mode,
        "--fleet",
        settings.fleet,
        "--roles",
        ",".join(settings.roles),
    ]
    if settings.grpc_port is not None:
        arguments += ["--grpc-port", str(settings.grpc_port)]
    if settings.storage_port is not None:
        arguments += ["--storage-port", str(settings.storage_port)]
    if settings.public_address is not None:
        arguments += ["--public-port", str(settings.public_port)]
    named = (
        ("--public-url", settings.public_url),
        ("--tls-cert", settings.tls_cert),
        ("--tls-key", settings.tls_key),
    )
    for option, value in named:
        arguments += [] if value is None else [option, str(value)]
    arguments += [
        option
        for option, on in (("--tls", settings.tls), ("--behind-proxy", settings.behind_proxy))
        if on
    ]
    # Passwords in URLs are not arguments, which everybody may read.
    state = start_detached(["up", *arguments], settings.data, "podyard up", settings.environment())
    if isinstance(state, int):
        return state
    say(ready_line(state["url"], settings))
    if (line := door_line(state.get("publicUrl"))) is not None:
        say(line)
    say(boxes.sentence(boxes.why_not(settings.boxes)))
    return 0


COMMANDS = {"up": up, "down": down, "status": status}
