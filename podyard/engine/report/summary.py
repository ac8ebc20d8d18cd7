"""An estimate with what belongs to it: program, data set, prices. All reports show the figures that
are made here."""

from __future__ import annotations

import dataclasses
import decimal
import functools
from collections.abc import Mapping
from fractions import Fraction
from typing import get_args

from podyard.engine.timing.energy import power_note
from podyard.engine.timing.estimate import Estimate, OpEstimate
from podyard.engine.timing.kernels import Bound
from podyard.hardware.accelerator_types import parse

# Next to each time of the real compiler.
EXACT_SENTENCE = "the compiler's own sum, not silicon"
GIB = 2**30
BOUNDS: tuple[Bound, ...] = get_args(Bound)
COST_DIGITS = 6
# In the headline; the figures and JSON have more of them.
REASONS_SHOWN = 3
_PICOS_PER_SECOND = 10**12
_PICOSECONDS_PER_HOUR = 3600 * _PICOS_PER_SECOND
_NANOS_PER_UNIT = 10**9
_TIME_UNITS = ((1.0, "s"), (1e-3, "ms"), (1e-6, "us"), (1e-9, "ns"))
_COUNT_UNITS = ((1e18, "E"), (1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))


@dataclasses.dataclass(frozen=True, slots=True)
class HourlyPrice:
    """The price of the whole slice for an hour when bought as `usage`, in nanos (1e-9) of
    `currency`; None where there is no price, and `note` says why. With a price, `note` is its
    source."""

    usage: str
    nanos_per_hour: int | None
    note: str
    currency: str = "USD"
    effective_from: str = ""
    verified: bool = True

    def of_seconds(self, seconds: float) -> Fraction | None:
        """The exact price of `seconds`, taken to the picosecond, in units of the currency."""
        if self.nanos_per_hour is None:
            return None
        picoseconds = round(seconds * _PICOS_PER_SECOND)
        return Fraction(self.nanos_per_hour * picoseconds, _NANOS_PER_UNIT * _PICOSECONDS_PER_HOUR)


@dataclasses.dataclass(frozen=True)
class Report:
    """`program`: a recipe or a file. `example_count`: examples of the data set, None where the
    program has none."""

    program: str
    estimate: Estimate
    example_count: int | None = None
    zone: str = ""
    prices: tuple[HourlyPrice, ...] = ()

    @property
    def device(self) -> str:
        return parse(self.estimate.accelerator_type).generation.device_word

    @property
    def steps_per_epoch(self) -> int | None:
        """Whole batches in the data set, as training takes them: what does not fill a batch is left
        out."""
        batch = self.estimate.global_batch
        if self.example_count is None or batch is None or batch > self.example_count:
            return None
        return self.example_count // batch

    @property
    def epoch_seconds(self) -> float | None:
        steps = self.steps_per_epoch
        return None if steps is None else steps * self.estimate.modelled_seconds

    @property
    def slice_joules(self) -> float | None:
        """Of a step on the whole slice."""
        joules = self.estimate.energy_joules
        return None if joules is None else joules * self.estimate.devices

    @property
    def energy_note(self) -> str:
        generation = parse(self.estimate.accelerator_type).generation
        return power_note(generation.name)

    def seconds_of(self, op: OpEstimate) -> float:
        return op.cycles / self.estimate.clock_hz

    def share_of(self, op: OpEstimate) -> float:
        """Of all operations' cycles, 0 to 1."""
        return op.cycles / self._cycles if self._cycles else 0.0

    @functools.cached_property
    def _cycles(self) -> float:
        return sum(op.cycles for op in self.estimate.ops)

    @functools.cached_property
    def by_cycles(self) -> tuple[OpEstimate, ...]:
        """Operations, the longest first; of equal ones, the one that runs first."""
        return tuple(sorted(self.estimate.ops, key=lambda op: -op.cycles))

    @functools.cached_property
    def bound_seconds(self) -> Mapping[Bound, float]:
        """Return what the step waits for. An operation counts for what bounds it; collectives are
        `ici`; what the host takes longer and the fixed cost of kernels are `overhead`; computing
        time that no operation explains is `unpriced`."""
        estimate = self.estimate
        found: dict[Bound, float] = dict.fromkeys(BOUNDS, 0.0)
        for op in estimate.ops:
            if op.bound != "ici":
                found[op.bound] += self.seconds_of(op)
        found["mxu"] += estimate.unsustained_seconds
        unexplained = estimate.compute_seconds - sum(found.values())
        found["unpriced"] += max(0.0, unexplained)
        found["ici"] += estimate.collective_seconds
        found["overhead"] += estimate.overhead_seconds
        return found

    @property
    def bound_share(self) -> float:
        """The share of the step's time that its bound takes, 0 to 1."""
        estimate = self.estimate
        if not estimate.modelled_seconds:
            return 0.0
        return min(1.0, self.bound_seconds[estimate.bound] / estimate.modelled_seconds)

    @property
    def verdict(self) -> str:
        """`fits (3.1 of 15.5 GiB)`. A compiler may refuse what a count of the arrays would let
        pass."""
        estimate = self.estimate
        if not estimate.fits and estimate.needed_hbm_bytes <= estimate.usable_hbm_bytes:
            return "does not fit, says the compiler"
        said = "fits" if estimate.fits else "does not fit"
        if estimate.is_memory_lower_bound:
            return f"{said} (lower bound: at least {memory_pair(estimate)})"
        return f"{said} ({memory_pair(estimate)})"

    @property
    def step_text(self) -> str:
        """`61.3 ms`; `at least 61.3 ms` where it is a lower bound."""
        return bound_text(self.estimate, self.estimate.modelled_seconds)

    @property
    def _with_host(self) -> str:
        """` (device 1.4 us, host 40 us)` where the step waits for the host."""
        device, host = self.estimate.device_seconds, self.estimate.overhead_seconds
        return (
            f" (devices {time_text(device)}, then the host {time_text(host)})"
            if host and device
            else ""
        )

    @property
    def headline(self) -> str:
        """Return what a step takes, what most of it waits for, whether it fits, and what is not
        modelled. Operations without a bound give no share."""
        estimate, share = self.estimate, self.bound_share
        waits = (
            f"{percent(share)} of it {estimate.bound}" if share else f"bound by {estimate.bound}"
        )
        if estimate.fitted_share:
            waits += f", {percent(estimate.fitted_share)} from fits"
        if not estimate.doubts:
            return (
                f"{estimate.accelerator_type}: {self.step_text} per step{self._with_host}, "
                f"{waits}; {self.verdict}"
            )
        return (
            f"{estimate.accelerator_type}: lower bound: {self.step_text} per "
            f"step{self._with_host}, {waits}; "
            f"{self.verdict}; "
            f"because: {reasons_text(estimate)}"
        )

    def cost_of_step(self, price: HourlyPrice) -> Fraction | None:
        return price.of_seconds(self.estimate.modelled_seconds)

    def cost_of_epoch(self, price: HourlyPrice) -> Fraction | None:
        step, steps = self.cost_of_step(price), self.steps_per_epoch
        return None if step is None or steps is None else step * steps


