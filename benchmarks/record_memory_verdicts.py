"""Records what the TPU compiler says of programs whose need of memory lies around what a device
has.

`python -m benchmarks.record_memory_verdicts [--only FAMILY] [--on TYPE] [--limit SECONDS]` needs
libtpu. Every family of programs has one size; it is chosen so that the compiler's own total comes
to lie at drawn shares of the memory, on both sides of the limit. One line a program: family, size,
type of slice, StableHLO, whether it fits, the compiler's bytes or its text.
"""

from __future__ import annotations

import argparse
import gzip
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from podyard.base.errors import PodyardError
from podyard.base.rng import Streams
from podyard.engine.exact import client
from podyard.engine.program.from_stablehlo import parse_stablehlo
from podyard.engine.recipes.programs import program_of
from podyard.engine.timing.analysis import estimate_program
from podyard.engine.timing.memory import named_total_bytes
from podyard.hardware.accelerator_types import parse
from podyard.hardware.generations import cost_model

OUTPUT = Path(__file__).parent.parent / "tests" / "data" / "memory_verdicts.jsonl.gz"
SEED = 7
TYPES = ("v2-8", "v3-8", "v4-8", "v5litepod-1", "v6e-1")
TYPES_A_FAMILY = 2
# Shares of the memory that a program is made to need: well below, near from both sides, well above.
LOW, HIGH = (0.82, 0.96), (1.04, 1.3)
_STEP = 8
_FIRST_SIZE = 4096
_ROUNDS = 6
_NEAR = 0.02
_CORRECTIONS = 3
_LIMIT_SECONDS = 20.0

# A family: its program and arguments for a size, and whether the first argument is donated.
Made = tuple[Callable[..., Any], tuple[Any, ...], bool]


def _array(*shape: int, dtype: Any = jnp.float32) -> Any:
    struct: Any = jax.ShapeDtypeStruct
    return struct(shape, dtype)


def _recipe(name: str, donated: bool = False, **arguments: object) -> Callable[[int], Made]:
    def made(size: int) -> Made:
        program = program_of(name, arguments)
        return program.step, program.abstract_arguments(size), donated

    return made


def _products(size: int) -> Made:
    def run(x: Any, *weights: Any) -> Any:
        for weight in weights:
            x = jnp.tanh(x @ weight)
        return x

    return run, (_array(size, 8192), *(_array(8192, 8192) for _ in range(4))), False


def _narrow_products(size: int) -> Made:
    def run(x: Any, first: Any, second: Any) -> Any:
        return jax.nn.relu(x @ first) @ second + x

    half = jnp.bfloat16
    return (
        run,
        (
            _array(size, 2048, dtype=half),
            _array(2048, 16384, dtype=half),
            _array(16384, 2048, dtype=half),
        ),
        True,
    )


def _chain(size: int) -> Made:
    def run(x: Any) -> Any:
        for _ in range(8):
            x = jnp.tanh(x) * 0.5 + x
        return x

    return run, (_array(size, 1024),), False


def _sums_between(size: int) -> Made:
    def run(x: Any) -> Any:
        y = jnp.exp(x - x.max(axis=1, keepdims=True))
        z = y / y.sum(axis=1, keepdims=True)
        return (z - z.mean(axis=0)) * x

    return run, (_array(size, 4096),), False


def _softmax(size: int) -> Made:
    def run(x: Any, w: Any, labels: Any) -> Any:
        def loss(w: Any) -> Any:
            logits = x @ w
            return -jnp.mean(
                jnp.take_along_axis(jax.nn.log_softmax(logits), labels[:, None], axis=-1)
            )

        return jax.value_and_grad(loss)(w)

    return run, (_array(size, 512), _array(512, 32000), _array(size, dtype=jnp.int32)), False


def _embedding(size: int) -> Made:
    def run(table: Any, tokens: Any, targets: Any) -> Any:
        def loss(table: Any) -> Any:
            return jnp.mean((table[tokens].sum(axis=1) - targets) ** 2)

        return table - 0.1 * jax.grad(loss)(table)

    return run, (_array(size, 256), _array(4096, 20, dtype=jnp.int32), _array(4096, 256)), True


def _gather_rows(size: int) -> Made:
    def run(table: Any, tokens: Any) -> Any:
        return jnp.tanh(table[tokens])

    return run, (_array(200_000, 512), _array(size, 128, dtype=jnp.int32)), False


