"""Inputs and results of metering: events of billable resources, and records of used seconds at one
price."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from typing import NamedTuple

from podyard.base.clock import PlatformTime
from podyard.base.money import SECONDS_PER_HOUR, SECONDS_PER_MONTH, round_half_up
from podyard.domain.fleet import region_of
from podyard.domain.node import UsageClass

GIB = 2**30  # bytes
EXISTS, DELETED = "EXISTS", "DELETED"  # the states of what is billed by its size
DONE = "DONE"  # the state of operations


class PriceUnit(StrEnum):
    """The unit of a price. A month is 730 hours; an operation takes no time; all others are per
    hour."""

    DEVICE_HOUR = "device_hour"
    SLICE_HOUR = "slice_hour"
    CHIP_HOUR = "chip_hour"
    VCPU_HOUR = "vcpu_hour"
    VM_HOUR = "vm_hour"
    GIB_HOUR = "gib_hour"
    GIB_MONTH = "gib_month"
    OPERATION = "operation"

    @property
    def seconds(self) -> int:
        """Of the hour, or the month of 730 hours, that the price is for. An operation is charged in
        one second."""
        if self is PriceUnit.OPERATION:
            return 1
        return SECONDS_PER_MONTH if self is PriceUnit.GIB_MONTH else SECONDS_PER_HOUR

    def quantity(self, unit_seconds: int, decimals: int) -> int:
        """Seconds times units in this unit, as an integer of its last decimal."""
        return round_half_up(unit_seconds * 10**decimals, self.seconds)

    @property
    def noun(self) -> str:
        """Of a quantity of one: `chip-hour`."""
        return (
            self.replace("_", "-").replace("gib", "GiB").replace("vcpu", "vCPU").replace("vm", "VM")
        )


@dataclasses.dataclass(frozen=True, slots=True)
class UsageEvent:
    """A resource entered `state` at `at`. `seq` orders the events of one resource, not arrival and
    not the clock. `bytes`: the size that it has from then on, of a disk or bucket. `operations`:
    how many there were since the last event, of operations on a bucket.

    Two events with one id that are not equal are in conflict.
    """

    event_id: str
    resource_id: str
    seq: int
    state: str
    at: PlatformTime
    bytes: int = 0
    operations: int = 0


@dataclasses.dataclass(frozen=True, slots=True)
class PriceVersion:
    """A price from `effective_from` (a whole UTC second) until the next version's. `nanos` are 1e-9
    of the currency
    per hour, per month for GIB_MONTH, or for each operation."""

    version_id: str
    effective_from: PlatformTime
    nanos: int
    source: str
    verified: bool = True


@dataclasses.dataclass(frozen=True, slots=True)
class UsageRecord:
    """`seconds` whole UTC seconds from `start_second` (POSIX) of one resource, at one price
    version.

    `quantity`: the units that are charged; `covered`: those that commitments have paid for, by id.
    `estimated`: the resource was still in use when it was metered, so the end is not known yet.
    """

    resource_id: str
    sku_id: str
    unit: PriceUnit
    start_second: int
    seconds: int
    quantity: int
    price: PriceVersion
    estimated: bool = False
    covered: tuple[tuple[str, int], ...] = ()

    @property
    def unit_seconds(self) -> int:
        return self.seconds * self.quantity

    @property
    def seconds_used(self) -> range:
        """Return which ones, in POSIX seconds."""
        return range(self.start_second, self.start_second + self.seconds)

    def part(self, seconds: range) -> UsageRecord:
        """These of its seconds."""
        return dataclasses.replace(self, start_second=seconds.start, seconds=len(seconds))

    @property
    def units(self) -> int:
        """Charged and covered."""
        return self.quantity + sum(units for _, units in self.covered)


def parts_within(records: Iterable[UsageRecord], seconds: range) -> Iterator[UsageRecord]:
    """The parts of records that lie in these POSIX seconds."""
    for record in records:
        start = max(record.start_second, seconds.start)
        stop = min(record.start_second + record.seconds, seconds.stop)
        if stop - start == record.seconds:
            yield record  # as most are: there are many
        elif start < stop:
            yield record.part(range(start, stop))


@dataclasses.dataclass(frozen=True, slots=True)
class Suspense:
    """Seconds that no price covers: held with the reason until there is a price, never billed as
    zero (R5)."""

    resource_id: str
    start_second: int
    seconds: int
    reason: str

    def within(self, spans: Iterable[range]) -> Iterator[Suspense]:
        """The parts of it that lie in these POSIX seconds."""
        for span in spans:
            start, stop = (
                max(self.start_second, span.start),
                min(self.start_second + self.seconds, span.stop),
            )
            if start < stop:
                yield dataclasses.replace(self, start_second=start, seconds=stop - start)


class LabelPeriod(NamedTuple):
    """The labels of a resource from this POSIX second on."""

    from_second: int
    labels: Mapping[str, str]


class BilledKind(StrEnum):
    """A billed kind of resource. Host VMs are those of one node, and have its events. Operations
    are those of one class on one bucket."""

    NODE = "node"
    HOST = "host"
    DISK = "disk"
    BUCKET = "bucket"
    OPERATION = "operation"

    @property
    def is_sized(self) -> bool:
        """Billed by its bytes, from EXISTS to DELETED."""
        return self in (BilledKind.DISK, BilledKind.BUCKET)

    @property
    def is_storage(self) -> bool:
        """Not a node's: a disk, or what buckets hold and are asked for."""
        return self.is_sized or self is BilledKind.OPERATION


