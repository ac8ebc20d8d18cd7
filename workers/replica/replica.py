"""One replica process: `python -m podyard.workers.replica.replica REPLICA`.

It learns from the API what to run, runs the engine or a user's program, and reports. It stops
itself when its lease lapses, since by then others may hold its place. The engine is stopped at
once, wherever it stands, when the platform says so; a user's program has time to save.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Sequence
from types import FrameType
from typing import Any

from podyard.base.clock import OsClock, RealClock
from podyard.base.errors import Code, PodyardError
from podyard.workers.kit.agent_state import EXIT_LOST_CONTACT
from podyard.workers.kit.http_client import JsonClient
from podyard.workers.replica.reporter import Reporter

EXIT_FAILED = 1
FETCH_POLL_SECONDS = 0.05
START_SECONDS_MAX = 15.0  # the API may be restarting when the process starts
# What is wrong with the job or its data, and no other attempt would find otherwise.
PERMANENT = frozenset(
    {Code.INVALID_ARGUMENT, Code.NOT_FOUND, Code.FAILED_PRECONDITION, Code.UNIMPLEMENTED}
)
STOP_GRACE_SECONDS = 0.8  # what the engine has for leaving by itself once it is told to stop


def main(argv: Sequence[str]) -> int:
    replica_id, clock = argv[0], OsClock()
    fence = int(os.environ["PODYARD_REPLICA_FENCE"])
    api = JsonClient(os.environ["PODYARD_URL"], os.environ["PODYARD_TOKEN"])
    try:
        spec = _fetch(api, replica_id, clock)
    except PodyardError as error:
        print(f"replica {replica_id}: {error.message}", file=sys.stderr)
        return EXIT_LOST_CONTACT if error.code is Code.UNAVAILABLE else EXIT_FAILED
    has_engine, stopping = spec["run"] is None, threading.Event()
    reporter = Reporter(
        api, replica_id, fence, spec["leaseSeconds"], spec["resumeStep"], clock,
        _stop_soon if has_engine else lambda _reason: stopping.set(), _lease_lapsed,
    )  # fmt: skip
    signal.signal(
        signal.SIGTERM, lambda _number, _frame: _leave() if has_engine else stopping.set()
    )
    reporter.start()
    try:
        if has_engine:
            from podyard.workers.replica.engine_replica import run_engine

            outcome = run_engine(spec, reporter, api, replica_id, fence, clock)
        else:
            from podyard.workers.replica.program_replica import run_program

            outcome = run_program(spec, reporter, api, replica_id, stopping, clock)
    except PodyardError as error:
        is_programs_own = not has_engine and error.code is Code.ABORTED
        text = error.message if is_programs_own else f"{error.code.name}: {error.message}"
        return _fail(reporter, text, is_permanent=error.code in PERMANENT)
    except SystemExit as error:
        return _fail(reporter, f"the program called exit({error.code!r})")
    except Exception as error:
        import traceback

        for line in traceback.format_exception(error):
            reporter.log(line.removesuffix("\n"), "stderr")
        traceback.print_exc()
        return _fail(reporter, f"{type(error).__name__}: {error}")
    return 0 if outcome is None else _close(reporter, outcome, None, 0)


def _fetch(api: JsonClient, replica_id: str, clock: RealClock) -> dict[str, Any]:
    deadline = clock.monotonic_seconds() + START_SECONDS_MAX
    while True:
        try:
            return api.call("GET", f"/podyard/v1/replicas/{replica_id}")
        except PodyardError as error:
            if error.code is not Code.UNAVAILABLE or clock.monotonic_seconds() > deadline:
                raise
            clock.sleep(FETCH_POLL_SECONDS)


def _fail(reporter: Reporter, text: str, *, is_permanent: bool = False) -> int:
    if reporter.stopping():
        return 0  # an error while the gang is being stopped is not a failure
    print(text, file=sys.stderr)
    if reporter.has_lost_contact():
        # A peer whose lease lapsed a moment earlier has broken the ring.
        print("the API has not answered for a while: the failure is not reported", file=sys.stderr)
        return EXIT_LOST_CONTACT
    return _close(reporter, "FAILED", text, EXIT_FAILED, is_permanent=is_permanent)


def _close(
    reporter: Reporter, state: str, text: str | None, code: int, *, is_permanent: bool = False
) -> int:
    """Reports the end; returns the exit code of the process, `code` where the report was taken."""
    try:
        reporter.close(state, text, is_permanent=is_permanent)
    except PodyardError as error:
        print(f"the end could not be reported: {error.message}", file=sys.stderr)
        return EXIT_LOST_CONTACT if error.code is Code.UNAVAILABLE else EXIT_FAILED
    return code


def _stop_soon(_reason: str) -> None:
    """The engine looks at `stopping()` between steps; one that hangs in a collective is ended all
    the same."""
    timer = threading.Timer(STOP_GRACE_SECONDS, _leave)
    timer.daemon = True
    timer.start()


def _leave(_number: int = 0, _frame: FrameType | None = None) -> None:
    os._exit(0)


def _lease_lapsed() -> None:
    print(
        "the lease has lapsed: nobody has taken a report for that long", file=sys.stderr, flush=True
    )
    os._exit(EXIT_LOST_CONTACT)


if __name__ == "__main__":
    code = main(sys.argv[1:])
    sys.stdout.flush()
    sys.stderr.flush()
    # Threads of the engine may still hang in a collective; everything that counts has been
    # reported.
    os._exit(code)
