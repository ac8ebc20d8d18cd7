"""Asks the real TPU compiler what it makes of a program: cycles, bytes, whether it fits, which
collectives.

The compiler runs in a worker process (worker.py), one at a time on a machine for one user: the
worker holds a file lock as long as it lives, callers that want one wait at a turnstile, and a
worker is given up when someone stands there, when it was idle for a while, after many compilations,
or when it occupies too much memory.
"""

from __future__ import annotations

import atexit
import contextlib
import dataclasses
import fcntl
import importlib.util
import os
import signal
import socket
import stat
import subprocess
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from podyard.base.clock import OsClock
from podyard.base.errors import Code, PodyardError, failed_precondition, invalid
from podyard.base.interpreter import python_command
from podyard.engine.exact.hlo import ExactCollective, ExactOp
from podyard.engine.exact.worker import pack, unpack
from podyard.hardware import accelerator_types
from podyard.hardware.accelerator_types import AcceleratorType, host_shape

# A large model's training step compiles in a minute or two; a worker's start takes two seconds.
TIMEOUT_SECONDS = 300.0
RESIDENT_BYTES_MAX = 4 * 2**30
COMPILES_MAX = 200
IDLE_SECONDS = 30.0
_POLL_SECONDS = 0.05
_WATCH_SECONDS = 0.5
_EXIT_SECONDS = 5.0
_LAST_WORDS_BYTES = 2000
_ENDED = "ended"
_WORKER = tuple(python_command("-m", "podyard.engine.exact.worker"))


@dataclasses.dataclass(frozen=True, slots=True)
class ExactVerdict:
    """The compiler's answer for one program on one slice. All figures are of one device: a core on
    v2 and v3, a chip from v4 on.

    `cycles`: the sum over `ops`, as if they ran one after another; collectives and asynchronous
    copies are not in it. `fetched_bytes` are what those copies move. Bytes are those of the
    device's memory; `peak_bytes` is the most that is occupied at a time, from v4 on with what lies
    in the chip's own memory. `flops` and `bytes_accessed` come from the compiler's cost analysis,
    which counts the body of a loop once. `unknown_trip_loops` were counted once; of `conditionals`
    the branch with most cycles. Where the program does not fit, `out_of_memory_text` is the
    compiler's own, and all figures are 0.
    """

    accelerator_type: str
    partitions: int
    compiler_version: str
    out_of_memory_text: str
    cycles: int = 0
    ops: tuple[ExactOp, ...] = ()
    collectives: tuple[ExactCollective, ...] = ()
    unknown_trip_loops: tuple[str, ...] = ()
    conditionals: tuple[str, ...] = ()
    fetched_bytes: int = 0
    argument_bytes: int = 0
    output_bytes: int = 0
    temporary_bytes: int = 0
    alias_bytes: int = 0
    code_bytes: int = 0
    peak_bytes: int = 0
    flops: float = 0.0
    bytes_accessed: float = 0.0

    @property
    def fits(self) -> bool:
        return not self.out_of_memory_text


def is_installed() -> bool:
    """Return whether the TPU compiler can be asked here."""
    return all(importlib.util.find_spec(name) is not None for name in ("jax", "libtpu"))


def compile_exact(
    stablehlo: str,
    accelerator_type: AcceleratorType | str,
    partitions: int = 1,
    timeout_seconds: float = TIMEOUT_SECONDS,
    options: Mapping[str, str | int | bool] | None = None,
) -> ExactVerdict:
    """The compiler's verdict on the StableHLO module `stablehlo`, split over the first `partitions`
    devices.

    `timeout_seconds` is for all of it, waiting for another process's compilation included.
    `options` are the compiler's own flags by name. Raises PodyardError: FAILED_PRECONDITION without
    libtpu or with a JAX whose way to it moved; INVALID_ARGUMENT for an unknown type, too many
    partitions, or a module that the compiler refuses (with its words); DEADLINE_EXCEEDED at the
    time limit; UNAVAILABLE when the compiler's process died.
    """
    if not is_installed():
        raise failed_precondition(
            "the exact verdict needs the TPU compiler: it needs pip install 'podyard[xla-tpu]'"
        )
    return _shared.compile(stablehlo, accelerator_type, partitions, timeout_seconds, options)


