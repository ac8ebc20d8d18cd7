"""torch_xla.distributed.xla_multiprocessing: a process for each core of this host."""

from __future__ import annotations

import contextlib
import ctypes
import math
import multiprocessing
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from multiprocessing import connection
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing
from torch.multiprocessing.spawn import ProcessException  # of torch.multiprocessing up to 2.13
from torch_xla import _collectives, _process, _refusals, _steps
from torch_xla._process import CorePlace

from podyard.base.clock import OsClock
from podyard.programs import records
from podyard.programs.free_memory import free_bytes

GRACE_SECONDS = 5.0  # from the failure of one process to SIGKILL for those that are still there
# Of a process with torch that has computed a little, besides what it shares with the others: 24 and
# 157 MB.
PROCESS_BYTES = {"fork": 40 * 2**20, "spawn": 180 * 2**20}
_PDEATHSIG = 1  # linux/prctl.h


class MpModelWrapper:
    """A model that is made once, before the processes are forked."""

    def __init__(self, model: Any) -> None:
        self._model = model

    def to(self, device: Any) -> Any:
        return self._model.to(device)


class MpSerialExecutor:
    """Runs a function in one process after the other: a download, by the first, is there for the
    others."""

    def __init__(self) -> None:
        self._lock = torch.multiprocessing.get_context("fork").Lock()

    def run(self, fn: Callable[[], Any]) -> Any:
        with self._lock:
            return fn()


def spawn(
    fn: Callable[..., Any],
    args: tuple[Any, ...] = (),
    nprocs: int | None = None,
    join: bool = True,
    daemon: bool = False,
    start_method: str = "spawn",
) -> Any:
    """`fn(ordinal, *args)` in a process for each core of this host; on every host of the slice, all
    of them meet.

    `nprocs`: None, 1 (here, and alone), or as many as there are, which torch_xla takes no longer.
    """
    _refusals.refuse_dry_run()
    count = len(_process.host_devices())
    if nprocs == 1:
        _process.set_place(CorePlace(spawned=True))
        return fn(0, *args)
    if nprocs not in (None, count):
        raise ValueError(
            f"Unsupported nprocs ({nprocs}). Please use nprocs=1 or None (default). If None, "
            "spawn will use all "
            f"available devices, here {count}. Use the environment variable TPU_NUM_DEVICES to "
            "limit the number of "
            "devices used."
        )
    if nprocs is not None:
        _say(
            f"nprocs={nprocs}: this host has as many cores; torch_xla itself takes 1 or "
            "None from 2.0 on"
        )
    return _start(fn, args, count, join, daemon, start_method)


def _start(
    fn: Callable[..., Any],
    args: tuple[Any, ...],
    count: int,
    join: bool,
    daemon: bool,
    start_method: str,
) -> Any:
    _warn_of_little_memory(count * PROCESS_BYTES.get(start_method, 0), count)
    of = _process.slice_of()
    hosts = _host_addresses()
    address = hosts[of.worker] if len(hosts) > 1 else "127.0.0.1"
    listener = _listener(of.process_index, hosts, count)
    meeting = os.environ.get("MEGASCALE_COORDINATOR_ADDRESS", "").rpartition(":")[0] or hosts[0]
    store = (
        f"{meeting}:{_port()}" if of.process_count > 1 else f"127.0.0.1:{listener.getsockname()[1]}"
    )
    places = [
        CorePlace(
            of.process_index * count + local,
            local,
            of.process_count * count,
            count,
            store,
            address,
            spawned=True,
        )
        for local in range(count)
    ]
    with _forwarding() as forward:
        context = torch.multiprocessing.start_processes(
            _run, (os.getpid(), places, fn, args), count, False, daemon, start_method
        )
        forward.extend(context.processes)
        # Its threads come after the fork; who dials before waits in the socket's queue.
        context.store = _serve(listener)
        if not join:
            return context
        try:
            _join(context)
        except ProcessException:
            if not forward.ended_by:
                raise
    if forward.ended_by:
        os.kill(os.getpid(), forward.ended_by)
    return None


def _host_addresses() -> list[str]:
    of = _process.slice_of()
    names = [name for name in os.environ.get("TPU_WORKER_HOSTNAMES", "").split(",") if name]
    count = math.prod(of.hosts)
    return names if count > 1 and len(names) == count else ["127.0.0.1"]


