"""A slice in its pod, among the chips that others hold."""

from __future__ import annotations

import dataclasses

from markupsafe import Markup

from podyard.db.compute import slices
from podyard.db.store.unit_of_work import UnitOfWork
from podyard.domain.fleet import Fleet, Pod
from podyard.web.nodes.torus import Part, pod_picture


@dataclasses.dataclass(frozen=True, slots=True)
class SlicePicture:
    pod: Pod
    chips: int
    svg: Markup


def slice_picture(uow: UnitOfWork, fleet: Fleet, node_key: str, name: str) -> SlicePicture | None:
    """The slice of a node, which is called `name` on it. None while it has no slice."""
    own = slices.find(uow, node_key)
    if own is None:
        return None
    pod = fleet.pod(own.pod_id)
    taken = 0
    for item in slices.held(uow, own.pod_id):
        taken |= item.chips
    parts = [Part("held", "", taken & ~own.chips), Part("own", name, own.chips)]
    return SlicePicture(pod, own.chips.bit_count(), pod_picture(pod.pod_id, pod.shape, parts))
