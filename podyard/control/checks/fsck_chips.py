"""Chips: I1 (whose they are), I2 (none is lost), I8 (nothing runs on chips that were given
back)."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

from podyard.control.checks.fsck_violation import Violation
from podyard.db.views.fsck import Records
from podyard.domain.attempt import AttemptState
from podyard.domain.fleet import Fleet, Pod
from podyard.domain.node import NODE_STATES_LOST, NodeRecord, NodeState
from podyard.domain.slice import PlacedSlice
from podyard.hardware.accelerator_types import AcceleratorType
from podyard.hardware.topology import CUBE_EDGE_CHIPS
from podyard.hardware.torus import box_mask, coordinates, full_mask, rotations

# States in which a node has chips for certain, and in which it may not have any.
HOLDING = frozenset({"READY", "RESTARTING", "REIMAGING", "REPAIRING", "STOPPING"})
_NOT_HOLDING = frozenset({"STOPPED", "GONE"})


def check_chips(records: Records, fleet: Fleet) -> Iterator[Violation]:
    pods = {pod.pod_id: pod for pod in fleet.pods()}
    taken: dict[str, int] = {}
    counted: dict[str, int] = {}
    for item in records.slices:
        node = records.nodes.get(item.node_key)
        yield from _leaks(records, item, node)
        pod = pods.get(item.pod_id)
        if pod is None or node is None:
            continue  # the fleet file no longer has this pod: its chips are nobody's to give
        chips = item.chips
        held = taken.get(pod.pod_id, 0)
        dead = chips & records.broken.get(pod.pod_id, 0)
        if dead and node.state is NodeState.READY:
            text = f"it is READY on {dead.bit_count()} broken chips of pod {pod.pod_id}"
            yield Violation("I2", item.created, node.name, text)
        if held & chips:
            text = (
                f"{(held & chips).bit_count()} chips of pod {pod.pod_id} belong to "
                "another slice too"
            )
            yield Violation("I1", item.created, node.name, text)
        taken[pod.pod_id] = held | chips
        counted[pod.pod_id] = counted.get(pod.pod_id, 0) + chips.bit_count()
        why = placement_problem(pod, node.kind, item)
        if why:
            yield Violation("I1", item.created, node.name, why)
    yield from _sums(records, pods, taken, counted)
    yield from _nodes(records)
    yield from _processes(records)


def placement_problem(pod: Pod, kind: AcceleratorType, item: PlacedSlice) -> str:
    """Return what is wrong with the place of a slice; nothing when it is legal."""
    chips = item.chips
    if chips & ~full_mask(pod.shape):
        return f"chips outside of pod {pod.pod_id}"
    if chips.bit_count() != kind.chip_count:
        return f"{chips.bit_count()} chips, and {kind.name} has {kind.chip_count}"
    if kind.generation is not pod.generation:
        return f"{kind.name} in pod {pod.pod_id} of {pod.generation.name}"
    whole_cubes = len(pod.shape) == 3 and all(
        extent % CUBE_EDGE_CHIPS == 0 for extent in kind.topology.shape
    )
    if whole_cubes and pod.switched:
        return (
            ""
            if _is_of_cubes(pod, chips)
            else f"{kind.name} is made of parts of cubes of pod {pod.pod_id}"
        )
    shape, origin = item.shape, item.origin
    if shape not in rotations(kind.topology.shape):
        return f"shape {shape} is not a rotation of {kind.topology.text}"
    if math.prod(shape) != chips.bit_count() or box_mask(pod.shape, origin, shape) != chips:
        return f"its chips are not the box of {shape} at {origin}"
    return ""


def _is_of_cubes(pod: Pod, chips: int) -> bool:
    edge = (CUBE_EDGE_CHIPS,) * 3
    grid = tuple(extent // CUBE_EDGE_CHIPS for extent in pod.shape)
    cubes = (
        box_mask(pod.shape, tuple(position * CUBE_EDGE_CHIPS for position in cube), edge)
        for cube in coordinates(grid)
    )
    return all(cube & chips in (0, cube) for cube in cubes)


def _leaks(records: Records, item: PlacedSlice, node: NodeRecord | None) -> Iterator[Violation]:
    if node is None:
        yield Violation("I2", item.created, item.slice_id, "its node is gone, or never existed")
    elif node.state in _NOT_HOLDING:
        yield Violation("I2", item.created, node.name, f"it is {node.state} and still holds chips")
    elif node.state in NODE_STATES_LOST:
        due = [timer for timer in records.timers if timer.resource_key == node.node_key]
        if not due:
            text = f"it is {node.state} and holds chips that no timer will release"
            yield Violation("I2", item.created, node.name, text)


def _sums(
    records: Records, pods: Mapping[str, Pod], taken: Mapping[str, int], counted: Mapping[str, int]
) -> Iterator[Violation]:
    for pod_id, chips in sorted(taken.items()):
        total = pods[pod_id].chip_count
        free = (full_mask(pods[pod_id].shape) & ~chips).bit_count()
        if counted[pod_id] + free != total:
            text = f"{counted[pod_id]} chips are allotted and {free} are free, of {total}"
            yield Violation("I2", records.now, f"pods/{pod_id}", text)


def _nodes(records: Records) -> Iterator[Violation]:
    placed = {item.node_key for item in records.slices}
    hosts: dict[str, int] = {}
    for host in records.hosts:
        hosts[host.node_key] = hosts.get(host.node_key, 0) + 1
    for key, node in records.nodes.items():
        # its chips broke, and it waits for others
        elsewhere = node.state is NodeState.REPAIRING and node.last_pod
        if node.state in HOLDING and key not in placed and not elsewhere and node.has_chips:
            yield Violation("I1", records.now, node.name, f"it is {node.state} and has no chips")
        wanted = node.host_count if node.first_address and node.state is not NodeState.GONE else 0
        if hosts.get(key, 0) != wanted:
            text = f"it is {node.state} and has {hosts.get(key, 0)} hosts instead of {wanted}"
            yield Violation("I8", records.now, node.name, text)
    for key in sorted(set(hosts) - set(records.nodes)):
        yield Violation("I8", records.now, key, "hosts of a node that is gone")


def _processes(records: Records) -> Iterator[Violation]:
    placed = {item.node_key for item in records.slices}
    for replica in records.replicas:
        job = records.jobs.get(replica.job_key)
        if job is None or not replica.is_live:
            continue
        if records.attempts[replica.attempt_id].state is AttemptState.ENDED:
            text = f"replica {replica.rank} is {replica.state}, and its attempt has ended"
            yield Violation("I8", records.now, job.name, text)
        if not placed.issuperset(records.node_keys_of(job)):
            text = f"replica {replica.rank} is {replica.state} on chips that were given back"
            yield Violation("I8", records.now, job.name, text)
    for host in records.hosts:
        node = records.nodes.get(host.node_key)
        if host.is_live and host.node_key not in placed and (node is None or node.has_chips):
            yield Violation(
                "I8", records.now, host.host_id, f"{host.state} on chips that were given back"
            )
