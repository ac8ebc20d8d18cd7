"""The rate card: what the platform charges, and what it says when it cannot."""

import pytest

from podyard.base.clock import PlatformTime
from podyard.base.errors import Code, PodyardError
from podyard.base.money import Amount
from podyard.domain.fleet import default_fleet
from podyard.domain.node import UsageClass
from podyard.domain.usage import PriceUnit
from podyard.pricing.meter import Metered
from podyard.pricing.rating import hold, rate, shown, total
from podyard.pricing.sku import default_rate_card, load_rate_card, make_sku, make_version

AT = PlatformTime.from_rfc3339("2026-11-21T00:00:00Z")
CARD = default_rate_card()
_ONE_PRICE = "{sources: {x: y}, skus: {a: {generation: v2, region: r, usage: u, unit: chip_hour, prices: [{PRICE}]}}}"


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
    assert CARD.price_per_hour(kind, region, usage, AT) == usd(per_hour)


def test_a_price_says_what_it_is() -> None:
    price = CARD.price("v4-64", "us-central2", UsageClass.SPOT, AT)
    assert (price.sku_id, price.unit, price.quantity) == ("tpu-v4-chip/us-central2/spot", PriceUnit.CHIP_HOUR, 32)
    assert price.nanos_per_hour == 921_500_000
    assert price.source.startswith("skypilot-org/skypilot-catalog")
    assert price.verified
    assert CARD.price("v2-8", "us-central1", "on-demand", AT).quantity == 1


def test_a_missing_price_is_refused_and_says_what_there_is() -> None:
    with pytest.raises(PodyardError, match="no preemptible price of v4-8 in us-central2: there it has prices for") as e:
        CARD.price("v4-8", "us-central2", UsageClass.PREEMPTIBLE, AT)
    assert e.value.code is Code.NOT_FOUND
    with pytest.raises(PodyardError, match=r"no spot price of v3-8 in us-east1: .*spot is priced in europe-west4"):
        CARD.price("v3-8", "us-east1", UsageClass.SPOT, AT)
    with pytest.raises(PodyardError, match="it has no price there at all"):
        CARD.price("v3-32", "asia-east1", UsageClass.SPOT, AT)
    with pytest.raises(PodyardError, match=r"no price of tpu-v2-.* at 2014"):
        CARD.price("v2-8", "us-central1", "on-demand", PlatformTime.from_rfc3339("2014-12-31T23:59:59Z"))


def test_every_offer_of_the_default_fleet_has_a_price_or_says_that_it_has_none() -> None:
    fleet = default_fleet()
    priced = unpriced = 0
    for zone in fleet.zones.values():
        for kind in fleet.offered_types(zone.name):
            for usage in zone.offers[kind.generation.name].usage_classes:
                try:
                    assert CARD.price_per_hour(kind.name, zone.region, usage, AT) > 0
                    priced += 1
                    assert not fleet.is_unpriced(zone.region, kind, usage), (zone.name, kind.name, usage)
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
        costs.append(total(rate(Metered("n", (range(start, start + seconds),)), sku, quantity).records))
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
    metered = Metered("n", (range(100 + 10**9, 200 + 10**9),), open_since=PlatformTime((10**9 + 150) * 10**9))
    spans = [(r.start_second - 10**9, r.seconds, r.estimated) for r in rate(metered, sku, 1).records]
    assert spans == [(100, 50, False), (150, 50, True)]


def test_shown_lines_and_rounding_error_make_the_subtotal() -> None:
    four_tenths_of_a_cent = Amount.of_hourly(4_000_000, 3600)
    result = shown([four_tenths_of_a_cent] * 10, 2)
    assert (set(result.lines), result.rounding_error, result.subtotal) == ({0}, 4, 4)
    assert shown([], 2).subtotal == 0


@pytest.mark.parametrize(
    ("text", "where"),
    [
        ("- 1", "must have currency"),
        ("skus: [", "not YAML"),
        ("skus: {a: {unit: hour}}", "rate card, a: must have exactly"),
        ("skus: {a: {generation: v2, region: r, usage: u, unit: hour, prices: []}}", "unit 'hour' is not one of"),
        ("skus: {a: {generation: v2, region: r, usage: u, unit: chip_hour, prices: []}}", "needs prices"),
        (
            _ONE_PRICE.replace("PRICE", "from: '2015-01-01T00:00:00Z', usd: 1.5, source: x"),
            "usd (as text)",
        ),
        (
            _ONE_PRICE.replace("PRICE", "from: '2015-01-01T00:00:00.5Z', usd: '1.5', source: x"),
            "starts at a whole second",
        ),
    ],
)
def test_errors_of_a_rate_card_name_the_place(text: str, where: str) -> None:
    with pytest.raises(PodyardError) as caught:
        load_rate_card(text)
    assert where in caught.value.message
