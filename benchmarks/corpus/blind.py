"""Programs that nobody fitted anything on: `python -m benchmarks.corpus.blind` compiles them (extra
`xla-tpu`) and prints the model's error. Their shapes and structure are unlike those of the public
set; docs/internals/engine-corpus.md has the first results. After fitting on them, write new ones;
more batches are in blind_second.py (`--second`) to blind_fifth.py (`--fifth`), and drawn.py draws
one by a number (`--drawn 7`)."""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from benchmarks.corpus import blind_fifth, blind_fourth, blind_second, blind_third, drawn
from benchmarks.corpus.data import slice_for
from benchmarks.corpus.layout import BF16, F32, I32, ONE, Layout, Made, train
from benchmarks.corpus.record import recorded
from benchmarks.programs_of_today import HEAD, Case, case_line, figures
from podyard.base.errors import PodyardError
from podyard.engine.exact.client import ExactCompiler
from podyard.engine.program.from_stablehlo import parse_stablehlo
from podyard.engine.timing.analysis import estimate_program
from podyard.hardware.accelerator_types import parse

GENERATIONS = ("v3", "v5e", "v6e")


def _mixer() -> Made:
    """Two blocks that mix patches, then channels."""

    def loss(params: Any, x: Any, y: Any) -> Any:
        x = x.astype(BF16)
        for (a, b), (c, d) in params:
            x = x + jnp.swapaxes(
                jax.nn.gelu(jnp.swapaxes(x, 1, 2) @ a.astype(BF16)) @ b.astype(BF16), 1, 2
            )
            x = x + jax.nn.gelu(x @ c.astype(BF16)) @ d.astype(BF16)
        return jnp.mean(jnp.square(x.mean(1).astype(F32) - y))

    array = ONE.array
    block = (array((196, 768)), array((768, 196))), (array((384, 1152)), array((1152, 384)))
    return train(loss, [block, block], (array((24, 196, 384)), array((24, 384))), ONE, "momentum")


def _adapters() -> Made:
    """Low-rank adapters are trained, the weights they adapt are not."""
    array = ONE.array

    def step(params: Any, frozen: Any, x: Any) -> Any:
        def loss(params: Any) -> Any:
            y = x
            for (down, up), weight in zip(params, frozen, strict=True):
                y = jax.nn.silu(y @ weight + (y @ down.astype(BF16)) @ up.astype(BF16))
            return jnp.mean(jnp.square(y.astype(F32)))

        return jax.tree.map(lambda p, g: p - 0.1 * g, params, jax.grad(loss)(params))

    pairs = [(array((1536, 12)), array((12, 1536)))] * 3
    return Made(
        step, (pairs, [array((1536, 1536), "", BF16)] * 3, array((640, 1536), "", BF16)), (0,)
    )


def _word_pairs() -> Made:
    """Words, their neighbours and words drawn at random; rows of 192 numbers are looked up and
    scattered."""

    def loss(tables: Any, words: Any, near: Any, far: Any) -> Any:
        x, y, z = tables[0][words], tables[1][near], tables[1][far]
        return -jnp.mean(
            jax.nn.log_sigmoid((x * y).sum(-1))
            + jax.nn.log_sigmoid(-(x[:, None] * z).sum(-1)).sum(-1)
        )

    array = ONE.array
    words = array((1536,), "", I32)
    return train(
        loss, (array((24000, 192)),) * 2, (words, words, array((1536, 5), "", I32)), ONE, "sgd"
    )


def _waves() -> Made:
    """Convolutions over time with gaps of 1, 2, 4 and 8."""

    def loss(params: Any, x: Any, y: Any) -> Any:
        x = x.astype(BF16)
        for place, kernel in enumerate(params):
            dims = ("NWC", "WIO", "NWC")
            made = lax.conv_general_dilated(
                x,
                kernel.astype(BF16),
                (1,),
                "SAME",
                rhs_dilation=(2**place,),
                dimension_numbers=dims,
            )
            x = x + jnp.tanh(made)
        return jnp.mean(jnp.square(x.astype(F32) - y))

    array = ONE.array
    return train(loss, [array((3, 160, 160))] * 4, (array((16, 900, 160)),) * 2, ONE, "sgd")


def _variational() -> Made:
    def loss(params: Any, x: Any, noise: Any) -> Any:
        first, mean, width, back, last = (one.astype(BF16) for one in params)
        y = jax.nn.relu(x.astype(BF16) @ first)
        middle, spread = y @ mean, y @ width
        drawn = middle + jnp.exp(0.5 * spread) * noise.astype(BF16)
        made = jax.nn.sigmoid(jax.nn.relu(drawn @ back) @ last).astype(F32)
        held = (1 + spread - jnp.square(middle) - jnp.exp(spread)).astype(F32)
        return jnp.mean(jnp.square(made - x)) - 0.5 * jnp.mean(held)

    shapes = [(1200, 700), (700, 72), (700, 72), (72, 700), (700, 1200)]
    array = ONE.array
    return train(
        loss, [array(shape) for shape in shapes], (array((3000, 1200)), array((3000, 72))), ONE
    )


def _clusters() -> Made:
    """Points go to the nearest of 96 centres, which move to the means of their points."""

    def step(points: Any, centres: Any) -> Any:
        near = jnp.argmin((centres**2).sum(1) - 2 * points @ centres.T, 1)
        own = jax.nn.one_hot(near, 96, dtype=F32)
        return (own.T @ points) / jnp.maximum(own.sum(0), 1)[:, None], near

    return Made(step, (ONE.array((20000, 48)), ONE.array((96, 48))))


