"""`python -m tests.real [PATH ...]`: run the files of the real tier, or those below the paths.

`--minutes` and `--gone` are for `.ci/run`, which has a limit of time: the last line names what is
left out then. Without `--minutes` everything runs. A failed file runs once more, alone; one that
passes then is printed as FLAKY, and goes into tests/flaky.txt with its cause.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from podyard.base.clock import OsClock
from tests import flaky, retry
from tests.real import changes, environments, record
from tests.real.order import order
from tests.real.report import closing_lines
from tests.real.runs import CollectionError, collect, run
from tests.real.session import Deadlines, Session
from tests.stack import measure_slowness
from tests.waiting import slowness

# A run that goes on after the last minute is ended so much later: forecasts are missed by some
# minutes at times.
GRACE_MINUTES = 6.0


def main(arguments: Sequence[str] | None = None) -> int:
    options = _parse(arguments)
    clock = OsClock()
    began = clock.monotonic_seconds()
    limits = _limits(options.minutes, began - options.gone)
    measure_slowness()
    try:
        files = [environments.with_environments(file) for file in collect(options.paths)]
    except CollectionError as error:
        print(error, file=sys.stderr)
        return 1
    path = record.default_path()
    entries, commit = record.read(path), changes.head()
    session = Session(
        run=run,
        missing=environments.missing,
        save=lambda entries: record.write(path, entries),
        clock=clock,
        limits=limits,
        known_flaky=flaky.known(),
        slowness=slowness(),
        commit=commit,
        record=entries,
    )
    left_out = session.run_all(
        order(files, entries, changes.imports_to_changes(files, entries), commit)
    )
    minutes = (clock.monotonic_seconds() - began) / 60
    for line in closing_lines(session, retry.read_flaky(), len(files), left_out, minutes):
        print(line)
    return 1 if session.failed else 0


def _limits(minutes: float | None, began: float) -> Deadlines:
    if minutes is None:
        return Deadlines()
    return Deadlines(began + 60 * minutes, began + 60 * (minutes + GRACE_MINUTES))


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m tests.real", description=__doc__.split("\n\n")[0]
    )
    parser.add_argument("paths", nargs="*", metavar="PATH", help="files or folders; without: all")
    parser.add_argument("--minutes", type=float, help="start nothing that is forecast to end later")
    parser.add_argument(
        "--gone", type=float, default=0.0, help="seconds of --minutes that are over already"
    )
    return parser.parse_args(arguments)


if __name__ == "__main__":
    raise SystemExit(main())
