"""Judges the model against the TPU compiler on programs of today: `python -m
benchmarks.programs_of_today`.

`--only PART` and `--generation NAME` choose programs; `--each` prints every program. A third of the
programs is kept out of every fit and printed apart. The record: `python -m
benchmarks.corpus.record`.
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import itertools
import statistics
from collections import Counter
from collections.abc import Callable, Iterable, Sequence

from benchmarks.corpus.data import GENERATIONS, Recorded, load_rows, load_texts
from podyard.base.errors import PodyardError
from podyard.engine.program.from_stablehlo import parse_stablehlo
from podyard.engine.program.ir import Program
from podyard.engine.timing.analysis import estimate_program
from podyard.engine.timing.estimate import Estimate
from podyard.hardware.accelerator_types import parse

NEAR, FAR, PEAK_NEAR = 0.2, 2.0, 0.15
# Nearer to the limit of memory than this, nobody is asked to be right.
UNDECIDED = 0.05
WORST = 12

Sent = Counter[tuple[str, int]]


@dataclasses.dataclass(frozen=True)
class Case:
    """A recorded program, and the model's estimate of it; None where the model refuses, with its
    words."""

    row: Recorded
    estimate: Estimate | None
    refusal: str = ""

    @property
    def ratio(self) -> float | None:
        """Modelled cycles over the compiler's; None where either has none."""
        if self.estimate is None or not self.row.fits or not self.row.cycles:
            return None
        return self.estimate.cycles / self.row.cycles

    @property
    def error(self) -> float | None:
        """Return how far the device time is off, as a factor above one less one: half and double
        are alike."""
        ratio = self.ratio
        return None if ratio is None else max(ratio, 1 / ratio) - 1 if ratio else float("inf")

    @property
    def is_flagged(self) -> bool:
        return self.estimate is None or bool(self.estimate.doubts)

    @property
    def is_argument_exact(self) -> bool:
        return self.estimate is not None and self.estimate.argument_bytes == self.row.argument_bytes

    @property
    def is_peak_near(self) -> bool:
        """Of `peak_memory_in_bytes`, in which the compiler counts the chip's own memory, too, from
        v4 on."""
        return (
            self.estimate is not None
            and abs(self.estimate.peak_hbm_bytes / self.row.peak_bytes - 1) <= PEAK_NEAR
        )

    @property
    def is_hbm_near(self) -> bool:
        """Of the device's memory alone."""
        if self.estimate is None:
            return False
        in_use = self.estimate.peak_hbm_bytes - self.estimate.on_chip_bytes
        return abs(in_use / self.row.hbm_peak_bytes - 1) <= PEAK_NEAR

    @property
    def compiled_collectives(self) -> Sent:
        sent = Sent()
        for kind, count, size, _ in self.row.collectives:
            sent[kind, size] += count
        return sent

    @property
    def modelled_collectives(self) -> Sent:
        """(kind, group size, 0 of a permutation) with counts."""
        sent = Sent()
        for one in () if self.estimate is None else self.estimate.collective_ops:
            sent[one.kind, 0 if one.kind == "collective-permute" else one.group_size] += one.count
        return sent

    @property
    def is_decided(self) -> bool:
        """Return whether the compiler's need is far enough from what a device has."""
        return (
            self.estimate is None
            or abs(self.row.needed_bytes / self.estimate.usable_hbm_bytes - 1) > UNDECIDED
        )

    @property
    def is_verdict_equal(self) -> bool:
        return self.estimate is not None and self.estimate.fits == self.row.fits


_texts = functools.cache(load_texts)


@functools.lru_cache(maxsize=8)
def _program(text: str) -> Program:
    return parse_stablehlo(text)


def cases(
    generation: str, only: Sequence[str] = ("",), limits: bool = False, singles: bool = False
) -> list[Case]:
    """The recorded programs of a generation, or with `limits` those around the limit of memory,
    with `singles` single convolutions."""
    texts, made = _texts(), []
    for row in load_rows().values():
        if (row.is_limit, row.is_single) != (limits, singles) or row.generation != generation:
            continue
        if any(part in row.program for part in only) and row.text_hash in texts:
            try:
                kind = parse(row.accelerator_type)
                made.append(Case(row, estimate_program(_program(texts[row.text_hash]), kind)))
            except PodyardError as error:
                made.append(Case(row, None, error.message))
    return made


@dataclasses.dataclass(frozen=True)
class Figures:
    """Shares of the cases to which each question applies; None where it applies to none."""

    count: int
    median: float | None
    near: float | None
    far_unflagged: int
    arguments: float | None
    peaks: float | None
    hbm: float | None
    collectives: float | None
    verdicts: float | None
    sharded: int

    def text(self) -> str:
        def share(value: float | None) -> str:
            return "-" if value is None else f"{value:.0%}"

        return (
            f"{self.count:4d} {share(self.median):>7} {share(self.near):>9} "
            f"{self.far_unflagged:12d} "
            f"{share(self.arguments):>10} {share(self.peaks):>7} {share(self.hbm):>7} "
            f"{share(self.collectives):>8} of "
            f"{self.sharded:<3d} {share(self.verdicts):>8}"
        )