def _attention(size: int) -> Made:
    def run(q: Any, k: Any, v: Any) -> Any:
        scores = jnp.einsum("bhqd,bhkd->bhqk", q, k) / 8.0
        return jnp.einsum("bhqk,bhkd->bhqd", jax.nn.softmax(scores), v)

    return run, tuple(_array(size, 8, 2048, 64) for _ in range(3)), False


def _attention_gradient(size: int) -> Made:
    forward = _attention(size)[0]

    def run(q: Any, k: Any, v: Any) -> Any:
        return jax.grad(lambda *args: forward(*args).sum(), argnums=(0, 1, 2))(q, k, v)

    return run, tuple(_array(size, 8, 1024, 64) for _ in range(3)), False


def _adam(donated: bool) -> Callable[[int], Made]:
    def made(size: int) -> Made:
        def run(state: Any, gradient: Any) -> Any:
            p, m, v = state
            m, v = 0.9 * m + 0.1 * gradient, 0.999 * v + 0.001 * gradient**2
            return p - 1e-3 * m / (jnp.sqrt(v) + 1e-8), m, v

        return run, ((_array(size, 4096),) * 3, _array(size, 4096)), donated

    return made


def _layers(scan: bool, remat: bool) -> Callable[[int], Made]:
    """Eight residual layers of a perceptron; gradient of the mean square."""

    def made(size: int) -> Made:
        def layer(x: Any, own: Any) -> Any:
            return x + jnp.tanh(x @ own[0]) @ own[1]

        one = jax.checkpoint(layer) if remat else layer

        def loss(weights: Any, x: Any) -> Any:
            if scan:
                x, _ = lax.scan(lambda x, own: (one(x, own), None), x, weights)
            else:
                for index in range(8):
                    x = one(x, (weights[0][index], weights[1][index]))
            return jnp.mean(x**2)

        return (
            jax.grad(loss),
            ((_array(8, 1024, 4096), _array(8, 4096, 1024)), _array(size, 1024)),
            False,
        )

    return made


def _scan_outputs(size: int) -> Made:
    def run(x: Any, w: Any) -> Any:
        return lax.scan(lambda x, _: ((y := jnp.tanh(x @ w)), y * 2), x, None, length=16)

    return run, (_array(size, 1024), _array(1024, 1024)), False


def _loop(size: int) -> Made:
    def run(x: Any, w: Any) -> Any:
        return lax.fori_loop(0, 20, lambda _, x: jnp.tanh(x @ w) + x, x)

    return run, (_array(size, 2048), _array(2048, 2048)), False


def _convolutions(size: int) -> Made:
    def conv(x: Any, kernel: Any) -> Any:
        return lax.conv_general_dilated(
            x, kernel, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
        )

    def loss(kernels: Any, x: Any) -> Any:
        for kernel in kernels:
            x = jax.nn.relu(conv(x, kernel))
        return jnp.mean(x**2)

    kernels = [_array(3, 3, entering, 128) for entering in (3, 128, 128, 128)]
    return jax.value_and_grad(loss), (kernels, _array(size, 32, 32, 3)), False


def _pooled(size: int) -> Made:
    def loss(kernel: Any, x: Any) -> Any:
        y = lax.conv_general_dilated(
            x, kernel, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
        )
        y = lax.reduce_window(
            jax.nn.relu(y), -jnp.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID"
        )
        return jnp.mean(y**2)

    return jax.grad(loss), (_array(3, 3, 16, 128), _array(size, 64, 64, 16)), False


def _narrow_rows(size: int) -> Made:
    """Few numbers in the last axis: most of a tile may be padding."""

    def run(x: Any, w: Any) -> Any:
        y = jnp.tanh(x @ w)
        return y.sum(axis=1), jnp.exp(y) + 1

    return run, (_array(size, 100, 20), _array(20, 40)), False


def _turned(size: int) -> Made:
    def run(x: Any) -> Any:
        return jnp.cumsum(x.transpose(1, 0, 2), axis=0) + 1, x.sum()

    return run, (_array(size, 64, 1024),), False


def _joined(size: int) -> Made:
    def run(x: Any, y: Any) -> Any:
        both = jnp.concatenate([jnp.tanh(x), jnp.exp(y), x * y], axis=1)
        return both / jnp.linalg.norm(both, axis=1, keepdims=True)

    return run, (_array(size, 1024), _array(size, 1024)), False