def bound_text(estimate: Estimate, seconds: float) -> str:
    """A time that follows from the estimate, marked where it is a lower bound."""
    return f"at least {time_text(seconds)}" if estimate.doubts else time_text(seconds)


def host_text(estimate: Estimate) -> str:
    """Return what the host does for a step, and when."""
    when = "after every step (host loop)" if estimate.host_loop else "while the devices are busy"
    return (
        f"dispatch {time_text(estimate.dispatch_seconds)}, infeed "
        f"{time_text(estimate.feed_seconds)}, {when}"
    )


def reasons_text(estimate: Estimate) -> str:
    """The first reasons, and how many more there are."""
    shown, more = estimate.reasons[:REASONS_SHOWN], len(estimate.reasons) - REASONS_SHOWN
    return "; ".join(shown) + (f"; and {more} more" if more > 0 else "")


def memory_pair(estimate: Estimate) -> str:
    """`3.1 of 15.5 GiB`, in the unit of what is usable; what would round to 0.0 has a separate
    unit."""
    peak, usable = estimate.needed_hbm_bytes, estimate.usable_hbm_bytes
    short = f"{peak / GIB:.1f}" if peak >= GIB / 10 else bytes_text(peak)
    return f"{short} of {usable / GIB:.1f} GiB"


def cost_text(cost: Fraction, digits: int = COST_DIGITS) -> str:
    """Decimal text of an exact amount with `digits` significant digits, halves rounded up, never an
    exponent."""
    context = decimal.Context(prec=digits, rounding=decimal.ROUND_HALF_UP)
    return f"{context.divide(decimal.Decimal(cost.numerator), decimal.Decimal(cost.denominator)):f}"


def hourly_text(nanos_per_hour: int) -> str:
    """Decimal text of nanos, exact, with at least two decimals."""
    whole, nanos = divmod(nanos_per_hour, _NANOS_PER_UNIT)
    return f"{whole}.{f'{nanos:09d}'.rstrip('0').ljust(2, '0')}"


def time_text(seconds: float) -> str:
    """`11.2 ms`; hours and days where there are so many."""
    for length, unit in ((86400.0, "d"), (3600.0, "h"), (60.0, "min")):
        if seconds >= 2 * length:
            return f"{_three(seconds / length)} {unit}"
    if not seconds:
        return "0 s"
    for length, unit in _TIME_UNITS:
        if seconds >= length * 0.9995:
            return f"{_three(seconds / length)} {unit}"
    return f"{seconds / 1e-9:.2g} ns"


def bytes_text(count: float) -> str:
    """Binary units, as `3.12 GiB`."""
    for power, unit in ((4, "TiB"), (3, "GiB"), (2, "MiB"), (1, "KiB")):
        if count >= 1024**power:
            return f"{_three(count / 1024**power)} {unit}"
    return f"{count:.0f} B"


def count_text(count: float) -> str:
    """`1.23 T`: decimal units."""
    for size, unit in _COUNT_UNITS:
        if count >= size:
            return f"{_three(count / size)} {unit}"
    return f"{count:.0f}"


def percent(share: float) -> str:
    """`46 %`; below ten with two digits."""
    value = 100 * share
    if value >= 9.95 or not value:
        return f"{value:.0f} %"
    return f"{value:.1f} %" if value >= 0.095 else f"{value:.1g} %"


def _three(value: float) -> str:
    """Three significant digits, no exponent."""
    return (
        f"{value:.0f}" if value >= 99.95 else f"{value:.1f}" if value >= 9.995 else f"{value:.2f}"
    )
