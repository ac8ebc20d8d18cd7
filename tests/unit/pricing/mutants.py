"""Meters, raters and bills that are wrong on purpose, and the cases that notice each of them.

A mutant is put in place with pytest's monkeypatch. `python -m tests.unit.pricing.test_mutants`
lists for each one which cases notice it: the names below are kept with its help.
"""

from __future__ import annotations

import dataclasses
import functools
import json
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest

from podyard.base.clock import NANOS_PER_SECOND, PlatformTime
from podyard.base.intervals import Interval
from podyard.domain.usage import UsageEvent
from podyard.pricing import amounts, attribution, bill, budgets, case, invoicing, meter, rating
from podyard.pricing.replay import replay_line
from podyard.pricing.sku import Sku
from tests.unit.pricing import invented

Patch = pytest.MonkeyPatch
FILES = [
    Path(__file__).parents[2] / "data" / "billing" / f"cases_{name}.jsonl"
    for name in ("public", "decided")
]


@dataclasses.dataclass(frozen=True)
class WrongMeter:
    name: str
    rule: str
    caught_by: tuple[str, ...]
    apply: Callable[[Patch], None]


MUTANTS: list[WrongMeter] = []


def mutant(
    rule: str, *caught_by: str
) -> Callable[[Callable[[Patch], None]], Callable[[Patch], None]]:
    def register(apply: Callable[[Patch], None]) -> Callable[[Patch], None]:
        MUTANTS.append(WrongMeter(apply.__name__, rule, caught_by, apply))
        return apply

    return register


@functools.cache
def lines() -> Mapping[str, bytes]:
    """All cases that can notice a mutant, by id: the worked ones, the invented ones, and one
    without a price."""
    worked = [
        json.loads(line) for file in FILES for line in file.read_text(encoding="utf-8").splitlines()
    ]
    card = [invented.price(invented.ON_DEMAND, "4.50", "10 10:30:00")]
    unpriced = invented.case("seconds without a price", invented.hour(), card=card)
    return {
        found["id"]: json.dumps(found).encode() for found in [*worked, *invented.CASES, unpriced]
    }


@functools.cache
def right_answer(case_id: str) -> object:
    """Of the platform as it is; ask before a mutant is in place. Other tests hold it to the worked
    bills."""
    return answer(case_id)


def answer(case_id: str) -> object:
    try:
        return replay_line(lines()[case_id])
    except Exception as error:  # a mutant may break anything
        return repr(error)


def notices(case_id: str) -> bool:
    return answer(case_id) != right_answer(case_id)


def wrap(patch: Patch, place: Any, name: str, around: Callable[..., Any]) -> None:
    """Replaces a function by `around(original, *arguments)`."""
    patch.setattr(place, name, functools.partial(around, getattr(place, name)))


# R1: touched seconds.


@mutant("R1", "B009")
def a_second_that_two_runs_touch_counts_twice(patch: Patch) -> None:
    patch.setattr(meter, "union_of_seconds", lambda ranges: [r for r in ranges if len(r)])


@mutant("R1", "B006", "B008", "B077")
def the_last_second_is_cut_off(patch: Patch) -> None:
    def touched(interval: Interval) -> range:
        return range(
            interval.start.nanos // NANOS_PER_SECOND, interval.end.nanos // NANOS_PER_SECOND
        )

    patch.setattr(Interval, "touched_seconds", touched)