def _sorted(size: int) -> Made:
    return (lambda x: jnp.sort(x, axis=-1)), (_array(size, 2048),), False


def _norms(size: int) -> Made:
    def loss(scales: Any, x: Any) -> Any:
        for scale in scales:
            x = jax.nn.gelu(
                (x - x.mean(-1, keepdims=True)) * lax.rsqrt(x.var(-1, keepdims=True) + 1e-6) * scale
            )
        return (x**2).mean()

    return jax.grad(loss), ([_array(1024)] * 3, _array(size, 1024)), False


def _whole_numbers(size: int) -> Made:
    def run(x: Any, w: Any) -> Any:
        y = lax.dot(x, w, preferred_element_type=jnp.int32)
        return (y >> 8).astype(jnp.int8)

    return run, (_array(size, 4096, dtype=jnp.int8), _array(4096, 16384, dtype=jnp.int8)), False


def _dropout(size: int) -> Made:
    def loss(w: Any, x: Any, key: Any) -> Any:
        hidden = jax.nn.relu(x @ w)
        kept = jax.random.bernoulli(key, 0.8, hidden.shape)
        return jnp.mean(jnp.where(kept, hidden / 0.8, 0.0) ** 2)

    return (
        jax.grad(loss),
        (_array(1024, 8192), _array(size, 1024), _array(2, dtype=jnp.uint32)),
        False,
    )


_LM: dict[str, Any] = {"width": 512, "heads": 8, "sequence": 512, "vocabulary": 8192}
FAMILIES: dict[str, Callable[[int], Made]] = {
    "mnist-cnn": _recipe("mnist-cnn"),
    "fashion-cnn": _recipe("fashion-cnn", donated=True),
    "cifar10-cnn": _recipe("cifar10-cnn"),
    "mlp": _recipe("mlp", donated=True),
    "digits-cnn": _recipe("digits-cnn"),
    "resnet-50": _recipe("resnet-50", imageSize=128),
    "lm-2-layers": _recipe("transformer-lm", layers=2, **_LM),
    "lm-4-layers-float32": _recipe(
        "transformer-lm", layers=4, dtype="float32", donated=True, **_LM
    ),
    "lm-6-layers-scan": _recipe("transformer-lm", layers=6, scan=True, **_LM),
    "lm-6-layers-scan-remat": _recipe("transformer-lm", layers=6, scan=True, remat=True, **_LM),
    "lm-3-layers-remat": _recipe(
        "transformer-lm", layers=3, scan=False, remat=True, donated=True, **_LM
    ),
    "products": _products,
    "narrow-products": _narrow_products,
    "chain": _chain,
    "sums-between": _sums_between,
    "softmax": _softmax,
    "embedding": _embedding,
    "gather-rows": _gather_rows,
    "attention": _attention,
    "attention-gradient": _attention_gradient,
    "adam": _adam(donated=False),
    "adam-donated": _adam(donated=True),
    "layers": _layers(scan=False, remat=False),
    "layers-remat": _layers(scan=False, remat=True),
    "layers-scan": _layers(scan=True, remat=False),
    "layers-scan-remat": _layers(scan=True, remat=True),
    "scan-outputs": _scan_outputs,
    "loop": _loop,
    "convolutions": _convolutions,
    "pooled": _pooled,
    "narrow-rows": _narrow_rows,
    "turned": _turned,
    "joined": _joined,
    "sorted": _sorted,
    "norms": _norms,
    "whole-numbers": _whole_numbers,
    "dropout": _dropout,
    "resnet-50-64": _recipe("resnet-50", imageSize=64),
    "resnet-50-96": _recipe("resnet-50", donated=True, imageSize=96),
}


def text_of(family: str, size: int) -> str:
    """StableHLO of the family's program at a size."""
    fn, arguments, donated = FAMILIES[family](size)
    return client.lower_for_tpu(jax.jit(fn, donate_argnums=(0,) if donated else ()), *arguments)


