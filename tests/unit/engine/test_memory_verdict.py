"""Whether a program fits: the model's verdict against the real compiler's, on programs around the
limit of memory.

The record says what the compiler said (`python -m benchmarks.record_memory_verdicts`); its own
total is the measure of how far a program is from the limit. Both parts of the record and all misses
are printed (-s).
"""

from __future__ import annotations

import dataclasses
import functools
import gzip
import hashlib
import json
import statistics
from pathlib import Path

import pytest

from podyard.engine.exact import client
from podyard.engine.program.from_stablehlo import parse_stablehlo
from podyard.engine.timing.analysis import estimate_program
from podyard.engine.timing.estimate import Estimate
from podyard.engine.timing.memory import named_total_bytes
from podyard.engine.timing.schedule import MadeAgain, MemorySchedule, Step
from podyard.hardware.accelerator_types import parse

_FILE = Path(__file__).parents[2] / "data" / "memory_verdicts.jsonl.gz"
_GIB = 2**30
# Nearer to the limit than this nobody is asked to be right.
_UNDECIDED = 0.03
# What the model gets wrong, exactly: a miss more and a miss less both want to be looked at.
_KNOWN_MISSES = {
    # It computes a product inside of the product that reads it, so that it never is in memory; not
    # at all sizes.
    ("dropout", 3501104, "v3-8"),
    # Short of memory, the compiler gets lower than the model: not explained.
    ("digits-cnn", 251288, "v3-8"),
    # The logits are written once more for the gather of the right ones, which the model computes
    # inside of it.
    ("lm-2-layers", 352, "v5litepod-1"),
}


# One worker of the test run does all of it: the others would work out the same verdicts.
pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("memory verdicts")]


@dataclasses.dataclass(frozen=True)
class Verdict:
    """One program as the compiler judged it; `total_bytes` is what it says that the program
    needs."""

    family: str
    size: int
    type: str
    fits: bool
    total_bytes: int
    out_of_memory_text: str
    stablehlo: str

    @property
    def is_judged(self) -> bool:
        """Never looked at while the model was made: the SHA-256 of its name modulo 10 is below
        3."""
        return (
            int(hashlib.sha256(f"{self.family}{self.size}{self.type}".encode()).hexdigest(), 16)
            % 10
            < 3
        )

    @property
    def share(self) -> float:
        """The compiler's total as a share of what a device has."""
        return self.total_bytes / self.estimate().usable_hbm_bytes

    @property
    def is_decided(self) -> bool:
        return abs(self.share - 1) > _UNDECIDED

    @property
    def is_missed(self) -> bool:
        return self.estimate().fits != self.fits

    def estimate(self) -> Estimate:
        return _estimate(self.stablehlo, self.type)

    def __str__(self) -> str:
        verdict = "fits" if self.fits else "does not fit"
        ours, theirs = self.estimate().needed_hbm_bytes / _GIB, self.total_bytes / _GIB
        return (
            f"{'judged' if self.is_judged else 'seen  '} {self.family:24} {self.size:>9} "
            f"{self.type:12} {verdict:12} "
            f"compiler {theirs:6.2f}G ({self.share:5.0%} of the memory)  model {ours:6.2f}G "
            f"({ours / theirs - 1:+.0%})"
        )


@functools.cache
def _estimate(text: str, accelerator_type: str) -> Estimate:
    return estimate_program(parse_stablehlo(text), parse(accelerator_type))


@functools.cache
def recorded() -> tuple[Verdict, ...]:
    """The whole record."""
    with gzip.open(_FILE, "rt", encoding="utf-8") as lines:
        rows = [json.loads(line) for line in lines]
    names = [field.name for field in dataclasses.fields(Verdict)]
    return tuple(Verdict(**{name: row[name] for name in names}) for row in rows)


def test_the_record_holds_enough_programs_on_both_sides_of_the_limit_on_every_generation() -> None:
    decided = [one for one in recorded() if one.is_decided]
    assert len(decided) >= 40
    assert {one.type for one in decided} == {"v2-8", "v3-8", "v4-8", "v5litepod-1", "v6e-1"}
    for kind in {one.type for one in decided}:
        assert {one.fits for one in decided if one.type == kind} == {True, False}
    near = [one for one in decided if abs(one.share - 1) < 0.3]
    assert len(near) >= 40


def test_the_verdict_is_the_compilers_outside_three_per_cent_of_the_limit_but_for_misses() -> None:
    decided = [one for one in recorded() if one.is_decided]
    for name, part in (("seen", False), ("judged", True)):
        own = [one for one in decided if one.is_judged == part]
        wrong = sum(one.is_missed for one in own)
        errors = [abs(one.estimate().needed_hbm_bytes / one.total_bytes - 1) for one in own]
        near = sum(error <= _UNDECIDED for error in errors) / len(errors)
        print(
            f"{name}: {len(own)} programs, {wrong} wrong verdicts, {near:.0%} of the totals "
            "within 3 per cent"
        )
        assert statistics.median(errors) <= _UNDECIDED
    missed = [one for one in decided if one.is_missed]
    print(*missed, sep="\n")
    assert {(one.family, one.size, one.type) for one in missed} == _KNOWN_MISSES
    assert len(decided) - len(missed) >= 40


