"""The fits behind the timing model's constants, done again.

    python -m benchmarks.fit_timing kernels --generation v3 --cache cycles.jsonl [--programs 60]
    [--seconds 60]
    python -m benchmarks.fit_timing runs
    python -m benchmarks.fit_timing touched [--record]

`kernels`: the constants of timing/costs.py. Random matrix products and element-wise programs are
compiled by the TPU compiler (pip install 'podyard[xla-tpu]'; once, what it said is kept in
--cache), and a random search from the data sheet's numbers minimises the median + half the mean of
|log(modelled / compiled)| over those whose name's SHA-256 modulo 10 is 3 or more; the others judge.
Both are seeded. The search is as good as the seconds it gets.

`touched`: lookups, updates, stacks of loops, sorting and running sums
(benchmarks/touched_programs.py) against the compiler's recorded answers; what was looked at while
their rules were made, and the others, which judge. `--record` compiles them again.

`runs`: RUN_SHARE of timing/analysis.py, of which the compiler says nothing, by least squares of the
log ratio on the published ResNet-50 runs on v3; and what a host would add to each step by the same
rows.
"""

from __future__ import annotations

import argparse
import dataclasses
import hashlib
import json
import math
import statistics
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks import touched_programs
from podyard.base.errors import PodyardError
from podyard.base.rng import Random, Streams
from podyard.engine.exact import client
from podyard.engine.program.from_stablehlo import parse_stablehlo
from podyard.engine.program.ir import Program
from podyard.engine.timing import analysis
from podyard.engine.timing.fusion import fuse
from podyard.engine.timing.graph import Fused
from podyard.engine.timing.kernels import matrix_price
from podyard.engine.timing.pricing import Pricer
from podyard.hardware.accelerator_types import all_types
from podyard.hardware.cost_model import CostModel
from podyard.hardware.generations import cost_model

DTYPES = ("bfloat16", "float32")
# Largest products and arrays: what compiles in about a second.
_PRODUCT_MAX, _PRODUCT_MIN, _OPERANDS_MAX = 2**37, 2**15, 2**28
_ARRAY_MIN, _ARRAY_MAX = 2**8, 2**26
_LONGEST_AXIS = 40_000
_ELEMENTWISE = (
    "plain",
    "exp",
    "sum_last",
    "sum_first",
    "sum_all",
    "max_last",
    "two_results",
    "convert",
    "broadcast",
)
# What the search starts from where the data sheet says nothing, the same for every generation.
_NEUTRAL = {
    "narrow_result_factor": 2.0,
    "matrix_kernel_cycles": 1000.0,
    "matrix_window_cycles": 300.0,
    "exposed_share": 0.5,
    "mxu_stretch": 1.0,
    "window_bytes": 12e6,
    "vector_kernel_cycles": 500.0,
    "vector_window_cycles": 100.0,
    "vector_cycles_per_tile": 0.5,
}
_PREFETCHED = {"prefetch_bytes": 64e6}
# Constants that cannot be more than this.
_MOST = {"exposed_share": 1.0, "weight_load_rows": 256.0}
_WIDE, _NARROW = 0.35, 0.08
_CASES_IN_TEN_THAT_JUDGE = 3


@dataclasses.dataclass(frozen=True)
class Case:
    """A program of one device: `text` is StableHLO, made when it is asked for."""

    name: str
    kind: str
    text: Callable[[], str]

    @property
    def judges(self) -> bool:
        return (
            int(hashlib.sha256(self.name.encode()).hexdigest(), 16) % 10 < _CASES_IN_TEN_THAT_JUDGE
        )


@dataclasses.dataclass(frozen=True)
class Measured:
    """A case with what the compiler says it takes; `floor_cycles`: no step is faster than its bytes
    on the bus."""

    case: Case
    program: Program
    fused: Fused
    cycles: float
    floor_cycles: float

    def log_error(self, costs: CostModel) -> float:
        """|log(modelled / compiled)|, both at least what the bus takes."""
        pricer = Pricer(self.program, self.program.body, self.fused, costs)
        modelled = sum(pricer.price(kernel).cycles for kernel in self.fused.kernels)
        return abs(
            math.log(max(modelled, self.floor_cycles, 1.0) / max(self.cycles, self.floor_cycles))
        )


def extent(random: Random, least: int, most: int) -> int:
    """Log-uniform; in part a power of two, in part a multiple of 128 or 8, in part anything."""
    size = 2 ** random.uniform(math.log2(least), math.log2(most))
    choice = random.random()
    if choice < 0.4:
        return max(1, int(2 ** round(math.log2(size))))
    if choice < 0.75:
        return max(1, round(size / 128) * 128 or round(size / 8) * 8)
    return int(size)


