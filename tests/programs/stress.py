"""Steps that nobody waits for, on many devices and processes, and interrupted programs: none may
hang or abort.

    python -m tests.programs.stress [--short]

The first part starts `data_parallel.py` under `podyard run --tpu`; the second sends SIGINT to
`threads.py`, at moments that are drawn.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

from tests.stack import PODYARD

HERE = Path(__file__).parent
# Devices x processes, the slice that has them, rounds, steps.
SHAPES = (
    ("8 x 1", "v3-8", 10, 2000),
    ("4 x 1", "v4-8", 3, 500),
    ("16 x 1", "v5litepod-16 --workers 1", 3, 500),
    ("8 x 2", "v3-8 --slices 2", 3, 500),
    ("8 x 4", "v3-32", 3, 500),
)
HANG_SECONDS = 900.0
INTERRUPTS = 50


def _environ() -> dict[str, str]:
    return {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("PODYARD_", "JAX_", "XLA_"))
    }


def run_steps(options: str, steps: int) -> str:
    """`ok`, `hangs`, or the exit code."""
    command = [
        *PODYARD,
        "run",
        "--tpu",
        *options.split(),
        "--",
        sys.executable,
        str(HERE / "data_parallel.py"),
    ]
    try:
        done = subprocess.run(
            [*command, str(steps)], env=_environ(), capture_output=True, timeout=HANG_SECONDS
        )
    except subprocess.TimeoutExpired:
        return "hangs"
    return "ok" if done.returncode == 0 else f"exit code {done.returncode}"


def interrupt(seconds: float) -> str:
    """`ok` if Ctrl-C ends the program as Python ends one."""
    command = [*PODYARD, "run", "--tpu", "v3-8", "--", sys.executable, str(HERE / "threads.py")]
    with subprocess.Popen(
        command, env=_environ(), stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        if process.stdout.readline() != b"runs\n":
            process.kill()
            return "did not start"
        time.sleep(seconds)
        process.send_signal(signal.SIGINT)
        try:
            _, told = process.communicate(timeout=60)
        except subprocess.TimeoutExpired:
            process.kill()
            return "hangs"
    return (
        "ok"
        if process.returncode in (1, -signal.SIGINT) and b"KeyboardInterrupt" in told
        else str(process.returncode)
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--short", action="store_true", help="one round of each with a tenth of the steps"
    )
    short = parser.parse_args().short
    bad = 0
    for name, options, rounds, steps in SHAPES:
        rounds, steps = (1, steps // 10) if short else (rounds, steps)
        started = time.monotonic()
        found = [run_steps(options, steps) for _ in range(rounds)]
        bad += sum(one != "ok" for one in found)
        each = (time.monotonic() - started) / rounds
        print(
            f"{name}: {found.count('ok')} of {rounds} rounds of {steps} steps, {each:.0f} s each "
            f"{set(found)}",
            flush=True,
        )
    chance = random.Random(0)
    found = [interrupt(chance.uniform(0, 0.5)) for _ in range(5 if short else INTERRUPTS)]
    bad += sum(one != "ok" for one in found)
    print(f"interrupts: {found.count('ok')} of {len(found)} end as they should {set(found)}")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
