"""Windows: files in memory through which the replicas of one machine see each other's vectors.

Every process makes one file before the gang meets and maps those of the others afterwards. It holds

    a page      magic, version, epoch, agreement, process, sizes, and a proof that its maker has the gang's key
    a page      how far the process has come (32 bits, written by it alone), whether it has left, and, of the first
                process, two gates: how far all have come, and how far those that add up
    windows     two of equal size for each rank of the process, one for every other collective

The kernel releases the lock on a file when its process ends, however it ends: that is how a lost peer is found. Once
all have mapped all, the names are taken away, so that nothing is left behind by a process that is killed; what is left
by one that was killed before is the agent's to remove.
"""

from __future__ import annotations

import contextlib
import ctypes
import dataclasses
import fcntl
import hashlib
import hmac
import mmap
import os
import struct
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from podyard.base.errors import Code, PodyardError
from podyard.engine.collectives.futex import Sleeper
from podyard.engine.collectives.wire import Membership

_MAGIC = b"PYWN"
_VERSION = 1
_PAGE = 4096
# magic, version, epoch, agreement, process, ranks, bytes per window
_HEADER = struct.Struct("!4sHQ32sIIQ")
_PROOF_BYTES = 32
# On cache lines of their own.
_PROGRESS_AT, _LEFT_AT, _ADDED_AT = _PAGE, _PAGE + 64, _PAGE + 128
_GATES_AT = (_PAGE + 192, _PAGE + 256)
_DATA_AT = 2 * _PAGE
_WINDOWS_PER_RANK = 2
_UINT32 = 2**32
PREFIX = "podyard-window-"

# Longest sleep before a waiting process looks whether the one that it waits for is still there.
SLICE_SECONDS = 0.1
# Looks at the number before it sleeps: about 20 microseconds. More would take the time of a peer that needs the CPU.
SPINS = 300

# Times that it lets others run before it sleeps: waking a sleeper takes some 50 microseconds, which is longer than the
# others take where they only wait for a CPU.
YIELDS = 200

Stopping = Callable[[], bool]


@dataclasses.dataclass(frozen=True, slots=True)
class Place:
    """Where a process of a gang is among those of its machine: `ranks_of[i]` are the ranks that process i holds."""

    process: int
    ranks_of: tuple[tuple[int, ...], ...]

    @property
    def process_count(self) -> int:
        return len(self.ranks_of)