def row_of(family: str, size: int, accelerator_type: str, limit_seconds: float) -> dict[str, Any]:
    """One program compiled: the compiler's figures, and what a reader needs to compile it again.

    Raises PodyardError DEADLINE_EXCEEDED when it takes longer than a recording may.
    """
    text = text_of(family, size)
    start = time.monotonic()
    verdict = client.compile_exact(text, accelerator_type, timeout_seconds=limit_seconds)
    total = (
        verdict.argument_bytes
        + verdict.output_bytes
        + verdict.temporary_bytes
        - verdict.alias_bytes
    )
    return {
        "family": family,
        "size": size,
        "type": accelerator_type,
        "fits": verdict.fits,
        "total_bytes": total if verdict.fits else named_total_bytes(verdict.out_of_memory_text),
        "argument_bytes": verdict.argument_bytes,
        "output_bytes": verdict.output_bytes,
        "temporary_bytes": verdict.temporary_bytes,
        "alias_bytes": verdict.alias_bytes,
        "out_of_memory_text": verdict.out_of_memory_text,
        "compiler_version": verdict.compiler_version,
        "seconds": round(time.monotonic() - start, 1),
        "stablehlo": text,
    }


def size_for(family: str, accelerator_type: str, share: float) -> int:
    """The size at which the model says that the program needs this share of the memory."""
    size = _FIRST_SIZE
    for _ in range(_ROUNDS):
        estimate = estimate_program(parse_stablehlo(text_of(family, size)), parse(accelerator_type))
        found = estimate.needed_hbm_bytes / estimate.usable_hbm_bytes
        if abs(found / share - 1) < _NEAR:
            break
        size = _scaled(size, share / found)
    return size


def _scaled(size: int, factor: float) -> int:
    return max(1, round(size * factor / _STEP)) * _STEP


def rows_of(family: str, accelerator_type: str, limit_seconds: float) -> Iterator[dict[str, Any]]:
    """Programs of the family on both sides of the limit: the model's guess first, then corrected by
    what the compiler found, a few times at most."""
    usable = cost_model(parse(accelerator_type).generation.name).hbm_usable_bytes
    numbers = Streams(SEED).stream(f"benchmark.memory.{family}.{accelerator_type}")
    size, total = 0, 0
    for low, high in (LOW, HIGH):
        share = numbers.uniform(low, high)
        size = (
            size_for(family, accelerator_type, share)
            if not size
            else _scaled(size, share * usable / total)
        )
        for _ in range(_CORRECTIONS):
            row = row_of(family, size, accelerator_type, limit_seconds)
            yield row
            total = row["total_bytes"] or 0
            if not total:
                return
            if low <= total / usable <= high:
                break
            size = _scaled(size, share * usable / total)


def pack(path: Path) -> None:
    """Rewrites the record as one piece, each program once as it was recorded last, in the order of
    families: equal
    texts then stand near each other."""
    with gzip.open(path, "rt", encoding="utf-8") as file:
        rows = [json.loads(line) for line in file]
    last = {(list(FAMILIES).index(row["family"]), row["type"], row["size"]): row for row in rows}
    lines = "".join(json.dumps(last[key], sort_keys=True) + "\n" for key in sorted(last))
    path.write_bytes(gzip.compress(lines.encode(), mtime=0))


def main() -> None:
    """Adds to the record, family by family, so that it can be interrupted."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--only", nargs="*", default=list(FAMILIES), help="families to record")
    arguments.add_argument("--output", type=Path, default=OUTPUT)
    arguments.add_argument(
        "--types", type=int, default=TYPES_A_FAMILY, help="types of slices a family"
    )
    arguments.add_argument(
        "--on", nargs="*", choices=TYPES, help="these types of slices instead of drawn ones"
    )
    arguments.add_argument(
        "--limit", type=float, default=_LIMIT_SECONDS, help="seconds that one compilation may take"
    )
    given = arguments.parse_args()
    for turn in range(len(given.on) if given.on else given.types):
        for family in given.only:
            drawn = TYPES[(list(FAMILIES).index(family) + 2 * turn) % len(TYPES)]
            accelerator_type = given.on[turn] if given.on else drawn
            try:
                for row in rows_of(family, accelerator_type, given.limit):
                    with gzip.open(given.output, "at", encoding="utf-8") as file:
                        file.write(json.dumps(row) + "\n")
                    total = row["total_bytes"] or 0
                    told = (
                        f"{row['size']} {'fits' if row['fits'] else 'does not fit'}, "
                        f"{total / 2**30:.2f}G"
                    )
                    print(f"{family} on {accelerator_type}: {told}, {row['seconds']} s", flush=True)
            except PodyardError as error:
                print(f"{family} on {accelerator_type}: {error.message[:200]}", flush=True)
    pack(given.output)


if __name__ == "__main__":
    main()
