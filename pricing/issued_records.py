"""The rated records of an issued invoice, as bytes that are kept with it: who used what, when, and
at which price.

JSON lines, compressed, in chunks. What many records share (a price, labels, a listed SKU) is
written once, before its first use, and known by its number from then on; the records of a resource
are columns, with times as differences. So a month of 10,000 nodes is a few MB, and is written and
read in about a second.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from podyard.base.clock import PlatformTime
from podyard.domain.node import UsageClass
from podyard.domain.usage import (
    BilledKind,
    BilledResource,
    LabelPeriod,
    PriceUnit,
    PriceVersion,
    UsageRecord,
)
from podyard.pricing.export import Listed, ResourceFacts

CHUNK_BYTES = 1 << 20  # of compressed text in one row: any database takes that
_LEVEL = 3  # of zlib: half the time of its default, and a tenth more bytes
_FORM = 1


@dataclasses.dataclass(frozen=True, slots=True)
class IssuedRecords:
    """The charges of an invoice: records within its month, in the order of its bill, and what their
    nodes were then."""

    charges: Sequence[UsageRecord]
    resources: Mapping[str, ResourceFacts]


def encode(found: IssuedRecords) -> Iterator[bytes]:
    """The chunks, in order."""
    packer, waiting = zlib.compressobj(_LEVEL), b""
    for line in _RecordWriter(found.resources).lines(found.charges):
        waiting += packer.compress(
            json.dumps(line, separators=(",", ":"), ensure_ascii=False).encode() + b"\n"
        )
        while len(waiting) >= CHUNK_BYTES:
            yield waiting[:CHUNK_BYTES]
            waiting = waiting[CHUNK_BYTES:]
    waiting += packer.flush()
    for start in range(0, len(waiting), CHUNK_BYTES):
        yield waiting[start : start + CHUNK_BYTES]


def decode(chunks: Iterable[bytes]) -> IssuedRecords:
    """Return what `encode` made the chunks of. Raises ValueError for anything else."""
    reader = _RecordReader()
    for line in _lines(chunks):
        reader.take(json.loads(line))
    return IssuedRecords(reader.charges, reader.resources)


def _lines(chunks: Iterable[bytes]) -> Iterator[bytes]:
    unpacker, rest = zlib.decompressobj(), b""
    try:
        for chunk in chunks:
            *lines, rest = (rest + unpacker.decompress(chunk)).split(b"\n")
            yield from lines
    except zlib.error as error:
        raise ValueError(f"not compressed records: {error}") from None
    if rest or not unpacker.eof:
        raise ValueError("the records are cut off")


class _RecordWriter:
    def __init__(self, resources: Mapping[str, ResourceFacts]) -> None:
        self._resources = resources
        self._numbers: dict[Any, int] = {}
        # what is used for the first time in the line that comes next
        self._new: list[list[Any]] = []
        self._told: set[str] = set()

    def lines(self, charges: Iterable[UsageRecord]) -> Iterator[list[Any]]:
        yield ["form", _FORM]
        for (resource_id, sku_id, unit), group in itertools.groupby(charges, key=_place):
            yield from self._tell(resource_id)
            records = list(group)
            starts = [record.start_second for record in records]
            line = [
                "use",
                *(resource_id, sku_id, unit),
                [self._price(record.price) for record in records],
                [b - a for a, b in itertools.pairwise([0, *starts])],
                [record.seconds for record in records],
                [record.quantity for record in records],
                [[index, *part] for index, record in enumerate(records) for part in record.covered],
            ]
            yield from self._after_new(line)
        for resource_id in self._resources:  # of what is corrected only
            yield from self._tell(resource_id)

    def _tell(self, resource_id: str) -> Iterator[list[Any]]:
        """Yield what a resource is, once."""
        facts = self._resources.get(resource_id)
        if facts is None or resource_id in self._told:
            return
        self._told.add(resource_id)
        node, listed = facts.node, facts.listed
        line = [
            "resource",
            *(
                resource_id,
                node.key,
                node.name,
                node.zone,
                node.type,
                node.usage_class,
                node.created_by,
            ),
            *(node.bills_hosts, node.kind),
            [[second, self._labels(labels)] for second, labels in node.labels],
            *(facts.number, facts.reservation),
            self._number(
                listed,
                ["listed", listed.service_id, listed.service, listed.sku_id, listed.description],
            ),
        ]
        yield from self._after_new(line)

    def _price(self, price: PriceVersion) -> int:
        since = price.effective_from.nanos
        told = ["price", price.version_id, since, price.nanos, price.source, price.verified]
        return self._number((price.version_id, since, price.nanos), told)

    def _labels(self, labels: Mapping[str, str]) -> int:
        ordered = sorted(labels.items())
        return self._number(("labels", *ordered), ["labels", dict(ordered)])

    def _number(self, key: Any, told: list[Any]) -> int:
        """Of what is shared: in the order in which it is told."""
        number = self._numbers.get(key)
        if number is None:
            number = self._numbers[key] = len(self._numbers)
            self._new.append(told)
        return number

    def _after_new(self, line: list[Any]) -> Iterator[list[Any]]:
        yield from self._new
        self._new = []
        yield line


def _place(record: UsageRecord) -> tuple[str, str, PriceUnit]:
    return record.resource_id, record.sku_id, record.unit


class _RecordReader:
    def __init__(self) -> None:
        self.charges: list[UsageRecord] = []
        self.resources: dict[str, ResourceFacts] = {}
        self._shared: list[Any] = []

    def take(self, line: list[Any]) -> None:
        kind, *found = line
        if kind == "use":
            self._use(*found)
        elif kind == "resource":
            self._resource(*found)
        elif kind == "price":
            version_id, effective_from, nanos, source, verified = found
            self._shared.append(
                PriceVersion(version_id, PlatformTime(effective_from), nanos, source, verified)
            )
        elif kind == "labels":
            self._shared.append(found[0])
        elif kind == "listed":
            self._shared.append(Listed(*found))
        elif line != ["form", _FORM]:
            raise ValueError(f"unknown records: {str(line)[:80]}")

    def _use(  # noqa: PLR0913
        self,
        resource_id: str,
        sku_id: str,
        unit: str,
        prices: Sequence[int],
        steps: Sequence[int],
        seconds: Sequence[int],
        quantities: Sequence[int],
        covered: Sequence[tuple[int, str, int]],
    ) -> None:
        parts: dict[int, list[tuple[str, int]]] = {}
        for index, commitment, units in covered:
            parts.setdefault(index, []).append((commitment, units))
        sold_by = PriceUnit(unit)
        columns = zip(itertools.accumulate(steps), seconds, quantities, prices, strict=True)
        for index, (start, length, quantity, price) in enumerate(columns):
            self.charges.append(
                UsageRecord(
                    resource_id=resource_id,
                    sku_id=sku_id,
                    unit=sold_by,
                    start_second=start,
                    seconds=length,
                    quantity=quantity,
                    price=self._shared[price],
                    covered=tuple(parts.get(index, ())),
                )
            )

    def _resource(  # noqa: PLR0913
        self,
        resource_id: str,
        key: str,
        name: str,
        zone: str,
        of_type: str,
        usage_class: str,
        created_by: str,
        bills_hosts: bool,
        kind: str | bool,  # of records of before there were disks and buckets: whether it is a host
        periods: Sequence[tuple[int, int]],
        number: int,
        reservation: str | None,
        listed: int,
    ) -> None:
        labels = tuple(LabelPeriod(second, self._shared[place]) for second, place in periods)
        node = BilledResource(
            key,
            name,
            zone,
            of_type,
            UsageClass(usage_class),
            created_by,
            labels,
            bills_hosts,
            _kind(kind),
        )
        self.resources[resource_id] = ResourceFacts(node, number, reservation, self._shared[listed])


def _kind(told: str | bool) -> BilledKind:
    if isinstance(told, bool):
        return BilledKind.HOST if told else BilledKind.NODE
    return BilledKind(told)