class Gang:
    """The windows of all processes of a machine, and the waits between them."""

    def __init__(self, place: Place, window_bytes: int, silence_seconds: float, stopping: Stopping) -> None:
        self.place = place
        self.window_bytes = window_bytes
        self._slices = max(1, round(silence_seconds / SLICE_SECONDS))
        self._stopping = stopping
        self._sleeper = Sleeper()
        # A store and a load of another word stay in order across this: it locks, and unlocks, a word of its own.
        self._fence = threading.Lock()
        cpus = len(os.sched_getaffinity(0))
        # More processes than CPUs: whoever spins keeps away the one that it waits for, and more than one adder for each
        # CPU are only more changes between them.
        self._spins = SPINS if place.process_count <= cpus else SPINS // 10
        self.adders = min(place.process_count, cpus)
        self._files: list[_File] = []

    @classmethod
    def create(
        cls,
        folder: Path,
        member: Membership,
        place: Place,
        window_bytes: int,
        *,
        silence_seconds: float,
        stopping: Stopping,
    ) -> tuple[Gang, Callable[[], None]]:
        """(the gang, what is to be called when all processes have come this far).

        Raises PodyardError RESOURCE_EXHAUSTED where the folder has no room for the windows. The second raises
        UNAVAILABLE when a peer's file is not there, UNAUTHENTICATED for one without the gang's key, ABORTED for
        another epoch or run.
        """
        gang = cls(place, window_bytes, silence_seconds, stopping)
        own = _File.make(folder, member, place, window_bytes)

        def attach() -> None:
            for process in range(place.process_count):
                file = own if process == place.process else _File.open(folder, member, place, process, window_bytes)
                gang._files.append(file)
            gang._open_gates()
            gang.meet()
            own.take_name_away()

        return gang, attach

    def _open_gates(self) -> None:
        first = self._files[0]
        self._all = _Gate(*first.word(_GATES_AT[0]), [file.word(_PROGRESS_AT)[0] for file in self._files])
        adding = self._files[: self.adders]
        self._adding = _Gate(*first.word(_GATES_AT[1]), [file.word(_ADDED_AT)[0] for file in adding])

    def window(self, rank: int, turn: int, dtype: np.dtype[Any], length: int) -> NDArray[Any]:
        """A view of the window of `rank` for every other collective: `turn` is 0 or 1."""
        for process, ranks in enumerate(self.place.ranks_of):
            if rank in ranks:
                start = _DATA_AT + (ranks.index(rank) * _WINDOWS_PER_RANK + turn) * _stride(self.window_bytes)
                return np.frombuffer(self._files[process].memory, dtype, length, start)
        raise AssertionError(f"no process of this machine holds rank {rank}")

    def meet(self) -> None:
        """Nobody goes on before all have come.

        Raises PodyardError UNAVAILABLE naming the process that is gone or silent for too long, CANCELLED when told to
        stop.
        """
        self._come(self._all)
        self._wait(self._all)

    def finish(self) -> None:
        """Nobody goes on before those that add up (the first `adders`) have come here; the others only wait. Raises
        what `meet` raises."""
        if self.place.process < self.adders:
            self._come(self._adding)
        self._wait(self._adding)

    def leave(self) -> None:
        """Tells those who wait that nobody will come. Views of windows stay valid."""
        if not self._files:
            return
        own = self._files[self.place.process]
        own.left[0] = 1
        for gate in (self._all, self._adding):
            self._sleeper.wake(gate.address)
        own.take_name_away()
        for file in self._files:
            file.close()
        self._files = []

    def _come(self, gate: _Gate) -> None:
        """The last one to come opens the gate. Two may both find that they are the last, never none: each says that it
        has come before it looks at the others."""
        goal = (gate.goal + 1) % _UINT32
        gate.numbers[self.place.process][0] = goal
        with self._fence:
            pass
        if all(_has_come(number[0], goal) for number in gate.numbers):
            gate.word[0] = goal
            self._sleeper.wake(gate.address)

    def _wait(self, gate: _Gate) -> None:
        gate.goal = goal = (gate.goal + 1) % _UINT32
        word = gate.word
        for _ in range(self._spins):
            if _has_come(word[0], goal):
                return
        for _ in range(YIELDS):
            os.sched_yield()
            if _has_come(word[0], goal):
                return
        for _ in range(self._slices):
            # Before the word is read: who has come and then left has come.
            gone = self._gone()
            seen = word[0]
            if _has_come(seen, goal):
                return
            missing = [process for process, number in enumerate(gate.numbers) if not _has_come(number[0], goal)]
            for process in missing:
                if process in gone:
                    raise PodyardError(Code.UNAVAILABLE, f"process {process} of this machine is gone")
            if self._stopping():
                raise PodyardError(Code.CANCELLED, "told to stop")
            self._sleeper.wait(gate.address, seen, SLICE_SECONDS)
        silence = self._slices * SLICE_SECONDS
        raise PodyardError(Code.UNAVAILABLE, f"processes {missing} of this machine are silent for {silence:g} s")

    def _gone(self) -> list[int]:
        others = (process for process in range(self.place.process_count) if process != self.place.process)
        return [one for one in others if self._files[one].left[0] or self._files[one].is_abandoned()]


@dataclasses.dataclass(slots=True)
class _Gate:
    """A word that the last of several processes sets to `goal`; `numbers` are how far each of them has come."""

    word: memoryview
    address: int
    numbers: list[memoryview]
    goal: int = 0


def _has_come(progress: int, goal: int) -> bool:
    """Both count modulo 2^32, and are never far from each other."""
    return (progress - goal) % _UINT32 < _UINT32 // 2


