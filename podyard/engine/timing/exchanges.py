"""The collectives of a program on a slice: what is sent, between which devices, and how long it
takes. No JAX in here.

Sums with one `tuple` number are one collective. From v5e on the compiler runs gathers of what
products read next to other kernels (`async_collective_fusion` in compiled programs; none on v2 to
v4): of these only what is longer than the products of the same body is seen.
"""

from __future__ import annotations

import dataclasses
import re
from collections import Counter

from podyard.engine.cost.dcn import dcn_seconds, in_first_slice
from podyard.engine.program.doubts import Doubt
from podyard.engine.program.ir import HloOperation, Program
from podyard.engine.program.shardings import Axes, ShardingReader
from podyard.engine.timing import collectives
from podyard.engine.timing.estimate import CollectiveEstimate
from podyard.hardware.accelerator_types import AcceleratorType


@dataclasses.dataclass(slots=True)
class Exchange:
    """One collective of `arrays` arrays that runs `count` times. `parts`: in which a slice
    scatters a sum before it crosses to other slices, because it is scattered there behind it."""

    kind: str
    axes: Axes | None
    count: int
    arrays: int = 0
    nbytes: int = 0
    is_hidden: bool = False
    pairs: tuple[tuple[int, int], ...] = ()
    parts: int = 1


