"""All-reduce between processes of one machine, torch's gloo and Open MPI, in one run and in the
same processes.

    pip install 'podyard[benchmark]'
    python -m benchmarks.all_reduce [--ranks 2 4 8] [--bytes 4096 ... 268435456] [--rounds 5]

Every round times each way once, one after another, on vectors that are filled again and compared
with the exact sum after each call; what is printed is the median (and the least) of the slowest
rank's times. Ways: `window` (the vectors are in shared memory already), `jax` (from a JAX array:
one copy in, the result taken without a copy), `tcp` (ring over loopback), `gloo`, `mpi`. `add` is
one addition of two vectors in place on one core: what memory can do for two ranks.

Bounds, from 1 MiB up: gloo and mpi at least 5 times as long as window; window at most 1.25 times
add for 2 ranks;
256 KiB in at most 100 microseconds for 2 ranks; gloo at least 1.5 times as long as tcp for 2 ranks,
at least as long for 8.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from podyard.engine.collectives.ring import run_schedule
from podyard.engine.collectives.schedule import ring_all_reduce
from podyard.engine.collectives.shared_memory import SharedSum
from podyard.engine.collectives.transport_tcp import Listener, TcpTransport
from podyard.engine.collectives.windows import Members, WindowFile
from podyard.engine.collectives.wire import Membership

WAYS = ("window", "jax", "tcp", "gloo", "mpi")
SIZES = (4096, 262_144, 1_048_576, 4_194_304, 16_777_216, 67_108_864, 268_435_456)
_CALLS_SECONDS = 0.15
_CALLS_MOST = 50
_KEY, _RUN = b"benchmark-of-all-reduce-key-----", b"r" * 32


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--ranks", type=int, nargs="+", default=[2, 4, 8])
    parser.add_argument("--bytes", type=int, nargs="+", default=list(SIZES))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--ways", nargs="+", default=list(WAYS), choices=WAYS)
    parser.add_argument("--folder", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.folder:
        Worker(Path(given.folder), given.ways).run(given.bytes, given.rounds)
        return
    for count in given.ranks:
        launch(count, given)


def launch(count: int, given: argparse.Namespace) -> None:
    """Starts `count` ranks under mpirun, and prints what rank 0 says."""
    shared = Path("/dev/shm") if Path("/dev/shm").is_dir() else Path(tempfile.gettempdir())
    folder = Path(tempfile.mkdtemp(prefix="podyard-all-reduce-", dir=shared))
    mpirun = Path(sys.executable).with_name("mpirun")
    mpirun = mpirun if mpirun.exists() else Path("mpirun")
    # Shared memory is called so since Open MPI 5.
    is_old = (
        "Open MPI) 4."
        in subprocess.run([mpirun, "--version"], capture_output=True, text=True, check=True).stdout
    )
    options = [
        "--oversubscribe",
        "--bind-to",
        "none",
        "--mca",
        "btl",
        "self,vader" if is_old else "self,sm",
    ]
    if count > len(os.sched_getaffinity(0)):
        options += ["--mca", "mpi_yield_when_idle", "1"]
    command = [
        str(mpirun), *options, "-n", str(count), sys.executable, "-m",
        "benchmarks.all_reduce", "--folder", str(folder), "--rounds", str(given.rounds), "--ways",
        *given.ways,
        "--bytes", *map(str, given.bytes),
    ]  # fmt: skip
    environment = {
        **os.environ, "OMP_NUM_THREADS": "1", "JAX_PLATFORMS": "cpu", "OMPI_ALLOW_RUN_AS_ROOT": "1",
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    }  # fmt: skip
    print(
        f"\n{count} ranks on {len(os.sched_getaffinity(0))} CPUs; mpirun {' '.join(options)}; "
        "1 thread each",
        flush=True,
    )
    try:
        subprocess.run(command, env=environment, check=True)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


class Worker:
    """One rank with all ways to sum."""

    def __init__(self, folder: Path, ways: list[str]) -> None:
        import torch
        import torch.distributed as dist
        from mpi4py import MPI  # type: ignore[import-not-found]

        self.comm = MPI.COMM_WORLD
        self.rank, self.count = self.comm.rank, self.comm.size
        self.folder, self.ways = folder, ways
        self.torch, self.dist, self.mpi = torch, dist, MPI
        dist.init_process_group(
            "gloo", init_method=f"file://{folder}/gloo", rank=self.rank, world_size=self.count
        )
        listener = Listener("127.0.0.1:0")
        addresses = dict(enumerate(self.comm.allgather(listener.address)))
        member = Membership(_KEY, 1, _RUN)
        self.tcp = TcpTransport.open_ring(member, listener, addresses, frozenset([self.rank]))
        self.schedule = ring_all_reduce(self.count)
        self.sequence = 0
        if self.rank == 0:
            import jax

            library = MPI.Get_library_version().split(",")[0]
            print(
                f"torch {torch.__version__} gloo, {library}, jax {jax.__version__}, numpy "
                f"{np.__version__}"
            )

    def run(self, sizes: list[int], rounds: int) -> None:
        for size in sizes:
            self.measure(size, rounds)
        self.comm.Barrier()
        self.tcp.close()
        self.dist.destroy_process_group()

    def measure(self, size: int, rounds: int) -> None:
        length = size // 4
        own = WindowFile.make(self.folder, Membership(_KEY, size, _RUN), self.rank, 1, size)
        self.comm.Barrier()
        ranks_of = {rank: (rank,) for rank in range(self.count)}
        members = Members.attach(own, ranks_of, silence_seconds=60, stopping=lambda: False)
        total = SharedSum(members, length, np.dtype(np.float32))
        private = np.empty(length, np.float32)
        calls = {way: self.call_of(way, total, private) for way in self.ways}
        expected = np.float32(self.count * (self.count + 1) / 2)
        times: dict[str, list[float]] = {way: [] for way in [*self.ways, "add"]}
        for index in range(rounds + 1):
            for way, (vector, call) in calls.items():
                spent = self.timed(vector, call, expected)
                if index:
                    times[way] += spent
            if self.rank == 0 and self.count == 2:
                times["add"] += self.additions(length)
            self.comm.Barrier()
        if self.rank == 0:
            self.tell(size, times)
        members.leave()

    def timed(
        self, vector: Callable[[], Any], call: Callable[[], Any], expected: Any
    ) -> list[float]:
        """Seconds of the slowest rank of each call."""
        spent: list[float] = []
        count = _CALLS_MOST
        while len(spent) < count:
            vector()[...] = self.rank + 1
            self.comm.Barrier()
            begin = time.perf_counter()
            result = call()
            seconds = time.perf_counter() - begin
            if not (np.asarray(result) == expected).all():
                raise AssertionError(f"rank {self.rank} has another sum")
            spent.append(max(self.comm.allgather(seconds)))
            count = min(count, max(2, round(_CALLS_SECONDS / spent[0])))
        return spent

    def call_of(
        self, way: str, total: SharedSum, private: Any
    ) -> tuple[Callable[[], Any], Callable[[], Any]]:
        """(what gives the array to fill before each call, the call, which returns the result)."""
        if way == "window":
            return lambda: total.vector(self.rank), total.all_reduce
        if way == "tcp":
            return lambda: private, lambda: self.by_tcp(private)
        if way == "gloo":
            tensor = self.torch.from_numpy(private)
            return lambda: private, lambda: (self.dist.all_reduce(tensor), private)[1]
        if way == "mpi":
            place = self.mpi.IN_PLACE
            return lambda: private, lambda: (self.comm.Allreduce(place, private), private)[1]
        import jax

        given = jax.numpy.full(private.shape, self.rank + 1, jax.numpy.float32)
        given.block_until_ready()

        def by_jax() -> Any:
            np.copyto(total.vector(self.rank), np.asarray(given))
            return jax.dlpack.from_dlpack(total.all_reduce())

        return lambda: np.empty(0), by_jax

    def by_tcp(self, private: Any) -> Any:
        self.sequence += 1
        run_schedule(self.schedule, self.tcp, {self.rank: private}, self.sequence)
        return private

    def additions(self, length: int) -> list[float]:
        left, right = np.ones(length, np.float32), np.ones(length, np.float32)
        spent = []
        for _ in range(5):
            begin = time.perf_counter()
            np.add(left, right, out=left)
            spent.append(time.perf_counter() - begin)
        return spent[1:]

    def tell(self, size: int, times: dict[str, list[float]]) -> None:
        middle = {way: statistics.median(spent) for way, spent in times.items() if spent}
        least = {way: min(spent) for way, spent in times.items() if spent}
        cells = [f"{way} {middle[way] * 1e6:>9.1f} ({least[way] * 1e6:>9.1f})" for way in middle]
        ratios = {
            f"{peer}/{ours}": middle[peer] / middle[ours]
            for ours, peer in (
                ("window", "gloo"),
                ("window", "mpi"),
                ("tcp", "gloo"),
                ("jax", "gloo"),
            )
            if ours in middle and peer in middle
        }
        if "add" in middle and "window" in middle:
            ratios["window/add"] = middle["window"] / middle["add"]
            ratios["window/add least"] = least["window"] / least["add"]
        told = ", ".join(f"{name} {ratio:.2f}" for name, ratio in ratios.items())
        print(f"{size:>10} bytes, us: " + "  ".join(cells) + f"\n{'':>11}{told}", flush=True)
        log = os.environ.get("PODYARD_BENCHMARK_LOG")
        if log:
            with Path(log).open("a", encoding="utf-8") as lines:
                lines.write(
                    json.dumps(
                        {"ranks": self.count, "bytes": size, "median": middle, "least": least}
                    )
                    + "\n"
                )


if __name__ == "__main__":
    main()
