"""Programs in random shapes that read or write a part of an array, order it or run over it, and
what the TPU compiler (libtpu) said of them: `python -m benchmarks.fit_timing touched`."""

from __future__ import annotations

import dataclasses
import gzip
import hashlib
import json
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from podyard.base.rng import Random, Streams
from podyard.engine.exact import client
from podyard.engine.program.from_stablehlo import parse_stablehlo
from podyard.engine.timing.analysis import estimate_program
from podyard.hardware.accelerator_types import all_types

FILE = Path(__file__).parents[1] / "tests" / "data" / "touched_programs.jsonl.gz"
GENERATIONS = ("v3", "v4", "v5e", "v6e")
PER_FAMILY = 10
_CASES_IN_TEN_THAT_JUDGE = 4
# Numbers of places in the chip's own memory: a few cycles, or none.
_LEAST_CYCLES = 100


@dataclasses.dataclass(frozen=True)
class TouchedProgram:
    """`text` is StableHLO, made when it is asked for."""

    name: str
    family: str
    text: Callable[[], str]

    @property
    def judges(self) -> bool:
        """Return whether nothing was fitted on it."""
        return (
            int(hashlib.sha256(self.name.encode()).hexdigest(), 16) % 10 < _CASES_IN_TEN_THAT_JUDGE
        )


@dataclasses.dataclass(frozen=True, slots=True)
class TouchedAnswer:
    """The compiler's cycles and bytes for a program, by the hash of its text."""

    program: str
    generation: str
    text_hash: str
    cycles: int
    accessed_bytes: int
    compiler_version: str


def text_hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def programs(seed: int = 17) -> list[TouchedProgram]:
    """The same for a seed; `PER_FAMILY` of each family."""
    streams, found = Streams(seed), dict[str, TouchedProgram]()
    for family, make in _FAMILIES.items():
        random = streams.stream(family)
        goal = len(found) + PER_FAMILY
        while len(found) < goal:
            sizes, function, shapes, donated = make(random)
            name = f"{family} {sizes}"
            found.setdefault(
                name, TouchedProgram(name, family, _lowering(function, shapes, donated))
            )
    return list(found.values())


def _lowering(
    function: Callable[..., Any], shapes: tuple[Any, ...], donated: tuple[int, ...]
) -> Callable[[], str]:
    def text() -> str:
        import jax
        import jax.numpy as jnp

        arrays: list[Any] = [
            jax.ShapeDtypeStruct(shape, jnp.dtype(dtype)) for shape, dtype in shapes
        ]
        return client.lower_for_tpu(jax.jit(function, donate_argnums=donated), *arrays)

    return text


def record() -> Iterator[TouchedAnswer]:
    """Compiles all of them for every generation. Raises PodyardError FAILED_PRECONDITION without
    the compiler."""
    for program in programs():
        text = program.text()
        for generation in GENERATIONS:
            verdict = client.compile_exact(text, all_types(generation)[0])
            version, accessed = verdict.compiler_version, round(verdict.bytes_accessed)
            yield TouchedAnswer(
                program.name, generation, text_hash(text), verdict.cycles, accessed, version
            )


def store(answers: list[TouchedAnswer]) -> None:
    lines = "".join(json.dumps(dataclasses.asdict(answer)) + "\n" for answer in answers)
    FILE.write_bytes(gzip.compress(lines.encode(), mtime=0))


def answers() -> list[TouchedAnswer]:
    return [
        TouchedAnswer(**json.loads(line))
        for line in gzip.decompress(FILE.read_bytes()).decode().splitlines()
    ]


def errors() -> list[tuple[str, str, bool, float]]:
    """(family, generation, whether it judges, |log(modelled / compiled)| of the cycles) of every
    recorded answer whose program still has the text that was compiled; what the compiler gives no
    cycles is left out."""
    by_name = {program.name: program for program in programs()}
    read = {
        name: (text_hash(text := program.text()), parse_stablehlo(text))
        for name, program in by_name.items()
    }
    found = []
    for answer in answers():
        program, (own_hash, parsed) = by_name[answer.program], read[answer.program]
        assert own_hash == answer.text_hash, (
            f"{answer.program} is lowered otherwise than when it was compiled"
        )
        modelled = estimate_program(parsed, all_types(answer.generation)[0]).cycles
        if answer.cycles > _LEAST_CYCLES:
            error = abs(math.log(max(modelled, 1.0) / answer.cycles))
            found.append((program.family, answer.generation, program.judges, error))
    return found


