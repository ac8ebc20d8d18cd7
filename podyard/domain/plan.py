"""Decisions of the scheduler: a plan of actions, each guarded by the version of the node it was
decided for.

Applying drops an action whose version is stale; the next cycle sees the truth and decides again.
"""

from __future__ import annotations

import dataclasses

from podyard.base.errors import Code


@dataclasses.dataclass(frozen=True, slots=True)
class Place:
    """Gives the node a box of chips. `origin` and `shape` are in the pod's coordinates; the shape
    may be a rotation of the type's topology. `chips` is the same box as a bit set."""

    node_key: str
    version: int
    pod_id: str
    origin: tuple[int, ...]
    shape: tuple[int, ...]
    chips: int
    reservation_key: str | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class PlaceGroup:
    """Gives all nodes of a queued resource their chips at once. `places` are in the order of its
    nodes, which do not exist yet: their `node_key` is only a name within the plan. `version` is
    that of the queued resource."""

    group: str
    version: int
    places: tuple[Place, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class WaitGroup:
    """The queued resource gets nothing now, and goes on waiting. `reason` says why in our words."""

    group: str
    version: int
    reason: str


@dataclasses.dataclass(frozen=True, slots=True)
class Preempt:
    """Gives the node notice that its slice is taken back, for another request. `node_key` is of a
    preemptible or spot node, or of one that the platform made for a job of lower priority."""

    node_key: str
    version: int
    reason: str


@dataclasses.dataclass(frozen=True, slots=True)
class Wait:
    """The node gets nothing now. `reason` says why in our words, with the largest free box.

    `stockout`: a request that cannot queue (a plain node creation) fails with `code` and `message`,
    Google's own text. `fault`: the rule that makes it so.
    """

    node_key: str
    version: int
    reason: str
    stockout: bool
    code: Code = Code.RESOURCE_EXHAUSTED
    message: str = ""
    fault: str = ""


Action = Place | PlaceGroup | Preempt | Wait | WaitGroup


@dataclasses.dataclass(frozen=True, slots=True)
class Plan:
    """Actions in the order in which to apply them."""

    actions: tuple[Action, ...] = ()

    @property
    def places(self) -> tuple[Place, ...]:
        """Every placing, those of groups too."""
        alone = [
            (a,) if isinstance(a, Place) else a.places
            for a in self.actions
            if isinstance(a, Place | PlaceGroup)
        ]
        return tuple(place for places in alone for place in places)

    @property
    def waits(self) -> tuple[Wait, ...]:
        return tuple(a for a in self.actions if isinstance(a, Wait))