@mutant("R1", "B008", "B078")
def seconds_are_the_length_rounded_up(patch: Patch) -> None:
    def touched(interval: Interval) -> range:
        start = interval.start.nanos // NANOS_PER_SECOND
        return range(start, start - (interval.start.nanos - interval.end.nanos) // NANOS_PER_SECOND)

    patch.setattr(Interval, "touched_seconds", touched)


@mutant("R1", "B007")
def a_run_without_length_bills_a_second(patch: Patch) -> None:
    def touched(interval: Interval) -> range:
        start = interval.start.nanos // NANOS_PER_SECOND
        return range(start, max(start + 1, -(-interval.end.nanos // NANOS_PER_SECOND)))

    patch.setattr(Interval, "touched_seconds", touched)


# R2: what is billable, and the minimum of a VM.


def other_policy(patch: Patch, change: Callable[[Any, str], Any]) -> None:
    def of(original: Any, meters: Any, kind: str, *rest: str) -> Any:
        return change(original(meters, kind, *rest), kind)

    original = case._Meters.of
    patch.setattr(case._Meters, "of", lambda *args: of(original, *args))


@mutant("R2", "B015", "B062")
def repairs_are_billed(patch: Patch) -> None:
    more = {"REPAIRING", "REIMAGING"}
    other_policy(
        patch, lambda p, _: dataclasses.replace(p, billable_states=p.billable_states | more)
    )


@mutant("R2", "B018")
def a_stopped_node_is_billed(patch: Patch) -> None:
    other_policy(
        patch, lambda p, _: dataclasses.replace(p, billable_states=p.billable_states | {"STOPPED"})
    )


@mutant("R2", "B002")
def creation_is_billed(patch: Patch) -> None:
    other_policy(
        patch, lambda p, _: dataclasses.replace(p, billable_states=p.billable_states | {"CREATING"})
    )


@mutant("R2", "B018", "a disk over a change of price, while its node is stopped")
def a_disk_stops_with_its_node(patch: Patch) -> None:
    def events(original: Any, value: Any, resources: Any) -> list[UsageEvent]:
        found: list[UsageEvent] = original(value, resources)
        stops = [
            e for e in found if e.state == "STOPPED" and resources[e.resource_id].kind == "tpu"
        ]
        disks = [r for r in resources if resources[r].kind == "disk"]
        return found + [
            UsageEvent(f"{d}-stop", d, 2, "DELETED", stop.at) for d in disks for stop in stops[:1]
        ]

    wrap(patch, case, "_events", events)


@mutant("R2", "B067")
def the_minimum_is_taken_once_per_vm(patch: Patch) -> None:
    wrap(patch, meter, "_padding", lambda original, *args: original(*args)[:1])


@mutant("R2", "B067")
def a_short_run_is_billed_with_a_minute_on_top(patch: Patch) -> None:
    wrap(
        patch,
        meter,
        "_padding",
        lambda original, *a: [range(r.start, r.start + 60) for r in original(*a)],
    )


@mutant("R2", "D002a")
def runs_that_touch_in_a_second_have_one_minimum(patch: Patch) -> None:
    def merged(original: Any, periods: Any, policy: Any) -> Any:
        whole = meter.union_of_seconds(period.interval.touched_seconds() for period in periods)
        return [range(r.stop, r.start + policy.minimum_run_seconds) for r in whole]

    wrap(patch, meter, "_padding", merged)


@mutant("R2", "D003a", "no minimum for an open run")
def an_open_run_has_its_minimum(patch: Patch) -> None:
    def closed(original: Any, periods: Any, policy: Any) -> Any:
        return original(
            [dataclasses.replace(period, ended_by="STOPPED") for period in periods], policy
        )

    wrap(patch, meter, "_padding", closed)


@mutant("R2", "D001a", "D001b")
def a_minimum_belongs_to_the_run(patch: Patch) -> None:
    def before(original: Any, *args: Any) -> Any:
        return [range(r.start - 60, r.stop - 60) for r in original(*args)]

    wrap(patch, meter, "_padding", before)


@mutant("R2", "B004", "B014")
def tpus_have_a_minimum_too(patch: Patch) -> None:
    other_policy(patch, lambda p, _: dataclasses.replace(p, minimum_run_seconds=120))


# R3: the free first minute.


def other_freedom(patch: Patch, is_free: Callable[[Any, Any], bool]) -> None:
    patch.setattr(meter, "_is_free", is_free)


def nanos_of(period: Any) -> int:
    return int(period.interval.end.nanos_since(period.interval.start))


@mutant("R3", "B078", "preempted at 60 s exactly is charged")
def sixty_seconds_are_free(patch: Patch) -> None:
    other_freedom(
        patch,
        lambda p, policy: (
            p.ended_by == "PREEMPTED" and nanos_of(p) <= policy.preempt_free_seconds * 10**9
        ),
    )


@mutant("R3", "preempted at 59.999 s is free")
def the_minute_is_counted_in_touched_seconds(patch: Patch) -> None:
    other_freedom(
        patch,
        lambda p, policy: (
            p.ended_by == "PREEMPTED"
            and len(p.interval.touched_seconds()) < policy.preempt_free_seconds
        ),
    )


@mutant("R3", "B017", "B066")
def no_minute_is_free(patch: Patch) -> None:
    other_freedom(patch, lambda _period, _policy: False)


@mutant("R3", "B014", "B080")
def who_stops_in_the_first_minute_pays_nothing(patch: Patch) -> None:
    other_freedom(
        patch,
        lambda p, policy: (
            p.ended_by is not None and nanos_of(p) < policy.preempt_free_seconds * 10**9
        ),
    )


@mutant("R3", "an on-demand node is never free")
def on_demand_nodes_have_a_free_minute(patch: Patch) -> None:
    other_freedom(patch, lambda p, _: p.ended_by == "PREEMPTED" and nanos_of(p) < 60 * 10**9)


@mutant("R3", "B016", "only the first READY period can be free")
def every_period_has_a_free_minute(patch: Patch) -> None:
    def periods(original: Any, events: Any, policy: Any, as_of: Any) -> Any:
        found = original(events, policy, as_of)
        return [p for index, p in enumerate(found) if index == 0 or not meter._is_free(p, policy)]

    wrap(patch, meter, "_periods", periods)


@mutant("R3", "D004a", "D004b")
def a_period_of_no_length_is_the_first_one(patch: Patch) -> None:
    def periods(original: Any, events: Any, policy: Any, as_of: Any) -> Any:
        found = original(events, policy, as_of)
        if found and not nanos_of(found[0]):
            end = PlatformTime(found[0].interval.start.nanos + 1)
            found[0] = meter._Period(Interval(found[0].interval.start, end), "STOPPED")
        return found

    wrap(patch, meter, "_periods", periods)


@mutant("R3", "B017")
def the_free_time_is_a_minute_whatever_the_policy(patch: Patch) -> None:
    other_freedom(
        patch,
        lambda p, policy: (
            bool(policy.preempt_free_seconds)
            and p.ended_by == "PREEMPTED"
            and nanos_of(p) < 60 * 10**9
        ),
    )


# R4: order, duplicates, conflicts. R10: open use.


def admitting(patch: Patch, change: Callable[[list[UsageEvent]], Iterable[UsageEvent]]) -> None:
    wrap(patch, bill, "admit", lambda original, events: original(change(list(events))))


@mutant("R4", "B081")
def events_are_taken_in_order_of_arrival(patch: Patch) -> None:
    admitting(
        patch,
        lambda events: [dataclasses.replace(e, seq=i) for i, e in enumerate(dict.fromkeys(events))],
    )


@mutant("R4", "B043")
def events_are_taken_by_their_clocks(patch: Patch) -> None:
    def by_clock(events: list[UsageEvent]) -> Iterable[UsageEvent]:
        ordered = sorted(dict.fromkeys(events), key=lambda e: e.at)
        return [dataclasses.replace(e, seq=i) for i, e in enumerate(ordered)]

    admitting(patch, by_clock)


@mutant("R4", "B043")
def clocks_that_step_back_are_believed(patch: Patch) -> None:
    patch.setattr(meter, "clamp", tuple)


@mutant("R4", "B039", "B081")
def a_duplicate_is_a_conflict(patch: Patch) -> None:
    patch.setattr(UsageEvent, "__eq__", lambda *_: False)


@mutant("R4", "B039")
def a_duplicate_counts_again(patch: Patch) -> None:
    def compute(original: Any, events: Any, resources: Any, *args: Any) -> Any:
        events = list(events)
        twice = len(events) - len(dict.fromkeys(events))
        more = {
            k: dataclasses.replace(r, quantity=r.quantity * (1 + bool(twice)))
            for k, r in resources.items()
        }
        return original(events, more, *args)

    from podyard.pricing import replay

    wrap(patch, replay, "compute", compute)


@mutant("R4", "B082")
def the_last_of_two_events_in_conflict_wins(patch: Patch) -> None:
    admitting(patch, lambda events: events[::-1])


@mutant("R4", "B082")
def conflicts_are_not_reported(patch: Patch) -> None:
    wrap(
        patch,
        bill,
        "admit",
        lambda original, events: dataclasses.replace(original(events), quarantined=()),
    )


@mutant("R10", "B045")
def open_use_is_not_billed(patch: Patch) -> None:
    wrap(
        patch,
        meter,
        "_periods",
        lambda original, *args: [p for p in original(*args) if p.ended_by is not None],
    )


@mutant("R10", "as_of before anything", "as_of within a second bills the second that has begun")
def what_happens_after_as_of_is_billed(patch: Patch) -> None:
    later = 86_400.0
    wrap(
        patch,
        meter,
        "_periods",
        lambda original, e, p, as_of: original(e, p, as_of.plus_seconds(later)),
    )


# R5: the price of the time of use. R6: exact money.


@mutant("R5", "B036", "price rise")
def the_latest_price_is_the_price_of_everything(patch: Patch) -> None:
    patch.setattr(Sku, "version_at", lambda sku, _at: sku.versions[-1])


@mutant("R5", "B036", "a price that starts within a billed second's instant")
def the_price_at_the_start_holds_to_the_end(patch: Patch) -> None:
    patch.setattr(rating, "_split", lambda seconds, _cuts: (seconds,) if seconds else ())


@mutant("R5", "B036", "price rise")
def a_price_holds_from_the_second_after_it_starts(patch: Patch) -> None:
    wrap(
        patch, rating, "_price_starts", lambda original, sku: [start + 1 for start in original(sku)]
    )


@mutant("R5", "seconds without a price")
def a_missing_price_is_zero(patch: Patch) -> None:
    wrap(
        patch,
        bill,
        "rate",
        lambda original, *args: dataclasses.replace(original(*args), suspense=()),
    )


@mutant("R5", "seconds without a price")
def the_first_price_holds_before_it_starts(patch: Patch) -> None:
    version_at = Sku.version_at
    patch.setattr(Sku, "version_at", lambda sku, at: version_at(sku, at) or sku.versions[0])


def other_rate(patch: Patch, change: Callable[[Any, int], Any]) -> None:
    original = amounts.parts_per_second
    for place in (amounts, invoicing, attribution, budgets):
        patch.setattr(place, "parts_per_second", lambda record: change(record, original(record)))


@mutant("R6", "B050", "B078")
def money_is_float(patch: Patch) -> None:
    def per_second(record: Any, _: int) -> int:
        seconds = 2_628_000 if record.unit == "gib_month" else 3_600
        return int(record.price.nanos / 1e9 * record.quantity / seconds * invoicing.PARTS_PER_UNIT)

    other_rate(patch, per_second)


@mutant("R6", "B018", "B022", "B050")
def seconds_are_priced_in_whole_nanos(patch: Patch) -> None:
    other_rate(patch, lambda _, parts: parts // 2_628_000 * 2_628_000)


@mutant("R6", "more than 64 bits of parts")
def sums_have_64_bits(patch: Patch) -> None:
    def wrapped(original: Any, *args: Any) -> Any:
        sums = original(*args)
        for found in sums.values():
            found.parts = (found.parts + 2**63) % 2**64 - 2**63
        return sums

    wrap(patch, invoicing, "_sums", wrapped)


@mutant("R6", "B018")
def a_month_of_a_disk_is_720_hours(patch: Patch) -> None:
    other_rate(
        patch, lambda record, parts: parts * 73 // 72 if record.unit == "gib_month" else parts
    )


@mutant("R6", "B024", "B021")
def quantity_is_forgotten(patch: Patch) -> None:
    other_rate(patch, lambda record, parts: parts // record.quantity if record.quantity else parts)
