"""Rate cards as files: what is refused, by row, and what of a card may change."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from podyard.base.clock import PlatformTime
from podyard.base.errors import Code, PodyardError
from podyard.domain.usage import BilledKind
from podyard.pricing import cards
from podyard.pricing.cards import check_change, load_rate_card
from podyard.pricing.current_card import default_rate_card
from podyard.pricing.sku import RateCard
from podyard.settings import from_environment

T1, T2, T3 = "2026-01-01T00:00:00Z", "2026-02-01T00:00:00Z", "2026-03-01T00:00:00Z"
CHIP = "generation: v4, region: us-central2, usage: spot, unit: chip_hour"
SLICE = "type: v4-8, generation: v4, region: us-central2, usage: spot, unit: slice_hour"


def price(start: str = T1, usd: str = '"1.5"', more: str = "") -> str:
    return f'{{from: "{start}", usd: {usd}, source: s{more}}}'


def row(fields: str = CHIP, *prices: str) -> str:
    return f"{{{fields}, prices: [{', '.join(prices or (price(),))}]}}"


def text(*skus: str) -> str:
    return f"{{currency: USD, sources: {{s: somebody}}, skus: {{{', '.join(skus)}}}}}"


def one(fields: str = CHIP, *prices: str) -> str:
    return text(f"a: {row(fields, *prices)}")


@pytest.mark.parametrize(
    ("card", "told"),
    [
        ("- 1", "must have currency, sources and skus"),
        ("skus: [", "not YAML"),
        ("{skus: {}, extra: 1}", "rate card: unknown key 'extra'"),
        ("{skus: {}, currency: EUR}", "currency 'EUR': prices are in USD"),
        ("{skus: {}, sources: [a]}", "sources must be a mapping"),
        ("{skus: {1: {}}}", "rate card, 1: a SKU is a text"),
        ("{skus: {a: {}}}", "rate card, a: must have generation"),
        (one(f"{CHIP}, colour: red"), "rate card, a: unknown key 'colour'"),
        (
            one(CHIP.replace("chip_hour", "hour")),
            "rate card, a: unit 'hour' is not one of device_hour",
        ),
        (
            one(CHIP.replace("chip_hour", "slice_hour")),
            "rate card, a: without a type the unit is chip_hour",
        ),
        (one(CHIP.replace("v4", "v9")), "rate card, a: generation 'v9' is not one of v2, v3"),
        (one(CHIP.replace("v4", "v1")), "rate card, a: generation 'v1' is not one of v2, v3"),
        (
            one(CHIP.replace("us-central2", "us-central2-b")),
            "rate card, a: region 'us-central2-b' is not the name",
        ),
        (
            one(CHIP.replace("spot", "reserved")),
            "rate card, a: usage 'reserved' is not one of on-demand",
        ),
        (
            one(SLICE.replace("v4-8", "v4-9")),
            "rate card, a: accelerator type 'v4-9' does not exist",
        ),
        (one(SLICE.replace("v4-8", "8")), "rate card, a: type 8 is not a string"),
        (one(SLICE.replace("v4-8", "v3-8")), "rate card, a: v3-8 is of generation v3, not v4"),
        (
            one(SLICE.replace("slice_hour", "chip_hour")),
            "with a type the unit is device_hour or slice_hour",
        ),
        (
            one("generation: disk, region: us-central2, usage: spot, unit: gib_month"),
            "an id NAME/REGION/USAGE of disk-",
        ),
        (
            text(f"a: {row()}", f"b: {row()}"),
            "rate card, b: a has the prices of v4 us-central2 spot already",
        ),
        (
            text(f"a: {row()}", f"a: {row()}"),
            "rate card, a: this key is there twice, in lines 1 and 1",
        ),
        (
            text(f"a:\n {row()}", f"b:\n {row()}", f"'a':\n {row()}"),
            "this key is there twice, in lines 1 and 3",
        ),
        (one(f"{CHIP}, usage: spot"), "rate card, usage: this key is there twice"),
        (one(CHIP, "{}"), "rate card, a, price 1: must have from"),
        (one(CHIP, "1"), "rate card, a, price 1: a price is a mapping"),
        (text(f"a: {{{CHIP}, prices: []}}"), "rate card, a: needs prices"),
        (
            one(CHIP, price(), price(T2, "1.5")),
            "rate card, a, price 2: usd 1.5 is a number to YAML",
        ),
        (one(CHIP, price(usd='"-1"')), "rate card, a, price 1: usd '-1': a price is not negative"),
        (one(CHIP, price(usd='"1e3"')), "usd '1e3' must have at most nine digits"),
        (one(CHIP, price(usd='"NaN"')), "usd 'NaN' must have at most nine digits"),
        (
            one(CHIP, price(usd='"0.0000000001"')),
            "usd '0.0000000001' must have at most nine digits and nine decimals",
        ),
        (one(CHIP, price(usd='"1000000000"')), "usd '1000000000' must have at most nine digits"),
        (
            one(CHIP, price(more=", verified: 1")),
            "rate card, a, price 1: verified is true or false, not 1",
        ),
        (one(CHIP, price(more=", note: x")), "rate card, a, price 1: unknown key 'note'"),
        (
            one(CHIP, price().replace("source: s", "source: t")),
            "rate card, a, price 1: source 't' is not one of s",
        ),
        (
            one(CHIP, price().replace(f'"{T1}"', T1)),
            "from 2026-01-01 00:00:00+00:00 is not a string in YAML",
        ),
        (one(CHIP, price("2026-01-01T00:00:00.5Z")), "starts at a whole second"),
        (one(CHIP, price("2026-13-01T00:00:00Z")), "rate card, a: month must be in 1..12"),
        (
            one(CHIP, price(), price("2026-01-01T01:00:00+01:00")),
            "(a@2026-01-01T00:00:00Z): overlap: no two from the",
        ),
        (
            one(CHIP, price(T2), price(more=f', until: "{T3}"')),
            f"rate card, a, price 2 (a@{T1}): overlap: it ends at {T3}, the next begins at {T2}",
        ),
        (
            one(CHIP, price(more=f', until: "{T2}"'), price(T3)),
            f"rate card, a, price 1 (a@{T1}): gap: it ends at {T2}, the next begins at {T3}",
        ),
        (one(CHIP, price(more=f', until: "{T2}"')), f"price 1 (a@{T1}): gap: nothing follows {T2}"),
        (one(CHIP, price(more=f', until: "{T1}"')), f"until {T1} is not after from"),
    ],
)
def test_errors_name_the_row(card: str, told: str) -> None:
    with pytest.raises(PodyardError) as caught:
        load_rate_card(card)
    assert told in caught.value.message
    assert caught.value.code is Code.FAILED_PRECONDITION


def test_prices_that_follow_each_other_may_say_their_end() -> None:
    card = load_rate_card(one(CHIP, price(T2), price(more=f', until: "{T2}"')))
    assert [version.version_id for version in card.skus["a"].versions] == [f"a@{T1}", f"a@{T2}"]


@pytest.fixture
def own_card(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    path = tmp_path / "own.yaml"
    monkeypatch.setenv("PODYARD_RATE_CARD", str(path))
    default_rate_card.cache_clear()
    yield path
    default_rate_card.cache_clear()


def test_a_card_of_one_s_own_takes_the_place_of_the_default(own_card: Path) -> None:
    own_card.write_text(one())
    at = PlatformTime.from_rfc3339(T2)
    assert (
        default_rate_card().price("v4-16", "us-central2", "spot", at).total_nanos_per_hour
        == 8 * 1_500_000_000
    )
    with pytest.raises(PodyardError, match="no on-demand price of v4-8"):
        default_rate_card().price("v4-8", "us-central2", "on-demand", at)
    settings = from_environment()
    assert settings.rate_card_path == own_card
    assert settings.environment()["PODYARD_RATE_CARD"] == str(own_card)


def test_errors_of_a_card_of_one_s_own_name_the_file(
    own_card: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own_card.write_text(one(CHIP, price(usd="1")))
    with pytest.raises(PodyardError, match=r"own\.yaml: rate card, a, price 1: usd 1 is a number"):
        default_rate_card()
    own_card.write_bytes(b"\xff")
    with pytest.raises(PodyardError, match=r"nor a file that can be read: it is not UTF-8"):
        default_rate_card()
    own_card.write_text(one())
    monkeypatch.setattr(cards, "CARD_BYTES_MAX", 10)
    with pytest.raises(PodyardError, match="the file is larger than the maximum of 10 bytes"):
        default_rate_card()
    own_card.unlink()
    with pytest.raises(
        PodyardError, match="neither one of 2026-11-01 nor a file that can be read: No such file"
    ):
        default_rate_card()


NOW = PlatformTime.from_rfc3339("2026-02-10T00:00:00Z")
BEFORE = one(CHIP, price(T1), price(T2, '"2"'), price(T3, '"3"'))


@pytest.mark.parametrize(
    ("after", "told"),
    [
        (
            one(CHIP, price(T1), price(T2, '"2.5"'), price(T3, '"3"')),
            f"a@{T2}: this price has changed from 2.00 USD per chip_hour to 2.50 USD per chip_hour",
        ),
        (one(CHIP, price(T2, '"2"')), f"a@{T1}: this price of 1.50 USD per chip_hour is gone"),
        (
            one(CHIP, price(T1), price("2026-01-15T00:00:00Z", '"1"'), price(T2, '"2"')),
            (
                "a@2026-01-15.*: this price of 1.00 USD per chip_hour is new, .* priced "
                "at 1.50 USD "
                "per chip_hour"
            ),
        ),
        (text(f"b: {row()}"), f"a@{T1}: the SKU of 1.50 USD per chip_hour is gone"),
        (
            text(f"a: {row(CHIP.replace('spot', 'on-demand'))}"),
            f"a@{T1}: the SKU of 1.50 USD per chip_hour is of something else",
        ),
        (
            BEFORE.replace("skus: {", f"skus: {{b: {row(SLICE)}, "),
            f"b@{T1}: a has priced v4-8 in the past",
        ),
    ],
)
def test_a_price_in_the_past_stays_as_it_is(after: str, told: str) -> None:
    with pytest.raises(PodyardError, match=told) as caught:
        check_change(load_rate_card(BEFORE), load_rate_card(after), NOW)
    assert caught.value.code is Code.FAILED_PRECONDITION


@pytest.mark.parametrize(
    "after",
    [
        BEFORE,
        BEFORE.replace("somebody", "somebody else"),
        one(CHIP, price(T1), price(T2, '"2"')),  # a price of the future is gone
        one(CHIP, price(T1), price(T2, '"2"'), price(T3, '"4"')),
        # there was none before
        one(CHIP, price("2025-12-01T00:00:00Z"), price(T1), price(T2, '"2"')),
        BEFORE.replace("skus: {", f"skus: {{b: {row(SLICE, price(T3))}, "),
        BEFORE.replace("skus: {", f"skus: {{b: {row(SLICE.replace('spot', 'preemptible'))}, "),
    ],
)
def test_what_prices_no_usage_yet_may_change(after: str) -> None:
    check_change(load_rate_card(BEFORE), load_rate_card(after), NOW)


def test_the_shipped_card_changes_nothing_of_itself() -> None:
    card = default_rate_card()
    check_change(card, card, NOW)
    with pytest.raises(
        PodyardError,
        match=r"host-n1-ram/asia-east1/on-demand@2015-01-01T00:00:00Z: the SKU of .* is gone",
    ):
        check_change(card, RateCard("USD", {}), NOW)


HOST_KIND = "generation: host, region: us-east1, usage: spot, unit:"
VCPU = row(f"{HOST_KIND} vcpu_hour", price(T1, '"0.03"'), price(T3, '"0.04"'))
RAM = row(f"{HOST_KIND} gib_hour", price(T1, '"0.002"'))
HOST_PARTS = [f"host-n1-vcpu/us-east1/spot: {VCPU}", f"host-n1-ram/us-east1/spot: {RAM}"]


def with_hosts(start: str, *skus: str) -> RateCard:
    return load_rate_card(text(*skus)[:-1] + f', hosts_from: "{start}"}}')


def test_a_host_is_sold_by_its_parts_from_the_date_on() -> None:
    sku = with_hosts(T2, *HOST_PARTS).host_sku("us-east1", "spot")
    assert [(v.effective_from.rfc3339(), v.nanos) for v in sku.versions] == [
        (T2, 75_000_000),
        (T3, 95_000_000),
    ]
    assert sku.versions[0].version_id == f"host-n1-standard-2/us-east1/spot@{T2}"


def test_a_host_vm_of_the_card_itself_goes_before_its_parts() -> None:
    own = row(f"{HOST_KIND} vm_hour", price(T1, '"9"'))
    sku = with_hosts(T2, *HOST_PARTS, f"host-n1-standard-2/us-east1/spot: {own}").host_sku(
        "us-east1", "spot"
    )
    assert [(v.effective_from.rfc3339(), v.nanos) for v in sku.versions] == [(T2, 9 * 10**9)]


@pytest.mark.parametrize(
    ("start", "skus", "told"),
    [
        ("soon", HOST_PARTS, "rate card, hosts_from:"),
        ("2026-02-01T00:00:00.5Z", HOST_PARTS, "starts at a whole second"),
        (
            T2,
            [one.replace("0.002", "0.002000001") for one in HOST_PARTS],
            "do not make a whole number of nanos",
        ),
    ],
)
def test_a_card_that_cannot_charge_hosts_is_refused(start: str, skus: list[str], told: str) -> None:
    with pytest.raises(PodyardError, match=told):
        with_hosts(start, *skus)


def test_hosts_cannot_be_charged_late() -> None:
    before, now = load_rate_card(text(*HOST_PARTS)), PlatformTime.from_rfc3339(T2)
    check_change(before, with_hosts(T3, *HOST_PARTS), now)
    for old in (before, with_hosts(T3, *HOST_PARTS)):
        with pytest.raises(PodyardError, match="hosts_from begins in the past"):
            check_change(old, with_hosts(T1, *HOST_PARTS), now)
    with pytest.raises(PodyardError, match="is gone"):
        check_change(with_hosts(T1, *HOST_PARTS), before, now)


SIZE = "usage: on-demand, unit: gib_month"
SIZE_PRICES = (price(T1, '"1"'), price(T3, '"3"'))
DISK_SKU = (
    "disk-pd-ssd/us-east1/on-demand: "
    f"{row(f'generation: disk, region: us-east1, {SIZE}', *SIZE_PRICES)}"
)
OBJECT_SKU = (
    f"object-standard/us/on-demand: {row(f'generation: object, region: us, {SIZE}', *SIZE_PRICES)}"
)
OPERATION_SKU = "operation-class-a-standard/us/on-demand: " + row(
    "generation: operation, region: us, usage: on-demand, unit: operation", *SIZE_PRICES
)


def with_switch(switch: str, start: str, *skus: str) -> RateCard:
    return load_rate_card(text(*skus)[:-1] + f', {switch}: "{start}"}}')


@pytest.mark.parametrize(
    ("switch", "sku"), [("disks_from", OBJECT_SKU), ("objects_from", DISK_SKU)]
)
def test_a_switch_without_any_price_is_refused(switch: str, sku: str) -> None:
    """Later prices of that time would look as if nothing had been charged before."""
    with pytest.raises(PodyardError, match=f"rate card, {switch}: no SKU of generation"):
        with_switch(switch, T1, sku)


@pytest.mark.parametrize(
    ("switch", "sku", "kind", "of"),
    [
        ("disks_from", DISK_SKU, BilledKind.DISK, ("pd-ssd", "us-east1")),
        ("objects_from", OBJECT_SKU, BilledKind.BUCKET, ("MULTI_REGIONAL", "us")),
        ("operations_from", OPERATION_SKU, BilledKind.OPERATION, ("class-a-MULTI_REGIONAL", "us")),
    ],
    ids=["disks", "objects", "operations"],
)
def test_disks_and_objects_are_sold_from_the_date_on(
    switch: str, sku: str, kind: BilledKind, of: tuple[str, str]
) -> None:
    charged = with_switch(switch, T2, sku)
    found = charged.storage_sku(kind, *of)
    assert [(v.effective_from.rfc3339(), v.nanos) for v in found.versions] == [
        (T2, 10**9),
        (T3, 3 * 10**9),
    ]
    listed, now = load_rate_card(text(sku)), PlatformTime.from_rfc3339(T2)
    check_change(listed, with_switch(switch, T3, sku), now)
    for old in (listed, with_switch(switch, T3, sku)):
        with pytest.raises(PodyardError, match=f"{switch} begins in the past"):
            check_change(old, with_switch(switch, T1, sku), now)
    for new in (listed, with_switch(switch, T3, sku)):
        with pytest.raises(PodyardError, match="gone"):
            check_change(charged, new, now)
    # nothing was charged by it
    check_change(listed, load_rate_card(text(sku.replace('"1"', '"2"'))), now)


def test_the_price_that_was_missing_may_come_once_disks_are_charged() -> None:
    """Usage that was held for the lack of it is billed then. Before the date, disks have been free
    all the same."""
    later = DISK_SKU.replace("pd-ssd", "pd-standard").replace(T1, "2026-02-15T00:00:00Z")
    held, now = with_switch("disks_from", T2, later), PlatformTime.from_rfc3339(T3)
    check_change(held, with_switch("disks_from", T2, later, DISK_SKU), now)
    with pytest.raises(PodyardError, match="disks_from begins in the past"):
        check_change(held, with_switch("disks_from", T1, later, DISK_SKU), now)


def test_a_disk_without_a_price_is_named() -> None:
    with pytest.raises(
        PodyardError, match="no price of disk-pd-ssd in us-east2: it is priced in us-east1"
    ):
        with_switch("disks_from", T2, DISK_SKU).storage_sku(BilledKind.DISK, "pd-ssd", "us-east2")
