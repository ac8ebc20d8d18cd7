"""`podyard doctor`: what is wrong with this machine's Podyard, and what to do, on one screen."""

from __future__ import annotations

import contextlib
import dataclasses
import http.client
import importlib.util
import shutil
import socket
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import click

from podyard import __version__
from podyard.base import boxes
from podyard.base.clock import OsClock
from podyard.base.durations import duration_for_people
from podyard.base.errors import PodyardError
from podyard.base.files import read_json
from podyard.base.money import quantity_text
from podyard.cli.kit.options import data_option, output_option, settings_of
from podyard.cli.kit.output import emit
from podyard.settings import AGENT, API, LOOP, Settings
from podyard.stack import processes

if TYPE_CHECKING:
    from podyard.db.store.unit_of_work import UnitOfWork
    from podyard.db.views.measures import Measures
    from podyard.domain.agent import AgentRecord

EXIT_BAD = 1
ANSWER_SECONDS_MAX = 3.0  # of each question: doctor must end while things hang
DISK_BYTES_BAD, DISK_BYTES_WARNED = 64 << 20, 1 << 30
# certificates and logs go by the machine's clock; leases by the database's
CLOCK_SECONDS_WARNED = 30.0
WAIT_SECONDS_WARNED = 60.0  # of a message or a timer: they take a second
OPERATION_SECONDS_WARNED = 900.0  # of platform time: the slowest of the default fleet take minutes
CERTIFICATE_DAYS_WARNED = 14


# (modules, what they give) by extra.
EXTRAS = {
    "engine": (("jax", "safetensors", "flatbuffers"), "recipe jobs, estimates of functions"),
    "demo": (("jax", "safetensors", "sklearn"), "podyard demo, data of recipes"),
    "postgres": (("psycopg",), "PostgreSQL as the database"),
    "pdf": (("reportlab",), "invoices as PDF"),
    "xla-tpu": (("jax", "libtpu"), "estimates by the real TPU compiler"),
}


class Level(StrEnum):
    OK = "ok"
    WARNING = "warning"
    BAD = "BAD"


@dataclasses.dataclass(frozen=True, slots=True)
class Finding:
    """`todo`: what to do; empty where nothing is wrong."""

    area: str
    level: Level
    what: str
    todo: str = ""


@dataclasses.dataclass(frozen=True, slots=True)
class _Database:
    """The database's figures of the whole platform. `ahead_seconds`: how far this machine's clock
    is ahead of its."""

    measures: Measures
    agents: list[AgentRecord]
    ahead_seconds: float
    folders_id: str | None


@click.command()
@data_option
@output_option
def doctor(data: str | None, output: str) -> int:
    """Show what is wrong with this machine's Podyard and what to do. Exit code 1 if something
    is."""
    settings = settings_of(data)
    found = list(examine(settings))
    rows = [
        {"area": one.area, "level": str(one.level), "what": one.what, "todo": one.todo}
        for one in found
    ]
    if output == "table":
        emit(rows, output, {"AREA": "area", "STATE": "level", "WHAT": "what", "DO": "todo"})
    else:
        emit({"findings": rows}, output)
    return EXIT_BAD if any(one.level is Level.BAD for one in found) else 0


def examine(settings: Settings) -> Iterator[Finding]:
    """One finding or more of each area. Nothing is changed, and a check that fails is a finding."""
    state = read_json(settings.state_path)
    roles = state.get("roles", list(settings.roles))
    yield from _processes(settings)
    yield from _api(str(state.get("url") or ""), API in roles)
    yield from _disk(settings)
    yield from _database(settings)
    yield from _broker(settings)
    yield from _certificate(settings)
    yield from _boxes(settings, AGENT in roles)
    yield from _extras()


def _processes(settings: Settings) -> Iterator[Finding]:
    area, start = "processes", f"podyard up --data {settings.data}"
    living = processes.living(settings.data)
    names = {process.name for process in living}
    dead = [
        one.name for one in processes.recorded_processes(settings.data) if one.name not in names
    ]
    if not living:
        yield Finding(area, Level.BAD, f"nothing runs on {settings.data}", start)
    elif processes.SUPERVISOR not in names:
        yield Finding(
            area, Level.BAD, "the supervisor was killed: nothing restarts the others", start
        )
    elif dead:
        text = f"{', '.join(dead)} ended and will be started again"
        yield Finding(
            area, Level.WARNING, text, f"read {settings.data / 'podyard.log'} if it goes on"
        )
    else:
        yield Finding(area, Level.OK, ", ".join(sorted(names)))


def _api(url: str, is_here: bool) -> Iterator[Finding]:
    if not url:
        if is_here:
            yield Finding(
                "api",
                Level.BAD,
                "no API is ready on this machine",
                "podyard up, or wait until it is ready",
            )
        return
    place = urlsplit(url)
    connection = http.client.HTTPConnection(
        place.hostname or "", place.port or 80, timeout=ANSWER_SECONDS_MAX
    )
    try:
        connection.request("GET", "/readyz")
        answer = connection.getresponse()
        text = answer.read(4096).decode(errors="replace")
    except OSError as error:
        todo = (
            "podyard status; if the process runs, it hangs: it is killed and started again "
            "after a minute"
        )
        yield Finding("api", Level.BAD, f"{url} does not answer: {error}", todo)
        return
    finally:
        connection.close()
    if answer.status == http.client.OK:
        yield Finding("api", Level.OK, f"{url} is ready")
    else:
        yield Finding(
            "api", Level.BAD, f"{url} is not ready: {text}"[:300], "see the other areas below"
        )