def matrix_products(random: Random) -> Iterator[Case]:
    while True:
        dtype = random.choice(DTYPES)
        m, k, n = (extent(random, least, _LONGEST_AXIS) for least in (8, 16, 8))
        if (
            not _PRODUCT_MIN < m * k * n < _PRODUCT_MAX
            or m * k + k * n + m * n >= _OPERANDS_MAX
            or min(m, k, n) < 2
        ):
            continue

        def text(shapes: tuple[tuple[int, int], ...] = ((m, k), (k, n)), dtype: str = dtype) -> str:
            return client.lower_for_tpu(lambda left, right: left @ right, *_arrays(shapes, dtype))

        yield Case(f"{dtype} {m} x {k} x {n}", "matrix", text)


def elementwise_programs(random: Random) -> Iterator[Case]:
    while True:
        dtype, what, operands = (
            random.choice(DTYPES),
            random.choice(_ELEMENTWISE),
            random.choice((1, 2, 2, 3, 4)),
        )
        axes = random.choice((1, 2, 2, 3, 4))
        shape = tuple(
            extent(random, 4 if axes < 3 else 1, 20_000 if axes < 3 else 512) for _ in range(axes)
        )
        if not _ARRAY_MIN < math.prod(shape) < _ARRAY_MAX:
            continue

        def text(
            what: str = what,
            operands: int = operands,
            shape: tuple[int, ...] = shape,
            dtype: str = dtype,
        ) -> str:
            shapes = (shape,) * operands + ((shape[-1:],) if what == "broadcast" else ())
            return client.lower_for_tpu(
                lambda *values: _elementwise(what, values), *_arrays(shapes, dtype)
            )

        yield Case(f"{what} {operands} {dtype} {'x'.join(map(str, shape))}", "elementwise", text)


def _elementwise(what: str, values: tuple[Any, ...]) -> Any:
    import jax.numpy as jnp

    first = values[0]
    result = first
    for value in values[1 : len(values) - (what == "broadcast")]:
        result = result * value + first
    made: dict[str, Callable[[], Any]] = {
        "plain": lambda: result + 1 if len(values) == 1 else result,
        "exp": lambda: jnp.exp(result),
        "sum_last": lambda: result.sum(-1),
        "sum_first": lambda: result.sum(0),
        "sum_all": lambda: result.sum(),
        "max_last": lambda: result.max(-1),
        "two_results": lambda: (result + 1, result * 3),
        "convert": lambda: result.astype(
            jnp.float32 if result.dtype == jnp.bfloat16 else jnp.bfloat16
        ),
        "broadcast": lambda: result + values[-1],
    }
    return made[what]()


def _arrays(shapes: tuple[tuple[int, ...], ...], dtype: str) -> list[Any]:
    import jax

    return [jax.ShapeDtypeStruct(shape, np.dtype(jax.numpy.dtype(dtype))) for shape in shapes]


def chosen(programs: int, seed: int) -> list[Case]:
    """As many matrix products as element-wise programs, without repetition."""
    streams = Streams(seed)
    cases: dict[str, Case] = {}
    for kind, source in (("matrix", matrix_products), ("elementwise", elementwise_programs)):
        endless = source(streams.stream(kind))
        goal = len(cases) + programs
        while len(cases) < goal:
            case = next(endless)
            cases.setdefault(case.name, case)
    return list(cases.values())


def compiled(cases: list[Case], generation: str, cache: Path) -> list[Measured]:
    """Every case with the compiler's cycles; those that `cache` does not have are compiled and
    added to it.

    Raises PodyardError FAILED_PRECONDITION where one is missing and the compiler is not installed.
    """
    known: dict[tuple[str, str], float] = {}
    if cache.exists():
        for line in cache.read_text(encoding="utf-8").splitlines():
            row = json.loads(line)
            known[row["generation"], row["case"]] = row["cycles"]
    slice_type = all_types(generation)[0]
    costs, measured = cost_model(generation), list[Measured]()
    for case in cases:
        text = case.text()
        if (generation, case.name) not in known:
            verdict = client.compile_exact(text, slice_type)
            known[generation, case.name] = float(verdict.cycles)
            with cache.open("a", encoding="utf-8") as lines:
                lines.write(
                    json.dumps(
                        {"generation": generation, "case": case.name, "cycles": verdict.cycles}
                    )
                    + "\n"
                )
        cycles = known[generation, case.name]
        if cycles:
            program = parse_stablehlo(text)
            fused = fuse(program, program.body, costs)
            measured.append(Measured(case, program, fused, cycles, _floor_cycles(program, costs)))
    return measured


def _floor_cycles(program: Program, costs: CostModel) -> float:
    """From v4 on the compiler's cycles leave out what is fetched ahead; on v2 and v3 they are all
    there is."""
    if not costs.prefetch_bytes:
        return 0.0
    values = (*program.body.parameters, *program.body.results)
    return (
        sum(program.types[value].nbytes for value in values)
        * costs.clock_hz
        / costs.hbm_bytes_per_second
    )


