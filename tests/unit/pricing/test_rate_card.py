"""The rate card: what the platform charges, and what it says when it cannot."""

import csv
from pathlib import Path

import pytest

from podyard.base.clock import PlatformTime
from podyard.base.errors import Code, PodyardError
from podyard.domain.fleet_file import instant_fleet
from podyard.domain.node import UsageClass
from podyard.domain.usage import PriceUnit
from podyard.pricing.amounts import total
from podyard.pricing.current_card import default_rate_card
from podyard.pricing.meter import Metered
from podyard.pricing.rating import hold, rate
from podyard.pricing.sku import OBJECT, OPERATION, make_sku, make_version

AT = PlatformTime.from_rfc3339("2026-11-21T00:00:00Z")
CARD = default_rate_card()
FACTS = Path(__file__).parents[2] / "data" / "billing" / "rate_card.csv"


def usd(text: str) -> int:
    whole, _, digits = text.partition(".")
    return int(whole) * 10**9 + int(digits.ljust(9, "0") or 0)


@pytest.mark.parametrize(
    ("kind", "region", "usage", "per_hour"),
    [
        ("v2-8", "us-central1", UsageClass.ON_DEMAND, "4.50"),
        ("v2-8", "us-central1", UsageClass.PREEMPTIBLE, "1.35"),
        ("v2-8", "europe-west4", UsageClass.SPOT, "1.26225"),
        ("v2-8", "asia-east1", UsageClass.PREEMPTIBLE, "1.566"),
        ("v3-8", "europe-west4", UsageClass.ON_DEMAND, "8.80"),
        ("v3-32", "europe-west4", UsageClass.ON_DEMAND, "32"),
        ("v3-32", "europe-west4", UsageClass.RESERVED, "32"),
        ("v3-32", "europe-west4", UsageClass.SPOT, "10.56"),
        ("v4-8", "us-central2", UsageClass.ON_DEMAND, "12.88"),
        ("v4-4096", "us-central2", UsageClass.ON_DEMAND, "6594.56"),
        ("v4-384", "us-central2", UsageClass.ON_DEMAND, "618.24"),
        ("v5litepod-8", "us-east5", UsageClass.SPOT, "4.80"),
        ("v5p-8", "us-east5", UsageClass.ON_DEMAND, "16.80"),
        ("v6e-1", "us-central1", UsageClass.SPOT, "0.54421"),
    ],
)
def test_prices_per_hour(kind: str, region: str, usage: UsageClass, per_hour: str) -> None:
    assert CARD.price(kind, region, usage, AT).total_nanos_per_hour == usd(per_hour)


def test_a_price_says_what_it_is() -> None:
    price = CARD.price("v4-64", "us-central2", UsageClass.SPOT, AT)
    assert (price.sku_id, price.unit, price.quantity) == (
        "tpu-v4-chip/us-central2/spot",
        PriceUnit.CHIP_HOUR,
        32,
    )
    assert price.nanos_per_hour == 921_500_000
    assert price.source.startswith("skypilot-org/skypilot-catalog")
    assert price.verified
    assert CARD.price("v2-8", "us-central1", "on-demand", AT).quantity == 1


def test_a_missing_price_is_refused_and_says_what_there_is() -> None:
    with pytest.raises(
        PodyardError, match="no preemptible price of v4-8 in us-central2: there it has prices for"
    ) as e:
        CARD.price("v4-8", "us-central2", UsageClass.PREEMPTIBLE, AT)
    assert e.value.code is Code.NOT_FOUND
    with pytest.raises(
        PodyardError, match=r"no spot price of v3-8 in us-east1: .*spot is priced in europe-west4"
    ):
        CARD.price("v3-8", "us-east1", UsageClass.SPOT, AT)
    with pytest.raises(PodyardError, match="it has no price there at all"):
        CARD.price("v3-32", "asia-east1", UsageClass.SPOT, AT)
    with pytest.raises(PodyardError, match=r"no price of tpu-v2-.* at 2014"):
        CARD.price(
            "v2-8", "us-central1", "on-demand", PlatformTime.from_rfc3339("2014-12-31T23:59:59Z")
        )


def test_every_offer_of_the_default_fleet_has_a_price_or_says_that_it_has_none() -> None:
    fleet = instant_fleet()
    priced = unpriced = 0
    for zone in fleet.zones.values():
        for kind in fleet.offered_types(zone.name):
            for usage in zone.offers[kind.generation.name].usage_classes:
                try:
                    assert CARD.price(kind.name, zone.region, usage, AT).total_nanos_per_hour > 0
                    priced += 1
                    assert not fleet.is_unpriced(zone.region, kind, usage), (
                        zone.name,
                        kind.name,
                        usage,
                    )
                except PodyardError as error:
                    unpriced += 1
                    assert error.code is Code.NOT_FOUND
                    assert fleet.is_unpriced(zone.region, kind, usage), (zone.name, error.message)
    assert priced > 500
    assert unpriced < priced / 3


def test_the_two_nodes_of_the_demonstration() -> None:
    costs = []
    for kind, region, usage, seconds in (
        ("v2-8", "us-central1", UsageClass.PREEMPTIBLE, 11),
        ("v3-32", "europe-west4", UsageClass.ON_DEMAND, 17),
    ):
        sku, quantity = CARD.sku_for(kind, region, usage)
        start = AT.nanos // 10**9
        costs.append(
            total(rate(Metered("n", (range(start, start + seconds),)), sku, quantity).records)
        )
    assert [cost.text(6) for cost in costs] == ["0.004125", "0.151111"]
    assert [cost.text(2) for cost in costs] == ["0.00", "0.15"]


