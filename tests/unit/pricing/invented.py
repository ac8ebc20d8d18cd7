"""Cases in the format of the worked ones, invented here: each is named after what it holds."""

from __future__ import annotations

import copy
from typing import Any

ON_DEMAND, SPOT, DISK, VM = "tpu-v2/r/on-demand", "tpu-v5e/r/spot", "pd/r", "vm/r"
POLICY: dict[str, Any] = {
    "billable_states": {"tpu": ["READY"], "vm": ["RUNNING"], "disk": ["EXISTS"]},
    "preempt_free_s": 60,
    "vm_min_s": 60,
    "invoice_tz": "UTC",
    "rounding": "HALF_UP",
    "currency": "USD",
    "minor": 2,
    "fx": "1",
    "tax": "0",
}
CARD = [
    {
        "sku": ON_DEMAND,
        "unit": "device_hour",
        "usd": "4.50",
        "effective_from": "2015-01-01T00:00:00Z",
    },
    {"sku": SPOT, "unit": "chip_hour", "usd": "0.24493", "effective_from": "2015-01-01T00:00:00Z"},
    {"sku": DISK, "unit": "GiB_month", "usd": "0.04", "effective_from": "2015-01-01T00:00:00Z"},
    {"sku": VM, "unit": "vm_hour", "usd": "0.080170", "effective_from": "2015-01-01T00:00:00Z"},
]


def at(text: str) -> str:
    """`10 12:00:00` is a time of March 2026; `04-02 12:00:00` names the month too."""
    day, clock = text.split(" ")
    return f"2026-{day if '-' in day else '03-' + day}T{clock}Z"


def node(
    name: str, *life: tuple[str, str], sku: str = ON_DEMAND, quantity: int = 1, **more: Any
) -> dict[str, Any]:
    """A resource with its events: (time, state) in order of seq."""
    kind = {DISK: "disk", VM: "vm"}.get(sku, "tpu")
    events = [
        {"id": f"{name}-{seq}", "resource": name, "seq": seq, "t": at(time), "state": state}
        for seq, (time, state) in enumerate(life, start=1)
    ]
    return {
        "resource": {"id": name, "kind": kind, "sku": sku, "quantity": quantity, **more},
        "events": events,
    }


def case(
    name: str,
    *nodes: dict[str, Any],
    card: list[dict[str, str]] | None = None,
    as_of: str = "04-10 00:00:00",
    **more: Any,
) -> dict[str, Any]:
    policy = {**copy.deepcopy(POLICY), **more.pop("policy", {})}
    return {
        "id": name,
        "policy": policy,
        "rate_card": copy.deepcopy(CARD) if card is None else card,
        "resources": [n["resource"] for n in nodes],
        "events": [event for n in nodes for event in n["events"]],
        "as_of": at(as_of),
        **more,
    }


def price(sku: str, usd: str, since: str, unit: str = "device_hour") -> dict[str, str]:
    return {
        "sku": sku,
        "unit": unit,
        "usd": usd,
        "effective_from": since if "T" in since else at(since),
    }


def commitment(
    name: str, quantity: int, usd: str, since: str, until: str, covers: str = ON_DEMAND
) -> dict[str, Any]:
    return {
        "id": name,
        "covers": covers,
        "quantity": quantity,
        "usd": usd,
        "from": at(since),
        "until": at(until),
    }


def credit(name: str, usd: str, first: str = "2026-03", last: str = "2026-04") -> dict[str, str]:
    return {"id": name, "usd": usd, "from_month": first, "until_month": last}


def job(name: str, resource: str, start: str, end: str | None) -> dict[str, Any]:
    return {
        "id": name,
        "resource": resource,
        "start": at(start),
        "end": None if end is None else at(end),
    }


def hour(name: str = "n", **more: Any) -> dict[str, Any]:
    return node(name, ("10 10:00:00", "READY"), ("10 11:00:00", "DELETING"), **more)


def short(
    name: str = "n", seconds: str = "40", ending: str = "DELETING", **more: Any
) -> dict[str, Any]:
    return node(name, ("10 10:00:00", "READY"), (f"10 10:00:{seconds}", ending), **more)


