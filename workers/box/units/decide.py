"""Decisions about services: which ends are clean, and which are followed by another start. Pure."""

from __future__ import annotations

import dataclasses
import os
import signal
from collections.abc import Sequence

from podyard.workers.box.units.unit_file import Restart, Unit

# systemd.service(5): who ends by these was asked to.
_CLEAN_SIGNALS = (signal.SIGHUP, signal.SIGINT, signal.SIGTERM, signal.SIGPIPE)
SUCCESS, EXIT_CODE, SIGNALLED, TIMEOUT = "success", "exit-code", "signal", "timeout"
START_LIMIT = "start-limit-hit"
EXIT_RESOURCES = 219  # systemd.exec(5), of a service whose settings cannot be applied


@dataclasses.dataclass(frozen=True, slots=True)
class ServiceEnd:
    """The end of a service's main process: its exit code, or the signal. `timed_out`: it
    took too long to start."""

    code: int = 0
    signal: int = 0
    timed_out: bool = False


def end_of(status: int) -> ServiceEnd:
    """Of a status of wait(2)."""
    code = os.waitstatus_to_exitcode(status)
    return ServiceEnd(code) if code >= 0 else ServiceEnd(signal=-code)


def result_of(unit: Unit, end: ServiceEnd) -> str:
    """`Result` of a service that has ended so."""
    if end.timed_out:
        return TIMEOUT
    if end.signal:
        name = signal.Signals(end.signal).name
        is_clean = end.signal in _CLEAN_SIGNALS or {name, name[3:]} & unit.success
        return SUCCESS if is_clean else SIGNALLED
    return SUCCESS if end.code == 0 or str(end.code) in unit.success else EXIT_CODE


def is_started_again(unit: Unit, end: ServiceEnd) -> bool:
    """By `Restart=`, for a service that nobody has stopped."""
    result = result_of(unit, end)
    followed = {
        Restart.NO: (),
        Restart.ALWAYS: (SUCCESS, EXIT_CODE, SIGNALLED, TIMEOUT),
        Restart.ON_SUCCESS: (SUCCESS,),
        Restart.ON_FAILURE: (EXIT_CODE, SIGNALLED, TIMEOUT),
        Restart.ON_ABNORMAL: (SIGNALLED, TIMEOUT),
        Restart.ON_ABORT: (SIGNALLED,),
    }
    return result in followed[unit.restart]


def may_start(unit: Unit, starts: Sequence[float], now: float) -> bool:
    """Return whether one more start is within `StartLimitBurst=`. `starts`: when the others
    were."""
    recent = [start for start in starts if now - start < unit.interval_seconds]
    return unit.burst == 0 or unit.interval_seconds == 0 or len(recent) < unit.burst
