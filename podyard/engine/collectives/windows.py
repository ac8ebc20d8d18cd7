"""Windows: files in memory through which the replicas of one machine see each other's vectors.

Every process makes one file before the gang meets and maps those of the others afterwards. It holds

    a page      magic, version, epoch, agreement, process, sizes, and a proof that its maker has the
    gang's key
    a page      how far the process has come (32 bits, written by it alone), whether it sleeps or
    has left, and, of the
                first process, two gates: how far all have come, and how far those that add up
    windows     two of equal size for each rank of the process, one for every other collective

The kernel releases the lock on a file when its process ends, however it ends: that is how a lost
peer is found. Once all have mapped all, the names are taken away, so that nothing is left behind by
a process that is killed; what is left by one that was killed before is the agent's to remove.
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
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from podyard.base.errors import Code, PodyardError
from podyard.engine.collectives.futex import Sleeper
from podyard.engine.collectives.left_over import PREFIX
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
_ASLEEP_AT = _PAGE + 320
_DATA_AT = 2 * _PAGE
_WINDOWS_PER_RANK = 2
_UINT32 = 2**32

# Longest sleep before a waiting process looks whether the one that it waits for is still there.
SLICE_SECONDS = 0.1
# Looks at the number before it sleeps: about 20 microseconds. More would take the time of a peer
# that needs the CPU.
SPINS = 300

# Times that it lets others run before it sleeps: waking a sleeper takes some 50 microseconds, which
# is longer than the others take where they only wait for a CPU.
YIELDS = 200

Stopping = Callable[[], bool]


class Members:
    """The windows of all processes of a machine, and the waits between them."""

    def __init__(
        self,
        files: Mapping[int, WindowFile],
        ranks_of: Mapping[int, Sequence[int]],
        process: int,
        adders: int | None,
        silence_seconds: float,
        stopping: Stopping,
    ) -> None:
        self.window_bytes = files[process].window_bytes
        self.ranks_of = dict(ranks_of)
        # Place among the processes of this machine.
        self.place = list(ranks_of).index(process)
        self._names = list(ranks_of)
        self._files = [files[name] for name in self._names]
        self._slices = max(1, round(silence_seconds / SLICE_SECONDS))
        self._stopping = stopping
        self._sleeper = Sleeper()
        # Taking it is an instruction that all stores before it are done with.
        self._fence = threading.Lock()
        self._asleep = [file.word(_ASLEEP_AT)[0] for file in self._files]
        # The machine's, not this process' own: all must say the same.
        cpus = os.cpu_count() or 1
        # More processes than CPUs: a spinning process keeps the one that it waits for off the CPU,
        # and several adders per CPU only add context switches.
        self._spins = SPINS if len(files) <= cpus else SPINS // 10
        self.adders = min(len(files), adders or cpus)
        first, adding = self._files[0], self._files[: self.adders]
        self._all = _Barrier(
            *first.word(_GATES_AT[0]), [file.word(_PROGRESS_AT)[0] for file in self._files]
        )
        self._adding = _Barrier(
            *first.word(_GATES_AT[1]), [file.word(_ADDED_AT)[0] for file in adding]
        )

    @classmethod
    def attach(
        cls,
        own: WindowFile,
        ranks_of: Mapping[int, Sequence[int]],
        *,
        silence_seconds: float,
        stopping: Stopping,
        adders: int | None = None,
    ) -> Members:
        """To be called when all processes of this machine have made their files; `ranks_of` says,
        in the same order everywhere, which ranks each of them holds. The first `adders` of them add
        up; one per CPU is the default. Returns when all have come.

        Raises PodyardError UNAVAILABLE when a peer's file is not there, UNAUTHENTICATED for one
        without the gang's key, ABORTED for another epoch or run, and what `meet` raises.
        """
        files = {
            process: own if process == own.process else own.open_peer(process, len(ranks))
            for process, ranks in ranks_of.items()
        }
        members = cls(files, ranks_of, own.process, adders, silence_seconds, stopping)
        members.meet()
        own.take_name_away()
        return members

    def window(self, rank: int, turn: int, dtype: np.dtype[Any], length: int) -> NDArray[Any]:
        """A view of the window of `rank` for every other collective: `turn` is 0 or 1."""
        for file, ranks in zip(self._files, self.ranks_of.values(), strict=True):
            if rank in ranks:
                start = _DATA_AT + (ranks.index(rank) * _WINDOWS_PER_RANK + turn) * _stride(
                    self.window_bytes
                )
                return np.frombuffer(file.memory, dtype, length, start)
        raise AssertionError(f"no process of this machine holds rank {rank}")

    def meet(self) -> None:
        """Nobody goes on before all have come.

        Raises PodyardError UNAVAILABLE naming the process that is gone or silent for too long,
        CANCELLED when told to stop.
        """
        self._come(self._all)
        self._wait(self._all)

    def finish(self) -> None:
        """Nobody goes on before those that add up (the first `adders`) have come here; the others
        only wait. Raises
        what `meet` raises."""
        adds = self.place < self.adders
        if adds:
            self._come(self._adding)
        # Who does not add sleeps at once: one who keeps looking takes the CPU of one who adds.
        self._wait(self._adding, YIELDS if adds else 0)

    def leave(self) -> None:
        """Tells those who wait that nobody will come. Views of windows stay valid."""
        if not self._files:
            return
        own = self._files[self.place]
        own.left[0] = 1
        for gate in (self._all, self._adding):
            self._sleeper.wake(gate.address)
        for file in self._files:
            file.close()
        self._files = []

    def _come(self, gate: _Barrier) -> None:
        """The last one to come opens the gate. Two may both find that they are the last, never
        none: each says that it has come before it looks at the others. In the same way nobody who
        sleeps is overlooked."""
        goal = (gate.goal + 1) % _UINT32
        gate.numbers[self.place][0] = goal
        self._keep_order()
        for number in gate.numbers:
            # Others may be one ahead already.
            if (number[0] - goal) % _UINT32 >= _UINT32 // 2:
                return
        gate.word[0] = goal
        self._keep_order()
        if any(asleep[0] for asleep in self._asleep):
            self._sleeper.wake(gate.address)

    def _keep_order(self) -> None:
        """Stores before this are seen by others before loads after it are made."""
        self._fence.acquire()
        self._fence.release()

    def _wait(self, gate: _Barrier, yields: int = YIELDS) -> None:
        gate.goal = goal = (gate.goal + 1) % _UINT32
        word = gate.word  # at most `goal`: the next one takes this process to come
        for _ in range(self._spins):
            if word[0] == goal:
                return
        for _ in range(yields):
            os.sched_yield()
            if word[0] == goal:
                return
        self._asleep[self.place][0] = 1
        try:
            self._sleep(gate, goal)
        finally:
            self._asleep[self.place][0] = 0

    def _sleep(self, gate: _Barrier, goal: int) -> None:
        self._keep_order()
        for _ in range(self._slices):
            # Before the word is read: who has come and then left has come.
            gone = self._lost_processes()
            seen = gate.word[0]
            if seen == goal:
                return
            missing = [
                place for place, number in enumerate(gate.numbers) if not _has_come(number[0], goal)
            ]
            for place in missing:
                if place in gone:
                    raise PodyardError(
                        Code.UNAVAILABLE, f"process {self._names[place]} of this machine is gone"
                    )
            if self._stopping():
                raise PodyardError(Code.CANCELLED, "told to stop")
            self._sleeper.wait(gate.address, seen, SLICE_SECONDS)
        silence, names = self._slices * SLICE_SECONDS, [self._names[place] for place in missing]
        raise PodyardError(
            Code.UNAVAILABLE, f"processes {names} of this machine are silent for {silence:g} s"
        )

    def _lost_processes(self) -> list[int]:
        others = (place for place in range(len(self._files)) if place != self.place)
        return [
            one for one in others if self._files[one].left[0] or self._files[one].is_abandoned()
        ]


@dataclasses.dataclass(slots=True)
class _Barrier:
    """A word that the last of several processes sets to `goal`; `numbers` are how far each of them
    has come."""

    word: memoryview
    address: int
    numbers: list[memoryview]
    goal: int = 0


def _has_come(progress: int, goal: int) -> bool:
    """Both count modulo 2^32, and are never far from each other."""
    return (progress - goal) % _UINT32 < _UINT32 // 2


class WindowFile:
    """A mapped file of windows. It is made before the gang meets, so that all are there when it has
    met."""

    def __init__(
        self, path: Path, descriptor: int, member: Membership, process: int, window_bytes: int
    ) -> None:
        self.process = process
        self.window_bytes = window_bytes
        self._path = path
        self._member = member
        self._descriptor = descriptor
        self.memory = mmap.mmap(
            descriptor, 0, flags=mmap.MAP_SHARED | getattr(mmap, "MAP_POPULATE", 0)
        )
        self.left, _ = self.word(_LEFT_AT)

    @classmethod
    def make(
        cls, folder: Path, member: Membership, process: int, rank_count: int, window_bytes: int
    ) -> WindowFile:
        """Raises PodyardError RESOURCE_EXHAUSTED where the folder has no room for the windows."""
        path = _path(folder, member, process)
        unfinished = path.with_suffix(".unfinished")
        size = _size(rank_count, window_bytes)
        try:
            descriptor = os.open(unfinished, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600)
        except OSError as error:
            raise _no_room(folder, size, error) from error
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            # Now, or a window that does not fit would end the process at its first write.
            os.posix_fallocate(descriptor, 0, size)
            header = _header(member, process, rank_count, window_bytes)
            os.pwrite(descriptor, header + _proof(member, header), 0)
            unfinished.rename(path)
            return cls(path, descriptor, member, process, window_bytes)
        except OSError as error:
            os.close(descriptor)
            unfinished.unlink(missing_ok=True)
            raise _no_room(folder, size, error) from error

    def open_peer(self, process: int, rank_count: int) -> WindowFile:
        """The file of another process of this gang. Raises what `Members.attach` says."""
        path = _path(self._path.parent, self._member, process)
        try:
            descriptor = os.open(path, os.O_RDWR)
        except OSError as error:
            why = f"process {process} of this machine has no windows: {error.strerror}"
            raise PodyardError(Code.UNAVAILABLE, why) from error
        try:
            expected = _header(self._member, process, rank_count, self.window_bytes)
            found = os.pread(descriptor, _HEADER.size + _PROOF_BYTES, 0)
            if not hmac.compare_digest(
                found[_HEADER.size :], _proof(self._member, found[: _HEADER.size])
            ):
                raise PodyardError(
                    Code.UNAUTHENTICATED, f"the windows of process {process} are not of this gang"
                )
            is_whole = os.fstat(descriptor).st_size == _size(rank_count, self.window_bytes)
            if found[: _HEADER.size] != expected or not is_whole:
                raise PodyardError(
                    Code.ABORTED,
                    f"process {process} belongs to another epoch, run or size of model",
                )
            return WindowFile(path, descriptor, self._member, process, self.window_bytes)
        except BaseException:
            os.close(descriptor)
            raise

    def word(self, start: int) -> tuple[memoryview, int]:
        """(32 bits of the file, their address)."""
        address = ctypes.addressof(ctypes.c_uint32.from_buffer(self.memory, start))
        return memoryview(self.memory)[start : start + 4].cast("I"), address

    def is_abandoned(self) -> bool:
        """Return whether its maker has ended: the kernel has taken the lock back."""
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        fcntl.flock(self._descriptor, fcntl.LOCK_UN)
        return True

    def take_name_away(self) -> None:
        with contextlib.suppress(FileNotFoundError):
            self._path.unlink()

    def discard(self) -> None:
        """For windows that nobody is going to use: their memory is free at once."""
        self.take_name_away()
        os.ftruncate(self._descriptor, 0)
        self.close()

    def close(self) -> None:
        """The memory itself goes with the last view of it."""
        os.close(self._descriptor)


def _path(folder: Path, member: Membership, process: int) -> Path:
    run = hashlib.sha256(member.key + member.agreement).hexdigest()[:16]
    return folder / f"{PREFIX}{run}-{member.epoch}-{process}"


def _header(member: Membership, process: int, rank_count: int, window_bytes: int) -> bytes:
    return _HEADER.pack(
        _MAGIC, _VERSION, member.epoch, member.agreement, process, rank_count, window_bytes
    )


def _proof(member: Membership, header: bytes) -> bytes:
    return hmac.new(member.key, b"window" + header, hashlib.sha256).digest()


def _stride(window_bytes: int) -> int:
    """Windows begin on pages."""
    return -(-max(window_bytes, 1) // _PAGE) * _PAGE


def _size(rank_count: int, window_bytes: int) -> int:
    return _DATA_AT + rank_count * _WINDOWS_PER_RANK * _stride(window_bytes)


def _no_room(folder: Path, size: int, error: OSError) -> PodyardError:
    why = f"no room for windows of {size} bytes in {folder}: {error.strerror}"
    return PodyardError(Code.RESOURCE_EXHAUSTED, why)
