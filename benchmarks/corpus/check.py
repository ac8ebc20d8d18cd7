"""Compiles a tenth of the record again and compares: `make compiler-check` (extra `xla-tpu`).

`--seed TEXT` draws the tenth, by default today's date. The exit status is 1 when an answer differs
from the record.
"""

from __future__ import annotations

import argparse
import dataclasses
import datetime
import sys
import tempfile
from pathlib import Path

from benchmarks.corpus.data import Recorded, load_rows, load_texts
from benchmarks.corpus.record import recorded
from podyard.base.errors import PodyardError
from podyard.base.rng import Streams
from podyard.engine.exact.client import ExactCompiler, is_installed

SHARE = 10
# The time that the compiler took is not its answer; how the slow fusions are named is not either.
_LEFT_OUT = ("seconds", "kernels")


def differences(was: Recorded, now: Recorded) -> list[str]:
    pairs = (
        (field.name, getattr(was, field.name), getattr(now, field.name))
        for field in dataclasses.fields(was)
    )
    return [
        f"{name} {old} -> {new}" for name, old, new in pairs if old != new and name not in _LEFT_OUT
    ]


def drawn(seed: str) -> list[Recorded]:
    rows = [row for _, row in sorted(load_rows().items())]
    order = Streams(0).stream(f"benchmark.compiler-check.{seed}")
    return order.sample(rows, -(-len(rows) // SHARE))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--seed", default=datetime.date.today().isoformat(), help="text that draws the tenth"
    )
    given = parser.parse_args()
    if not is_installed():
        print(
            "The TPU compiler is not installed: run pip install 'podyard[xla-tpu]', then repeat.",
            file=sys.stderr,
        )
        return 2
    texts, chosen, changed = load_texts(), drawn(given.seed), 0
    print(f"{len(chosen)} of the recorded programs, drawn by {given.seed}")
    with tempfile.TemporaryDirectory() as locks:
        compiler = ExactCompiler(lock_folder=Path(locks))
        for row in chosen:
            try:
                now = recorded(
                    row.program, row.accelerator_type, texts[row.text_hash], row.devices, compiler
                )
                said = differences(row, now)
            except PodyardError as error:
                said = [error.message[:200]]
            changed += bool(said)
            print(
                f"{row.program} on {row.accelerator_type}: {'; '.join(said) or 'as recorded'}",
                flush=True,
            )
        compiler.close()
    print(f"{len(chosen) - changed} of {len(chosen)} as recorded")
    return 1 if changed else 0


if __name__ == "__main__":
    sys.exit(main())