def spot(seconds: str, ending: str = "PREEMPTED", scheduling: str = "SPOT") -> dict[str, Any]:
    clock = f"10 10:0{float(seconds) // 60:.0f}:{seconds if float(seconds) < 60 else '00'}"
    return node(
        "n",
        ("10 10:00:00", "READY"),
        (clock, ending),
        sku=SPOT,
        quantity=256,
        scheduling=scheduling,
    )


END_OF_MARCH = (("31 23:59:50", "RUNNING"), ("04-01 00:00:00", "STOPPED"))

CASES = [
    case("preempted at 59.999 s is free", spot("59.999")),
    case("preempted at 60 s exactly is charged", spot("60")),
    case("a preemptible node is free like a spot one", spot("59.999", scheduling="PREEMPTIBLE")),
    case("an on-demand node is never free", spot("30", scheduling="ON_DEMAND")),
    case("a deleted spot node is charged", spot("30", ending="DELETING")),
    case("a free time of 0 s frees nothing", spot("10"), policy={"preempt_free_s": 0}),
    case(
        "only the first READY period can be free",
        node(
            "n",
            *(("10 10:00:00", "READY"), ("10 10:00:20", "PREEMPTED"), ("10 10:05:00", "READY")),
            *(("10 10:05:20", "PREEMPTED"),),
            sku=SPOT,
            scheduling="SPOT",
        ),
    ),
    case("the node is still in its first minute at as_of", spot("59"), as_of="10 10:00:30"),
    case("as_of within a second bills the second that has begun", hour(), as_of="10 10:00:07.5"),
    case("as_of before anything", hour(), as_of="10 09:00:00"),
    case("an event at as_of itself has happened", hour(), as_of="10 11:00:00"),
    case("preempted in its first minute, at as_of itself", spot("30"), as_of="10 10:00:30"),
    case(
        "more than 64 bits of parts",
        short(quantity=1_000_000),
        card=[price(ON_DEMAND, "1000.00", "2015-01-01T00:00:00Z")],
    ),
    case("a resource without events", {"resource": hour()["resource"], "events": []}),
    case("nothing at all"),
    case(
        "price rise",
        node("n", ("10 11:59:30", "READY"), ("10 12:00:30", "DELETING")),
        card=[
            price(ON_DEMAND, "4.50", "2015-01-01T00:00:00Z"),
            price(ON_DEMAND, "6.50", "10 12:00:00"),
        ],
    ),
    case(
        "a price of more digits stands after a smaller one",
        node("n", ("10 11:59:30", "READY"), ("10 12:00:30", "DELETING")),
        card=[
            price(ON_DEMAND, "10.00", "2015-01-01T00:00:00Z"),
            price(ON_DEMAND, "9.00", "10 12:00:00"),
        ],
    ),
    case(
        "three prices and back to the first",
        node("n", ("10 11:59:30", "READY"), ("10 12:00:30", "DELETING")),
        card=[
            price(ON_DEMAND, "4.50", "2015-01-01T00:00:00Z"),
            price(ON_DEMAND, "6.50", "10 12:00:00"),
            price(ON_DEMAND, "4.50", "10 12:00:10"),
        ],
    ),
    case(
        "a price that starts within a billed second's instant",
        node("n", ("10 11:59:59.9", "READY"), ("10 12:00:00.1", "DELETING")),
        card=[
            price(ON_DEMAND, "4.50", "2015-01-01T00:00:00Z"),
            price(ON_DEMAND, "6.50", "10 12:00:00"),
        ],
    ),
    case(
        "a price of zero is a price",
        short(),
        card=[price(ON_DEMAND, "0", "2015-01-01T00:00:00Z")],
    ),
    case(
        "a disk over a change of price, while its node is stopped",
        node(
            "d", ("10 10:00:00", "EXISTS"), ("10 10:02:00", "DELETED"), sku=DISK, quantity=100_000
        ),
        node("n", ("10 10:00:00", "READY"), ("10 10:01:00", "STOPPED")),
        card=[*CARD, price(DISK, "0.05", "10 10:01:30", "GiB_month")],
    ),
    case("a VM's minimum over the end of a month", node("v", *END_OF_MARCH, sku=VM, quantity=1000)),
    case(
        "a VM's minimum over a change of price",
        node("v", ("10 10:00:00", "RUNNING"), ("10 10:00:10", "STOPPED"), sku=VM, quantity=1000),
        card=[*CARD, price(VM, "0.16", "10 10:00:30", "vm_hour")],
    ),
    case(
        "a VM that is stopped and started within its minimum",
        node(
            "v",
            *(("10 10:00:00", "RUNNING"), ("10 10:00:20", "STOPPED"), ("10 10:00:30", "RUNNING")),
            ("10 10:02:00", "STOPPED"),
            sku=VM,
            quantity=1000,
        ),
    ),
    case(
        "a run that ends at as_of itself has its minimum",
        node("v", ("10 10:00:00", "RUNNING"), ("10 10:00:05", "STOPPED"), sku=VM),
        as_of="10 10:00:05",
    ),
    case(
        "no minimum for an open run",
        node("v", ("10 10:00:00", "RUNNING"), sku=VM),
        as_of="10 10:00:05",
    ),
    case(
        "no minimum where the policy has none",
        short("v", "10", "STOPPED", sku=VM),
        policy={"vm_min_s": 0},
    ),
    case(
        "usage over the end of a month",
        node("n", ("31 23:59:30", "READY"), ("04-01 00:00:45", "DELETING")),
    ),
    case(
        "a month in Kolkata begins at half past six",
        node("n", ("31 18:29:30", "READY"), ("31 18:30:45", "DELETING")),
        policy={"invoice_tz": "Asia/Kolkata"},
    ),
    case(
        "events out of order, one of them late",
        {
            **node(
                "n", ("10 10:00:00", "READY"), ("10 10:00:20", "STOPPED"), ("10 10:00:40", "READY")
            ),
            "events": [
                {"id": "c", "resource": "n", "seq": 9, "t": at("10 10:01:00"), "state": "DELETING"},
                {"id": "a", "resource": "n", "seq": 1, "t": at("10 10:00:00"), "state": "READY"},
                {
                    "id": "b",
                    "resource": "n",
                    "seq": 5,
                    "t": "2026-03-10T12:00:30.25+02:00",
                    "state": "STOPPED",
                },
            ],
        },
    ),
    case(
        "rounding at .5 in yen",
        hour(quantity=1),
        policy={"currency": "JPY", "minor": 0, "fx": "0.333333333333"},
    ),
    case(
        "yen: 12.5 is 13",
        hour(),
        card=[price(ON_DEMAND, "0.125", "2015-01-01T00:00:00Z")],
        policy={"currency": "JPY", "minor": 0, "fx": "100"},
    ),
    case(
        "a price that comes back goes on its old line",
        node("n", ("10 10:00:00", "READY"), ("10 13:00:00", "DELETING")),
        card=[
            price(ON_DEMAND, "4.50", "2015-01-01T00:00:00Z"),
            price(ON_DEMAND, "12.00", "2026-03-10T11:00:00Z"),
            price(ON_DEMAND, "4.5", "2026-03-10T12:00:00Z"),
        ],
    ),
    case(
        "dinars have three decimals",
        hour(),
        policy={"currency": "KWD", "minor": 3, "fx": "0.30753"},
    ),
    case(
        "a rate for each month",
        node("n", ("31 23:59:30", "READY"), ("04-01 00:00:45", "DELETING"), quantity=900),
        policy={"currency": "EUR", "fx": {"2026-03": "0.91", "2026-04": "0.87"}},
    ),
    case(
        "conversion comes before rounding",
        *[short(f"n{i}", "09", sku=ON_DEMAND) for i in range(3)],
        policy={"currency": "JPY", "minor": 0, "fx": "149.37"},
    ),
    case(
        "tax is on what is left after credits",
        hour(),
        credits=[credit("c", "1.00")],
        policy={"tax": "0.19"},
    ),
    case("tax rounds halves up", hour(), policy={"tax": "0.07", "minor": 1}),
    case(
        "a credit that has expired", hour(), credits=[credit("old", "9.00", "2026-01", "2026-02")]
    ),
    case(
        "a credit that does not hold yet",
        hour(),
        credits=[credit("new", "9.00", "2026-04", "2026-06")],
    ),
    case(
        "two credits, the one that expires first is used first",
        hour(),
        credits=[
            credit("a", "3.00", last="2026-06"),
            credit("b", "2.00", last="2026-03"),
            credit("c", "1"),
        ],
    ),
    case(
        "two credits of one expiry are used by id",
        hour(),
        credits=[credit("b", "4.00"), credit("a", "3.00")],
    ),
    case("a credit of nothing", hour(), credits=[credit("a", "0")]),
    case(
        "what is left of a credit ends with its last month",
        node("n", ("31 23:59:00", "READY"), ("04-01 00:01:00", "DELETING"), quantity=100),
        credits=[credit("a", "100", last="2026-03")],
    ),
    case(
        "credits come after commitments",
        hour(quantity=4),
        commitments=[commitment("c", 2, "1.00", "10 10:00:00", "10 12:00:00")],
        credits=[credit("a", "5")],
    ),
    case(
        "a credit in another currency's invoice",
        hour(),
        credits=[credit("a", "1.234")],
        policy={"currency": "JPY", "minor": 0, "fx": "149.37", "tax": "0.1"},
    ),
    case(
        "an unused commitment",
        commitments=[commitment("c", 4, "1.00", "10 10:00:00", "10 10:10:00")],
    ),
    case(
        "a commitment ends at as_of",
        commitments=[commitment("c", 4, "1", "10 10:00:00", "12 10:00:00")],
        as_of="10 10:05:00",
    ),
    case(
        "a commitment that is to come",
        hour(),
        commitments=[commitment("c", 4, "1", "11 10:00:00", "11 10:05:00")],
    ),
    case(
        "a commitment over the end of a month",
        node("n", ("31 23:59:30", "READY"), ("04-01 00:00:45", "DELETING"), quantity=900),
        commitments=[commitment("c", 500, "2.00", "31 23:59:00", "04-01 00:00:30")],
    ),
    case(
        "a commitment over a change of price",
        node("n", ("10 11:59:30", "READY"), ("10 12:00:30", "DELETING"), quantity=9),
        card=[
            price(ON_DEMAND, "4.50", "2015-01-01T00:00:00Z"),
            price(ON_DEMAND, "6.50", "10 12:00:00"),
        ],
        commitments=[commitment("c", 5, "2.00", "10 11:59:45", "10 12:00:15")],
    ),
    case(
        "two commitments of one SKU add up",
        short("a", quantity=8),
        short("b", "50", quantity=8),
        commitments=[
            commitment("y", 5, "2.00", "10 10:00:00", "10 10:00:30"),
            commitment("x", 6, "1.00", "10 10:00:10", "10 10:00:45"),
        ],
    ),
    case(
        "a commitment covers a part of the second node",
        short("a", quantity=4),
        short("b", "50", quantity=4),
        commitments=[commitment("c", 6, "1.00", "10 10:00:00", "10 10:01:00")],
        jobs=[job("j", "b", "10 10:00:00", "10 10:00:20")],
    ),
    case(
        "a commitment does not cover what is waived",
        spot("30"),
        commitments=[commitment("c", 256, "0.10", "10 10:00:00", "10 10:01:00", SPOT)],
    ),
    case(
        "a commitment covers one SKU only",
        hour("m", quantity=2),
        spot("60"),
        commitments=[commitment("c", 256, "0.10", "10 10:00:00", "10 10:01:00", SPOT)],
    ),
    case(
        "a commitment covers everything",
        short(quantity=2),
        commitments=[commitment("c", 9, "0.10", "10 09:59:00", "10 10:01:00")],
        budget={"usd": "0.01"},
    ),
    case(
        "a disk is committed per month",
        node(
            "d", ("10 10:00:00", "EXISTS"), ("10 10:02:00", "DELETED"), sku=DISK, quantity=100_000
        ),
        commitments=[commitment("c", 50_000, "0.02", "10 10:00:00", "10 10:05:00", DISK)],
    ),
    case(
        "jobs with gaps",
        short(),
        jobs=[
            job("a", "n", "10 10:00:05", "10 10:00:10"),
            job("b", "n", "10 10:00:20.5", "10 10:00:30"),
        ],
    ),
    case(
        "jobs that overlap and lie outside",
        short(),
        jobs=[
            job("b", "n", "10 09:00:00", "10 10:00:10"),
            job("a", "n", "10 10:00:05", "10 10:00:20"),
            job("c", "n", "10 10:00:07", "10 10:00:08"),
            job("a", "n", "10 10:00:35", "10 12:00:00"),
        ],
    ),
    case(
        "two jobs that start together",
        short(),
        jobs=[job(n, "n", "10 10:00:05", "10 10:00:30") for n in "ba"],
    ),
    case("a job of no length", short(), jobs=[job("a", "n", "10 10:00:05.5", "10 10:00:05.5")]),
    case(
        "a job that is still going",
        short(),
        jobs=[job("a", "n", "10 10:00:05", None)],
        as_of="10 10:00:15",
    ),
    case(
        "a job on a node that is free",
        spot("30"),
        jobs=[job("a", "n", "10 10:00:05", "10 10:00:30")],
    ),
    case("no jobs", short(), jobs=[]),
    case(
        "a job over two prices and two months",
        node("n", ("31 23:59:30", "READY"), ("04-01 00:00:45", "DELETING")),
        card=[
            price(ON_DEMAND, "4.50", "2015-01-01T00:00:00Z"),
            price(ON_DEMAND, "6.50", "04-01 00:00:10"),
        ],
        jobs=[job("a", "n", "31 23:59:40", "04-01 00:00:20")],
    ),
    case("a budget that is never reached", hour(), budget={"usd": "4.51"}),
    case("a budget that is reached in the last second", hour(), budget={"usd": "4.50"}),
    case("a budget that is passed within a second", hour(), budget={"usd": "4.498750001"}),
    case(
        "a budget on a node that starts within a second",
        node("n", ("10 10:00:00.9", "READY"), ("10 10:00:40", "STOPPED")),
        budget={"usd": "0.01"},
    ),
    case(
        "a budget that a commitment uses up",
        hour(),
        commitments=[commitment("c", 1, "3.60", "09 10:00:00", "11 10:00:00")],
        budget={"usd": "1"},
        as_of="09 10:30:00",
    ),
    case("a budget does not see credits", hour(), credits=[credit("a", "4")], budget={"usd": "2"}),
    case("nothing was issued", hour(), issued={}, open_month="2026-04"),
    case("issued as it is rated", hour(), issued={"2026-03": "4.50"}, open_month="2026-04"),
    case("too much was issued", hour(), issued={"2026-03": "9.00"}, open_month="2026-04"),
    case(
        "a month was issued and has no usage any more",
        hour(),
        issued={"2026-02": "9.00", "2026-03": "4.50"},
        open_month="2026-04",
    ),
    case(
        "a correction has its tax",
        hour(),
        issued={"2026-03": "1.19"},
        open_month="2026-04",
        policy={"tax": "0.19"},
    ),
    case(
        "two months are corrected",
        node("n", ("31 23:59:00", "READY"), ("04-01 00:01:00", "DELETING"), quantity=100),
        issued={"2026-04": "0.00", "2026-03": "7.49"},
        open_month="2026-05",
    ),
    case(
        "a correction in yen",
        hour(),
        issued={"2026-03": "600"},
        open_month="2026-04",
        policy={"currency": "JPY", "minor": 0, "fx": "149.37"},
    ),
    case(
        "lines of many SKUs, each rounded down",
        *[short(f"n{i}", "36", sku=f"s{i}") for i in range(7)],
        card=[price(f"s{i}", "0.444", "2015-01-01T00:00:00Z") for i in range(7)],
    ),
    case(
        "lines of many SKUs, each rounded up",
        *[short(f"n{i}", "36", sku=f"s{i}") for i in range(7)],
        card=[price(f"s{i}", "0.555", "2015-01-01T00:00:00Z") for i in range(7)],
    ),
]