def lower_for_tpu(fn: Callable[..., Any], *abstract_args: Any, **abstract_kwargs: Any) -> str:
    """StableHLO text of `fn`, lowered for a TPU; needs JAX, but no device and no libtpu.

    `fn` may be a function or the result of `jax.jit`; arguments are arrays or
    `jax.ShapeDtypeStruct`s, whose shapes and dtypes alone count. For several devices use
    `shard_map` or shardings on a `jax.sharding.AbstractMesh`.
    """
    import jax

    jitted: Any = fn if hasattr(fn, "trace") else jax.jit(fn)
    return str(
        jitted.trace(*abstract_args, **abstract_kwargs).lower(lowering_platforms=("tpu",)).as_text()
    )


class ExactCompiler:
    """Owns at most one worker; for any number of threads, of which one compiles at a time. `close`
    ends the worker.

    `command` starts a worker; `lock_folder` holds the locks of all processes that share the
    machine's one worker.
    """

    def __init__(
        self,
        command: Sequence[str] = _WORKER,
        lock_folder: Path | None = None,
        compiles_max: int = COMPILES_MAX,
        resident_bytes_max: int = RESIDENT_BYTES_MAX,
        idle_seconds: float = IDLE_SECONDS,
    ) -> None:
        self._command = tuple(command)
        self._lock_folder = lock_folder
        self._compiles_max = compiles_max
        self._resident_bytes_max = resident_bytes_max
        self._idle_seconds = idle_seconds
        self._clock = OsClock()
        self._turn = threading.Lock()
        self._worker: _ExactWorker | None = None

    def forget(self) -> None:
        """Gives the worker up without ending it: in a child process after a fork it is the
        parent's."""
        self._turn = threading.Lock()
        if self._worker is not None:
            self._worker.abandon()
            self._worker = None

    def compile(
        self,
        stablehlo: str,
        accelerator_type: AcceleratorType | str,
        partitions: int = 1,
        timeout_seconds: float = TIMEOUT_SECONDS,
        options: Mapping[str, str | int | bool] | None = None,
    ) -> ExactVerdict:
        """See `compile_exact`; this one does not look whether libtpu is installed."""
        kind = (
            accelerator_types.parse(accelerator_type)
            if isinstance(accelerator_type, str)
            else accelerator_type
        )
        if not 1 <= partitions <= kind.device_count:
            raise invalid(
                f"{partitions} partitions: {kind.name} has {kind.device_count} devices",
                "partitions",
            )
        request = pack(
            {
                "stablehlo": stablehlo,
                "partitions": partitions,
                "options": options or {},
                **_target(kind),
            }
        )
        limit = _Limit(self._clock, timeout_seconds)
        if not self._turn.acquire(timeout=max(0.0, timeout_seconds)):
            raise limit.timeout_error("waiting for another thread's compilation")
        try:
            answer = self._ask(request, limit)
        finally:
            self._turn.release()
        return _verdict(answer, kind.name, partitions)

    def close(self) -> None:
        """Ends the worker; a compilation that is under way fails."""
        worker = self._worker
        if worker is not None:
            worker.signal()
        # The holder of the turn is about to notice, or waits for another process: not a reason to
        # wait for long.
        if self._turn.acquire(timeout=_EXIT_SECONDS):
            try:
                self._end()
            finally:
                self._turn.release()

    def _ask(self, request: bytes, limit: _Limit) -> dict[str, Any]:
        if self._worker is not None and self._worker.process.poll() is not None:
            self._end()
        try:
            if self._worker is None:
                self._worker = _ExactWorker(self._command, _locks(self._lock_folder), limit)
                threading.Thread(target=self._watch, args=(self._worker,), daemon=True).start()
            answer = self._worker.ask(request, limit)
        except BaseException:
            self._end()
            raise
        worn_out = (
            self._worker.compiles >= self._compiles_max
            or answer["resident_bytes"] > self._resident_bytes_max
        )
        if worn_out or self._worker.is_wanted_elsewhere():
            self._end()
        return answer

    def _watch(self, worker: _ExactWorker) -> None:
        """Ends the worker when it is idle for too long, or idle while another process waits."""
        while True:
            self._clock.sleep(_WATCH_SECONDS)
            with self._turn:
                if self._worker is not worker:
                    return
                idle_seconds = self._clock.monotonic_seconds() - worker.last_used_seconds
                if idle_seconds >= self._idle_seconds or worker.is_wanted_elsewhere():
                    self._end()
                    return

    def _end(self) -> None:
        if self._worker is not None:
            self._worker.kill()
            self._worker = None


