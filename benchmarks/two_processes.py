"""Two replica processes of one slice compared with one process on both CPUs: images per second, in
one run.

    python -m benchmarks.two_processes [--models mnist-cnn cifar10-cnn fashion-cnn] [--rounds 3]
    [--steps 60]

The slice is a v4-16: 16 cores on two hosts. `1 process` holds both hosts, `2 processes` hold one
each and sum in shared memory, or over TCP with --tcp; both run the programs of shards on as many
threads as a job's processes do. They take turns, each time in new processes on a warm compilation
cache; a rate is the global batch by the median time of a step, without the first ones. Both must
report the same losses and end in the same parameters, in every round. Bound: two at least 0.95
times one.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.data import random_images
from podyard.engine.training import xla
from tests.unit.engine.replica_gang import run_gang, spec_of

ACCELERATOR, CORES, HOSTS = "v4-16", 16, 2
# Fashion-MNIST's 1000 is not a multiple of 16 cores.
BATCHES = {"mnist-cnn": 128, "cifar10-cnn": 128, "fashion-cnn": 1008, "digits-cnn": 128, "mlp": 128}
WAYS = {"1 process": [[0, 1]], "2 processes": [[0], [1]]}
_FIRST_STEPS = 5
_TRAIN, _TEST = 4096, 256


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--models", nargs="+", default=["mnist-cnn", "cifar10-cnn", "fashion-cnn"], choices=BATCHES
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--tcp", action="store_true")
    given = parser.parse_args()
    if given.steps <= _FIRST_STEPS:
        parser.error(f"--steps must be more than {_FIRST_STEPS}")
    for name in given.models:
        load = " ".join(f"{value:.1f}" for value in os.getloadavg())
        print(
            f"{xla.available_cpu_count()} CPUs, load average {load}; {xla.thread_count(1)} "
            "threads in 1 process, "
            f"{xla.thread_count(2)} in each of 2"
        )
        measure(name, given.rounds, given.steps, given.tcp)


def measure(name: str, rounds: int, steps: int, over_tcp: bool) -> None:
    shared = Path("/dev/shm") if Path("/dev/shm").is_dir() else Path(tempfile.gettempdir())
    with tempfile.TemporaryDirectory(prefix="podyard-two-processes-", dir=shared) as text:
        folder = Path(text)
        spec = spec_of(
            recipe=name,
            arguments=random_images(folder / "data", name, _TRAIN, _TEST),
            steps=steps,
            global_batch=BATCHES[name],
            accelerator_type=ACCELERATOR,
            core_count=CORES,
            host_count=HOSTS,
            compilation_cache=str(folder / "cache"),
        )
        rates: dict[str, list[float]] = {way: [] for way in WAYS}
        how = ""
        for index in range(rounds + 1):
            ends = []
            for way, groups in WAYS.items():
                machines = [] if over_tcp else ["here"] * len(groups)
                told = run_gang(
                    spec, groups, folder / f"store-{index}-{len(groups)}", machines=machines
                )
                seconds, end = judged(told)
                ends.append(end)
                how = next(line for line in told[0]["lines"] if "summed" in line)
                if index:  # the first round fills the cache
                    rates[way].append(spec.global_batch / seconds)
            if ends[0] != ends[1]:
                raise AssertionError(
                    f"{name}, round {index}: one process and two end in other bits"
                )
    middle = {way: statistics.median(values) for way, values in rates.items()}
    for way, value in middle.items():
        print(
            f"{name}, batch {spec.global_batch}: {way:<12} {value:>9.0f} images/s (best "
            f"{max(rates[way]):.0f})"
        )
    ratios = [two / one for one, two in zip(*rates.values(), strict=True)]
    spread = f"{min(ratios):.2f} to {max(ratios):.2f}"
    print(
        f"{name}: 2 processes / 1 process {statistics.median(ratios):.2f} ({spread}), "
        f"same bits; {how}",
        flush=True,
    )


def judged(told: Sequence[dict[str, Any]]) -> tuple[float, tuple[str, list[float]]]:
    """(median seconds of a step, (digest of the parameters at the end, all losses))."""
    for one in told:
        if one["error"]:
            raise AssertionError(f"a process failed: {one['error']}")
    leader = told[0]
    digest = next(line.split()[1] for line in leader["lines"] if line.startswith("paramsSha256"))
    seconds = [step[3] for step in leader["steps"][_FIRST_STEPS:]]
    return statistics.median(seconds), (digest, [step[1] for step in leader["steps"]])


if __name__ == "__main__":
    main()