def test_what_does_not_fit_is_said_with_its_bytes() -> None:
    for one in recorded():
        estimate = one.estimate()
        assert bool(estimate.memory_text) != estimate.fits
        assert estimate.fits == (estimate.needed_hbm_bytes <= estimate.usable_hbm_bytes)
        if not one.fits:
            assert named_total_bytes(one.out_of_memory_text) == one.total_bytes


def _step(reads: tuple[int, ...], makes: tuple[int, ...]) -> Step:
    return Step(reads, makes, 0, True)


def test_what_nothing_has_read_yet_is_moved_to_its_reader_when_memory_is_short() -> None:
    sizes = dict.fromkeys((1, 2, 3), 100 * 2**20)
    steps = [_step((), (1,)), _step((), (2,)), _step((2,), (3,)), _step((1, 3), ())]
    before = MemorySchedule(steps, sizes)
    after = MadeAgain(before, 250 * 2**20).schedule()
    assert (before.peak, after.peak) == (300 * 2**20, 200 * 2**20)
    assert len(after.steps) == len(steps)


@pytest.mark.parametrize(("reads_the_source", "peak_mib"), [(False, 221), (True, 321)])
def test_a_kernel_runs_again_late_only_if_nothing_else_is_to_read_what_it_reads(
    reads_the_source: bool, peak_mib: int
) -> None:
    mib = 2**20
    sizes = {1: 20 * mib, 2: 100 * mib, 3: 1 * mib, 4: 200 * mib, 5: 1 * mib}
    fifth = _step((1, 4) if reads_the_source else (4,), (5,))
    steps = [
        _step((), (1,)),
        _step((1,), (2,)),
        _step((2,), (3,)),
        _step((3,), (4,)),
        fifth,
        _step((2, 5), ()),
    ]
    before = MemorySchedule(steps, sizes)
    after = MadeAgain(before, 250 * mib).schedule()
    again = max(place for place, step in enumerate(after.steps) if step.reads == (1,))
    last = next(place for place, step in enumerate(after.steps) if 5 in step.makes)
    assert before.peak >= 301 * mib
    assert (again < last) == reads_the_source
    assert after.peak == peak_mib * mib


def test_values_below_ten_mebibytes_are_not_made_again() -> None:
    sizes = dict.fromkeys((1, 2, 3), 9 * 2**20)
    before = MemorySchedule(
        [_step((), (1,)), _step((), (2,)), _step((2,), (3,)), _step((1, 3), ())], sizes
    )
    assert MadeAgain(before, 20 * 2**20).schedule().steps == before.steps


def test_a_block_is_larger_than_the_peak_where_the_gaps_are_too_small() -> None:
    steps = [_step((), (2, 4)), _step((), ()), _step((), (3,)), _step((2,), ()), _step((3,), (1,))]
    schedule = MemorySchedule(steps, {1: 2, 2: 1, 3: 1, 4: 2})
    assert (schedule.peak, schedule.packed_bytes()) == (3, 4)
    assert MemorySchedule(steps[:4], schedule.sizes).packed_bytes() == 3


def test_a_result_lies_where_it_is_made_from_only_if_nothing_reads_that_later() -> None:
    over = Step((1,), (9,), 0, False, over=(1,))
    sizes = {1: 5, 2: 1}
    assert MemorySchedule([_step((), (1,)), over], sizes).without_overwritten().peak == 0
    assert (
        MemorySchedule([_step((), (1,)), over, _step((1,), (2,))], sizes).without_overwritten().peak
        == 6
    )


@pytest.mark.parametrize(
    ("text", "nbytes"),
    [
        (
            "the total memory required for HLO temporaries (8.5G) exceeds available HBM (7.48G)",
            int(8.5 * 2**30),
        ),
        ("total memory required for all of it (512M)", 512 * 2**20),
        ("total memory required for HLO temporaries (123)", 123),
        ("Ran out of memory", None),
    ],
)
def test_the_compilers_total_is_read_from_its_text(text: str, nbytes: int | None) -> None:
    assert named_total_bytes(text) == nbytes


@pytest.mark.parametrize(("family", "fits"), [("adam", True), ("whole-numbers", False)])
def test_the_compiler_still_says_what_is_recorded(family: str, fits: bool) -> None:
    if not client.is_installed():
        pytest.skip("libtpu is not installed")
    one = next(one for one in recorded() if one.family == family and one.fits == fits)
    verdict = client.compile_exact(one.stablehlo, one.type)
    total = (
        verdict.argument_bytes
        + verdict.output_bytes
        + verdict.temporary_bytes
        - verdict.alias_bytes
    )
    assert verdict.fits == one.fits
    assert (total if fits else named_total_bytes(verdict.out_of_memory_text)) == one.total_bytes
