"""Training steps of the reference models, images per second, beside plain `jax.jit` of the model as written.

    python -m benchmarks.training [--models mnist-cnn cifar10-cnn fashion-cnn] [--rounds 5] [--seconds 3]

Ways, alternating: `jax.jit`, a whole step of the global batch in a process of its own, with XLA's own threads;
`8 cores`, the training runtime as a v2-8 runs it (8 shards, sums, one update, batches read ahead); `1 core`, the
runtime with one core's batch, cut into parts as well. Images are random bytes; augmentation is off. Bounds: 8 cores
against jax.jit at least 2.4 (MNIST, CIFAR, batch 128) and 2.6 (Fashion, batch 1000).
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

from podyard.engine.training import xla

_PLAIN = "--plain"
# The runtime takes one thread for a program; what it is measured against takes all that XLA finds.
if _PLAIN not in sys.argv:
    xla.prepare_environment()

import jax  # noqa: E402
import numpy as np  # noqa: E402

from podyard.base.rng import Streams  # noqa: E402
from podyard.engine.collectives.sums import SumInProcess  # noqa: E402
from podyard.engine.recipes.programs import model_of  # noqa: E402
from podyard.engine.training.input.augment import Normalise  # noqa: E402
from podyard.engine.training.input.source import Examples  # noqa: E402
from podyard.engine.training.programs import layouts_of, seed_words  # noqa: E402
from podyard.engine.training.recipe import Input  # noqa: E402
from podyard.engine.training.runtime import SliceShape, Trainer  # noqa: E402

BATCHES = {"mnist-cnn": 128, "cifar10-cnn": 128, "fashion-cnn": 1000, "digits-cnn": 128}
BOUNDS = {"mnist-cnn": 2.4, "cifar10-cnn": 2.4, "fashion-cnn": 2.6}
_EXAMPLES = 8192
_STEPS_MAX = 1_000_000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", default=["mnist-cnn", "cifar10-cnn", "fashion-cnn"], choices=BATCHES)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=3.0, help="of each way in each round")
    parser.add_argument(_PLAIN, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.plain:
        serve_plain(given.plain)
        return
    threads = xla.available_cpu_count()
    print(f"jax {jax.__version__}, numpy {np.__version__}, {threads} CPUs; runtime: {threads} threads, a program each")
    for name in given.models:
        measure(name, given.rounds, given.seconds, threads)


def measure(name: str, rounds: int, seconds: float, threads: int) -> None:
    model, batch = model_of(name, {}), BATCHES[name]
    images, labels = pictures(model)
    examples = Examples({"image": images, "label": labels})
    data = Input(examples, examples, [Normalise(1 / 255.0)])
    xla.configure(None)
    ways = {f"{cores} core{'s' * (cores > 1)}": runtime(model, data, batch, cores, threads) for cores in (8, 1)}
    environment = {name: value for name, value in os.environ.items() if name != "NPROC"}
    command = [sys.executable, "-m", "benchmarks.training", _PLAIN, name]
    rates: dict[str, list[float]] = {"jax.jit": [], **{way: [] for way in ways}}
    with subprocess.Popen(
        command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
    ) as other:
        assert other.stdin is not None and other.stdout is not None
        for _ in range(rounds):
            print(seconds, file=other.stdin, flush=True)
            rates["jax.jit"].append(float(other.stdout.readline()))
            for way, step in ways.items():
                rates[way].append(images_a_second(step, batch, seconds))
        other.stdin.close()
    middle = {way: statistics.median(spent) for way, spent in rates.items()}
    for way, rate in middle.items():
        print(f"{name}, batch {batch}: {way:<8} {rate:>9.0f} images/s (best {max(rates[way]):.0f})")
    ratio, spread = middle["8 cores"] / middle["jax.jit"], middle["8 cores"] / middle["1 core"]
    bound = BOUNDS.get(name)
    told = "" if bound is None else f" (bound {bound}: {'ok' if ratio >= bound else 'MISSED'})"
    print(f"{name}: 8 cores / jax.jit {ratio:.2f}{told}, 8 cores / 1 core {spread:.2f}", flush=True)


def images_a_second(step: Callable[[], None], batch: int, seconds: float) -> float:
    step()
    count, begin = 0, time.perf_counter()
    while time.perf_counter() - begin < seconds:
        step()
        count += 1
    return count * batch / (time.perf_counter() - begin)


def serve_plain(name: str) -> None:
    """Measures whenever a line says for how many seconds."""
    model, batch = model_of(name, {}), BATCHES[name]
    step = plain(model, *pictures(model), batch)
    for line in sys.stdin:
        print(images_a_second(step, batch, float(line)), flush=True)


def pictures(model: Any) -> tuple[Any, Any]:
    """Random bytes and labels."""
    chance = np.random.default_rng(0)
    images = chance.integers(0, 256, (_EXAMPLES, *model.features["image"].shape), np.uint8)
    return images, chance.integers(0, 10, _EXAMPLES).astype(np.int32)


def plain(model: Any, images: Any, labels: Any, batch: int) -> Callable[[], None]:
    compiled = jax.jit(model.step, donate_argnums=0)
    state = jax.tree.map(jax.numpy.asarray, model.first_state(Streams(0)))
    words, at = seed_words(0), 0

    def step() -> None:
        nonlocal state, at
        own = images[at : at + batch].astype(np.float32) * np.float32(1 / 255.0)
        state, metrics = compiled(state, {"image": own, "label": labels[at : at + batch]}, words)
        at = (at + batch) % (_EXAMPLES - batch)
        float(metrics["loss"])

    step()
    return step


def runtime(model: Any, data: Input, batch: int, cores: int, threads: int) -> Callable[[], None]:
    layouts = layouts_of(model, 0)
    state = layouts.start(model, 0, model.optimizer(batch))
    trainer = Trainer(model, layouts, data, SliceShape(1, cores), batch, 0, state)
    steps = trainer.run(_STEPS_MAX, [0], SumInProcess(1, trainer.programs.length), threads, lambda: False)
    next(steps)
    return lambda: (next(steps), None)[1]


if __name__ == "__main__":
    main()
