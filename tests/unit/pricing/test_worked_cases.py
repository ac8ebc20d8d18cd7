"""The worked bills, whole: each result of `replay` is compared with what was worked by hand, or by
the slow bill."""

import json
from pathlib import Path
from random import Random
from typing import Any

import pytest

from podyard.base.money import Amount
from podyard.pricing.bill import compute
from podyard.pricing.case import read_case
from podyard.pricing.replay import bill_of, replay_line, result_of
from tests.unit.pricing import invented
from tests.unit.pricing.slow_bill import slow_bill

FOLDER = Path(__file__).parents[2] / "data" / "billing"
# "decided" are ours, of rules that no document decides; each has the arithmetic in its note.
FILES = [FOLDER / f"cases_{name}.jsonl" for name in ("public", "decided")]
CASES = {
    case["id"]: case
    for f in FILES
    for case in map(json.loads, f.read_text(encoding="utf-8").splitlines())
}
INVENTED = {case["id"]: case for case in invented.CASES}
SLOW_SECONDS_MAX = 8_000  # of resources in a case that the slow bill works, too


def replayed(case: dict[str, Any]) -> Any:
    answer, is_result = replay_line(json.dumps(case).encode())
    assert is_result, answer
    assert answer["id"] == case["id"]
    return answer["result"]


@pytest.mark.parametrize("case_id", CASES)
def test_the_whole_bill_is_the_one_worked_by_hand(case_id: str) -> None:
    assert replayed(CASES[case_id]) == CASES[case_id]["expect"]


@pytest.mark.slow
def test_the_slow_bill_agrees_with_those_worked_by_hand() -> None:
    short = [c for c in CASES.values() if sum(c["expect"]["seconds"].values()) <= SLOW_SECONDS_MAX]
    assert len(short) > 30
    for case in short:
        assert slow_bill(case) == case["expect"], case["id"]


def test_invented_cases_have_names_of_their_own() -> None:
    assert len(INVENTED) == len(invented.CASES) > 70


@pytest.mark.slow
@pytest.mark.parametrize("case_id", INVENTED)
def test_the_whole_bill_is_the_slow_one(case_id: str) -> None:
    assert replayed(INVENTED[case_id]) == slow_bill(INVENTED[case_id])


@pytest.mark.parametrize("case_id", [*CASES, *INVENTED])
def test_order_and_repetition_of_delivery_change_nothing(case_id: str) -> None:
    case = {**CASES, **INVENTED}[case_id]
    expected = replayed(case)
    events = case["events"]
    # Between events in conflict the first to arrive wins, so there the first delivery keeps its
    # order.
    deliveries = [events + events[::-1]]
    if "quarantined_event_ids" not in expected:
        mixed = events * 2
        Random(case_id).shuffle(mixed)
        deliveries += [events[::-1], mixed]
    for delivered in deliveries:
        assert replayed({**case, "events": delivered}) == expected


@pytest.mark.parametrize("case_id", [*CASES, *INVENTED])
def test_events_by_resource_make_the_same_bill_as_events_by_arrival(case_id: str) -> None:
    case = read_case({**CASES, **INVENTED}[case_id])
    by_arrival = compute(case.events, case.resources, case.terms, case.as_of)
    grouped = sorted(case.events, key=lambda event: event.resource_id)
    assert compute(grouped, case.resources, case.terms, case.as_of, grouped=True) == by_arrival


def test_facts_that_were_worked_by_hand() -> None:
    def invoices(case_id: str) -> list[dict[str, Any]]:
        found = replayed(INVENTED[case_id])["invoices"]
        assert isinstance(found, list)
        return found

    assert invoices("preempted at 59.999 s is free") == []
    # 60 x 256 x 0.24493 / 3600
    assert invoices("preempted at 60 s exactly is charged")[0]["total"] == "1.05"
    assert [line["seconds"] for line in invoices("price rise")[0]["lines"]] == [30, 30]
    assert invoices("yen: 12.5 is 13")[0]["total"] == "13"
    two = invoices("two credits, the one that expires first is used first")[0]
    assert [(c["credit"], c["amount"]) for c in two["credits"]] == [
        ("b", "-2.00"),
        ("c", "-1.00"),
        ("a", "-1.50"),
    ]
    tax = invoices("tax is on what is left after credits")[0]
    # 0.665 is rounded up
    assert (tax["subtotal"], tax["tax"], tax["total"]) == ("3.50", "0.67", "4.17")
    (unused,) = invoices("an unused commitment")
    assert unused["lines"][0]["exact_usd"] == "2/3"  # 4 x 600 / 3600
    # 10 s before the end of March, and the 50 s that fill up the minute, in April
    assert [
        i["lines"][0]["seconds"] for i in invoices("a VM's minimum over the end of a month")
    ] == [10, 50]
    budget = replayed(INVENTED["a budget that is reached in the last second"])
    assert budget["budget_stop_at"] == "2026-03-10T11:00:00Z"
    assert replayed(INVENTED["a budget that is never reached"])["budget_stop_at"] is None
    too_much = replayed(INVENTED["too much was issued"])
    assert [a["amount"] for a in too_much["adjustments"]] == ["-4.50"]


def test_a_month_of_the_largest_slice_is_beyond_64_bits_and_exact() -> None:
    life = invented.node(
        "n", ("01 00:00:00", "READY"), ("04-01 00:00:00", "DELETING"), quantity=2048
    )
    card = [invented.price(invented.ON_DEMAND, "3.22", "2015-01-01T00:00:00Z", "chip_hour")]
    (invoice,) = replayed(invented.case("large", life, card=card))["invoices"]
    assert invoice["total"] == "4906352.64"  # 2048 x 3.22 x 744
    assert bill_of(read_case(invented.case("large", life, card=card))).total.parts > 2**63


def test_computing_again_gives_the_same_bytes() -> None:
    for case in [*CASES.values(), *INVENTED.values()]:
        first, again = (json.dumps(result_of(read_case(case))) for _ in range(2))
        assert first == again


def test_a_corrected_month_is_not_corrected_twice() -> None:
    case = read_case(INVENTED["too much was issued"])
    terms = case.terms
    (found,) = compute(case.events, case.resources, terms, case.as_of).adjustments
    booked = type(terms)(
        policy=terms.policy, issued=terms.issued, adjusted={"2026-03": found.minor}
    )
    assert compute(case.events, case.resources, booked, case.as_of).adjustments == ()


def test_what_nothing_prices_is_held_and_not_billed() -> None:
    case = read_case(INVENTED["price rise"])
    resources = {
        key: type(r)(r.resource_id, r.kind, None, r.quantity, r.policy, "no price of it")
        for key, r in case.resources.items()
    }
    bill = compute(case.events, resources, case.terms, case.as_of)
    assert (bill.total, bill.invoices) == (Amount(), ())
    assert [(held.seconds, held.reason) for held in bill.suspense] == [(60, "no price of it")]
