"""Compares published training steps with Podyard's estimates of the trainer's own step.

    python -m benchmarks.published                      from the recorded steps
    python -m benchmarks.published --record --python PYTHON --maxtext FOLDER [ROW ...]

`--record` runs the dry runs of MaxText again (github.com/AI-Hypercomputer/maxtext@e591f30 on
Python 3.12 with JAX 0.10.2), and writes `traces/` and `trainer.json`. The last lines are what
`Generation.step_error` has to be.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Collection
from pathlib import Path

from benchmarks.published.errors import errors_of
from benchmarks.published.rows import (
    PublishedRow,
    read_counts,
    read_rows,
    write_counts,
    write_trace,
)
from benchmarks.published.table import compare, report
from benchmarks.published.trainer import MaxText, TrainerError, dry_run


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--record", action="store_true", help="run the trainer again")
    parser.add_argument("--python", type=Path, default=Path(sys.executable))
    parser.add_argument("--maxtext", type=Path, help="checkout of MaxText")
    parser.add_argument("rows", nargs="*", help="ids or generations (default: all)")
    arguments = parser.parse_args()
    rows = [row for row in read_rows() if _is_named(row, arguments.rows)]
    if arguments.record:
        if arguments.maxtext is None:
            parser.error("--record needs --maxtext: the checkout of MaxText")
        _record(rows, MaxText(arguments.python.absolute(), arguments.maxtext))
    counts = read_counts()
    comparisons = [compare(row, counts.get(row.id)) for row in rows]
    print(report(comparisons))
    for name, error in errors_of(comparisons).items():
        print(f"{name}: {error}")


def _is_named(row: PublishedRow, names: Collection[str]) -> bool:
    return not names or row.id in names or row.generation in names


def _record(rows: Collection[PublishedRow], trainer: MaxText) -> None:
    """A row whose trainer fails keeps what was recorded before, and says why."""
    for row in rows:
        if row.flags is None:
            continue
        try:
            text, count = dry_run(row, trainer)
        except TrainerError as error:
            print(f"{row.name}: {error}", file=sys.stderr)
            continue
        write_trace(row, text)
        write_counts(read_counts() | {row.id: count})
        print(f"{row.name}: {count.wall_seconds:.0f} s", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
