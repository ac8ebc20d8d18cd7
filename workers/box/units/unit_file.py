"""Unit files of services, as systemd.unit(5), systemd.service(5) and systemd.syntax(7) describe
them, as far as boxes run them. Pure."""

from __future__ import annotations

import dataclasses
import re
import shlex
import signal
from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from typing import TypeVar

SUFFIX = ".service"
DEFAULT_STOP_SECONDS = 90.0  # DefaultTimeoutStopSec, and the same for starting
_DEFAULT_RESTART_SECONDS = 0.1
_DEFAULT_BURST, _DEFAULT_INTERVAL_SECONDS = 5, 10.0  # of starts, until systemd gives up
_PREFIXES = "@-:+!"  # of ExecStart and its like
_TRUE = ("1", "yes", "true", "on")
_SECONDS = {
    "us": 1e-6, "usec": 1e-6, "ms": 1e-3, "msec": 1e-3, "": 1, "s": 1, "sec": 1, "second": 1,
    "seconds": 1, "m": 60, "min": 60, "minute": 60, "minutes": 60, "h": 3600, "hr": 3600,
    "hour": 3600, "hours": 3600, "d": 86400, "day": 86400, "days": 86400,
}  # fmt: skip
_Choice = TypeVar("_Choice", bound=StrEnum)
_VARIABLE = re.compile(r"\$(?:(\$)|\{(\w+)\}|(\w+))")


class LoadError(Exception):
    """The sentence that says why a unit file cannot be run."""


class ServiceKind(StrEnum):
    """`Type=`. A box does not wait for notifications: `notify` is started as `exec` is."""

    SIMPLE = "simple"
    EXEC = "exec"
    IDLE = "idle"
    NOTIFY = "notify"
    FORKING = "forking"
    ONESHOT = "oneshot"


class Restart(StrEnum):
    NO = "no"
    ALWAYS = "always"
    ON_SUCCESS = "on-success"
    ON_FAILURE = "on-failure"
    ON_ABNORMAL = "on-abnormal"
    ON_ABORT = "on-abort"


class Kills(StrEnum):
    """`KillMode=`: which processes are ended with a unit."""

    ALL = "control-group"
    MIXED = "mixed"
    MAIN = "process"
    NONE = "none"


@dataclasses.dataclass(frozen=True, slots=True)
class UnitCommand:
    """One line of ExecStart and its like. `name`: what the program is called, if it is not its
    path."""

    words: tuple[str, ...]
    may_fail: bool = False
    name: str = ""


@dataclasses.dataclass(frozen=True, slots=True)
class Unit:
    """A service. Paths that begin with `-` may be missing."""

    name: str
    description: str
    kind: ServiceKind
    start: tuple[UnitCommand, ...]
    start_pre: tuple[UnitCommand, ...] = ()
    start_post: tuple[UnitCommand, ...] = ()
    stop: tuple[UnitCommand, ...] = ()
    stop_post: tuple[UnitCommand, ...] = ()
    environment: Mapping[str, str] = dataclasses.field(default_factory=dict)
    environment_files: tuple[str, ...] = ()
    working_directory: str = "/"
    user: str = ""
    group: str = ""
    pid_file: str = ""
    restart: Restart = Restart.NO
    restart_seconds: float = _DEFAULT_RESTART_SECONDS
    start_seconds: float = DEFAULT_STOP_SECONDS
    stop_seconds: float = DEFAULT_STOP_SECONDS
    remains: bool = False
    kills: Kills = Kills.ALL
    kill_signal: int = signal.SIGTERM
    success: frozenset[str] = frozenset()
    burst: int = _DEFAULT_BURST
    interval_seconds: float = _DEFAULT_INTERVAL_SECONDS
    wanted_by: tuple[str, ...] = ()
    required_by: tuple[str, ...] = ()


def unit_name(text: str) -> str:
    """The whole name of a service. Raises LoadError."""
    name = text if "." in text.rpartition("@")[2] else f"{text}{SUFFIX}"
    if not name.endswith(SUFFIX):
        raise LoadError(f"{name}: hosts of Podyard run services only")
    if "/" in name or not name.removesuffix(SUFFIX) or any(one.isspace() for one in name):
        raise LoadError(f"Invalid unit name {text!r}")
    return name


def file_name(name: str) -> str:
    """The name of the file that a unit comes from: `x@.service` for `x@1.service`."""
    first, at, _ = name.removesuffix(SUFFIX).partition("@")
    return f"{first}@{SUFFIX}" if at else name


