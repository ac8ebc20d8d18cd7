"""All-reduce over TCP between machines that are far apart: our ring and torch's gloo through one
relay, in one run.

    python -m benchmarks.delayed_ring [--ranks 4] [--delay-ms 10] [--bytes 4096 ... 16777216]
    [--rounds 5]

As root on Linux. Each rank has a network namespace, whose only way out is a TUN device. The relay
(this process) takes every packet and hands it on after the delay, to both libraries alike. Each
round times each of them once, and compares the sums; what is printed is the median of the slowest
rank's times. `floor`: 2 (ranks - 1) hops of the delay, which no ring can beat.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import functools
import heapq
import itertools
import os
import select
import statistics
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from podyard.engine.collectives.ring import run_schedule
from podyard.engine.collectives.schedule import ring_all_reduce
from podyard.engine.collectives.transport_tcp import Listener, TcpTransport
from podyard.engine.collectives.wire import Membership

SIZES = (4096, 262_144, 1_048_576, 4_194_304, 16_777_216)
_KEY, _RUN = b"benchmark-of-all-reduce-key-----", b"r" * 32
_NET = "198.19.77"  # of the range for benchmarks, RFC 2544
_PORT, _GLOO_PORT = 8800, 8801
_MTU = 65_000
_TUNSETIFF, _IFF_TUN, _IFF_NO_PI = 0x400454CA, 0x1, 0x1000


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--delay-ms", type=float, default=10.0)
    parser.add_argument("--bytes", type=int, nargs="+", default=list(SIZES))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--rank", type=int, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.rank is None:
        _relay(given.ranks, given.delay_ms / 1000)
    else:
        _Rank(given.rank, given.ranks).run(given.bytes, given.rounds, given.delay_ms / 1000)


def _relay(count: int, delay: float) -> None:
    """Makes the namespaces, starts the ranks in them, and passes packets on until they have
    ended."""
    words = [sys.executable, "-m", "benchmarks.delayed_ring", *sys.argv[1:]]
    ranks: list[subprocess.Popen[bytes]] = []
    try:
        tuns = [_make_tun(number) for number in range(count)]
        for number in range(count):
            inside = [
                "ip",
                "netns",
                "exec",
                _name(number),
                *words,
                "--ranks",
                str(count),
                "--rank",
                str(number),
            ]
            environment = {
                **os.environ,
                "GLOO_SOCKET_IFNAME": _name(number),
                "OMP_NUM_THREADS": "1",
            }
            ranks.append(subprocess.Popen(inside, env=environment))
        _pass_packets(tuns, delay, lambda: any(rank.poll() is None for rank in ranks))
    finally:
        for rank in ranks:
            rank.kill()
        for number in range(count):
            subprocess.run(
                ["ip", "netns", "del", _name(number)], check=False, stderr=subprocess.DEVNULL
            )
    if any(rank.returncode for rank in ranks):
        sys.exit("a rank has failed")


def _name(rank: int) -> str:
    return f"bench-rank{rank}"


def _make_tun(rank: int) -> int:
    tun, name = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK), _name(rank)
    fcntl.ioctl(tun, _TUNSETIFF, struct.pack("16sH", name.encode(), _IFF_TUN | _IFF_NO_PI))
    inside = ["ip", "-n", name]
    for words in (
        ["ip", "netns", "add", name],
        ["ip", "link", "set", name, "netns", name],
        [*inside, "address", "add", f"{_NET}.{rank + 1}/24", "dev", name],
        [*inside, "link", "set", name, "mtu", str(_MTU), "txqueuelen", "10000", "up"],
        [*inside, "link", "set", "lo", "up"],
    ):
        subprocess.run(words, check=True)
    return tun


def _pass_packets(tuns: Sequence[int], delay: float, is_needed: Callable[[], bool]) -> None:
    late: list[tuple[float, int, int, bytes]] = []
    number = itertools.count()
    while is_needed():
        wait = max(0.0, late[0][0] - time.monotonic()) if late else 0.2
        for tun in select.select(tuns, [], [], min(wait, 0.2))[0]:
            with contextlib.suppress(OSError):  # nothing is left, or the device is not up yet
                for _ in range(64):
                    packet = os.read(tun, _MTU + 64)
                    # IPv4, to one of the ranks
                    if packet[0] >> 4 == 4 and 1 <= packet[19] <= len(tuns):
                        heapq.heappush(
                            late, (time.monotonic() + delay, next(number), packet[19] - 1, packet)
                        )
        while late and late[0][0] <= time.monotonic():
            _, _, to, packet = heapq.heappop(late)
            with contextlib.suppress(OSError):  # a lost packet, as on any network
                os.write(tuns[to], packet)


class _Rank:
    def __init__(self, rank: int, count: int) -> None:
        import torch
        import torch.distributed as dist

        self.rank, self.count, self.torch, self.dist = rank, count, torch, dist
        first = f"tcp://{_NET}.1:{_GLOO_PORT}"
        dist.init_process_group("gloo", init_method=first, rank=rank, world_size=count)
        listener = Listener(f"{_NET}.{rank + 1}:{_PORT}")
        dist.barrier()  # all listen
        addresses = {other: f"{_NET}.{other + 1}:{_PORT}" for other in range(count)}
        self.tcp = TcpTransport.open_ring(
            Membership(_KEY, 1, _RUN), listener, addresses, frozenset([rank])
        )
        self.schedule = ring_all_reduce(count)
        self.sequence = 0
        if rank == 0:
            print(f"{count} ranks, torch {torch.__version__}, NumPy {np.__version__}", flush=True)

    def run(self, sizes: Sequence[int], rounds: int, delay: float) -> None:
        floor = 2 * (self.count - 1) * delay
        for size in sizes:
            vector = np.empty(size // 4, np.float32)
            tensor = self.torch.from_numpy(vector)
            ways: dict[str, Callable[[], Any]] = {
                "tcp": functools.partial(self._by_tcp, vector),
                "gloo": functools.partial(self.dist.all_reduce, tensor),
            }  # fmt: skip
            times: dict[str, list[float]] = {way: [] for way in ways}
            for index in range(rounds + 1):
                for way, call in ways.items():
                    seconds = self._timed(vector, call)
                    if index:
                        times[way].append(seconds)
            if self.rank == 0:
                middle = {way: statistics.median(spent) for way, spent in times.items()}
                told = "  ".join(
                    f"{way} {seconds * 1000:9.1f} ms" for way, seconds in middle.items()
                )
                ratio = (
                    f"floor {floor * 1000:.1f} ms  gloo/tcp {middle['gloo'] / middle['tcp']:.2f}"
                )
                print(f"{size:>10} bytes  {told}  {ratio}", flush=True)
        self.dist.barrier()
        self.tcp.close()
        self.dist.destroy_process_group()

    def _timed(self, vector: Any, call: Callable[[], Any]) -> float:
        """Seconds of the slowest rank."""
        vector[...] = self.rank + 1
        self.dist.barrier()
        begin = time.perf_counter()
        call()
        seconds = self.torch.tensor([time.perf_counter() - begin])
        if not (vector == self.count * (self.count + 1) / 2).all():
            raise AssertionError(f"rank {self.rank} has another sum")
        self.dist.all_reduce(seconds, op=self.dist.ReduceOp.MAX)
        return float(seconds[0])

    def _by_tcp(self, vector: Any) -> None:
        self.sequence += 1
        run_schedule(self.schedule, self.tcp, {self.rank: vector}, self.sequence)


if __name__ == "__main__":
    main()
