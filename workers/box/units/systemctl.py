"""`systemctl` of a box."""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

from podyard.base.clock import RealClock
from podyard.workers.box.units import journal, store
from podyard.workers.box.units.store import NotFoundError
from podyard.workers.box.units.supervisor import ServiceSupervisor
from podyard.workers.box.units.unit_file import DEFAULT_STOP_SECONDS, LoadError, Unit, unit_name

BOOT = "podyard-boot"  # what the host server asks for when a box has started
FAILED, INACTIVE, NO_UNIT, NOT_INSTALLED = 1, 3, 4, 5  # exit codes of systemctl(1)
_STATUS_LINES = 10
_LOOK_SECONDS = 0.05  # at a service that ends
_STOP_SECONDS_MAX = 4 * DEFAULT_STOP_SECONDS  # ExecStop, SIGTERM, SIGKILL and ExecStopPost
_WITH_VALUE = ("-p", "--property", "-n", "--lines", "-t", "--type", "-o", "--output", "--state")
_NANOS_PER_SECOND = 10**9


class UnitCall(NamedTuple):
    """A command line. `properties`: of `show`."""

    verb: str
    names: tuple[str, ...]
    flags: frozenset[str]
    properties: tuple[str, ...]


def run(words: Sequence[str], clock: RealClock) -> int:
    """Returns the exit code."""
    call = read_call(words)
    if "--user" in call.flags:
        return _fail("hosts of Podyard have no units of users: leave --user out")
    verb = _VERBS.get(call.verb)
    if verb is None:
        allowed = ", ".join(name for name in _VERBS if name != BOOT)
        return _fail(f"{call.verb} is not supported on hosts of Podyard: use {allowed}")
    if call.verb in _CHANGING and os.geteuid() != 0:
        return _fail(f"{call.verb} needs root: use sudo systemctl {call.verb}")
    try:
        return verb(call, clock)
    except LoadError as error:
        return _fail(str(error))
    except OSError as error:
        return _fail(f"{call.verb}: {error}")


def read_call(words: Sequence[str]) -> UnitCall:
    """The command line `words`."""
    named: list[str] = []
    flags: set[str] = set()
    properties: list[str] = []
    rest = iter(words)
    for word in rest:
        name, sign, value = word.partition("=")
        if name in _WITH_VALUE:
            value = value if sign else next(rest, "")
        elif word.startswith("-p") and len(word) > 2:
            name, value = "-p", word[2:]
        if name in ("-p", "--property"):
            properties += value.split(",")
        elif word.startswith("-") and name not in _WITH_VALUE:
            flags.add(name)
        elif not word.startswith("-"):
            named.append(word)
    verb, *names = named or ["list-units"]
    return UnitCall(verb, tuple(names), frozenset(flags), tuple(properties))


def _start(call: UnitCall, clock: RealClock) -> int:
    return max((_start_one(unit_name(name), call, clock) for name in call.names), default=FAILED)


def _start_one(name: str, call: UnitCall, clock: RealClock) -> int:
    try:
        unit = store.load(name)
    except NotFoundError as error:
        return _fail(f"Failed to start {name}: {error}", NOT_INSTALLED)
    except LoadError as error:
        return _fail(f"Failed to start {name}: {error}")
    if store.is_supervised(store.read(name)):
        return 0
    reading = _supervise(unit, clock)
    with os.fdopen(reading) as answer:
        why = "" if "--no-block" in call.flags else answer.read()
    if not why:
        return 0
    text = f'See "systemctl status {name}" and "journalctl -xeu {name}" for details.'
    return _fail(f"Job for {name} failed: {why}.\n{text}")


def _supervise(unit: Unit, clock: RealClock) -> int:
    """Fork the supervisor. Returns the pipe that says why the service did not start: nothing if it
    did."""
    reading, writing = os.pipe()
    if os.fork():
        os.close(writing)
        return reading
    try:
        os.setsid()
        os.chdir("/")
        nothing = os.open(os.devnull, os.O_RDWR)
        for place in range(3):
            os.dup2(nothing, place)
        os.close(reading)
        answer = [writing]

        def tell(text: str) -> None:
            if answer:
                os.write(answer[0], text.encode())
                os.close(answer.pop())

        ServiceSupervisor(unit, os.environ, tell, clock).run()
    finally:
        os._exit(0)


