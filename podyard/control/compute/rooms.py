"""Zones with room for a node of some type now: room, expected wait and quota of each zone. Reads
only.

Room is what the scheduler's own cycle would give (`scheduler.probe`), with all that waits before
it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Sequence

from podyard.base.clock import PlatformTime
from podyard.control.access import identity
from podyard.control.compute import quota
from podyard.control.compute.quota import QuotaLeft
from podyard.db.store.unit_of_work import UnitOfWork
from podyard.db.views import fleet as fleet_rows
from podyard.db.views.fleet import Stockouts
from podyard.domain.fault import Subject
from podyard.domain.fleet import Fleet, PlacementRequest
from podyard.domain.job_fields import PRIORITY_DEFAULT
from podyard.domain.node import UsageClass
from podyard.domain.principal import Principal
from podyard.hardware.accelerator_types import AcceleratorType
from podyard.scheduler.probe import ProbedRoom, probe

# zones of a view whose expected wait is looked for: each may take a tenth of a second
PREDICTIONS_MAX = 8
_KEY = "~probe"  # sorts behind the keys of nodes


@dataclasses.dataclass(frozen=True, slots=True)
class ZoneRoom:
    """One zone that offers a type in a usage class."""

    zone: str
    kind: AcceleratorType
    usage_class: UsageClass
    room: ProbedRoom
    quota: QuotaLeft

    @property
    def is_free(self) -> bool:
        """Return whether a node can be created there now."""
        return self.room.nodes > 0 and self.quota.allows(self.kind)


class RoomView:
    """One snapshot, asked for several types."""

    def __init__(
        self,
        uow: UnitOfWork,
        fleet: Fleet,
        principal: Principal,
        project: str,
        returned: Collection[str] = (),
    ) -> None:
        """`returned`: keys of nodes whose slices count as free."""
        principal.require("tpu.nodes.list", project, f"projects/{project}/locations/-")
        identity.project_row(uow, project)
        self._uow = uow
        self._fleet = fleet
        self._project = project
        snapshot = fleet_rows.load(uow, fleet)
        left = [item for item in snapshot.slices if item.node_key not in returned]
        self._snapshot = dataclasses.replace(snapshot, slices=left)
        self._predicted = 0

    @property
    def now(self) -> PlatformTime:
        return self._uow.now

    def zones_of(self, kind: AcceleratorType, usage_class: UsageClass) -> list[str]:
        """The zones that offer the type so."""
        return [
            zone.name
            for zone in self._fleet.zones.values()
            if (offer := zone.offers.get(kind.generation.name)) is not None
            and offer.fits(kind)
            and usage_class in offer.usage_classes
        ]

    def rooms(
        self, kind: AcceleratorType, usage_class: UsageClass, *, explain: bool = True
    ) -> Sequence[ZoneRoom]:
        """One of each zone that offers the type so, in the order of the fleet. `explain` False:
        without reasons."""
        zones = self.zones_of(kind, usage_class)
        left = quota.read_left(self._uow, self._fleet, self._project, zones, kind, usage_class)
        stockouts = Stockouts(self._uow)
        return [
            ZoneRoom(
                zone,
                kind,
                usage_class,
                self._probe(kind, zone, usage_class, stockouts, explain),
                left[zone],
            )
            for zone in zones
        ]

    def room_in(self, zone: str, kind: AcceleratorType, usage_class: UsageClass) -> ProbedRoom:
        """Room for nodes of a type that the zone offers so."""
        return self._probe(kind, zone, usage_class, Stockouts(self._uow), explain=True)

    def _probe(
        self,
        kind: AcceleratorType,
        zone: str,
        usage_class: UsageClass,
        stockouts: Stockouts,
        explain: bool,
    ) -> ProbedRoom:
        subject = Subject(zone, kind.name, self._project, (), "", str(usage_class))
        request = PlacementRequest(
            node_key=_KEY,
            version=0,
            project=self._project,
            zone=zone,
            accelerator_type=kind,
            usage_class=usage_class,
            priority=PRIORITY_DEFAULT,
            created=self._uow.now,
            fault=stockouts.denies(subject, _KEY, queued=True),
        )
        predict = self._predicted < PREDICTIONS_MAX
        found = probe(self._snapshot, request, self._uow.now, explain=explain, predict=predict)
        self._predicted += explain and not found.nodes
        return found
