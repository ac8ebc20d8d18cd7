"""A month to export in which everything happens: commitments that overlap, spot, a reservation, a
credit, tax, a correction, another currency, a change of price and a change of clocks."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

from podyard.base.clock import PlatformTime
from podyard.base.money import Amount
from podyard.domain import months
from podyard.domain.invoice import BillingPolicy, Commitment, CorrectedUse, Credit, JobSpan
from podyard.domain.node import UsageClass
from podyard.domain.usage import BilledResource, LabelPeriod, PriceUnit, UsageEvent
from podyard.pricing import attribution, bill, invoicing
from podyard.pricing.bill import Bill, Resource, Terms
from podyard.pricing.commitments import OWN
from podyard.pricing.export import Committed, ExportSource, Listed, ResourceFacts, Statement
from podyard.pricing.meter import MeterPolicy
from podyard.pricing.sku import Sku, make_sku, make_version

MONTH, ZONE = "2026-03", "Europe/Berlin"  # clocks go forward on the 29th: the month has 743 hours
POLICY = BillingPolicy(
    time_zone=ZONE,
    currency="EUR",
    tax=Fraction(19, 100),
    exchange={MONTH: Fraction("0.9137"), "2026-02": Fraction(1)},
)
DEVICE, CHIPS, SPOT = "tpu-v2-device/r/on-demand", "tpu-v5e/r/on-demand", "tpu-v5e/r/spot"
EVIL = "=HYPERLINK(1)"


def time(text: str) -> PlatformTime:
    return PlatformTime.from_rfc3339(text)


def second(text: str) -> int:
    return time(text).nanos // 10**9


def sku(sku_id: str, unit: PriceUnit, *prices: tuple[str, str]) -> Sku:
    return make_sku(
        sku_id, unit, [make_version(sku_id, since, usd, "test") for since, usd in prices]
    )


SKUS = {
    DEVICE: sku(
        DEVICE,
        PriceUnit.DEVICE_HOUR,
        ("2015-01-01T00:00:00Z", "4.50"),
        ("2026-03-20T10:00:00Z", "4.123456789"),
    ),
    CHIPS: sku(CHIPS, PriceUnit.CHIP_HOUR, ("2015-01-01T00:00:00Z", "1.20")),
    SPOT: sku(SPOT, PriceUnit.CHIP_HOUR, ("2015-01-01T00:00:00Z", "0.24493")),
}


@dataclasses.dataclass(frozen=True)
class Node:
    """READY from start to end (None: still)."""

    name: str
    sku_id: str
    quantity: int
    start: str
    end: str | None
    usage: str = "on-demand"
    reservation: str | None = None


NODES = (
    Node("a-device", DEVICE, 1, "2026-02-27T00:00:00Z", "2026-03-25T12:34:56Z"),
    Node("b-pod", CHIPS, 8, "2026-03-02T07:00:01Z", "2026-03-30T01:30:00Z"),
    Node("c-pod", CHIPS, 4, "2026-03-05T00:00:00Z", "2026-03-10T00:00:07Z"),
    Node("d-spot", SPOT, 8, "2026-03-28T22:10:00Z", "2026-03-29T03:20:11Z", "spot"),
    Node(
        "e-reserved",
        DEVICE,
        1,
        "2026-03-31T20:00:00Z",
        "2026-03-31T23:00:00Z",
        "reserved",
        "projects/p/r",
    ),
)
COMMITMENTS = (
    ("c-1", 5, "0.84", "2026-03-01T12:00:00Z", False),
    ("c-2", 4, "0.54", "2026-03-08T12:00:00Z", True),
)
JOBS = (
    JobSpan(
        "projects/p/jobs/one",
        "a-device",
        time("2026-03-01T10:00:00Z"),
        time("2026-03-01T11:00:00.5Z"),
    ),
    JobSpan(
        "projects/p/jobs/two",
        "a-device",
        time("2026-03-01T10:30:00Z"),
        time("2026-03-01T12:00:00Z"),
    ),
)


def committed() -> dict[str, Committed]:
    found = {}
    for name, quantity, usd, since, upfront in COMMITMENTS:
        price = make_version(f"{CHIPS}-commitment-1y", since, usd, "test", verified=False)
        paid = (
            dataclasses.replace(price, nanos=0, version_id=price.version_id + "#upfront")
            if upfront
            else price
        )
        start = second(since)
        until = start + 365 * 86_400
        one = Commitment(
            name,
            CHIPS,
            PriceUnit.CHIP_HOUR,
            quantity,
            paid,
            start,
            until,
            price if upfront else None,
        )
        found[name] = Committed(one, price.nanos, upfront, "r-a1")
    return found


def facts_of(node: Node) -> ResourceFacts:
    return ResourceFacts(
        node=BilledResource(
            key=node.name,
            name=f"projects/p/locations/r-a1-a/nodes/{node.name}",
            zone="r-a1-a",
            type="v2-8" if node.sku_id == DEVICE else f"v5litepod-{node.quantity}",
            usage_class=UsageClass(node.usage),
            created_by=EVIL,
            labels=(LabelPeriod(0, {"team": EVIL, "a": 'say "hi", ünï'}),),
        ),
        number=1,
        reservation=node.reservation,
        listed=Listed("E000-3F24-B8AA", "Cloud TPU", "95D2-902D-C8CA", "Tpu running in r"),
    )


def items_of(nodes: Sequence[Node]) -> list[CorrectedUse]:
    """An hour more of the first node, and half an hour less of the last one."""
    return [
        CorrectedUse(
            nodes[0].name,
            f"{DEVICE}@4.50",
            PriceUnit.DEVICE_HOUR,
            3600,
            3600,
            Amount.of_hourly(45 * 10**8, 3600),
        ),
        CorrectedUse(
            nodes[-1].name,
            f"{SPOT}@0.25",
            PriceUnit.CHIP_HOUR,
            -1800,
            -7200,
            Amount.of_hourly(-25 * 10**7, 7200),
        ),
    ]


def events_of(nodes: Sequence[Node]) -> list[UsageEvent]:
    found = []
    for node in nodes:
        found.append(UsageEvent(f"{node.name}-1", node.name, 1, "READY", time(node.start)))
        if node.end is not None:
            found.append(UsageEvent(f"{node.name}-2", node.name, 2, "DELETING", time(node.end)))
    return found


def bill_of(nodes: Sequence[Node], as_of: str, **terms: Any) -> Bill:
    policy = MeterPolicy(frozenset({"READY"}))
    resources = {
        n.name: Resource(n.name, "node", SKUS[n.sku_id], n.quantity, policy) for n in nodes
    }
    return bill.compute(events_of(nodes), resources, Terms(policy=POLICY, **terms), time(as_of))


def source(
    nodes: Sequence[Node] = NODES,
    *,
    issued: bool = True,
    by_job: bool = False,
    as_of: str = "2026-04-01T00:00:00Z",
    month: str = MONTH,
    plain: bool = False,
) -> ExportSource:
    """The month's export. `plain`: without commitments, credits, and corrections."""
    bought = {} if plain else committed()
    credits = (
        []
        if plain
        else [Credit("credit-1", Amount(1234 * 2_628_000 * 10**7), "2026-03", "2026-12")]
    )
    found = bill_of(
        nodes,
        as_of,
        commitments=[one.billed for one in bought.values()],
        credits=credits,
        issued={} if plain else {"2026-02": 20_000},
        open_month=None if plain else MONTH,
    )
    corrected = [
        dataclasses.replace(one, items=items_of(nodes), exchange=Fraction(9, 10))
        for one in found.adjustments
    ]
    invoice = invoicing.with_adjustments(found.invoice(month), corrected, month, POLICY)
    spans = {
        node.name: attribution.ownership(
            [s for s in JOBS if s.resource_id == node.name], time(as_of)
        )
        for node in nodes
    }
    statement = Statement(
        number=f"p-{month}",
        project="p",
        month=month,
        seconds=months.seconds_of(month, ZONE),
        time_zone=ZONE,
        currency=invoice.currency,
        decimals=invoice.decimals,
        exchange=invoice.exchange,
        issued=issued,
        as_of=time(as_of),
        lines={line.line_id: line.amount.parts for line in invoice.lines},
        credits=[(line.credit_id, line.amount.parts) for line in invoice.credits],
        tax=invoice.tax,
        adjustments=invoice.adjustments,
        total=invoice.total,
    )
    assert all(
        charge.resource_id in spans or charge.resource_id.startswith(OWN)
        for charge in found.charges
    )
    return ExportSource(
        statement,
        found.charges,
        bought,
        {n.name: facts_of(n) for n in nodes},
        spans if by_job else None,
        time(as_of),
    )
