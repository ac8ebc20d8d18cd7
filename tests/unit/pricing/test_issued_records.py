"""Records of an invoice, written and read again."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from podyard.base.clock import NANOS_PER_SECOND, PlatformTime
from podyard.domain.node import UsageClass
from podyard.domain.usage import (
    BilledKind,
    BilledResource,
    LabelPeriod,
    PriceUnit,
    PriceVersion,
    UsageRecord,
)
from podyard.pricing import issued_records
from podyard.pricing.export import Listed, ResourceFacts
from podyard.pricing.issued_records import IssuedRecords, decode, encode

TEXT = st.text(max_size=8)
SECOND = st.integers(0, 4_000_000_000)
PRICE = st.builds(
    PriceVersion,
    version_id=TEXT,
    effective_from=SECOND.map(lambda second: PlatformTime(second * NANOS_PER_SECOND)),
    nanos=st.integers(0, 10**13),
    source=st.just("s"),
    verified=st.just(True),
)
LABELS = st.dictionaries(TEXT, TEXT, max_size=3)
NODE = st.builds(
    BilledResource,
    key=TEXT,
    name=TEXT,
    zone=TEXT,
    type=TEXT,
    usage_class=st.sampled_from(UsageClass),
    kind=st.sampled_from(BilledKind),
    created_by=TEXT,
    labels=st.lists(st.builds(LabelPeriod, SECOND, LABELS), max_size=3).map(tuple),
)
FACTS = st.builds(
    ResourceFacts,
    node=NODE,
    number=st.integers(0, 10**18),
    reservation=st.none() | TEXT,
    listed=st.builds(Listed, TEXT, TEXT, TEXT, TEXT),
)
IDS = st.sampled_from(["a", "b", "commitment:c", "ünï"])
RECORD = st.builds(
    UsageRecord,
    resource_id=IDS,
    sku_id=st.sampled_from(["x", "y"]),
    unit=st.sampled_from(PriceUnit),
    start_second=SECOND,
    seconds=st.integers(1, 10**7),
    quantity=st.integers(0, 10**6),
    price=PRICE,
    covered=st.lists(st.tuples(TEXT, st.integers(1, 100)), max_size=2).map(tuple),
)
RECORDS = st.builds(
    IssuedRecords,
    charges=st.lists(RECORD, max_size=8),
    resources=st.dictionaries(IDS, FACTS, max_size=3),
)


@pytest.mark.slow
@given(RECORDS)
def test_what_is_read_is_what_was_written(found: IssuedRecords) -> None:
    again = decode(encode(found))
    assert (again.charges, again.resources) == (found.charges, found.resources)


def test_they_are_in_chunks_of_a_bounded_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(issued_records, "CHUNK_BYTES", 16)
    price = PriceVersion("v", PlatformTime(0), 1, "s")
    found = IssuedRecords(
        [UsageRecord(str(n), "x", PriceUnit.CHIP_HOUR, n, 1, 1, price) for n in range(99)], {}
    )
    chunks = list(encode(found))
    assert {len(chunk) for chunk in chunks[:-1]} == {16}
    assert decode(chunks) == found


@pytest.mark.parametrize("cut", [0, 1, 5, -1])
def test_what_is_cut_off_or_damaged_is_refused(cut: int) -> None:
    price = PriceVersion("v", PlatformTime(0), 1, "s")
    data = b"".join(
        encode(IssuedRecords([UsageRecord("a", "x", PriceUnit.CHIP_HOUR, 1, 1, 1, price)], {}))
    )
    with pytest.raises(ValueError, match="cut off"):
        decode([data[:cut]])
    with pytest.raises(ValueError, match="not compressed"):
        decode([b"x" + data])
