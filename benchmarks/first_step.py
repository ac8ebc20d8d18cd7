"""Seconds to the first step of a job, in a fresh process, with an empty and with a warm compilation
cache.

    python -m benchmarks.first_step [--recipes digits-cnn mlp mnist-cnn fashion-cnn cifar10-cnn]
    [--rounds 3]

One replica process for a v2-8. Counted is from the end of the imports (printed, too) to the end of
the first step: reading the data, tracing and compiling or loading from the cache, the estimate, the
rendezvous, the step. Data is random and small, 4096 images, but for the digits, which are the
digits. Cold is a run with an empty folder, warm is the median of those after it; every run must
have the same loss in its first step.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

BATCHES = {"digits-cnn": 128, "mlp": 128, "mnist-cnn": 128, "fashion-cnn": 1000, "cifar10-cnn": 128}
_CHILD = "--child"
_TRAIN, _TEST = 4096, 256


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--recipes", nargs="+", default=list(BATCHES), choices=BATCHES)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument(_CHILD, nargs=2, metavar=("RECIPE", "FOLDER"), help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.child:
        serve(given.child[0], Path(given.child[1]))
        return
    load = " ".join(f"{value:.1f}" for value in os.getloadavg())
    print(f"{len(os.sched_getaffinity(0))} CPUs, load average {load}; seconds")
    print(f"{'recipe':<12} {'batch':>5} {'imports':>8} {'cold':>8} {'warm':>8} {'warm/cold':>10}")
    for recipe in given.recipes:
        measure(recipe, given.rounds)


def measure(recipe: str, rounds: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        runs = [run(recipe, folder) for _ in range(rounds + 1)]
    if len({one["loss"] for one in runs}) != 1:
        raise AssertionError(f"{recipe}: other losses: {[one['loss'] for one in runs]}")
    imports = statistics.median(one["imports"] for one in runs)
    cold, warm = runs[0]["first"], statistics.median(one["first"] for one in runs[1:])
    print(
        f"{recipe:<12} {BATCHES[recipe]:>5} {imports:>8.2f} {cold:>8.2f} {warm:>8.2f} "
        f"{warm / cold:>10.2f}",
        flush=True,
    )


def run(recipe: str, folder: str) -> dict[str, float]:
    command = [sys.executable, "-m", "benchmarks.first_step", _CHILD, recipe, folder]
    said: dict[str, float] = json.loads(
        subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout
    )
    return said


def serve(recipe: str, folder: Path) -> None:
    """One replica, to the end of its first step; what is left of its life is not counted and not
    lived."""
    begin = time.perf_counter()
    from podyard.engine.training import xla

    xla.prepare_environment()
    import podyard.engine.training.session  # noqa: F401  # what run_replica imports
    from benchmarks.data import random_images
    from podyard.base.clock import OsClock
    from podyard.engine.executor import run_replica
    from podyard.engine.training.store import FileStore
    from tests.unit.engine.replica_gang import Alone, Recorder, spec_of

    arguments = random_images(folder / "data", recipe, _TRAIN, _TEST)
    imported = time.perf_counter()

    class First(Recorder):
        def step(self, _step: int, loss: float, *_rest: Any) -> None:
            first = time.perf_counter() - imported
            print(
                json.dumps({"imports": imported - begin, "first": first, "loss": loss}), flush=True
            )
            os._exit(0)

    spec = spec_of(
        recipe=recipe,
        arguments=arguments,
        steps=2,
        global_batch=BATCHES[recipe],
        compilation_cache=str(folder / "cache"),
    )
    run_replica(spec, Alone(), First(), FileStore(folder / "store"), None, "127.0.0.1:0", OsClock())


if __name__ == "__main__":
    main()