class _Limit:
    """A point in time that nothing here waits beyond."""

    def __init__(self, clock: OsClock, seconds: float) -> None:
        self.clock = clock
        self._seconds = seconds
        self._end = clock.monotonic_seconds() + seconds

    def remaining(self, doing: str) -> float:
        """Seconds that are left; raises DEADLINE_EXCEEDED when there are none."""
        left = self._end - self.clock.monotonic_seconds()
        if left <= 0:
            raise self.timeout_error(doing)
        return left

    def timeout_error(self, doing: str) -> PodyardError:
        return PodyardError(
            Code.DEADLINE_EXCEEDED,
            f"the exact verdict was not there after {self._seconds:g} s, while {doing}",
        )


class _ExactWorker:
    """A worker process. Its standard streams for input and output are one end of a socket pair: a
    socket has
    time limits both ways. It inherits the descriptor of the machine's lock, which so is free when
    it is dead."""

    def __init__(self, command: Sequence[str], locks: tuple[Path, Path], limit: _Limit) -> None:
        self._turnstile_path, lock_path = locks
        self._clock = limit.clock
        with (
            contextlib.ExitStack() as kept,
            _lock(self._turnstile_path, limit),
            _open(lock_path) as lock,
        ):
            _take(lock, limit)
            self._printed = kept.enter_context(tempfile.TemporaryFile())
            ours, theirs = socket.socketpair()
            self._socket = kept.enter_context(ours)
            with theirs:
                self.process = subprocess.Popen(
                    command,
                    stdin=theirs.fileno(),
                    stdout=theirs.fileno(),
                    stderr=self._printed,
                    pass_fds=(lock,),
                    start_new_session=True,
                )
            kept.pop_all()
        self.compiles = 0
        self.last_used_seconds = self._clock.monotonic_seconds()

    def ask(self, request: bytes, limit: _Limit) -> dict[str, Any]:
        """One answer. After an error the worker is of no more use."""
        doing = "the TPU compiler was working"

        def read(size: int) -> bytes:
            received = bytearray()
            while len(received) < size:
                self._socket.settimeout(limit.remaining(doing))
                part = self._socket.recv(min(size - len(received), 2**20))
                if not part:
                    break
                received += part
            return bytes(received)

        try:
            self._socket.settimeout(limit.remaining(doing))
            self._socket.sendall(request)
            answer = unpack(read)
        except TimeoutError as error:
            raise limit.timeout_error(doing) from error
        except OSError:
            answer = None
        except ValueError as error:
            raise self._failure(f"answered nonsense ({error})") from error
        if answer is None:
            raise self._failure(_ENDED)
        if not isinstance(answer.get("resident_bytes"), int):
            raise self._failure("answered nonsense (no resident_bytes)")
        self.compiles += 1
        self.last_used_seconds = self._clock.monotonic_seconds()
        return answer

    def is_wanted_elsewhere(self) -> bool:
        """Return whether another process waits for this worker to end."""
        try:
            with _open(self._turnstile_path) as turnstile:
                return not _try_lock(turnstile)
        except FileNotFoundError:  # the folder was cleared away, and nobody stands in it
            return False

    def abandon(self) -> None:
        """Lets go of a process that is another one's child."""
        self._socket.close()
        self._printed.close()
        self.process.returncode = 0  # it is not this process's to wait for

    def signal(self) -> None:
        """Tells the process, and whatever it started, to end at once."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, signal.SIGKILL)

    def kill(self) -> None:
        """Ends the process and whatever it started; returns when it is gone."""
        self.signal()
        self._socket.close()
        self.process.wait()
        self._printed.close()

    def _failure(self, what: str) -> PodyardError:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(_EXIT_SECONDS if what == _ENDED else 0)
        code = self.process.returncode
        how = "" if code is None else f" by signal {-code}" if code < 0 else f" with status {code}"
        size = self._printed.seek(0, os.SEEK_END)
        self._printed.seek(max(0, size - _LAST_WORDS_BYTES))
        words = self._printed.read().decode(errors="replace").strip()
        said = f"; its last words: {words}" if words else ""
        return PodyardError(
            Code.UNAVAILABLE,
            f"the TPU compiler's process {what}{how}; the next call starts another{said}",
        )


@contextlib.contextmanager
def _open(path: Path) -> Iterator[int]:
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def _lock(path: Path, limit: _Limit) -> Iterator[None]:
    with _open(path) as descriptor:
        _take(descriptor, limit)
        yield


def _take(descriptor: int, limit: _Limit) -> None:
    while not _try_lock(descriptor):
        left = limit.remaining("another process used the TPU compiler")
        limit.clock.sleep(min(_POLL_SECONDS, left))


def _try_lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _locks(folder: Path | None) -> tuple[Path, Path]:
    """Turnstile and lock, in a folder that nobody else can write to."""
    if folder is None:
        folder = Path(tempfile.gettempdir()) / f"podyard-exact-{os.getuid()}"
        with contextlib.suppress(FileExistsError):
            folder.mkdir(mode=0o700)
        status = folder.lstat()
        if (
            not stat.S_ISDIR(status.st_mode)
            or status.st_uid != os.getuid()
            or status.st_mode & 0o077
        ):
            raise failed_precondition(f"{folder} is not a private folder of this user: remove it")
    return folder / "turnstile", folder / "lock"


def _target(kind: AcceleratorType) -> dict[str, object]:
    """Return how libtpu names the slice."""
    name = kind.generation.name
    return {
        "topology": f"{name}:{kind.topology.text}" + ("_twisted" if kind.topology.twisted else ""),
        "host_bounds": list(host_shape(kind)),
        "chip_config": kind.generation.chip_config,
    }


def _verdict(answer: Mapping[str, Any], accelerator_type: str, partitions: int) -> ExactVerdict:
    """Raises the error that the answer is, or INTERNAL for an answer without sense."""
    try:
        if "error" in answer:
            raise PodyardError(Code(answer["error"]["code"]), str(answer["error"]["message"]))
        fields = dict(answer["verdict"])
        for key, kind in (("ops", ExactOp), ("collectives", ExactCollective)):
            fields[key] = tuple(kind(**entry) for entry in fields.get(key, ()))
        for key in ("unknown_trip_loops", "conditionals"):
            fields[key] = tuple(fields.get(key, ()))
        return ExactVerdict(accelerator_type=accelerator_type, partitions=partitions, **fields)
    except (KeyError, TypeError, ValueError) as error:
        raise PodyardError(
            Code.INTERNAL, f"the TPU compiler's process gave an answer without sense: {error!r}"
        ) from error


_shared = ExactCompiler()
atexit.register(_shared.close)
os.register_at_fork(after_in_child=_shared.forget)