HEAD = (
    f"{'':16} {'n':>4} {'median':>7} {'in 20 %':>9} {'>2x unsaid':>12} {'arguments':>10} "
    f"{'peak':>7} {'HBM':>7} "
    f"{'collectives':>15} {'verdict':>8}"
)


def figures(chosen: Iterable[Case]) -> Figures:
    every = list(chosen)
    fit = [case for case in every if case.row.fits]
    errors = [case.error for case in fit if case.error is not None]
    sharded = [case for case in fit if case.row.devices > 1]

    def share(of: list[Case], holds: Callable[[Case], bool]) -> float | None:
        return sum(map(holds, of)) / len(of) if of else None

    return Figures(
        count=len(every),
        median=statistics.median(errors) if errors else None,
        near=sum(error <= NEAR for error in errors) / len(errors) if errors else None,
        far_unflagged=sum(1 for case in fit if (case.error or 0) > FAR - 1 and not case.is_flagged),
        arguments=share(fit, lambda case: case.is_argument_exact),
        peaks=share(fit, lambda case: case.is_peak_near),
        hbm=share(fit, lambda case: case.is_hbm_near),
        collectives=share(
            sharded, lambda case: case.modelled_collectives == case.compiled_collectives
        ),
        verdicts=share(
            [case for case in every if case.is_decided], lambda case: case.is_verdict_equal
        ),
        sharded=len(sharded),
    )


def case_line(case: Case) -> str:
    ratio, row = case.ratio, case.row
    if case.estimate is None:
        return f"  {row.program:42} {row.accelerator_type:12} refused: {case.refusal[:100]}"
    peak = case.estimate.peak_hbm_bytes / row.needed_bytes if row.needed_bytes else 0.0
    said = " flagged" if case.is_flagged else ""
    sent = "" if case.modelled_collectives == case.compiled_collectives else " collectives differ"
    arguments = "" if case.is_argument_exact or not row.fits else " arguments differ"
    time = "does not fit" if ratio is None else f"time x{ratio:.2f}"
    return (
        f"  {row.program:42} {row.accelerator_type:12} {time:>12} peak "
        f"x{peak:.2f}{arguments}{sent}{said}"
    )


def _kernels(case: Case) -> str:
    """The longest kernels, the compiler's next to the model's: cycles of all runs, runs, name."""
    left = [
        f"{cycles * count:>12} {count:>6} {name}"
        for name, cycles, count in case.row.kernels[:WORST]
    ]
    ops = case.estimate.ops if case.estimate is not None else ()
    longest = sorted((op for op in ops if op.kind != "collective"), key=lambda op: -op.cycles)[
        :WORST
    ]
    right = [
        f"{op.cycles:>12.0f} {op.count:>6} {op.name} {op.bound} {op.where[-50:]}" for op in longest
    ]
    pairs = itertools.zip_longest(left, right, fillvalue="")
    return "\n".join(f"    {compiled:52}{modelled}" for compiled, modelled in pairs)


def verdict_line(generation: str, around: list[Case]) -> str:
    decided = [case for case in around if case.is_decided]
    equal = sum(case.is_verdict_equal for case in decided)
    return (
        f"{generation}: {len(around)} sharded programs around the limit, {equal} of "
        f"{len(decided)} verdicts equal"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--only", nargs="*", default=[""], help="parts of the names of programs to judge"
    )
    parser.add_argument(
        "--generation", nargs="*", default=list(GENERATIONS), help="generations to judge"
    )
    parser.add_argument(
        "--each", action="store_true", help="print every program, not the worst only"
    )
    parser.add_argument(
        "--kernels", action="store_true", help="print the longest kernels of each, as run"
    )
    parser.add_argument("--singles", action="store_true", help="judge single convolutions instead")
    given = parser.parse_args()
    for generation in given.generation:
        found = cases(generation, given.only, singles=given.singles)
        print(HEAD)
        for part, kept_out in (("fitted", False), ("kept out", True)):
            print(
                f"{generation + ' ' + part:16} "
                f"{figures(c for c in found if c.row.is_kept_out == kept_out).text()}"
            )
        found.sort(
            key=lambda case: (
                -(case.error if case.error is not None else 1e9 if case.estimate is None else 0)
            )
        )
        for case in found if given.each else found[:WORST]:
            print(case_line(case))
            if given.kernels:
                print(_kernels(case))
        around = [] if given.singles else cases(generation, given.only, limits=True)
        for case in around:
            if given.each or not case.is_verdict_equal:
                print(case_line(case))
        if around:
            print(verdict_line(generation, around))


if __name__ == "__main__":
    main()
