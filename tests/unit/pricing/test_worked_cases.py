"""The worked bills: seconds and exact cost per SKU, for every case (invoices, credits and jobs are later work)."""

import json
from decimal import ROUND_HALF_UP, Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from podyard.base.clock import PlatformTime
from podyard.domain.usage import PriceUnit, UsageEvent, UsageRecord
from podyard.pricing.meter import MeterPolicy, admit, meter
from podyard.pricing.rating import cost_by_sku, rate
from podyard.pricing.sku import Sku, make_sku, make_version

FILE = Path(__file__).parents[2] / "data" / "billing" / "cases_public.jsonl"
CASES = {case["id"]: case for case in map(json.loads, FILE.read_text(encoding="utf-8").splitlines())}

# What these rules do not decide: a commitment's cover changes the cost per SKU (R11). Its seconds are checked.
COST_LEFT_FOR_LATER = ["B056"]

# Only the parts of these cases that R1 to R6 decide are checked here; the rest is named.
PARTS_LEFT_FOR_LATER = {
    "B047": "adjustments (R9)",
    "B052": "currency conversion (R7)",
    "B054": "credits (R11)",
    "B056": "commitments (R11)",
    "B058": "attribution to jobs (R12)",
    "B059": "attribution to jobs (R12)",
    "B061": "budget (R13)",
    "B070": "tax (R7)",
    "B072": "budget (R13)",
}


def events_of(case: dict[str, Any]) -> list[UsageEvent]:
    return [
        UsageEvent.of(e["id"], e["resource"], e["seq"], e["state"], PlatformTime.from_rfc3339(e["t"]))
        for e in case["events"]
    ]


def policy_of(case: dict[str, Any], resource: dict[str, Any]) -> MeterPolicy:
    policy = case["policy"]
    kind = resource["kind"]
    preemptible = resource.get("scheduling") in ("PREEMPTIBLE", "SPOT")
    return MeterPolicy(
        billable_states=frozenset(policy["billable_states"][kind]),
        preempt_free_seconds=policy["preempt_free_s"] if kind == "tpu" and preemptible else 0,
        minimum_run_seconds=policy["vm_min_s"] if kind == "vm" else 0,
    )


def skus_of(case: dict[str, Any]) -> dict[str, Sku]:
    rows: dict[str, list[dict[str, Any]]] = {}
    for row in case["rate_card"]:
        rows.setdefault(row["sku"], []).append(row)
    return {
        sku_id: make_sku(
            sku_id,
            PriceUnit(found[0]["unit"].lower()),
            [make_version(sku_id, row["effective_from"], row["usd"], "case") for row in found],
        )
        for sku_id, found in rows.items()
    }


def billed(case: dict[str, Any], events: list[UsageEvent]) -> tuple[dict[str, int], list[UsageRecord]]:
    resources = {resource["id"]: resource for resource in case["resources"]}
    policies = {key: policy_of(case, resource) for key, resource in resources.items()}
    skus = skus_of(case)
    seconds = dict.fromkeys(resources, 0)
    records: list[UsageRecord] = []
    for metered in meter(events, policies, PlatformTime.from_rfc3339(case["as_of"])):
        resource = resources[metered.resource_id]
        seconds[metered.resource_id] = metered.seconds
        rated = rate(metered, skus[resource["sku"]], resource["quantity"])
        assert not rated.suspense
        records.extend(rated.records)
    return seconds, records


def exact_costs(records: list[UsageRecord]) -> dict[str, Fraction]:
    return {sku_id: amount.fraction() for sku_id, amount in cost_by_sku(records).items()}


def decimal_text(value: Fraction) -> str:
    places = Decimal(1).scaleb(-12)
    text = (Decimal(value.numerator) / Decimal(value.denominator)).quantize(places, ROUND_HALF_UP)
    return f"{text:f}".rstrip("0").rstrip(".")


@pytest.mark.parametrize("case_id", CASES)
def test_seconds_and_exact_cost(case_id: str) -> None:
    case = CASES[case_id]
    seconds, records = billed(case, events_of(case))
    assert seconds == case["expect"]["seconds"]
    if case_id in COST_LEFT_FOR_LATER:
        return
    costs = exact_costs(records)
    expected = case["expect"]["sku_cost_usd"]
    assert {sku_id: str(cost) for sku_id, cost in costs.items()} == {k: v["exact"] for k, v in expected.items()}
    assert {sku_id: decimal_text(cost) for sku_id, cost in costs.items()} == {
        k: v["decimal"] for k, v in expected.items()
    }


@pytest.mark.parametrize("case_id", CASES)
def test_order_and_repetition_of_delivery_change_nothing(case_id: str) -> None:
    case = CASES[case_id]
    events = events_of(case)
    # Between events in conflict the first to arrive wins, so there the first delivery keeps its order.
    conflict = "quarantined_event_ids" in case["expect"]
    delivered = events + events[::-1] if conflict else events[::-1] + events
    assert billed(case, delivered) == billed(case, events)


def test_quarantined_events_are_named() -> None:
    for case in CASES.values():
        expected = case["expect"].get("quarantined_event_ids", [])
        assert list(admit(events_of(case)).quarantined) == expected, case["id"]


def test_what_is_left_for_later_is_named_and_nothing_else_is() -> None:
    assert len(CASES) == 51
    assert len(COST_LEFT_FOR_LATER) == 1
    assert set(COST_LEFT_FOR_LATER) <= set(PARTS_LEFT_FOR_LATER)
    needs_more = {
        case_id
        for case_id, case in CASES.items()
        if set(case["expect"]) & {"adjustments", "attribution", "budget_stop_at"}
        or set(case) & {"credits", "commitments"}
        or case["policy"]["currency"] != "USD"
        or case["policy"]["tax"] != "0"
    }
    assert needs_more == set(PARTS_LEFT_FOR_LATER)