class Exchanges:
    def __init__(self, program: Program, kind: AcceleratorType) -> None:
        self.program = program
        self.kind = kind
        self.devices = program.mesh.devices
        self.found: dict[object, Exchange] = {}
        self.doubts: list[Doubt] = []
        self._reader = ShardingReader({}, program.mesh)
        self._sums: dict[int, Exchange] = {}  # by the value that they make
        self._groups: dict[Axes | None, tuple[collectives.DeviceGroup, int]] = {}

    def copy(self) -> Exchanges:
        """For a branch that may not be taken."""
        other = Exchanges(self.program, self.kind)
        other.found = {key: dataclasses.replace(one) for key, one in self.found.items()}
        other._groups, other._sums = self._groups, dict(self._sums)
        return other

    def add(self, operation: HloOperation, count: int, body: int) -> None:
        """`body` tells the bodies of the program apart."""
        attributes, name = operation.attributes, operation.opcode.replace("_", "-")
        axes = attributes.get("axes")
        own = axes if isinstance(axes, tuple) else None
        if doubt := self._doubt(operation, name, own):
            self.doubts.append(doubt)
        number = attributes.get("tuple")
        key: object = (body, number) if isinstance(number, int) else id(operation)
        found = self.found.setdefault(key, Exchange(name, own, count * operation.int("turns", 1)))
        given, made = (
            self.program.types[value].nbytes
            for value in (operation.operands[0], operation.results[0])
        )
        found.nbytes += operation.int(
            "bytes", max(given, made) if name in ("all-reduce", "all-gather") else given
        )
        found.arrays += 1
        found.is_hidden = name == "all-gather" and self.kind.generation.has_short_all_reduce
        found.is_hidden |= "turns" in attributes
        self._note_sum(operation, found)
        if name == "collective-permute":
            found.pairs = self._pairs(operation, own or ())

    def _note_sum(self, operation: HloOperation, exchange: Exchange) -> None:
        """Note a sum between slices that is scattered in them."""
        if exchange.kind in ("all-reduce", "reduce-scatter"):
            if (before := self._sums.get(operation.operands[0])) is not None:
                before.parts = max(before.parts, self.group(exchange.axes)[0].chips)
            self._sums[operation.results[0]] = exchange

    def _doubt(self, operation: HloOperation, name: str, axes: Axes | None) -> Doubt | None:
        size = self.program.mesh.extent(axes) if axes is not None else group_size(operation)
        if self.devices == 1 and (size is None or size > 1):
            reason = (
                f"{name} ({operation.where}) in a program that is written for one device: it "
                "takes no time"
            )
        elif (
            self.devices > 1
            and axes is None
            and "pairs" not in operation.attributes
            and (size != self.devices)
        ):
            groups = f"groups of {size} devices" if size else "groups that are not read"
            reason = f"{name} ({operation.where}) over {groups}: priced over all {self.devices}"
        elif (
            self.devices > self.kind.device_count
            and not self.kind.generation.dcn_bytes_per_second
            and self.group(axes)[1] > 1
        ):
            reason = f"{name} ({operation.where}) between slices: the network takes no time"
        else:
            return None
        return Doubt("collective", name, reason, about_memory=False)

    def _pairs(self, operation: HloOperation, axes: Axes) -> tuple[tuple[int, int], ...]:
        """(sender, receiver) of a permutation."""
        mesh, given = self.program.mesh, operation.attributes.get("pairs")
        if isinstance(given, tuple):
            return given
        shifts = operation.attributes.get("shifts")
        if isinstance(shifts, tuple) or "keeps" in operation.attributes:
            offsets = self._reader.device_order(axes)
            bases = self._reader.device_order(
                [axis for axis in range(len(mesh.sizes)) if axis not in axes]
            )
            steps = (
                shifts
                if isinstance(shifts, tuple)
                else [(place, place + 1) for place in range(len(offsets) - 1)]
            )
            return tuple((base + offsets[a], base + offsets[b]) for base in bases for a, b in steps)
        hops = operation.attributes.get("hops")
        if not isinstance(hops, tuple):
            return ()
        orders = [[axis for own in dims for axis in own] for dims in hops]
        rest = [axis for axis in range(len(mesh.sizes)) if axis not in orders[0]]
        other = [axis for axis in range(len(mesh.sizes)) if axis not in orders[1]]
        senders = self._reader.device_order([*orders[0], *rest])
        return tuple(zip(senders, self._reader.device_order([*orders[1], *other]), strict=True))

    # --- what it takes

    def group(self, axes: Axes | None) -> tuple[collectives.DeviceGroup, int]:
        """Return what a group has of one slice, and how many slices it spans."""
        if axes not in self._groups:
            everything = range(self.devices)
            positions = everything if axes is None else self._reader.device_order(axes)
            places = list(map(self.program.mesh.place, positions))
            own, slices = in_first_slice(places, self.kind.device_count)
            is_all = len(own) == self.kind.device_count
            self._groups[axes] = (
                collectives.whole_slice(self.kind) if is_all or axes is None
                else collectives.group_of(self.kind, own),
                slices,
            )  # fmt: skip
        return self._groups[axes]

    def seconds(self, exchange: Exchange) -> float:
        """Of one run."""
        if self.devices == 1:
            return 0.0
        kind, nbytes, (group, _) = self.kind, exchange.nbytes, self.group(exchange.axes)
        if exchange.kind == "all-reduce":
            return collectives.all_reduce_seconds(kind, nbytes, group)
        if exchange.kind in ("all-gather", "reduce-scatter"):
            return collectives.all_gather_seconds(kind, nbytes, group)
        if exchange.kind == "collective-permute":
            places, devices = self.program.mesh.place, kind.device_count
            pairs = [(places(one), places(other)) for one, other in exchange.pairs]
            inside = [
                (one % devices, other % devices)
                for one, other in pairs
                if one // devices == other // devices
            ]
            return collectives.permute_seconds(kind, nbytes, inside)
        return collectives.all_to_all_seconds(kind, nbytes, group)

    def between_slices(self, exchange: Exchange) -> float:
        """Return the seconds of one run on the network between slices."""
        group, slices = self.group(exchange.axes)
        chips = group.chips * exchange.parts
        return dcn_seconds(exchange.kind, exchange.nbytes, chips, slices, self.kind)

    def estimates(self, hideable_seconds: float) -> list[CollectiveEstimate]:
        """One for each collective, in the order of the program. `hideable_seconds`: what products
        take, behind which gathers are hidden."""
        made, left = list[CollectiveEstimate](), hideable_seconds
        if self.devices == 1:
            return made
        for exchange in self.found.values():
            links = self.seconds(exchange) * exchange.count
            # hosts send between slices while the devices work
            network = self.between_slices(exchange) * exchange.count
            seconds = links + network
            hidden = min(left, network + (links if exchange.is_hidden else 0.0))
            left -= hidden
            axes, mesh = exchange.axes, self.program.mesh
            size = self.devices if axes is None else mesh.extent(axes)
            made.append(
                CollectiveEstimate(
                    exchange.kind, exchange.count, exchange.arrays, exchange.nbytes, size,
                    self.devices // max(1, size), "" if axes is None else mesh.groups_text(axes),
                    seconds, hidden,
                )
            )  # fmt: skip
        return made

    def texts(self, made: list[CollectiveEstimate]) -> tuple[str, ...]:
        """A line for each kind of collective, with how often it runs."""
        told = Counter[str]()
        for one in made:
            each = one.seconds / one.count if one.count else 0.0
            how = (
                ""
                if one.groups == 1
                else f" over {one.groups} groups of {one.group_size} ({one.axes})"
            )
            if one.kind == "all-reduce" and one.groups == 1:
                plan = collectives.plan_for(self.kind, one.nbytes)
                how = (
                    f": {plan.family}, {plan.colours} colours x {plan.phases} phases, "
                    f"{plan.ring_sizes}"
                )
            behind = one.hidden_seconds / max(1, one.count) * 1e6
            hidden = f", {behind:.1f} us of it behind products" if behind else ""
            join = ", " if one.kind == "all-reduce" and one.groups == 1 else ": "
            told[f"{one.kind} of {one.nbytes} bytes{how}{join}{each * 1e6:.1f} us{hidden}"] += (
                one.count
            )
        return tuple(f"{count} x {text}" if count > 1 else text for text, count in told.items())

    def sent_bytes(self, made: list[CollectiveEstimate]) -> int:
        """Return what a chip sends."""
        total = 0
        for one, exchange in zip(made, self.found.values(), strict=False):
            if one.kind == "all-reduce":
                group, _ = self.group(exchange.axes)
                total += one.count * collectives.all_reduce_bytes_per_chip(
                    self.kind, one.nbytes, group
                )
            else:
                total += one.count * one.nbytes
        return total


def group_size(operation: HloOperation) -> int | None:
    """Devices in a group of `replica_groups`; None where it is not given or not read."""
    groups = operation.attributes.get("replica_groups")
    if isinstance(groups, tuple) and groups and isinstance(groups[0], tuple):
        return len(groups[0])
    if isinstance(groups, int) and not isinstance(groups, bool):
        return 1
    shape = re.search(r"tensor<(\d+)x(\d+)x", groups) if isinstance(groups, str) else None
    return int(shape[2]) if shape else None