def _stop(call: UnitCall, clock: RealClock) -> int:
    return max((_stop_one(unit_name(name), clock) for name in call.names), default=FAILED)


def _stop_one(name: str, clock: RealClock) -> int:
    state = store.read(name)
    if not store.is_supervised(state):
        if state.active == "inactive" and store.find(name) is None:
            return _fail(f"Failed to stop {name}: Unit {name} not loaded.", NOT_INSTALLED)
        return 0
    os.kill(state.supervisor, 15)
    until = clock.monotonic_seconds() + _STOP_SECONDS_MAX
    while store.is_supervised(store.read(name)):
        if clock.monotonic_seconds() > until:
            return _fail(f"{name} does not stop")
        clock.sleep(_LOOK_SECONDS)
    return 0


def _restart(call: UnitCall, clock: RealClock) -> int:
    for name in map(unit_name, call.names):
        if store.is_supervised(store.read(name)):
            store.load(name)  # a unit that cannot be started goes on as it is
            _stop_one(name, clock)
    return _start(call, clock)


def _try_restart(call: UnitCall, clock: RealClock) -> int:
    running = tuple(one for one in call.names if store.is_supervised(store.read(unit_name(one))))
    return _restart(call._replace(names=running), clock) if running else 0


def _status(call: UnitCall, clock: RealClock) -> int:
    return max((_status_of(unit_name(name), clock) for name in call.names), default=0)