def start(stored: CostModel) -> CostModel:
    """The data sheet's numbers, and guesses that are the same for every generation."""
    values: dict[str, float] = {
        **_NEUTRAL,
        "bytes_per_cycle": stored.hbm_bytes_per_second / stored.clock_hz,
        "weight_load_rows": stored.mxu_edge / 2,
        **(_PREFETCHED if stored.prefetch_bytes else {}),
    }
    return dataclasses.replace(stored, **values)  # type: ignore[arg-type]


def fitted_names(stored: CostModel) -> tuple[str, ...]:
    """The constants that the search may change."""
    names = (*_NEUTRAL, "bytes_per_cycle", "weight_load_rows")
    return (*names, *_PREFETCHED) if stored.prefetch_bytes else names


def loss(measured: list[Measured], costs: CostModel) -> float:
    errors = [one.log_error(costs) for one in measured]
    return statistics.median(errors) + 0.5 * statistics.mean(errors)


def search(
    measured: list[Measured], first: CostModel, seconds: float, random: Random
) -> tuple[CostModel, int]:
    """(the best constants found, how many were tried): steps from the best so far, in one to three
    constants."""
    names = fitted_names(first)
    best, best_loss, tried = first, loss(measured, first), 1
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        width = random.choice((_WIDE, _NARROW))
        changed: dict[str, float] = {}
        for name in random.sample(names, random.choice((1, 1, 2, 3))):
            value = getattr(best, name) * math.exp(random.gauss(0.0, width))
            changed[name] = min(value, _MOST.get(name, math.inf))
        candidate = dataclasses.replace(best, **changed)  # type: ignore[arg-type]
        matrix_price.cache_clear()  # no constants are tried twice
        found = loss(measured, candidate)
        tried += 1
        if found < best_loss:
            best, best_loss = candidate, found
    return best, tried


def fit_kernels(generation: str, programs: int, seconds: float, seed: int, cache: Path) -> None:
    cases = chosen(programs, seed)
    began = time.perf_counter()
    measured = compiled(cases, generation, cache)
    print(f"{generation}: {len(measured)} programs ready after {time.perf_counter() - began:.0f} s")
    stored = cost_model(generation)
    fitting = [one for one in measured if not one.case.judges]
    first = start(stored)
    best, tried = search(fitting, first, seconds, Streams(seed).stream("search"))
    print(f"{tried} sets of constants tried on {len(fitting)} programs\n")
    print(f"{'constant':<24}{'start':>14}{'fitted':>14}{'stored':>14}{'fitted/stored':>15}")
    for name in fitted_names(stored):
        values = [getattr(costs, name) for costs in (first, best, stored)]
        print(
            f"{name:<24}"
            + "".join(f"{value:>14.5g}" for value in values)
            + f"{values[1] / values[2]:>15.2f}"
        )
    print(
        f"\n{'|log ratio|':<34}{'programs':>9}{'start':>16}{'fitted':>16}{'stored':>16}   "
        "(median, mean)"
    )
    for kind in ("matrix", "elementwise"):
        for judges in (False, True):
            part = [one for one in measured if one.case.kind == kind and one.case.judges == judges]
            if part:
                columns = "".join(f"{_told(part, costs):>16}" for costs in (first, best, stored))
                print(
                    f"{kind + (', judging' if judges else ', fitting'):<34}{len(part):>9}{columns}"
                )


def _told(measured: list[Measured], costs: CostModel) -> str:
    errors = [one.log_error(costs) for one in measured]
    return f"{statistics.median(errors):.3f}, {statistics.mean(errors):.3f}"


def show_touched(again: bool) -> None:
    """Prints by family and generation how far cycles are off: the median of |log ratio|, and the
    share within 20 %."""
    if again:
        touched_programs.store(list(touched_programs.record()))
    print(
        f"{'family':<18}{'type':<6}{'looked at':>22}{'judging':>22}   (programs, median, "
        "within 20 %)"
    )
    found = touched_programs.errors()
    for family, generation in dict.fromkeys(
        (family, generation) for family, generation, _, _ in found
    ):
        line = f"{family:<18}{generation:<6}"
        for judges in (False, True):
            part = [
                error
                for *key, judging, error in found
                if (*key, judging) == (family, generation, judges)
            ]
            near = sum(error <= math.log(1.2) for error in part)
            line += (
                f"{len(part):>6}, {statistics.median(part):.3f}, {near / len(part):>5.0%}"
                if part
                else f"{'-':>22}"
            )
        print(line)


