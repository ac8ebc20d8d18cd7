"""SkyPilot's and gpuhunt's own fetchers read our catalogue, and come to the prices of the rate
card."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from decimal import Decimal
from pathlib import Path

import pytest

from podyard.base.clock import PlatformTime
from podyard.base.errors import PodyardError
from podyard.base.money import nanos_from_decimal_text
from podyard.domain.fleet import region_of
from podyard.domain.fleet_file import instant_fleet
from podyard.pricing.current_card import default_rate_card
from tests.clients.client import Client
from tests.clients.outside import Outside
from tests.stack import Stack, open_stack

PROGRAMS = Path(__file__).parent / "programs"
SENTINEL = Decimal(700)  # what SkyPilot writes for a v6e price that it does not find
DECIMALS = Decimal("0.000000001")  # of a nano: readers multiply in floats
CARD = default_rate_card()
AT = PlatformTime.from_rfc3339("2026-11-21T00:00:00Z")
Price = Decimal | None
pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("clients")]


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """With the default fleet, which offers every generation."""
    with open_stack(tmp_path_factory.mktemp("prices")) as found:
        yield found


@pytest.fixture
def run(stack: Stack, outside: Outside, tmp_path: Path) -> Iterator[Callable[..., object]]:
    """`run(environment, program, case)` is what a case answers."""

    def runner(environment: str, program: str, case: str) -> object:
        return Client(environment, PROGRAMS / program, stack, outside, tmp_path).run(case)

    yield runner
    assert not outside.refused, "a request left the machine"


def test_skypilot_has_the_price_of_every_tpu(
    run: Callable[..., Iterable[list[str | None]]],
) -> None:
    """Before it rounds to five decimals. Google's v5p sizes that it adds itself are among them."""
    _compare(
        (kind, zone, _exact(price), _exact(spot))
        for kind, zone, price, spot in run("sky", "skypilot_prices.py", "tpus")
    )


def test_skypilot_s_whole_fetcher_writes_its_catalogue(
    run: Callable[..., Iterable[dict[str, str]]],
) -> None:
    rows = list(run("sky", "skypilot_prices.py", "catalogue"))
    tpus = {
        (row["AcceleratorName"], row["AvailabilityZone"]): row
        for row in rows
        if row["AcceleratorName"]
    }
    pod = tpus["tpu-v3-32", "europe-west4-a"]
    assert (Decimal(pod["Price"]), Decimal(pod["SpotPrice"])) == (Decimal(32), Decimal("10.56"))
    assert {(kind.removeprefix("tpu-"), zone) for kind, zone in tpus} >= _offered()
    machines = {
        (row["InstanceType"], row["AvailabilityZone"]): row for row in rows if row["InstanceType"]
    }
    host = machines["n1-highmem-8", "us-central1-f"]
    expected = [
        8 * _host("vcpu", usage) + 52 * _host("ram", usage)
        for usage in ("on-demand", "preemptible")
    ]
    assert [Decimal(host["Price"]), Decimal(host["SpotPrice"])] == [
        round(price, 5) for price in expected
    ]


def test_gpuhunt_has_the_price_of_every_tpu(run: Callable[..., Iterable[list[str]]]) -> None:
    _compare(
        (kind, zone, _exact(price), _exact(spot))
        for kind, zone, price, spot in run("gpuhunt", "gpuhunt_prices.py", "tpus")
    )


def test_gpuhunt_offers_tpus_and_machines(run: Callable[..., Iterable[list[str]]]) -> None:
    offers = {
        (name, zone, spot): _exact(price)
        for name, zone, spot, price in run("gpuhunt", "gpuhunt_prices.py", "offers")
    }
    assert offers["v6e-8", "us-central1-b", True] == Decimal("4.35368")
    assert offers["v2-8", "us-central1-f", False] == Decimal("4.5")
    host = 8 * _host("vcpu", "preemptible") + 52 * _host("ram", "preemptible")
    assert offers["n1-highmem-8", "us-central1-f", True] == round(host, 6)


def _compare(found: Iterable[tuple[str, str, Price, Price]]) -> None:
    """Every offer of the fleet has the card's prices, on demand and spot, and where the card has
    none, none."""
    seen = set()
    for kind, zone, price, spot in found:
        assert price == _of_card(kind, zone, "on-demand"), (kind, zone)
        expected = _of_card(kind, zone, "spot")
        if expected is None and kind.startswith("v6e"):
            assert spot in (None, SENTINEL), (kind, zone)
        else:
            assert spot == expected, (kind, zone)
        seen.add((kind, zone))
    assert seen >= _offered()


def _offered() -> set[tuple[str, str]]:
    fleet = instant_fleet()
    return {(kind.name, zone) for zone in fleet.zones for kind in fleet.offered_types(zone)}


def _of_card(kind: str, zone: str, usage: str) -> Price:
    try:
        return _dollars(CARD.price(kind, region_of(zone), usage, AT).total_nanos_per_hour)
    except PodyardError:
        return None


def _host(part: str, usage: str) -> Decimal:
    version = CARD.skus[f"host-n1-{part}/us-central1/{usage}"].version_at(AT)
    assert version is not None
    return _dollars(version.nanos)


def _dollars(nanos: int) -> Decimal:
    return Decimal(nanos) / nanos_from_decimal_text("1")


def _exact(text: str | None) -> Price:
    """A price that was reckoned in floats, to the nano."""
    return None if text in (None, "None") else Decimal(str(text)).quantize(DECIMALS)