def test_use_is_priced_by_its_own_time_and_held_before_the_first_price() -> None:
    versions = [
        make_version("s", "2026-03-10T12:00:00Z", "4.50", "t"),
        make_version("s", "2026-03-10T10:00:00Z", "6.50", "t"),
    ]
    sku = make_sku("s", PriceUnit.DEVICE_HOUR, versions)
    noon = PlatformTime.from_rfc3339("2026-03-10T12:00:00Z").nanos // 10**9
    rated = rate(Metered("n", (range(noon - 7201, noon + 1),)), sku, 2)
    assert [(r.start_second, r.seconds, r.price.nanos) for r in rated.records] == [
        (noon - 7200, 7200, usd("6.50")),
        (noon, 1, usd("4.50")),
    ]
    (held,) = rated.suspense
    assert (held.start_second, held.seconds) == (noon - 7201, 1)
    assert "no price before 2026-03-10T10:00:00Z" in held.reason
    assert hold(Metered("n", (range(5),)), "why").suspense[0].seconds == 5


def test_open_use_is_marked_and_never_mixed_with_what_is_certain() -> None:
    sku = make_sku("s", PriceUnit.CHIP_HOUR, [make_version("s", "1970-01-01T00:00:00Z", "1", "t")])
    metered = Metered(
        "n", (range(100 + 10**9, 200 + 10**9),), open_since=PlatformTime((10**9 + 150) * 10**9)
    )
    spans = [
        (r.start_second - 10**9, r.seconds, r.estimated) for r in rate(metered, sku, 1).records
    ]
    assert spans == [(100, 50, False), (150, 50, True)]


def test_the_card_has_every_row_of_the_data_and_no_other() -> None:
    with FACTS.open(encoding="utf-8", newline="") as file:
        facts = {row["sku"]: row for row in csv.DictReader(file)}
    assert len(facts) == 195
    of_buckets = {
        sku_id for sku_id, sku in CARD.skus.items() if sku.generation in (OBJECT, OPERATION)
    }
    assert CARD.skus.keys() - of_buckets == facts.keys()
    verified = [
        sku_id
        for sku_id in of_buckets
        for version in CARD.skus[sku_id].versions
        if version.verified
    ]
    assert {sku_id.partition("/")[0] for sku_id in verified} == {
        f"operation-class-{one}-standard" for one in "ab"
    }
    for sku_id, fact in facts.items():
        sku = CARD.skus[sku_id]
        (version,) = sku.versions
        assert (sku.generation, sku.accelerator_type or "", sku.region, sku.usage,
            str(sku.unit)) == (
            fact["generation"], fact["accelerator_type"], fact["region"], fact["usage"],
            fact["unit"],
        ), sku_id  # fmt: skip
        assert version.nanos == usd(fact["usd"]), sku_id
        assert version.effective_from.rfc3339() == fact["effective_from"], sku_id
        assert (version.verified, version.source) == (fact["verified"] == "yes", fact["source"]), (
            sku_id
        )


@pytest.mark.parametrize(
    ("kind", "region", "years", "per_hour"),
    [
        ("v2-32", "us-central1", 1, "15.12"),
        ("v3-32", "europe-west4", 3, "14.40"),
        ("v4-64", "us-central2", 1, "64.9152"),
        ("v5litepod-16", "us-east5", 3, "8.64"),
        ("v5p-8", "us-east5", 1, "11.76"),
        ("v6e-1", "us-east5", 3, "1.215"),
    ],
)
def test_prices_under_a_commitment(kind: str, region: str, years: int, per_hour: str) -> None:
    sku, quantity = CARD.sku_for(kind, region, UsageClass.ON_DEMAND)
    sold = CARD.commitment_of(sku, years)
    assert sold is not None
    (version,) = sold.versions
    assert (version.nanos * quantity, version.verified) == (usd(per_hour), False)


@pytest.mark.parametrize(
    ("kind", "region", "years"), [("v2-32", "europe-west4", 1), ("v2-32", "us-central1", 2)]
)
def test_a_commitment_that_nobody_sells_has_no_sku(kind: str, region: str, years: int) -> None:
    sku, _ = CARD.sku_for(kind, region, UsageClass.ON_DEMAND)
    assert CARD.commitment_of(sku, years) is None


@pytest.mark.parametrize(
    ("sku_id", "per_unit", "unit"),
    [
        ("host-n1-vcpu/us-central1/on-demand", "0.031611", PriceUnit.VCPU_HOUR),
        ("host-n1-ram/europe-west4/preemptible", "0.000987", PriceUnit.GIB_HOUR),
        ("disk-pd-ssd/europe-west4/on-demand", "0.187", PriceUnit.GIB_MONTH),
    ],
)
def test_hosts_and_disks_have_prices_of_their_own(
    sku_id: str, per_unit: str, unit: PriceUnit
) -> None:
    version = CARD.skus[sku_id].version_at(AT)
    assert version is not None
    assert (version.nanos, CARD.skus[sku_id].unit) == (usd(per_unit), unit)
