"""Sums and exchanges between the processes of a program: over gloo, each in the order of the
ordinals.

An element's sum is ((x0 + x1) + x2) + ... whatever the number of hosts, so that it has the bits of
one process that adds the same numbers one after the other. Before each exchange the processes
compare what they are about to do: where they differ, all of them raise an error instead of waiting
for each other.
"""

from __future__ import annotations

import atexit
import datetime
import zlib
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch_xla import _process, _steps

from podyard.base.clock import OsClock
from podyard.programs.torch_graph.parallel import GroupExchange

JOIN_SECONDS = 300.0  # until all processes have started
# a process may take its time; one that ends is noticed by its connections
_TIMEOUT = datetime.timedelta(days=7)
# who loses a peer waits so long before it says so: the peer's own error comes first
_PEER_SECONDS = 6.0
_LOOK_SECONDS = 0.1
_WHOLE_BYTES = 1 << 16  # what is sent to everybody as it is: one exchange instead of two
_PART_BYTES = 1 << 24  # of a large tensor, at a time
_TEXT_BYTES = 256

_FOLDS: dict[str, Callable[[torch.Tensor, torch.Tensor], object]] = {
    "sum": lambda total, part: total.add_(part),
    "mul": lambda total, part: total.mul_(part),
    "min": lambda total, part: torch.minimum(total, part, out=total),
    "max": lambda total, part: torch.maximum(total, part, out=total),
    "and": lambda total, part: total.logical_and_(part),
    "or": lambda total, part: total.logical_or_(part),
}


