"""A bill worked second by second with fractions, from the text of a case: slow, plain, and without
a line of the platform's code, so that the two can be compared. `slow_bill(case)` is the case's
`expect`."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterator
from datetime import UTC, datetime
from fractions import Fraction
from functools import cache
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo

UNIT_SECONDS = {"device_hour": 3600, "chip_hour": 3600, "vm_hour": 3600, "GiB_month": 2_628_000}


class Second(NamedTuple):
    """One billed second of a resource (or of a commitment, which is a resource of its own here)."""

    second: int
    resource: str
    sku: str
    price_from: int
    price_text: str
    cost: Fraction


@cache
def instant(text: str) -> Fraction:
    """Seconds since 1970, exact: decimals are read by hand, since datetime has six of them at
    most."""
    body, sign = (text[:-1], "+") if text.endswith("Z") else (text[:-6], text[-6])
    offset = 0 if text.endswith("Z") else int(text[-5:-3]) * 3600 + int(text[-2:]) * 60
    whole, _, decimals = body.partition(".")
    seconds = int(datetime.fromisoformat(whole + "+00:00").timestamp())
    return (
        seconds
        + Fraction(int(decimals or 0), 10 ** len(decimals))
        - (offset if sign == "+" else -offset)
    )


def touched(start: Fraction, end: Fraction) -> Iterator[int]:
    second = math.floor(start)
    while second < end and start < end:
        yield second
        second += 1


def rounded(value: Fraction, decimals: int) -> int:
    size = math.floor(abs(value) * 10**decimals + Fraction(1, 2))
    return size if value >= 0 else -size


def money(minor: int, decimals: int) -> str:
    whole, rest = divmod(abs(minor), 10**decimals)
    return ("-" if minor < 0 else "") + (f"{whole}.{rest:0{decimals}d}" if decimals else str(whole))


def exact(value: Fraction) -> str:
    return (
        f"{value.numerator}/{value.denominator}" if value.denominator > 1 else f"{value.numerator}"
    )


def decimal(value: Fraction) -> str:
    return money(rounded(value, 12), 12).rstrip("0").rstrip(".")


@cache
def month_of(second: int, zone: str) -> str:
    return datetime.fromtimestamp(second, UTC).astimezone(ZoneInfo(zone)).strftime("%Y-%m")


def accepted(events: list[dict[str, Any]]) -> tuple[list[dict[str, Any]], list[str]]:
    kept: list[dict[str, Any]] = []
    quarantined: list[str] = []
    for event in events:
        said = (event["resource"], event["seq"], instant(event["t"]), event["state"])
        rivals = [
            k for k in kept if k["id"] == event["id"] or (k["resource"], k["seq"]) == said[:2]
        ]
        if not rivals:
            kept.append(event)
            continue
        same = [k for k in rivals if (k["resource"], k["seq"], instant(k["t"]), k["state"]) == said]
        if not any(k["id"] == event["id"] for k in same) and event["id"] not in quarantined:
            quarantined.append(event["id"])
    return kept, quarantined


def billed_seconds(
    case: dict[str, Any], resource: dict[str, Any], events: list[dict[str, Any]]
) -> list[int]:
    """Each second once; those that fill up a minimum come on top."""
    policy, as_of = case["policy"], instant(case["as_of"])
    runs: list[tuple[Fraction, Fraction, str | None]] = []
    clock, since = Fraction(-(10**12)), None
    for event in sorted(events, key=lambda e: e["seq"]):
        clock = max(clock, instant(event["t"]))
        if clock > as_of:
            break
        billable = event["state"] in policy["billable_states"][resource["kind"]]
        if billable and since is None:
            since = clock
        if not billable and since is not None:
            if since < clock:
                runs.append((since, clock, event["state"]))
            since = None
    if since is not None:
        runs.append((since, as_of, None))
    if runs and resource["kind"] == "tpu" and resource.get("scheduling") in ("PREEMPTIBLE", "SPOT"):
        start, end, ended_by = runs[0]
        if ended_by == "PREEMPTED" and end - start < policy["preempt_free_s"]:
            del runs[0]
    seconds = sorted({s for start, end, _ in runs for s in touched(start, end)})
    had: set[int] = set()
    for start, end, ended_by in runs:
        # a second of two runs is the first one's
        of_run = [s for s in touched(start, end) if s not in had]
        had.update(of_run)
        if resource["kind"] == "vm" and ended_by is not None:
            after = math.ceil(end)
            seconds += range(after, after + policy["vm_min_s"] - len(of_run))
    return seconds


def slow_bill(case: dict[str, Any]) -> dict[str, Any]:
    events, quarantined = accepted(case["events"])
    seconds = {
        r["id"]: billed_seconds(case, r, [e for e in events if e["resource"] == r["id"]])
        for r in case["resources"]
    }
    spent = [*commitment_seconds(case), *resource_seconds(case, seconds)]
    result: dict[str, Any] = {
        "seconds": {name: len(found) for name, found in seconds.items()},
        "sku_cost_usd": {
            sku: {"exact": exact(cost), "decimal": decimal(cost)}
            for sku, cost in summed((item.sku, item.cost) for item in spent).items()
        },
        "invoices": invoices(case, spent),
    }
    if quarantined:
        result["quarantined_event_ids"] = quarantined
    if "jobs" in case:
        result["attribution"] = attribution(case, spent)
    if "budget" in case:
        result["budget_stop_at"] = budget_stop(case, spent)
    if "issued" in case:
        result["adjustments"] = adjustments(case, result["invoices"])
    return result


def summed(pairs: Iterator[tuple[Any, Fraction]]) -> dict[Any, Fraction]:
    sums: dict[Any, Fraction] = {}
    for key, value in pairs:
        sums[key] = sums.get(key, Fraction(0)) + value
    return sums


def resource_seconds(case: dict[str, Any], seconds: dict[str, list[int]]) -> Iterator[Second]:
    covered: Counter[tuple[str, int]] = Counter()
    for resource in sorted(case["resources"], key=lambda r: r["id"]):
        sku = resource["sku"]
        versions = sorted(
            (instant(row["effective_from"]), row) for row in case["rate_card"] if row["sku"] == sku
        )
        for second in seconds[resource["id"]]:
            since, row = [(start, row) for start, row in versions if start <= second][-1]
            free = capacity(case, sku, second) - covered[sku, second]
            taken = min(free, resource["quantity"])
            covered[sku, second] += taken
            cost = Fraction(row["usd"]) * (resource["quantity"] - taken) / UNIT_SECONDS[row["unit"]]
            yield Second(second, resource["id"], sku, int(since), row["usd"], cost)


def term(case: dict[str, Any], commitment: dict[str, Any]) -> range:
    return range(
        int(instant(commitment["from"])),
        min(int(instant(commitment["until"])), math.ceil(instant(case["as_of"]))),
    )


def capacity(case: dict[str, Any], sku: str, second: int) -> int:
    found = [
        c for c in case.get("commitments", []) if c["covers"] == sku and second in term(case, c)
    ]
    return sum(c["quantity"] for c in found)


def commitment_seconds(case: dict[str, Any]) -> Iterator[Second]:
    for c in case.get("commitments", []):
        unit = next(row["unit"] for row in case["rate_card"] if row["sku"] == c["covers"])
        cost = Fraction(c["usd"]) * c["quantity"] / UNIT_SECONDS[unit]
        for second in term(case, c):
            name = f"commitment:{c['id']}"
            yield Second(second, name, name, int(instant(c["from"])), c["usd"], cost)


def invoices(case: dict[str, Any], spent: list[Second]) -> list[dict[str, Any]]:
    policy = case["policy"]
    decimals = policy["minor"]
    by_month: dict[str, list[Second]] = defaultdict(list)
    for item in spent:
        by_month[month_of(item.second, policy["invoice_tz"])].append(item)
    left = {credit["id"]: Fraction(credit["usd"]) for credit in case.get("credits", [])}
    made = []
    for month, items in sorted(by_month.items()):
        rate = Fraction(policy["fx"][month] if isinstance(policy["fx"], dict) else policy["fx"])
        costs = summed(((i.sku, Fraction(i.price_text)), i.cost) for i in items)
        counts = Counter((i.sku, Fraction(i.price_text)) for i in items)
        texts = {
            (i.sku, Fraction(i.price_text)): i.price_text
            for i in sorted(items, key=lambda i: -i.price_from)
        }
        lines = [(key[0], texts[key], counts[key], cost) for key, cost in sorted(costs.items())]
        rest = sum(costs.values(), Fraction(0))
        taken = []
        for credit in sorted(case.get("credits", []), key=lambda c: (c["until_month"], c["id"])):
            if credit["from_month"] <= month <= credit["until_month"]:
                used = min(left[credit["id"]], rest)
                if used > 0:
                    taken.append((credit["id"], -used))
                    left[credit["id"]] -= used
                    rest -= used
        subtotal = rounded(rest * rate, decimals)
        shown = [rounded(cost * rate, decimals) for *_, cost in lines]
        shown_credits = [rounded(cost * rate, decimals) for _, cost in taken]
        tax = rounded(Fraction(subtotal) * Fraction(policy["tax"]), 0)
        made.append(
            {
                "month": month,
                "currency": policy["currency"],
                "lines": [
                    {
                        "sku": sku,
                        "unit_price_usd": text,
                        "seconds": count,
                        "exact_usd": exact(cost),
                        "amount": money(minor, decimals),
                    }
                    for (sku, text, count, cost), minor in zip(lines, shown, strict=True)
                ],
                "credits": [
                    {"credit": name, "exact_usd": exact(cost), "amount": money(minor, decimals)}
                    for (name, cost), minor in zip(taken, shown_credits, strict=True)
                ],
                "rounding_error": money(subtotal - sum(shown) - sum(shown_credits), decimals),
                "subtotal": money(subtotal, decimals),
                "tax": money(tax, decimals),
                "total": money(subtotal + tax, decimals),
            }
        )
    return made


def attribution(case: dict[str, Any], spent: list[Second]) -> dict[str, dict[str, dict[str, Any]]]:
    spans = [
        (instant(j["start"]), j["id"], j["resource"], instant(j["end"] or case["as_of"]))
        for j in case["jobs"]
    ]
    found: dict[str, Any] = {resource["id"]: {} for resource in case["resources"]}
    for item in spent:
        if item.resource not in found:
            continue
        # Who has an instant of this second, of these the one who began first.
        here = [
            s
            for s in spans
            if s[2] == item.resource and max(s[0], item.second) < min(s[3], item.second + 1)
        ]
        owner = min(here)[1] if here else "idle"
        count, cost = found[item.resource].get(owner, (0, Fraction(0)))
        found[item.resource][owner] = (count + 1, cost + item.cost)
    return {
        resource: {
            owner: {"seconds": count, "exact_usd": exact(cost), "decimal": decimal(cost)}
            for owner, (count, cost) in owners.items()
        }
        for resource, owners in found.items()
    }


def budget_stop(case: dict[str, Any], spent: list[Second]) -> str | None:
    total = Fraction(0)
    for second, cost in sorted(summed((item.second, item.cost) for item in spent).items()):
        total += cost
        if total >= Fraction(case["budget"]["usd"]):
            return datetime.fromtimestamp(second + 1, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return None


def adjustments(case: dict[str, Any], made: list[dict[str, Any]]) -> list[dict[str, Any]]:
    decimals = case["policy"]["minor"]
    totals = {invoice["month"]: Fraction(invoice["total"]) for invoice in made}
    found = []
    for month, issued in sorted(case["issued"].items()):
        difference = totals.get(month, Fraction(0)) - Fraction(issued)
        if difference:
            amount = money(int(difference * 10**decimals), decimals)
            row = {"corrects_month": month, "booked_in_month": case["open_month"], "amount": amount}
            found.append(row)
    return found