def _status_of(name: str, clock: RealClock) -> int:
    state, path = store.read(name), store.find(name)
    if path is None and state.active == "inactive":
        return _fail(f"Unit {name} could not be found.", NO_UNIT)
    try:
        description, loaded = store.load(name).description, "loaded"
    except LoadError as error:
        description, loaded = name, f"bad-setting ({error})"
    ago = ""
    if state.since:
        seconds = (clock.now().nanos - state.since) // _NANOS_PER_SECOND
        since = datetime.fromtimestamp(state.since // _NANOS_PER_SECOND).astimezone()
        ago = f" since {since:%a %Y-%m-%d %H:%M:%S %Z}; {seconds}s ago"
    result = f" (Result: {state.result})" if state.active == "failed" else f" ({state.sub})"
    print(f"● {name} - {description}")
    print(f"     Loaded: {loaded} ({path}; {store.file_state(name)})")
    print(f"     Active: {state.active}{result}{ago}")
    if state.main_pid:
        command = Path(f"/proc/{state.main_pid}/comm")
        program = command.read_text().strip() if command.exists() else "?"
        print(f"   Main PID: {state.main_pid} ({program})")
    elif state.code or state.signal:
        ended = f"signal={state.signal}" if state.signal else f"status={state.code}"
        print(f"   Main process ended with {ended}")
    host, lines = socket.gethostname(), journal.last([name], _STATUS_LINES)
    print("".join(f"\n{entry.short(host)}" for entry in lines))
    return 0 if state.active in ("active", "activating") else INACTIVE


def _enable(call: UnitCall, clock: RealClock) -> int:
    for name in map(unit_name, call.names):
        unit = store.load(name)
        if not unit.wanted_by and not unit.required_by:
            _say(f"{name} has no [Install] section: it is started by hand")
        for text in store.enable(unit):
            _say(text)
    return _start(call, clock) if "--now" in call.flags else 0


def _disable(call: UnitCall, clock: RealClock) -> int:
    for name in map(unit_name, call.names):
        if store.find(name) is None:
            return _fail(f"Failed to disable unit: Unit file {name} does not exist.")
        for text in store.disable(name):
            _say(text)
    return _stop(call, clock) if "--now" in call.flags else 0


def _is_active(call: UnitCall, _clock: RealClock) -> int:
    return _any_is(call, ("active",))


def _is_failed(call: UnitCall, _clock: RealClock) -> int:
    return 0 if _any_is(call, ("failed",)) == 0 else FAILED


def _any_is(call: UnitCall, wanted: Sequence[str]) -> int:
    states = [store.read(unit_name(name)).active for name in call.names]
    if not {"-q", "--quiet"} & call.flags:
        print("\n".join(states))
    return 0 if any(state in wanted for state in states) else INACTIVE


def _is_enabled(call: UnitCall, _clock: RealClock) -> int:
    code = FAILED
    for name in map(unit_name, call.names):
        if store.find(name) is None:
            _fail(f"Failed to get unit file state for {name}: No such file or directory")
            continue
        state = store.file_state(name)
        code = 0 if state in ("enabled", "static") else code
        if not {"-q", "--quiet"} & call.flags:
            print(state)
    return code


def _show(call: UnitCall, _clock: RealClock) -> int:
    for name in map(unit_name, call.names):
        properties = _properties(name)
        for key in call.properties or properties:
            if key in properties:
                print(properties[key] if "--value" in call.flags else f"{key}={properties[key]}")
    return 0


def _properties(name: str) -> Mapping[str, object]:
    state, path = store.read(name), store.find(name)
    try:
        unit, loaded = store.load(name), "loaded"
    except LoadError:
        unit, loaded = None, "not-found" if path is None else "bad-setting"
    return {
        "Id": name,
        "Description": name if unit is None else unit.description,
        "LoadState": loaded,
        "ActiveState": state.active,
        "SubState": state.sub,
        "UnitFileState": "" if path is None else store.file_state(name),
        "FragmentPath": path or "",
        "Type": "" if unit is None else unit.kind,
        "Restart": "" if unit is None else unit.restart,
        "User": "" if unit is None else unit.user,
        "Result": state.result,
        "NRestarts": state.restarts,
        "MainPID": state.main_pid,
        "ExecMainStatus": state.signal or state.code,
    }


def _cat(call: UnitCall, _clock: RealClock) -> int:
    for name in map(unit_name, call.names):
        path = store.find(name)
        if path is None:
            return _fail(f"No files found for {name}.")
        print(f"# {path}\n{path.read_text()}")
    return 0


def _list(_call: UnitCall, _clock: RealClock) -> int:
    for state in store.all_states():
        print(f"{state.name:<40} {state.active:<10} {state.sub}")
    return 0


def _reload(_call: UnitCall, _clock: RealClock) -> int:
    """Unit files are read at each start."""
    return 0


def _reset_failed(call: UnitCall, _clock: RealClock) -> int:
    names = [unit_name(name) for name in call.names] or [one.name for one in store.all_states()]
    for name in names:
        if store.read(name).active == "failed":
            store.forget(name)
    return 0


def _boot(call: UnitCall, clock: RealClock) -> int:
    """Start what is enabled, once in each life of a box."""
    if store.BOOTED.exists():
        return 0
    store.BOOTED.parent.mkdir(parents=True, exist_ok=True)
    store.BOOTED.touch()
    for name in store.list_enabled():
        _start_one(name, call._replace(flags=frozenset({"--no-block"})), clock)
    return 0


_VERBS: Mapping[str, Callable[[UnitCall, RealClock], int]] = {
    "start": _start, "stop": _stop, "restart": _restart, "try-restart": _try_restart,
    "status": _status, "enable": _enable, "disable": _disable, "is-active": _is_active,
    "is-enabled": _is_enabled, "is-failed": _is_failed, "show": _show, "cat": _cat,
    "list-units": _list, "daemon-reload": _reload, "reset-failed": _reset_failed, BOOT: _boot,
}  # fmt: skip
_CHANGING = ("start", "stop", "restart", "try-restart", "enable", "disable", "reset-failed", BOOT)


def _say(text: str) -> None:
    print(text, file=sys.stderr)


def _fail(text: str, code: int = FAILED) -> int:
    _say(text)
    return code