class ReplicaGroup:
    """Processes that exchange tensors: one of the groups that the program has divided them into.
    `members`: their ordinals, in the order of the sums."""

    def __init__(self, store: Any, groups: Sequence[Sequence[int]]) -> None:
        place = _process.place()
        self._groups = tuple(tuple(group) for group in groups)
        self.members = members = next(one for one in self._groups if place.ordinal in one)
        self.size = len(members)
        self.rank = self.members.index(place.ordinal)
        options = dist.ProcessGroupGloo._Options()
        options._devices = [dist.ProcessGroupGloo.create_device(hostname=place.address)]
        options._timeout = _TIMEOUT
        self._gloo = dist.ProcessGroupGloo(store, self.rank, self.size, options)

    def reduce(self, tensors: Sequence[torch.Tensor], how: str, what: str) -> list[torch.Tensor]:
        """One result for each of the tensors, which have the same shapes in all processes."""
        if how not in _FOLDS:
            raise ValueError(f"unknown reduction {how!r}: use {', '.join(_FOLDS)}")
        with _steps.pause() as recording:
            found = self._reduce(tensors, how, what)
            if recording is not None:
                recording.note_exchange("all_reduce", tensors, found, GroupExchange(self._groups))
        return found

    def _reduce(self, tensors: Sequence[torch.Tensor], how: str, what: str) -> list[torch.Tensor]:
        self._agree(what, tensors)
        found: list[torch.Tensor] = [torch.empty(0)] * len(tensors)
        for dtype in dict.fromkeys(tensor.dtype for tensor in tensors):
            places = [number for number, tensor in enumerate(tensors) if tensor.dtype == dtype]
            flat = torch.cat([tensors[number].detach().reshape(-1) for number in places])
            length = _PART_BYTES // flat.element_size()
            total = torch.cat([self._reduce_part(part, _FOLDS[how]) for part in flat.split(length)])
            sizes = [tensors[number].numel() for number in places]
            for number, part in zip(places, total.split(sizes), strict=True):
                found[number] = part.reshape(tensors[number].shape)
        return found

    def _reduce_part(
        self, part: torch.Tensor, fold: Callable[[torch.Tensor, torch.Tensor], object]
    ) -> torch.Tensor:
        if part.numel() * part.element_size() <= _WHOLE_BYTES:
            return _fold(self._gather(part), fold)
        # Each process sums one part, and hands it to the others.
        own = -(-part.numel() // self.size)
        padded = torch.nn.functional.pad(part, (0, own * self.size - part.numel()))
        pieces = self._exchange(padded.view(self.size, own))
        return torch.cat(list(self._gather(_fold(pieces, fold))))[: part.numel()]

    def join(self, value: torch.Tensor, axis: int) -> torch.Tensor:
        """The values of all, one after the other along an axis."""
        axis %= value.dim()
        with _steps.pause() as recording:
            joined = torch.cat(list(self.gather(value, "all_gather")), dim=axis)
            if recording is not None:
                exchange = GroupExchange(self._groups, axis)
                recording.note_exchange("all_gather", [value], [joined], exchange)
        return joined

    def reduce_part(self, value: torch.Tensor, how: str, axis: int) -> torch.Tensor:
        """This process' part, along an axis, of the reduction."""
        axis %= value.dim()
        with _steps.pause() as recording:
            (total,) = self.reduce([value], how, f"reduce_scatter ({how})")
            part = total.chunk(self.size, dim=axis)[self.rank].clone()
            if recording is not None:
                exchange = GroupExchange(self._groups, axis)
                recording.note_exchange("reduce_scatter", [value], [part], exchange)
        return part

    def gather(self, value: torch.Tensor, what: str) -> torch.Tensor:
        """The values of all, along a new first axis."""
        with _steps.pause():
            self._agree(what, [value])
            return self._gather(value.detach())

    def exchange(self, pieces: torch.Tensor, what: str) -> torch.Tensor:
        """Piece i (along the first axis) goes to member i."""
        with _steps.pause():
            self._agree(what, [pieces])
            return self._exchange(pieces.detach())

    def gather_bytes(self, data: bytes, what: str) -> list[bytes]:
        """Of any length."""
        with _steps.pause():
            sizes = self._agree(what, [], len(data))
            padded = torch.zeros(max(1, *sizes), dtype=torch.uint8)
            if data:
                padded[: len(data)] = torch.frombuffer(bytearray(data), dtype=torch.uint8)
            parts = self._gather(padded)
            return [parts[number, :size].numpy().tobytes() for number, size in enumerate(sizes)]

    def wait_for_all(self, what: str) -> None:
        with _steps.pause():
            self._agree(what, [])

    def _agree(self, what: str, tensors: Sequence[torch.Tensor], own: int = 0) -> list[int]:
        """The numbers that the members have brought."""
        shapes = ", ".join(
            f"{str(one.dtype).removeprefix('torch.')}{list(one.shape)}" for one in tensors
        )
        text = f"{what} of {shapes}" if shapes else what
        sums, numbers = self._gather(torch.tensor([zlib.crc32(text.encode()), own])).unbind(1)
        if bool((sums == sums[0]).all()):
            return [int(number) for number in numbers]
        short = (
            text.encode()[: _TEXT_BYTES - 4] + b" ..." if len(text) > _TEXT_BYTES else text.encode()
        )
        parts = self._gather(torch.tensor(list(short.ljust(_TEXT_BYTES)), dtype=torch.uint8))
        texts = [bytes(part.tolist()).decode(errors="replace").strip() for part in parts]
        raise RuntimeError(
            "processes wait for each other in different places: "
            + _differences(self.members, texts)
        )

    def _gather(self, value: torch.Tensor) -> torch.Tensor:
        value = value.contiguous()
        found = torch.empty((self.size, *value.shape), dtype=value.dtype)
        parts = _bytes_of(found).view(self.size, -1)
        self._wait(self._gloo.allgather([list(parts)], [_bytes_of(value)]))
        return found

    def _exchange(self, pieces: torch.Tensor) -> torch.Tensor:
        pieces = pieces.contiguous()
        found = torch.empty_like(pieces)
        self._wait(self._gloo.alltoall_base(_bytes_of(found), _bytes_of(pieces), [], []))
        return found

    def _wait(self, work: Any) -> None:
        try:
            work.wait()
        except RuntimeError as error:
            OsClock().sleep(_PEER_SECONDS)
            ordinal = _process.place().ordinal
            raise RuntimeError(
                f"process {ordinal} waits for another process, which has ended"
            ) from error


def _bytes_of(value: torch.Tensor) -> torch.Tensor:
    return value.reshape(-1).view(torch.uint8)


def _fold(
    parts: torch.Tensor, fold: Callable[[torch.Tensor, torch.Tensor], object]
) -> torch.Tensor:
    total = parts[0].clone()
    for part in parts[1:]:
        fold(total, part)
    return total


def _differences(members: Sequence[int], texts: Sequence[str]) -> str:
    where: dict[str, list[int]] = {}
    for member, text in zip(members, texts, strict=True):
        where.setdefault(text, []).append(member)
    return "; ".join(f"process {', '.join(map(str, who))}: {text}" for text, who in where.items())


_store: list[Any] = []
_groups: dict[tuple[int, ...], ReplicaGroup] = {}


def group_of(groups: Sequence[Sequence[int]] | None = None) -> ReplicaGroup | None:
    """The group that this process is a member of: of all, unless `groups` says otherwise. None: it
    is alone."""
    place = _process.place()
    if groups:
        named = sorted(member for group in groups for member in group)
        if named != list(range(place.world)):
            raise ValueError(
                f"groups {groups!r} do not name each of the {place.world} processes once"
            )
        members = tuple(next(group for group in groups if place.ordinal in group))
    else:
        members = tuple(range(place.world))
    if len(members) == 1:
        return None
    if members not in _groups:
        _groups[members] = ReplicaGroup(
            dist.PrefixStore(f"replicas {members}", meeting_store()), groups or [members]
        )
    return _groups[members]


def meeting_store() -> Any:
    """Return where all processes of the program have met."""
    if not _store:
        place = _process.place()
        if place.store:
            host, _, port = place.store.rpartition(":")
            timeout = datetime.timedelta(seconds=JOIN_SECONDS)
            _store.append(
                dist.TCPStore(
                    host, int(port), is_master=False, timeout=timeout, wait_for_workers=False
                )
            )
        else:
            _store.append(next(iter(dist.rendezvous("env://", place.ordinal, place.world)))[0])
        _wait_for_the_others(_store[0], place)
    return _store[0]


def _wait_for_the_others(store: Any, place: _process.CorePlace) -> None:
    clock = OsClock()
    until = clock.monotonic_seconds() + JOIN_SECONDS
    count = store.add("podyard/here", 1)
    while count < place.world:
        if clock.monotonic_seconds() > until:
            raise TimeoutError(
                f"{count} of {place.world} processes started within {JOIN_SECONDS:.0f} s: the "
                "program must start on "
                "every host of the slice (gcloud: --worker=all)"
            )
        clock.sleep(_LOOK_SECONDS)
        count = store.add("podyard/here", 0)


@atexit.register
def _close() -> None:
    """Before Python takes modules apart: gloo's threads abort a process that ends under them."""
    _groups.clear()
    if dist.is_initialized():
        dist.destroy_process_group()
    _store.clear()


def leave() -> None:
    """Waits until the others have come to the end of the program, too: what they still need from
    this one is there."""
    group = group_of()
    if group is not None and _groups:
        group.wait_for_all("the end of the program")