@dataclasses.dataclass(frozen=True, slots=True)
class BilledResource:
    """A node, its host VMs (with a key of their own), a disk, a bucket or operations, as usage
    events describe them.

    `created_by` empty: nobody knows any more. `labels`: one period after the other, from the first
    event on; labels that change within a second count from the next one.

    `zone`: of a bucket its location. `type`: the accelerator type, the type of a disk, the storage
    class of a bucket, the class of operations with that.
    `bills_hosts`: its host VMs are charged apart (TPU Node, made through v1 or v1alpha1), once the
    rate card says so; else they are included.
    """

    key: str
    name: str
    zone: str
    type: str
    usage_class: UsageClass
    created_by: str = ""
    labels: tuple[LabelPeriod, ...] = dataclasses.field(default=(), hash=False)
    bills_hosts: bool = False
    kind: BilledKind = BilledKind.NODE

    @property
    def short_name(self) -> str:
        return self.name.rpartition("/")[2]

    @property
    def node_id(self) -> str:
        """Of the node that it is, or whose hosts it is; empty for others."""
        return "" if self.kind.is_storage else self.short_name

    @property
    def region(self) -> str:
        of_bucket = self.kind in (BilledKind.BUCKET, BilledKind.OPERATION)
        return self.zone if of_bucket else region_of(self.zone)

    @property
    def project(self) -> str:
        return self.name.split("/", 2)[1]

    def hosts(self) -> BilledResource:
        return dataclasses.replace(
            self, key=self.key + _HOST, bills_hosts=False, kind=BilledKind.HOST
        )


@dataclasses.dataclass(frozen=True, slots=True)
class StorageResource:
    """A disk or bucket as it is after a change, or the operations on a bucket since the last event.
    `version` counts
    its usage events from 1; `place`: zone or location."""

    kind: BilledKind
    key: str
    version: int
    name: str
    place: str
    type: str
    labels: Mapping[str, str]
    created_by: str
    bytes: int | None = None
    operations: int | None = None


_HOST = "/host"  # what the key of a node's host VMs has besides


def node_key_of(resource_id: str) -> str:
    """The key of the node that a resource is, or is the host VMs of."""
    return resource_id.removesuffix(_HOST)


def labels_at(node: BilledResource, second: int) -> Mapping[str, str]:
    """The resource's labels in a POSIX second; before its first event, its first ones."""
    return next(label_periods(node, range(second, second + 1)))[1]


def label_periods(
    node: BilledResource, seconds: range
) -> Iterator[tuple[range, Mapping[str, str]]]:
    """These POSIX seconds, cut where the resource's labels change, with the labels of each part."""
    start, labels = seconds.start, node.labels[0].labels if node.labels else {}
    for period in node.labels[1:]:
        stop = min(period.from_second, seconds.stop)
        if start < stop:
            yield range(start, stop), labels
            start = stop
        labels = period.labels
    if start < seconds.stop:
        yield range(start, seconds.stop), labels


def by_labels(
    record: UsageRecord, node: BilledResource
) -> Sequence[tuple[Mapping[str, str], UsageRecord]]:
    """The parts of a resource's record, each with the labels that it had."""
    if len(node.labels) < 2:
        return (({} if not node.labels else node.labels[0].labels, record),)
    return [
        (labels, record.part(seconds))
        for seconds, labels in label_periods(node, record.seconds_used)
    ]