def read_unit(name: str, texts: Sequence[str], host: str) -> Unit:
    """The unit `name` with these files: its own first, then the drop-ins. `host`: the name of the
    machine. Raises LoadError."""
    sections = _sections(texts)
    fields = _Fields(name, {key: text for (_, key), text in sections.items()}, host)
    unit = Unit(
        name=name,
        description=fields.text("Description") or name,
        kind=fields.choice(
            ServiceKind,
            "Type",
            ServiceKind.SIMPLE if fields.has("ExecStart") else ServiceKind.ONESHOT,
        ),
        start=fields.commands("ExecStart"),
        start_pre=fields.commands("ExecStartPre"),
        start_post=fields.commands("ExecStartPost"),
        stop=fields.commands("ExecStop"),
        stop_post=fields.commands("ExecStopPost"),
        environment=fields.environment(),
        environment_files=fields.lines("EnvironmentFile"),
        working_directory=fields.text("WorkingDirectory") or "/",
        user=fields.text("User"),
        group=fields.text("Group"),
        pid_file=fields.text("PIDFile"),
        restart=fields.choice(Restart, "Restart", Restart.NO),
        restart_seconds=fields.seconds("RestartSec", _DEFAULT_RESTART_SECONDS),
        start_seconds=fields.seconds(
            "TimeoutStartSec", fields.seconds("TimeoutSec", DEFAULT_STOP_SECONDS)
        ),
        stop_seconds=fields.seconds(
            "TimeoutStopSec", fields.seconds("TimeoutSec", DEFAULT_STOP_SECONDS)
        ),
        remains=fields.text("RemainAfterExit").lower() in _TRUE,
        kills=fields.choice(Kills, "KillMode", Kills.ALL),
        kill_signal=fields.signal("KillSignal"),
        success=frozenset(fields.words("SuccessExitStatus")),
        burst=fields.number("StartLimitBurst", _DEFAULT_BURST),
        interval_seconds=fields.seconds("StartLimitIntervalSec", _DEFAULT_INTERVAL_SECONDS),
        wanted_by=fields.words("WantedBy"),
        required_by=fields.words("RequiredBy"),
    )
    _check(unit)
    return unit


def _check(unit: Unit) -> None:
    if not unit.start and not (unit.stop and unit.kind is ServiceKind.ONESHOT):
        raise LoadError(f"{unit.name}: Service has no ExecStart= setting. Refusing.")
    if len(unit.start) > 1 and unit.kind is not ServiceKind.ONESHOT:
        text = "more than one ExecStart= setting is only allowed for Type=oneshot services"
        raise LoadError(f"{unit.name}: {text}. Refusing.")
    if unit.kind is ServiceKind.ONESHOT and unit.restart in (Restart.ALWAYS, Restart.ON_SUCCESS):
        text = f"Service has Restart={unit.restart}, which isn't allowed for Type=oneshot services"
        raise LoadError(f"{unit.name}: {text}. Refusing.")