def _extras() -> Iterator[Finding]:
    """Tell what each extra gives, and which are installed."""
    for extra, (modules, gives) in EXTRAS.items():
        is_here = all(importlib.util.find_spec(module) is not None for module in modules)
        todo = "" if is_here else f"pip install 'podyard[{extra}]' if you need it"
        state = "installed" if is_here else "not installed"
        yield Finding(f"extra {extra}", Level.OK, f"{state}: {gives}", todo)


def _disk(settings: Settings) -> Iterator[Finding]:
    if not settings.data.exists():
        return
    for folder in (
        settings.data,
        *(settings.data / name for name in ("contents", "objects", "logs")),
    ):
        if not folder.exists() or (
            folder != settings.data and folder.stat().st_dev == settings.data.stat().st_dev
        ):
            continue
        free = shutil.disk_usage(folder).free
        text = f"{free / (1 << 30):.1f} GiB free for {folder}"
        if free < DISK_BYTES_BAD:
            yield Finding("disk", Level.BAD, text, "free space: nothing can be written")
        elif free < DISK_BYTES_WARNED:
            yield Finding(
                "disk",
                Level.WARNING,
                text,
                "free space, or shorten what is kept (docs/howto/deploy.md)",
            )
        else:
            yield Finding("disk", Level.OK, text)


def _database(settings: Settings) -> Iterator[Finding]:
    from podyard import migrations
    from podyard.db.views import copies
    from podyard.stack.copy_database import read

    area, url = "database", copies.hide_password(settings.database_url)
    if settings.database_path is not None and not settings.database_path.exists():
        yield Finding(
            area,
            Level.BAD,
            f"there is no database at {settings.database_path}",
            "podyard up makes one",
        )
        return
    try:
        if settings.database_path is not None:
            migrations.check_file(settings.database_path, in_use=True)
        with copies.open_engine(settings.database_url) as engine:
            revision = migrations.current(engine)
        if revision != migrations.HEAD:
            older = revision is None or revision in migrations.KNOWN
            todo = "podyard up migrates it" if older else "install the version that runs on it"
            yield Finding(
                area,
                Level.BAD,
                f"{url} has tables of revision {revision}, not {migrations.HEAD}",
                todo,
            )
            return
        found = read(settings.database_url, _look)
    except PodyardError as error:
        is_file = settings.database_path is not None
        todo = "podyard admin restore" if is_file else "start it, or correct PODYARD_DATABASE_URL"
        yield Finding(area, Level.BAD, error.message, todo)
        return
    yield Finding(area, Level.OK, f"{url} answers, revision {revision}")
    for check in (_clock, _loop, _queues, _agents, _invoices):
        yield from check(found)
    yield from _folders(settings, found)


def _look(uow: UnitOfWork) -> _Database:
    from podyard.db.engines.server_time import ServerTime
    from podyard.db.platform import agents
    from podyard.db.store import yard
    from podyard.db.views import measures

    ahead = 0.0
    if uow.connection.dialect.name == "postgresql":
        ahead = OsClock().now().seconds_since(ServerTime(OsClock()).now(uow.connection))
    return _Database(measures.read(uow), agents.list_all(uow), ahead, yard.folders_id(uow))


def _clock(found: _Database) -> Iterator[Finding]:
    ahead, lag = found.ahead_seconds, found.measures.clock_lag_seconds or 0.0
    if abs(ahead) > CLOCK_SECONDS_WARNED:
        side = "ahead of" if ahead > 0 else "behind"
        text = (
            f"this machine's clock is {duration_for_people(round(abs(ahead)))} {side} the "
            "database server's"
        )
        yield Finding("clock", Level.WARNING, text, "run a time service, such as chrony, on both")
    else:
        behind = (
            f"; platform time is {duration_for_people(round(lag))} behind UTC" if lag >= 1 else ""
        )
        yield Finding("clock", Level.OK, f"right within {CLOCK_SECONDS_WARNED:.0f} s{behind}")


def _loop(found: _Database) -> Iterator[Finding]:
    measured = found.measures
    if not measured.leader:
        yield Finding(
            "loop",
            Level.BAD,
            "no control loop leads: platform time stands still",
            f"start one: role {LOOP}",
        )
    elif measured.timer_overdue_seconds > WAIT_SECONDS_WARNED:
        text = f"a timer is overdue by {duration_for_people(round(measured.timer_overdue_seconds))}"
        yield Finding(
            "loop",
            Level.WARNING,
            text,
            "give the loop's machine more CPU, or the database faster disks",
        )
    else:
        host, _, rest = measured.leader.partition("/")
        text = (
            f"pid {rest.partition('/')[0]} on {host} leads, the leader number "
            f"{measured.leader_fence}"
        )
        yield Finding("loop", Level.OK, text)