def _port() -> int:
    """Return where the slice's processes meet: JAX's port, of which each slice has one, on the
    first host's address."""
    return int(os.environ.get("JAX_COORDINATOR_PORT") or 8476)


def _listener(host: int, hosts: list[str], count: int) -> socket.socket:
    """Return what the store listens on: on the first host of all, where they know of it."""
    found = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    of = _process.slice_of()
    address = (hosts[0], _port()) if host == 0 and of.process_count > 1 else ("127.0.0.1", 0)
    try:
        found.bind(address)
    except OSError as error:
        raise RuntimeError(
            f"{address[0]}:{address[1]} cannot be listened on ({error.strerror}): another program "
            "of this slice runs"
        ) from None
    found.listen(of.process_count * count)
    return found


def _serve(listener: socket.socket) -> Any:
    host, port = listener.getsockname()
    return dist.TCPStore(
        host, port, is_master=True, wait_for_workers=False, master_listen_fd=listener.detach()
    )


def _run(
    local: int, parent: int, places: list[CorePlace], fn: Callable[..., Any], args: tuple[Any, ...]
) -> None:
    """In the new process."""
    _die_with(parent)
    place = places[local]
    _process.set_place(place)
    if "OMP_NUM_THREADS" not in os.environ:
        torch.set_num_threads(max(1, (os.cpu_count() or 1) // place.local_world))
    _collectives.group_of()
    try:
        fn(place.ordinal, *args)
        _steps.end()
    finally:
        records.write_now()  # processes that are forked end without Python's own end
    _collectives.leave()
    sys.stdout.flush()


def _die_with(parent: int) -> None:
    """Nothing is left running if the program is killed."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(1)


def _join(context: Any) -> None:
    """Until all have ended. The first that fails ends the others, and its traceback is what is
    raised."""
    clock = OsClock()
    running = dict(enumerate(context.processes))
    while running:
        connection.wait([process.sentinel for process in running.values()])
        ended = {
            number: process for number, process in running.items() if process.exitcode is not None
        }
        # A process that was killed may be the reason for what the others say.
        failed = [number for number in ended if ended[number].exitcode]
        failed.sort(key=lambda number: ended[number].exitcode > 0)
        for number in ended:
            del running[number]
        if failed:
            for process in running.values():
                process.terminate()
            until = clock.monotonic_seconds() + GRACE_SECONDS
            for process in running.values():
                process.join(max(0.0, until - clock.monotonic_seconds()))
                if process.exitcode is None:
                    process.kill()
                    process.join()
            first = context.processes[failed[0]]
            context.sentinels = {first.sentinel: failed[0]}
            context.join()


class _Forwarding(list[Any]):
    """Processes that get the signals that end this one. `ended_by`: the last of them."""

    ended_by = 0


@contextlib.contextmanager
def _forwarding() -> Iterator[_Forwarding]:
    """SIGTERM, with which a preemption is announced, reaches every process; then this one ends as
    it would have."""
    processes = _Forwarding()
    if threading.current_thread() is not threading.main_thread():
        yield processes
        return
    parent = os.getpid()
    before = signal.getsignal(signal.SIGTERM)

    def forward(number: int, frame: Any) -> None:
        if os.getpid() != parent:  # forked, before it set its own
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
            return
        for process in processes:
            if process.exitcode is None:
                os.kill(process.pid, number)
        if callable(before):
            before(number, frame)
        else:
            processes.ended_by = number

    signal.signal(signal.SIGTERM, forward)
    try:
        yield processes
    finally:
        signal.signal(signal.SIGTERM, before)


def _warn_of_little_memory(need: int, count: int) -> None:
    free = free_bytes()
    if free is not None and free < need:
        _say(
            f"{count} processes with torch take about {need / 2**30:.1f} GiB before their "
            "tensors, and "
            f"{free / 2**30:.1f} GiB are free: this may end for want of memory (TPU_NUM_DEVICES=2 "
            "starts fewer)"
        )


def _say(text: str) -> None:
    if multiprocessing.parent_process() is None:
        print(f"podyard: {text}", file=sys.stderr, flush=True)