def fit_runs() -> None:
    """Prints RUN_SHARE as fitted on all v3 runs and on parts of them, next to the stored one,
    without a host
    and with one that is fitted, too; and what either means for the runs on v2 and v4, which nothing
    is fitted on."""
    from tests.unit.engine.test_published_runs import RUNS

    parts = {run: _parts(run) for run in RUNS}
    runs = [run for run in RUNS if run.generation == "v3"]
    others = np.array([parts[run] for run in RUNS if run.generation != "v3"])
    print(
        f"{'fitted on':<28}{'runs':>5}{'RUN_SHARE':>12}"
        f"{'host ms':>13}{'rms of those':>14}{'mean of v2, v4':>16}"
    )

    def line(title: str, some: list[Any], constants: tuple[float, float] | None = None) -> None:
        chosen_parts = np.array([parts[run] for run in some])
        share, dispatch = constants or least_squares(chosen_parts, 0.0)
        rms = float(np.sqrt(np.mean(_log_ratio(chosen_parts, share, dispatch) ** 2)))
        mean = float(np.mean(np.abs(np.exp(_log_ratio(others, share, dispatch)) - 1)))
        print(
            f"{title:<28}{len(some):>5}{share:>12.4f}"
            f"{dispatch * 1e3:>13.3f}{rms:>14.3f}{mean:>16.3f}"
        )

    line("all runs on v3", runs)
    for round_name in sorted({run.name.partition(":")[0] for run in runs}):
        line(f"without {round_name}", [run for run in runs if not run.name.startswith(round_name)])
    for slice_name in dict.fromkeys(run.slice for run in runs):
        line(f"without {slice_name}", [run for run in runs if run.slice != slice_name])
    for title, some in (
        ("all, with a host", runs),
        ("2018 and 2019, with a host", [r for r in runs if "v0.7" not in r.name]),
    ):
        line(title, some, least_squares(np.array([parts[run] for run in some])))
    line("(stored)", runs, (analysis.RUN_SHARE, 0.0))


def _parts(run: Any) -> tuple[float, float, float]:
    """Seconds of kernels as the compiler has them, of what no constant scales, and as published."""
    from tests.unit.engine.test_published_runs import estimate

    modelled = estimate(run.slice, run.global_batch)
    scaled = [
        op.cycles for op in modelled.ops if op.kind != "collective" and op.bound != "unpriced"
    ]
    kernels = sum(scaled) / modelled.clock_hz
    rest = modelled.compute_seconds - kernels + modelled.collective_seconds
    return kernels / analysis.RUN_SHARE, rest, run.milliseconds / 1e3


def _log_ratio(parts: NDArray[np.float64], share: float, dispatch: float) -> NDArray[np.float64]:
    modelled: NDArray[np.float64] = share * parts[:, 0] + parts[:, 1] + dispatch
    return np.log(modelled / parts[:, 2])


def least_squares(
    parts: NDArray[np.float64], dispatch_seconds: float | None = None, rounds: int = 30
) -> tuple[float, float]:
    """(share, dispatch seconds) with the least sum of log(modelled / published)^2, by Gauss and
    Newton. Dispatch is fitted, too, unless it is given."""
    constants = np.array([1.0, dispatch_seconds or 0.0])
    free = 2 if dispatch_seconds is None else 1
    for _ in range(rounds):
        modelled = constants[0] * parts[:, 0] + parts[:, 1] + constants[1]
        slopes = np.stack([parts[:, 0], np.ones(len(parts))], axis=1)[:, :free] / modelled[:, None]
        step, *_ = np.linalg.lstsq(slopes, np.log(parts[:, 2] / modelled), rcond=None)
        constants[:free] += step
    return float(constants[0]), float(constants[1])


def main() -> None:
    parser = argparse.ArgumentParser()
    commands = parser.add_subparsers(dest="command", required=True)
    kernels = commands.add_parser("kernels")
    kernels.add_argument(
        "--generation", default="v3", choices=("v2", "v3", "v4", "v5e", "v5p", "v6e")
    )
    kernels.add_argument("--programs", type=int, default=60, help="of each kind")
    kernels.add_argument("--seconds", type=float, default=60.0, help="for the search")
    kernels.add_argument("--seed", type=int, default=1)
    kernels.add_argument(
        "--cache", type=Path, required=True, help="what the compiler said, a line per program"
    )
    commands.add_parser("runs")
    touched = commands.add_parser("touched")
    touched.add_argument("--record", action="store_true", help="compile all of them again")
    given = parser.parse_args()
    if given.command == "runs":
        fit_runs()
        return
    try:
        if given.command == "touched":
            show_touched(given.record)
            return
        fit_kernels(given.generation, given.programs, given.seconds, given.seed, given.cache)
    except PodyardError as error:
        raise SystemExit(str(error)) from error


if __name__ == "__main__":
    main()