def _queues(found: _Database) -> Iterator[Finding]:
    measured = found.measures
    waits, oldest = measured.outbox_oldest_seconds, measured.operation_oldest_seconds
    messages, operations = (
        _count(measured.outbox_unsent, "message"),
        _count(measured.operations_running, "operation"),
    )
    if waits > WAIT_SECONDS_WARNED:
        text = f"{messages}, the oldest for {duration_for_people(round(waits))}"
        yield Finding("queues", Level.WARNING, text, "start Redis and a loop; jobs go on meanwhile")
    elif oldest > OPERATION_SECONDS_WARNED:
        text = f"{operations}, the oldest for {duration_for_people(round(oldest))}"
        yield Finding(
            "queues",
            Level.WARNING,
            text,
            "podyard fsck; a node may wait for capacity: podyard queue list",
        )
    else:
        text = f"waiting: {messages}, {operations}"
        yield Finding("queues", Level.OK, text)


def _agents(found: _Database) -> Iterator[Finding]:
    counts = dict(found.measures.agents)
    text = (
        ", ".join(f"{count} {state}" for state, count in sorted(counts.items()))
        or "none has registered"
    )
    releases = {
        agent.agent_id: agent.release for agent in found.agents if agent.state.value != "REMOVED"
    }
    others = [
        name for name, release in sorted(releases.items()) if release not in ("", __version__)
    ]
    if counts.get("GONE"):
        yield Finding(
            "agents",
            Level.WARNING,
            text,
            "podyard agent list; start it again, or podyard agent remove it",
        )
    elif not counts.get("READY"):
        yield Finding(
            "agents", Level.WARNING, text, "jobs and hosts wait: start or resume an agent"
        )
    elif others:
        what = f"{', '.join(others)} run another version than {__version__}"
        yield Finding("agents", Level.WARNING, what, "upgrade them")
    else:
        yield Finding("agents", Level.OK, text)


def _invoices(found: _Database) -> Iterator[Finding]:
    if held := found.measures.accounts_held:
        yield Finding(
            "invoices",
            Level.WARNING,
            f"{held} accounts have a month that is held",
            "podyard bill account",
        )


def _folders(settings: Settings, found: _Database) -> Iterator[Finding]:
    for folder in (
        settings.data,
        *(settings.data / name for name in ("contents", "objects", "logs")),
    ):
        try:
            text = (folder / "yard.id").read_text(encoding="ascii").strip()
        except OSError:
            continue  # a machine without an API has none
        if found.folders_id not in (None, text):
            yield Finding(
                "folders",
                Level.BAD,
                f"{folder} belongs to another yard",
                "mount the yard's own folder there",
            )


def _broker(settings: Settings) -> Iterator[Finding]:
    """Of a Redis on another machine; this machine's is among the processes."""
    if settings.broker_url is None or settings.broker_url.startswith("memory:"):
        return
    place = urlsplit(settings.broker_url)
    name, port = place.hostname or "127.0.0.1", place.port or 6379
    try:
        with socket.create_connection((name, port), ANSWER_SECONDS_MAX):
            yield Finding("broker", Level.OK, f"{name}:{port} takes connections")
    except OSError as error:
        todo = (
            "start Redis, or correct PODYARD_BROKER_URL; jobs go on meanwhile, "
            "background work waits"
        )
        yield Finding("broker", Level.WARNING, f"{name}:{port}: {error}", todo)


def _certificate(settings: Settings) -> Iterator[Finding]:
    from cryptography import x509

    files: list[Path] = [] if settings.tls_cert is None else [settings.tls_cert]
    files += [path for path in sorted(settings.tls_path.glob("*.pem")) if path not in files]
    now = OsClock().now()
    for path in files:
        with contextlib.suppress(OSError, ValueError):
            end = x509.load_pem_x509_certificate(path.read_bytes()).not_valid_after_utc
            days = (end.timestamp() - now.nanos / 1e9) / 86_400
            text = f"{path} is valid for {days:.0f} days"
            if days < 0:
                yield Finding(
                    "certificates", Level.BAD, f"{path} has expired", _renewal(settings, path)
                )
            elif days < CERTIFICATE_DAYS_WARNED:
                yield Finding("certificates", Level.WARNING, text, _renewal(settings, path))
            else:
                yield Finding("certificates", Level.OK, text)


def _renewal(settings: Settings, path: Path) -> str:
    return (
        "put a new one there"
        if path == settings.tls_cert
        else "podyard up renews it: start it again"
    )


def _boxes(settings: Settings, is_wanted: bool) -> Iterator[Finding]:
    if not is_wanted:
        return
    why = boxes.why_not(settings.boxes)
    level = Level.WARNING if why else Level.OK
    todo = "docs/internals/boxes.md says what they need" if why else ""
    yield Finding("boxes", level, boxes.sentence(why), todo)


def _count(number: int, noun: str) -> str:
    return quantity_text(str(number), noun)


COMMANDS = {"doctor": doctor}
