"""A month of 10,000 nodes with 1,000,000 changes of state: metered, rated, covered, invoiced, by
the pure bill alone.

    python -m benchmarks.billing [--nodes 10000] [--events 100] [--commitments 3] [--jobs]

Events are made while the bill is computed, as rows that are read would be; making them is measured
by itself first and is part of the total. Expected before the first run: 15 seconds in all on one
core, 1 GB at the peak.
"""

from __future__ import annotations

import argparse
import resource
import time
from collections.abc import Iterator

from podyard.base.clock import NANOS_PER_SECOND, PlatformTime
from podyard.base.money import Amount
from podyard.base.rng import Random, Streams
from podyard.domain.invoice import BillingPolicy, Commitment, Credit, JobSpan
from podyard.domain.usage import PriceUnit, PriceVersion, UsageEvent
from podyard.pricing.bill import Bill, Resource, Terms, compute
from podyard.pricing.meter import MeterPolicy
from podyard.pricing.sku import Sku, make_sku, make_version

START = PlatformTime.from_rfc3339("2026-03-01T00:00:00Z")
MONTH_SECONDS = 31 * 86_400
SKUS = 24
STATES = ("READY", "STOPPED", "STARTING", "READY", "PREEMPTED", "CREATING")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--nodes", type=int, default=10_000)
    parser.add_argument("--events", type=int, default=100, help="of each node")
    parser.add_argument("--commitments", type=int, default=3)
    parser.add_argument("--jobs", action="store_true", help="attribute every second to jobs, too")
    options = parser.parse_args()
    resources = make_resources(options.nodes)
    began = time.perf_counter()
    count = sum(1 for _ in make_events(resources, options.events))
    made = time.perf_counter() - began
    print(f"{'make the events':<28} {made:6.1f} s   {count} events")
    terms = make_terms(resources, options.commitments, with_jobs=options.jobs)
    began = time.perf_counter()
    bill = compute(
        make_events(resources, options.events),
        resources,
        terms,
        START.plus_seconds(MONTH_SECONDS),
        grouped=True,
    )
    took = time.perf_counter() - began
    print(f"{'make them and bill':<28} {took:6.1f} s   {peak_megabytes():.0f} MB at the peak")
    describe(bill)


def make_skus() -> list[Sku]:
    skus = []
    for index in range(SKUS):
        name = f"tpu-{index}/region/on-demand"
        versions = [
            make_version(name, "2015-01-01T00:00:00Z", f"{index + 1}.20", "benchmark"),
            make_version(
                name, f"2026-03-{index + 2:02d}T12:00:00Z", f"{index + 1}.35", "benchmark"
            ),
        ]
        skus.append(make_sku(name, PriceUnit.CHIP_HOUR, versions))
    return skus


def make_resources(nodes: int) -> dict[str, Resource]:
    skus = make_skus()
    policies = (MeterPolicy(), MeterPolicy(preempt_free_seconds=60))
    found = {}
    for index in range(nodes):
        name = f"projects/demo/locations/zone/nodes/n-{index:06d}"
        found[name] = Resource(name, "tpu", skus[index % SKUS], 4 << index % 6, policies[index % 2])
    return found


def make_events(resources: dict[str, Resource], count: int) -> Iterator[UsageEvent]:
    chance: Random = Streams(1).stream("benchmark")
    gap = MONTH_SECONDS * NANOS_PER_SECOND // (count + 1)
    for name in resources:
        at = START.nanos + int(chance.random() * gap)
        for seq in range(count):
            at += int((0.5 + chance.random() / 2) * gap)
            yield UsageEvent(
                f"{name}#{seq}", name, seq, STATES[seq % len(STATES)], PlatformTime(at)
            )


def make_terms(resources: dict[str, Resource], commitments: int, *, with_jobs: bool) -> Terms:
    skus = make_skus()
    start = START.nanos // NANOS_PER_SECOND
    bought = [
        Commitment(
            commitment_id=f"c{index}",
            sku_id=skus[index].sku_id,
            unit=PriceUnit.CHIP_HOUR,
            quantity=5_000,
            price=PriceVersion(f"c{index}", START, 700_000_000, "benchmark"),
            start_second=start + index * 86_400,
            end_second=start + 365 * 86_400,
        )
        for index in range(commitments)
    ]
    jobs = [
        JobSpan(
            f"job-{day}",
            name,
            START.plus_seconds(day * 86_400),
            START.plus_seconds(day * 86_400 + 70_000),
        )
        for name in resources
        for day in range(30)
    ]
    return Terms(
        policy=BillingPolicy(time_zone="America/Los_Angeles"),
        commitments=bought,
        credits=[Credit("promo", Amount.of_hourly(1_000_000_000, 3_600_000), "2026-01", "2026-12")],
        jobs=jobs if with_jobs else None,
        budgets=[Amount.of_hourly(1_000_000_000, 3_600 * 1_000_000)],
    )


def peak_megabytes() -> float:
    """Of this process; Linux counts kilobytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000


def describe(bill: Bill) -> None:
    lines = sum(len(invoice.lines) for invoice in bill.invoices)
    print(
        f"{len(bill.records)} records, {len(bill.charges)} charges, {len(bill.invoices)} invoices "
        f"of {lines} lines"
    )
    print(
        f"{sum(bill.seconds.values())} s, ${bill.total.text(2)}; the budget is used up at "
        f"{bill.budget_stops[0]}"
    )


if __name__ == "__main__":
    main()