def _stencil() -> Made:
    def run(heat: Any) -> Any:
        def turn(_: Any, heat: Any) -> Any:
            around = (
                jnp.roll(heat, 1, 0)
                + jnp.roll(heat, -1, 0)
                + jnp.roll(heat, 1, 1)
                + jnp.roll(heat, -1, 1)
            )
            return heat + 0.1 * (around - 4 * heat)

        return lax.fori_loop(0, 40, turn, heat)

    return Made(run, (ONE.array((1300, 900)),))


def _cross_attention() -> Made:
    def run(params: Any, x: Any, text: Any) -> Any:
        query, key, value, out = params
        q, k, v = (
            jnp.einsum("btd,dhk->bhtk", one, w)
            for one, w in ((x, query), (text, key), (text, value))
        )
        scores = jax.nn.softmax(
            jnp.einsum("bhtk,bhsk->bhts", q, k, preferred_element_type=F32) * 80**-0.5, -1
        )
        return x + jnp.einsum("bhts,bhsk,hkd->btd", scores.astype(BF16), v, out)

    array = ONE.array
    heads = [array((960, 12, 80), "", BF16)] * 3
    return Made(
        run,
        (
            [*heads, array((12, 80, 960), "", BF16)],
            array((6, 1024, 960), "", BF16),
            array((6, 320, 960), "", BF16),
        ),
    )


def _beams() -> Made:
    """The best 6 of all continuations of 6 beams."""

    def step(scores: Any, logits: Any, tokens: Any) -> Any:
        total = scores[..., None] + jax.nn.log_softmax(logits)
        best, places = lax.top_k(total.reshape(total.shape[0], -1), 6)
        beams, words = places // logits.shape[-1], places % logits.shape[-1]
        old = jnp.take_along_axis(tokens, beams[..., None], 1)
        return best, jnp.concatenate([old, words[..., None]], -1)

    array = ONE.array
    return Made(step, (array((20, 6)), array((20, 6, 12000)), array((20, 6, 40), "", I32)))


def _gated(ways: tuple[str, ...], tokens: int) -> Made:
    """Gated layers, fully sharded or split by their width over 8 devices."""
    name = "model" if "tensor" in ways else "data"
    layout = Layout(((name, 8),), ways)

    def loss(params: Any, x: Any) -> Any:
        for gate, up, down in params:
            gate, up, down = (one.astype(BF16) for one in (gate, up, down))
            x = x + (jax.nn.silu(x @ gate) * (x @ up)) @ down
        return jnp.mean(jnp.square(x.astype(F32)))

    array = layout.array
    layer = (
        array((896, 2304), "embed mlp"),
        array((896, 2304), "embed mlp"),
        array((2304, 896), "mlp embed"),
    )
    return train(loss, [layer] * 2, (array((tokens, 896), "batch .", BF16),), layout, "sgd")


PROGRAMS: dict[str, Callable[[], Made]] = {
    "mixer-train": _mixer,
    "adapters-train": _adapters,
    "word-pairs-train": _word_pairs,
    "waves-train": _waves,
    "variational-train": _variational,
    "clusters": _clusters,
    "stencil": _stencil,
    "cross-attention": _cross_attention,
    "beams": _beams,
    "gated-fsdp8": lambda: _gated(("data", "fsdp"), 12800),
    "gated-fsdp8-short": lambda: _gated(("data", "fsdp"), 3200),
    "gated-tensor8": lambda: _gated(("tensor",), 1600),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--only", nargs="*", default=[""], help="parts of the names of programs to compile"
    )
    parser.add_argument(
        "--generation", nargs="*", default=list(GENERATIONS), help="generations to compile for"
    )
    parser.add_argument("--second", action="store_true", help="the second batch")
    parser.add_argument("--third", action="store_true", help="the third batch")
    parser.add_argument(
        "--fourth", action="store_true", help="the fourth batch, of sharded programs alone"
    )
    parser.add_argument("--fifth", action="store_true", help="the fifth batch, of drawn sizes")
    parser.add_argument(
        "--drawn", type=int, metavar="NUMBER", help="the batch that this number draws"
    )
    given = parser.parse_args()
    batches = {
        "second": blind_second.PROGRAMS, "third": blind_third.PROGRAMS,
        "fourth": blind_fourth.PROGRAMS, "fifth": blind_fifth.PROGRAMS,
    }  # fmt: skip
    programs = next((batch for name, batch in batches.items() if getattr(given, name)), PROGRAMS)
    programs = programs if given.drawn is None else drawn.programs(given.drawn)
    with tempfile.TemporaryDirectory() as locks:
        compiler = ExactCompiler(lock_folder=Path(locks))
        for generation in given.generation:
            cases = []
            for name in (one for one in programs if any(part in one for part in given.only)):
                made = programs[name]()
                text, kind = made.text(), slice_for(generation, made.layout.devices)
                try:
                    row = recorded(name, kind, text, made.layout.devices, compiler)
                except PodyardError as error:
                    print(f"{name} on {kind}: {error.message[:200]}")
                    continue
                cases.append(Case(row, estimate_program(parse_stablehlo(text), parse(kind))))
                print(case_line(cases[-1]), flush=True)
            print(f"{HEAD}\n{generation:16} {figures(cases).text()}")
        compiler.close()


if __name__ == "__main__":
    main()