def _size(random: Random, least: int, most: int) -> int:
    """A power of two, a multiple of 8, or anything."""
    size = int(2 ** random.uniform(math.log2(least), math.log2(most)))
    return max(least, random.choice((1 << size.bit_length() - 1, size // 8 * 8, size)))


# What a family draws: sizes as text, a function, shapes and types of its arguments, donated ones.
_Drawn = tuple[str, Callable[..., Any], tuple[tuple[tuple[int, ...], str], ...], tuple[int, ...]]


def _lookup(random: Random) -> _Drawn:
    rows, width, table = _size(random, 1, 16384), _size(random, 64, 4096), _size(random, 512, 65536)
    dtype = random.choice(("float32", "bfloat16"))
    return (
        f"{rows} of {table} x {width} {dtype}",
        lambda t, i: t[i],
        (((table, width), dtype), ((rows,), "int32")),
        (),
    )


def _update(random: Random) -> _Drawn:
    batch, length, width = _size(random, 1, 32), _size(random, 128, 4096), _size(random, 128, 1024)
    dtype, donated = random.choice(("float32", "bfloat16")), random.choice(((), (0,)))

    def function(cache: Any, part: Any, place: Any) -> Any:
        from jax import lax

        return lax.dynamic_update_slice(cache, part * 2, (0, place, 0))

    shapes = (((batch, length, width), dtype), ((batch, 1, width), dtype), ((), "int32"))
    return (
        f"{batch} x {length} x {width} {dtype} {'donated' if donated else 'kept'}",
        function,
        shapes,
        donated,
    )


def _scatter(random: Random) -> _Drawn:
    rows, width, table = _size(random, 8, 8192), _size(random, 64, 2048), _size(random, 1024, 32768)
    zeros = random.choice((True, False))

    def function(table_or_rows: Any, i: Any, *more: Any) -> Any:
        import jax.numpy as jnp

        if zeros:
            return jnp.zeros((table, width), jnp.float32).at[i].add(table_or_rows)
        return table_or_rows.at[i].add(more[0])

    new = (((rows, width), "float32"), ((rows,), "int32"))
    old = (((table, width), "float32"), ((rows,), "int32"), ((rows, width), "float32"))
    return (
        f"{rows} into {table} x {width}{' of zeros' if zeros else ''}",
        function,
        new if zeros else old,
        (0,)[zeros:],
    )


def _stacks(random: Random) -> _Drawn:
    turns, rows, width = _size(random, 4, 64), _size(random, 8, 512), _size(random, 128, 1024)

    def function(weights: Any, state: Any) -> Any:
        import jax.numpy as jnp
        from jax import lax

        def turn(state: Any, one: Any) -> tuple[Any, Any]:
            state = jnp.tanh(state @ one)
            return state, state

        return lax.scan(turn, state, weights)

    return (
        f"{turns} x {rows} x {width}",
        function,
        (((turns, width, width), "float32"), ((rows, width), "float32")),
        (),
    )


def _ordered(random: Random) -> _Drawn:
    rows, width = _size(random, 1, 512), _size(random, 64, 8192)

    def function(x: Any) -> Any:
        import jax.numpy as jnp

        return jnp.sort(x)

    return f"{rows} x {width}", function, (((rows, width), "float32"),), ()


def _largest(random: Random) -> _Drawn:
    rows, width, count = _size(random, 1, 512), _size(random, 128, 32768), _size(random, 1, 64)

    def function(x: Any) -> Any:
        from jax import lax

        return lax.top_k(x, count)

    return f"{count} of {rows} x {width}", function, (((rows, width), "float32"),), ()


def _running(random: Random) -> _Drawn:
    rows, width, axis = _size(random, 8, 1024), _size(random, 128, 4096), random.choice((0, 1))

    def function(x: Any) -> Any:
        import jax.numpy as jnp

        return jnp.cumsum(x, axis)

    return f"{rows} x {width} along {axis}", function, (((rows, width), "float32"),), ()


def _associative(random: Random) -> _Drawn:
    rows, width = _size(random, 64, 4096), _size(random, 128, 1024)

    def function(x: Any) -> Any:
        import jax.numpy as jnp
        from jax import lax

        return lax.associative_scan(jnp.add, x)

    return f"{rows} x {width}", function, (((rows, width), "float32"),), ()


_FAMILIES = {
    "lookup": _lookup, "update": _update, "scatter": _scatter, "stacks": _stacks, "sort": _ordered,
    "top_k": _largest,
    "running sum": _running, "associative scan": _associative,
}  # fmt: skip
