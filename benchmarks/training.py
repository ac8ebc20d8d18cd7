"""Images per second in training the reference models, compared with plain `jax.jit` of the model as
written, and with `model.fit` of the same model in tf.keras.

    python -m benchmarks.training [--models mnist-cnn cifar10-cnn fashion-cnn] [--rounds 5]
    [--seconds 3]
        [--keras-python PYTHON]

Ways, alternating: `jax.jit`, a whole step of the global batch in a separate process, with XLA's own
threads;
`keras fit`, an epoch on numpy arrays in a separate process, with TensorFlow's own threads and
settings, after an epoch to warm up, under --keras-python (this one, if it is not given), left out
where that has no TensorFlow; `8 cores`, the training runtime as a v2-8 runs it (8 shards, sums, one
update, batches read ahead); `1 core`, the runtime with one core's batch, cut into parts as well.
Images are random bytes, the same for all; augmentation is off. Keras' model must have as many
parameters as ours, and the same loss from the same ones. Bounds: 8 cores against jax.jit at least
2.4 (MNIST, CIFAR, batch 128) and 2.6 (Fashion, batch 1000).
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from podyard.engine.training import xla

_PLAIN = "--plain"
# The runtime takes one thread for a program; what it is measured against takes all that XLA finds.
if _PLAIN not in sys.argv:
    xla.prepare_environment()

import jax  # noqa: E402
import numpy as np  # noqa: E402

from benchmarks.keras_fit import EXAMPLES_CHECKED  # noqa: E402
from benchmarks.keras_fit import MODELS as KERAS_MODELS  # noqa: E402
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
_LOSS_TOLERANCE = 1e-4  # relative: float32 on both sides, in another order


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--models", nargs="+", default=["mnist-cnn", "cifar10-cnn", "fashion-cnn"], choices=BATCHES
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=3.0, help="of each way in each round")
    parser.add_argument(
        "--keras-python", default=sys.executable, help="an interpreter that has TensorFlow"
    )
    parser.add_argument(_PLAIN, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.plain:
        serve_plain(given.plain)
        return
    threads = xla.thread_count(1)
    load = " ".join(f"{value:.1f}" for value in os.getloadavg())
    print(
        f"jax {jax.__version__}, numpy {np.__version__}, {xla.available_cpu_count()} CPUs, load "
        f"average {load}"
    )
    print(f"runtime: {threads} threads, a program each")
    for name in given.models:
        measure(name, given.rounds, given.seconds, threads, given.keras_python)


def measure(name: str, rounds: int, seconds: float, threads: int, keras_python: str) -> None:
    model, batch = model_of(name, {}), BATCHES[name]
    images, labels = pictures(model)
    examples = Examples({"image": images, "label": labels})
    data = Input(examples, examples, [Normalise(1 / 255.0)])
    xla.configure(None)
    with contextlib.ExitStack() as stack:
        own = {
            f"{cores} core{'s' * (cores > 1)}": runtime(model, data, batch, cores, threads)
            for cores in (8, 1)
        }
        ways = {
            "jax.jit": stack.enter_context(
                Child([sys.executable, "-m", "benchmarks.training", _PLAIN, name])
            ).rate
        }
        keras = keras_of(stack, keras_python, name, model, images, labels)
        if keras is not None:
            ways["keras fit"] = keras.rate
        for way, step in own.items():
            ways[way] = functools.partial(images_a_second, step, batch)
        rates: dict[str, list[float]] = {way: [] for way in ways}
        for _ in range(rounds):
            for way, rate in ways.items():
                rates[way].append(rate(seconds))
    middle = {way: statistics.median(spent) for way, spent in rates.items()}
    for way, rate_of_way in middle.items():
        print(
            f"{name}, batch {batch}: {way:<9} {rate_of_way:>9.0f} images/s (best "
            f"{max(rates[way]):.0f})"
        )
    ratio, spread = middle["8 cores"] / middle["jax.jit"], middle["8 cores"] / middle["1 core"]
    bound = BOUNDS.get(name)
    told = "" if bound is None else f" (bound {bound}: {'ok' if ratio >= bound else 'MISSED'})"
    if "keras fit" in middle:
        told += f", 8 cores / keras fit {middle['8 cores'] / middle['keras fit']:.2f}"
    print(f"{name}: 8 cores / jax.jit {ratio:.2f}{told}, 8 cores / 1 core {spread:.2f}", flush=True)


class Child:
    """A process that measures whenever a line says for how many seconds, with all the threads that
    it likes."""

    def __init__(self, command: list[str]) -> None:
        environment = {name: value for name, value in os.environ.items() if name != "NPROC"}
        self._process = subprocess.Popen(
            command,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            bufsize=1,
        )

    def __enter__(self) -> Child:
        return self

    def __exit__(self, *_error: object) -> None:
        self._process.__exit__(None, None, None)

    def hear(self) -> Any:
        assert self._process.stdout is not None
        return json.loads(self._process.stdout.readline())

    def rate(self, seconds: float) -> float:
        """Images per second."""
        print(seconds, file=self._process.stdin, flush=True)
        return float(self.hear())


def keras_of(
    stack: contextlib.ExitStack, python: str, name: str, model: Any, images: Any, labels: Any
) -> Child | None:
    """The same model in tf.keras, in a process; None where there is none, and a line says why."""
    if name not in KERAS_MODELS:
        return None
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
    params = model.first_state(Streams(0))["params"]
    np.savez(folder / "data.npz", images=images, labels=labels)
    np.savez(folder / "params.npz", **params)
    script = str(Path(__file__).with_name("keras_fit.py"))
    child = stack.enter_context(
        Child([python, "-I", script, str(folder), name, str(BATCHES[name])])
    )
    said = child.hear()
    if "missing" in said:
        print(
            f"keras fit is left out ({said['missing']}): pip install 'podyard[benchmark]', or "
            "--keras-python PYTHON"
        )
        return None
    first = slice(EXAMPLES_CHECKED)
    batch = {
        "image": images[first].astype(np.float32) * np.float32(1 / 255.0),
        "label": labels[first],
    }
    loss = float(model.evaluate(params, {}, batch)["loss"])
    count = sum(value.size for value in params.values())
    if said["parameters"] != count or abs(said["loss"] - loss) > _LOSS_TOLERANCE * abs(loss):
        raise AssertionError(f"another model: {said}, and {count} parameters, loss {loss}")
    threads = [value or "its own choice" for value in said["threads"]]
    print(f"{said['versions']}; threads: {threads[0]} in an operation, {threads[1]} in parallel")
    return child


def images_a_second(step: Callable[[], None], batch: int, seconds: float) -> float:
    step()
    count, begin = 0, time.perf_counter()
    while time.perf_counter() - begin < seconds:
        step()
        count += 1
    return count * batch / (time.perf_counter() - begin)


def serve_plain(name: str) -> None:
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
    steps = trainer.run(_STEPS_MAX, [0], SumInProcess(1, trainer.length), threads, lambda: False)
    next(steps)
    return lambda: (next(steps), None)[1]


if __name__ == "__main__":
    main()