class _Fields:
    """The settings of one unit, by their names: all values, in order."""

    def __init__(self, name: str, values: Mapping[str, Sequence[str]], host: str) -> None:
        self._name = name
        self._values = values
        whole = name.removesuffix(SUFFIX)
        prefix, _, instance = whole.partition("@")
        self._specifiers = {
            "n": name, "N": whole, "p": prefix, "i": instance, "I": instance.replace("-", "/"),
            "H": host, "t": "/run", "S": "/var/lib", "C": "/var/cache", "L": "/var/log",
            "E": "/etc", "T": "/tmp", "V": "/var/tmp", "u": "root", "U": "0", "h": "/root",
            "%": "%",
        }  # fmt: skip

    def has(self, key: str) -> bool:
        return key in self._values

    def lines(self, key: str) -> tuple[str, ...]:
        return tuple(self._resolve(text) for text in self._values.get(key, ()))

    def text(self, key: str) -> str:
        return next(reversed(self.lines(key)), "")

    def words(self, key: str) -> tuple[str, ...]:
        return tuple(word for text in self.lines(key) for word in text.split())

    def seconds(self, key: str, default: float) -> float:
        text = self.text(key)
        return seconds_of(text) if text else default

    def number(self, key: str, default: int) -> int:
        text = self.text(key)
        if text and not text.isdigit():
            raise LoadError(f"{self._name}: {key}={text} is not a number")
        return int(text) if text else default

    def signal(self, key: str) -> int:
        text = self.text(key) or "SIGTERM"
        try:
            return signal.Signals[text if text.startswith("SIG") else f"SIG{text}"]
        except KeyError:
            raise LoadError(f"{self._name}: {key}={text} is not a signal") from None

    def choice(self, of: type[_Choice], key: str, default: _Choice) -> _Choice:
        text = self.text(key)
        if text and text not in list(of):
            raise LoadError(f"{self._name}: {key}={text} is not supported: use {', '.join(of)}")
        return of(text) if text else default

    def commands(self, key: str) -> tuple[UnitCommand, ...]:
        return tuple(self._command(key, text) for text in self.lines(key))

    def environment(self) -> dict[str, str]:
        pairs = (self._split("Environment", text) for text in self.lines("Environment"))
        named = (word.partition("=") for words in pairs for word in words)
        return {name: value for name, sign, value in named if sign}

    def _command(self, key: str, text: str) -> UnitCommand:
        marks = text[: len(text) - len(text.lstrip(_PREFIXES))]
        words = self._split(key, text[len(marks) :])
        if "@" in marks and len(words) > 1:
            return UnitCommand((words[0], *words[2:]), "-" in marks, words[1])
        if not words:
            raise LoadError(f"{self._name}: {key}={text} names no program")
        return UnitCommand(tuple(words), "-" in marks)

    def _split(self, key: str, text: str) -> list[str]:
        try:
            return shlex.split(text)
        except ValueError:
            raise LoadError(f"{self._name}: {key}: unbalanced quotes in {text!r}") from None

    def _resolve(self, text: str) -> str:
        return re.sub(r"%(.)", lambda part: self._specifiers.get(part[1], part[0]), text)


def _sections(texts: Sequence[str]) -> dict[tuple[str, str], list[str]]:
    """(section, key) -> values. An empty value drops those before it."""
    values: dict[tuple[str, str], list[str]] = {}
    for text in texts:
        section = ""
        for line in _logical_lines(text):
            if line.startswith("[") and line.endswith("]"):
                section = line[1:-1]
                continue
            key, _, value = line.partition("=")
            several = values.setdefault((section, key.strip()), [])
            if value.strip():
                several.append(value.strip())
            else:
                several.clear()
    return values


def _logical_lines(text: str) -> Iterator[str]:
    """Lines without comments; one that ends with a backslash goes on in the next."""
    whole = ""
    for line in (one.strip() for one in text.splitlines()):
        if line.startswith(("#", ";")):
            continue
        if line.endswith("\\"):
            whole += f"{line[:-1]} "
            continue
        if whole + line:
            yield whole + line
        whole = ""
    if whole:
        yield whole


def seconds_of(text: str) -> float:
    """A span of time: `5`, `100ms`, `1min 30s`, `infinity`. Raises LoadError."""
    if text in ("infinity", "0"):
        return float("inf") if text == "infinity" else 0.0
    parts = re.findall(r"([0-9.]+)\s*([a-z]*)", text)
    if not parts or any(unit not in _SECONDS for _, unit in parts):
        raise LoadError(f"{text!r} is not a span of time: use 5, 100ms or 1min 30s")
    return sum(float(count) * _SECONDS[unit] for count, unit in parts)


def environment_of(text: str) -> dict[str, str]:
    """The variables of an EnvironmentFile."""
    variables = {}
    for line in _logical_lines(text):
        name, sign, value = line.partition("=")
        if sign:
            try:
                variables[name.strip()] = (
                    "".join(shlex.split(value)) if '"' in value or "'" in value else value.strip()
                )
            except ValueError:
                variables[name.strip()] = value.strip()
    return variables


def expand(words: Sequence[str], environment: Mapping[str, str]) -> list[str]:
    """A command with its variables: `$NAME` alone becomes words, `${NAME}` is a part of its
    word."""
    expanded: list[str] = []
    for word in words:
        alone = re.fullmatch(r"\$(\w+)", word)
        if alone:
            expanded += environment.get(alone[1], "").split()
        else:
            expanded.append(_VARIABLE.sub(lambda part: _value(part, environment), word))
    return expanded


def _value(part: re.Match[str], environment: Mapping[str, str]) -> str:
    if part[1]:
        return "$"
    return environment.get(part[2], "") if part[2] else part[0]
