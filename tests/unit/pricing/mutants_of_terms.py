"""Bills that are wrong on purpose: rounding, months, commitments, credits, jobs, budgets,
corrections."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

from podyard.base.clock import NANOS_PER_SECOND, PlatformTime
from podyard.base.money import Amount
from podyard.domain import months
from podyard.domain.invoice import Adjustment, BillingPolicy
from podyard.pricing import attribution, bill, budgets, commitments, invoicing
from podyard.pricing.attribution import IDLE, Owned
from tests.unit.pricing.mutants import Patch, mutant, wrap

# R7: rounding, conversion, tax.


def other_rounding(patch: Patch, rounding: Callable[[int, int], int]) -> None:
    patch.setattr(invoicing, "round_half_up", rounding)


@mutant("R7", "B009", "yen: 12.5 is 13")
def halves_go_to_even(patch: Patch) -> None:
    def half_even(numerator: int, denominator: int) -> int:
        low, rest = divmod(numerator, denominator)
        return low + (2 * rest > denominator or (2 * rest == denominator and low % 2 == 1))

    other_rounding(patch, half_even)


@mutant("R7", "B004", "B050")
def fractions_are_cut_off(patch: Patch) -> None:
    other_rounding(patch, lambda numerator, denominator: numerator // denominator)


@mutant("R7", "B049", "lines of many SKUs, each rounded up")
def rounded_lines_are_summed(patch: Patch) -> None:
    def line(original: Any, *args: Any) -> Any:
        found = original(*args)
        return dataclasses.replace(
            found, amount=Amount(found.shown * invoicing.PARTS_PER_UNIT // 100)
        )

    wrap(patch, invoicing, "_line", line)


@mutant("R7", "B066", "B067", "B077")
def each_record_is_rounded(patch: Patch) -> None:
    cent = invoicing.PARTS_PER_UNIT // 100
    original = invoicing.parts_per_second

    def per_second(record: Any) -> Any:
        return Amount(original(record) * record.seconds).minor(2) * cent / record.seconds

    patch.setattr(invoicing, "parts_per_second", per_second)
    wrap(patch, invoicing, "_sums", _whole)


def _whole(original: Any, *args: Any) -> Any:
    sums = original(*args)
    for found in sums.values():
        found.parts = round(found.parts)
    return sums


@mutant("R7", "B049")
def there_is_no_rounding_error(patch: Patch) -> None:
    wrap(
        patch,
        invoicing,
        "_invoice",
        lambda original, *args: dataclasses.replace(original(*args), rounding_error=0),
    )


def other_tax(patch: Patch, tax_of: Callable[[Any, BillingPolicy], int]) -> None:
    def invoice(original: Any, *args: Any) -> Any:
        found = original(*args)
        tax = tax_of(found, args[-1])
        return dataclasses.replace(found, tax=tax, total=found.subtotal + tax)

    wrap(patch, invoicing, "_invoice", invoice)


@mutant("R7", "B070")
def tax_is_on_the_exact_sum(patch: Patch) -> None:
    def tax(found: Any, policy: BillingPolicy) -> int:
        net = sum(row.amount.parts for row in (*found.lines, *found.credits))
        return invoicing.round_half_up(
            net * 10**policy.decimals * policy.tax.numerator,
            invoicing.PARTS_PER_UNIT * policy.tax.denominator,
        )

    other_tax(patch, tax)


@mutant("R7", "tax is on what is left after credits")
def tax_is_on_the_sum_before_credits(patch: Patch) -> None:
    def tax(found: Any, policy: BillingPolicy) -> int:
        return invoicing.tax_on(
            found.subtotal - sum(row.shown for row in found.credits), policy.tax
        )

    other_tax(patch, tax)


@mutant("R7", "conversion comes before rounding")
def amounts_are_converted_after_rounding(patch: Patch) -> None:
    def minor(amount: Amount, policy: BillingPolicy, month: str) -> int:
        rate = policy.exchange_of(month) * 10**policy.decimals / 100
        return invoicing.round_half_up(amount.minor(2) * rate.numerator, rate.denominator)

    patch.setattr(invoicing, "minor", minor)


@mutant("R7", "a rate for each month")
def the_first_month_s_rate_is_for_all(patch: Patch) -> None:
    exchange_of = BillingPolicy.exchange_of
    patch.setattr(
        BillingPolicy,
        "exchange_of",
        lambda policy, _: exchange_of(policy, min(policy.exchange, default="")),
    )


@mutant("R7", "B036", "price rise")
def prices_of_a_sku_share_a_line(patch: Patch) -> None:
    def sums(original: Any, *args: Any) -> Any:
        merged: dict[Any, Any] = {}
        for (month, sku, _), found in original(*args).items():
            if (month, sku, "") in merged:
                merged[month, sku, ""].seconds += found.seconds
                merged[month, sku, ""].parts += found.parts
            else:
                merged[month, sku, ""] = found
        return merged

    wrap(patch, invoicing, "_sums", sums)


# R8: months.


def other_zone(patch: Patch, zone_for: Callable[[str], str]) -> None:
    wrap(patch, months, "month_of", lambda original, second, zone: original(second, zone_for(zone)))
    wrap(patch, months, "seconds_of", lambda original, month, zone: original(month, zone_for(zone)))
    wrap(patch, months, "split", lambda original, seconds, zone: original(seconds, zone_for(zone)))


@mutant("R8", "B029", "B065")
def months_are_those_of_utc(patch: Patch) -> None:
    other_zone(patch, lambda _zone: "UTC")


@mutant("R8", "B032")
def summer_time_is_ignored(patch: Patch) -> None:
    other_zone(patch, lambda zone: "Etc/GMT+8" if zone == "America/Los_Angeles" else zone)


@mutant("R8", "B065", "a month in Kolkata begins at half past six")
def zones_are_whole_hours(patch: Patch) -> None:
    other_zone(patch, lambda zone: "Etc/GMT-5" if zone == "Asia/Kolkata" else zone)


@mutant("R8", "B035", "B064", "B069")
def a_record_belongs_to_the_month_in_which_it_starts(patch: Patch) -> None:
    def split(charge: Any, zone: str) -> list[tuple[str, int]]:
        return [(months.month_of(charge.start_second, zone), charge.seconds)]

    patch.setattr(invoicing, "_split", split)


# R11: commitments.


def with_commitments(
    patch: Patch, change: Callable[[Sequence[Any]], Sequence[Any]], *names: str
) -> None:
    """What some functions are told of the commitments."""
    if "own_charges" in names:
        wrap(
            patch,
            commitments,
            "own_charges",
            lambda original, found, as_of: original(change(found), as_of),
        )
    if "cover" in names:
        wrap(
            patch,
            commitments,
            "cover",
            lambda original, r, found, as_of: original(r, change(found), as_of),
        )


@mutant("R11", "an unused commitment", "B056")
def commitments_cost_nothing(patch: Patch) -> None:
    with_commitments(patch, lambda _found: (), "own_charges")


@mutant("R11", "an unused commitment")
def a_commitment_is_charged_only_while_it_is_used(patch: Patch) -> None:
    used: list[str] = []
    wrap(patch, bill, "_use", lambda original, *args: _remember(used, original(*args)))
    with_commitments(patch, lambda found: [c for c in found if c.sku_id in used], "own_charges")


def _remember(used: list[str], found: Any) -> Any:
    used[:] = [record.sku_id for record in found.records]
    return found


@mutant("R11", "B056")
def commitments_cover_nothing(patch: Patch) -> None:
    with_commitments(patch, lambda _found: (), "cover")


@mutant("R11", "B056", "a commitment covers a part of the second node")
def a_commitment_covers_twice_its_quantity(patch: Patch) -> None:
    with_commitments(
        patch,
        lambda found: [dataclasses.replace(c, quantity=2 * c.quantity) for c in found],
        "cover",
    )


@mutant("R11", "two commitments of one SKU add up")
def one_commitment_of_a_sku_covers(patch: Patch) -> None:
    with_commitments(patch, lambda found: list({c.sku_id: c for c in found}.values()), "cover")


@mutant("R11", "B056", "a commitment covers a part of the second node")
def each_resource_is_covered_by_the_whole_commitment(patch: Patch) -> None:
    def cover(original: Any, records: Any, found: Any, as_of: PlatformTime) -> Any:
        names = sorted({record.resource_id for record in records})
        by_resource = [
            [record for record in records if record.resource_id == name] for name in names
        ]
        return [piece for own in by_resource for piece in original(own, found, as_of)]

    wrap(patch, commitments, "cover", cover)


@mutant("R11", "a commitment covers one SKU only")
def a_commitment_covers_every_sku(patch: Patch) -> None:
    def cover(original: Any, records: Any, found: Any, as_of: PlatformTime) -> Any:
        names = sorted({record.sku_id for record in records})
        return original(
            records, [dataclasses.replace(c, sku_id=name) for c in found for name in names], as_of
        )

    wrap(patch, commitments, "cover", cover)


@mutant("R11", "a commitment ends at as_of")
def a_commitment_is_charged_to_the_end_of_its_term(patch: Patch) -> None:
    patch.setattr(commitments, "term", lambda c, _as_of: range(c.start_second, c.end_second))


@mutant("R11", "a commitment over a change of price", "two commitments of one SKU add up")
def a_commitment_covers_before_its_term(patch: Patch) -> None:
    earlier = 3_600
    with_commitments(
        patch,
        lambda found: [
            dataclasses.replace(c, start_second=c.start_second - earlier) for c in found
        ],
        "cover",
    )


@mutant("R11", "a commitment covers a part of the second node")
def the_last_resource_is_covered_first(patch: Patch) -> None:
    def cover(original: Any, records: Any, found: Any, as_of: PlatformTime) -> Any:
        names = sorted({record.resource_id for record in records})
        renamed = {name: f"{len(names) - index:09d}" for index, name in enumerate(names)}
        back = {other: name for name, other in renamed.items()}
        turned = [
            dataclasses.replace(record, resource_id=renamed[record.resource_id])
            for record in records
        ]
        return [
            dataclasses.replace(c, resource_id=back[c.resource_id])
            for c in original(turned, found, as_of)
        ]

    wrap(patch, commitments, "cover", cover)


# R11: credits.


@mutant("R11", "two credits, the one that expires first is used first")
def credits_that_expire_last_are_used_first(patch: Patch) -> None:
    def use(original: Any, balances: Any, *args: Any) -> Any:
        taken, left = original(balances[::-1], *args)
        return taken, left[::-1]

    wrap(patch, invoicing, "use_credits", use)


def other_use(patch: Patch, change: Callable[[Any, Amount, str, Amount], Amount]) -> None:
    def use(balances: Any, month: str, net: Amount) -> Any:
        taken, left = [], []
        for credit, balance in balances:
            used = change(credit, balance, month, net)
            if used.parts > 0:
                taken.append((credit, used))
            net = net - used
            left.append((credit, balance - used))
        return taken, left

    patch.setattr(invoicing, "use_credits", use)


def _is_valid(credit: Any, month: str) -> bool:
    return bool(credit.from_month <= month <= credit.until_month)


@mutant("R11", "B054")
def a_credit_pays_more_than_is_owed(patch: Patch) -> None:
    other_use(
        patch,
        lambda credit, balance, month, _net: balance if _is_valid(credit, month) else Amount(),
    )


@mutant("R11", "a credit that has expired", "a credit that does not hold yet")
def credits_hold_for_ever(patch: Patch) -> None:
    other_use(patch, lambda _credit, balance, _month, net: min(balance, net))


@mutant("R11", "B054")
def credits_are_not_carried_over(patch: Patch) -> None:
    other_use(
        patch,
        lambda c, balance, month, net: min(balance, net) if c.from_month == month else Amount(),
    )


@mutant("R11", "B054")
def a_credit_is_whole_again_each_month(patch: Patch) -> None:
    wrap(
        patch, invoicing, "use_credits", lambda original, b, *args: (original(b, *args)[0], list(b))
    )


# R12: jobs.


@mutant("R12", "jobs with gaps", "no jobs")
def idle_time_is_lost(patch: Patch) -> None:
    wrap(
        patch,
        attribution,
        "_parts",
        lambda original, *args: [p for p in original(*args) if p[0] != IDLE],
    )


@mutant("R12", "B058")
def a_second_belongs_to_the_last_job_that_touches_it(patch: Patch) -> None:
    def owned(original: Any, spans: Any, as_of: PlatformTime) -> list[Owned]:
        found = original(spans, as_of)
        starts = sorted(span.start.nanos // NANOS_PER_SECOND for span in spans)
        moved = []
        for index, own in enumerate(found):
            first = own.seconds.start - (index > 0 and own.seconds.start - 1 in starts)
            shared = index + 1 < len(found) and own.seconds.stop - 1 in starts
            moved.append(Owned(range(first, own.seconds.stop - shared), own.job_id))
        return moved

    wrap(patch, attribution, "ownership", owned)


@mutant("R12", "B058", "B059")
def the_parts_of_jobs_are_not_priced(patch: Patch) -> None:
    patch.setattr(attribution, "parts_per_second", lambda _record: 1)


@mutant("R12", "two jobs that start together")
def of_two_jobs_that_start_together_the_last_name_wins(patch: Patch) -> None:
    wrap(
        patch,
        attribution,
        "ownership",
        lambda original, spans, at: _renamed_back(original(_renamed(spans), at)),
    )


def _renamed(spans: Any) -> list[Any]:
    """Names whose order is turned round."""
    return [
        dataclasses.replace(s, job_id="".join(chr(0x10000 - ord(letter)) for letter in s.job_id))
        for s in spans
    ]


def _renamed_back(found: Any) -> list[Any]:
    return _renamed(found)


@mutant("R12", "a job that is still going")
def a_job_without_an_end_has_no_time(patch: Patch) -> None:
    def owned(original: Any, spans: Any, as_of: PlatformTime) -> Any:
        return original([span for span in spans if span.end is not None], as_of)

    wrap(patch, attribution, "ownership", owned)


# R13: budgets.


def other_stop(patch: Patch, seconds: int) -> None:
    def stop_at(original: Any, *args: Any) -> Any:
        found = original(*args)
        return None if found is None else found.plus_seconds(seconds)

    wrap(patch, budgets, "stop_at", stop_at)


@mutant("R13", "B061", "B072")
def a_budget_stops_a_second_late(patch: Patch) -> None:
    other_stop(patch, 1)


@mutant("R13", "B061", "B072")
def a_budget_stops_a_second_early(patch: Patch) -> None:
    other_stop(patch, -1)


@mutant("R13", "a budget that is reached in the last second", "B061")
def a_budget_stops_when_it_is_passed(patch: Patch) -> None:
    wrap(
        patch,
        budgets,
        "stop_at",
        lambda original, charges, amount: original(charges, amount + Amount(1)),
    )


@mutant("R13", "a budget that a commitment uses up")
def a_budget_does_not_see_commitments(patch: Patch) -> None:
    def stop_at(original: Any, charges: Any, amount: Amount) -> Any:
        return original([c for c in charges if not c.sku_id.startswith(commitments.OWN)], amount)

    wrap(patch, budgets, "stop_at", stop_at)


# R9: corrections.


def other_adjustments(patch: Patch, change: Callable[[Any, Any], Sequence[Adjustment]]) -> None:
    def adjustments(original: Any, found: Any, issued: Any, *args: Any) -> Any:
        return tuple(change(original(found, issued, *args), (found, issued)))

    wrap(patch, invoicing, "adjustments", adjustments)


@mutant("R9", "B047", "too much was issued")
def a_correction_is_the_whole_total(patch: Patch) -> None:
    other_adjustments(
        patch,
        lambda made, terms: [
            dataclasses.replace(a, minor=a.minor + terms[1][a.corrects_month]) for a in made
        ],
    )


@mutant("R9", "too much was issued")
def nothing_is_given_back(patch: Patch) -> None:
    other_adjustments(patch, lambda made, _: [a for a in made if a.minor > 0])


@mutant("R9", "a month was issued and has no usage any more")
def a_month_without_usage_is_not_corrected(patch: Patch) -> None:
    other_adjustments(
        patch,
        lambda made, terms: [a for a in made if a.corrects_month in {i.month for i in terms[0]}],
    )


@mutant("R9", "a correction has its tax")
def corrections_have_no_tax(patch: Patch) -> None:
    def without(made: Any, terms: Any) -> Any:
        tax = {invoice.month: invoice.tax for invoice in terms[0]}
        return [dataclasses.replace(a, minor=a.minor - tax.get(a.corrects_month, 0)) for a in made]

    other_adjustments(patch, without)


@mutant("R9", "two months are corrected")
def a_correction_is_booked_in_the_month_it_corrects(patch: Patch) -> None:
    other_adjustments(
        patch,
        lambda made, _: [dataclasses.replace(a, booked_in_month=a.corrects_month) for a in made],
    )


@mutant("R9", "issued as it is rated")
def a_correction_of_nothing_is_booked(patch: Patch) -> None:
    def adjustments(original: Any, found: Any, issued: Any, adjusted: Any, open_month: Any) -> Any:
        made = original(found, issued, adjusted, open_month)
        return made or tuple(Adjustment(month, open_month, 0) for month in issued)

    wrap(patch, invoicing, "adjustments", adjustments)