class _File:
    """A mapped file of windows."""

    def __init__(self, path: Path, descriptor: int) -> None:
        self._path = path
        self._descriptor = descriptor
        self.memory = mmap.mmap(descriptor, 0, flags=mmap.MAP_SHARED | getattr(mmap, "MAP_POPULATE", 0))
        self.left, _ = self.word(_LEFT_AT)

    def word(self, start: int) -> tuple[memoryview, int]:
        """(32 bits of the file, their address)."""
        address = ctypes.addressof(ctypes.c_uint32.from_buffer(self.memory, start))
        return memoryview(self.memory)[start : start + 4].cast("I"), address

    @classmethod
    def make(cls, folder: Path, member: Membership, place: Place, window_bytes: int) -> _File:
        path = _path(folder, member, place.process)
        unfinished = path.with_suffix(".unfinished")
        size = _size(place, place.process, window_bytes)
        descriptor = os.open(unfinished, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            # Now, or a window that does not fit would end the process at its first write.
            os.posix_fallocate(descriptor, 0, size)
            header = _header(member, place, place.process, window_bytes)
            os.pwrite(descriptor, header + _proof(member, header), 0)
            unfinished.rename(path)
            return cls(path, descriptor)
        except OSError as error:
            os.close(descriptor)
            unfinished.unlink(missing_ok=True)
            why = f"no room for windows of {size} bytes in {folder}: {error.strerror}"
            raise PodyardError(Code.RESOURCE_EXHAUSTED, why) from error

    @classmethod
    def open(cls, folder: Path, member: Membership, place: Place, process: int, window_bytes: int) -> _File:
        path = _path(folder, member, process)
        try:
            descriptor = os.open(path, os.O_RDWR)
        except OSError as error:
            why = f"process {process} of this machine has no windows: {error.strerror}"
            raise PodyardError(Code.UNAVAILABLE, why) from error
        try:
            expected = _header(member, place, process, window_bytes)
            found = os.pread(descriptor, _HEADER.size + _PROOF_BYTES, 0)
            if not hmac.compare_digest(found[_HEADER.size :], _proof(member, found[: _HEADER.size])):
                raise PodyardError(Code.UNAUTHENTICATED, f"the windows of process {process} are not of this gang")
            if found[: _HEADER.size] != expected or os.fstat(descriptor).st_size != _size(place, process, window_bytes):
                raise PodyardError(Code.ABORTED, f"process {process} belongs to another epoch, run or size of model")
            return cls(path, descriptor)
        except BaseException:
            os.close(descriptor)
            raise

    def is_abandoned(self) -> bool:
        """Whether its maker has ended: the kernel has taken the lock back."""
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        fcntl.flock(self._descriptor, fcntl.LOCK_UN)
        return True

    def take_name_away(self) -> None:
        with contextlib.suppress(FileNotFoundError):
            self._path.unlink()

    def close(self) -> None:
        """The memory itself goes with the last view of it."""
        os.close(self._descriptor)


def _path(folder: Path, member: Membership, process: int) -> Path:
    run = hashlib.sha256(member.key + member.agreement).hexdigest()[:16]
    return folder / f"{PREFIX}{run}-{member.epoch}-{process}"


def _header(member: Membership, place: Place, process: int, window_bytes: int) -> bytes:
    ranks = len(place.ranks_of[process])
    return _HEADER.pack(_MAGIC, _VERSION, member.epoch, member.agreement, process, ranks, window_bytes)


def _proof(member: Membership, header: bytes) -> bytes:
    return hmac.new(member.key, b"window" + header, hashlib.sha256).digest()


def _stride(window_bytes: int) -> int:
    """Windows begin on pages."""
    return -(-max(window_bytes, 1) // _PAGE) * _PAGE


def _size(place: Place, process: int, window_bytes: int) -> int:
    return _DATA_AT + len(place.ranks_of[process]) * _WINDOWS_PER_RANK * _stride(window_bytes)


def remove_left_over(folder: Path) -> int:
    """Removes the files of processes that have ended; how many. For the agent, which owns the folder."""
    removed = 0
    for path in sorted(folder.glob(PREFIX + "*")):
        with contextlib.suppress(OSError), path.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            path.unlink()
            removed += 1
    return removed


__all__ = ["PREFIX", "Gang", "Place", "remove_left_over"]
