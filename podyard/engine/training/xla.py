"""Compilation and execution of programs here, so that the same program gives the same bits in every
process."""

from __future__ import annotations

import contextlib
import fcntl
import functools
import hashlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

Options = dict[str, bool | int | float | str]

# What XLA reads (NPROC) as the size of its thread pools, which it otherwise takes from the CPUs
# that it finds: sums are cut by it, so that it is the same everywhere. With one, the convolutions
# of the CIFAR-10 model take twice as long.
_THREADS = 2
# Eigen's own loops take one; parallelism comes from running the programs of several shards side by
# side.
_ONE_THREAD: Options = {"xla_cpu_multi_thread_eigen": False}
# Of the fusions that newer XLA hands to YNNPACK only reductions: those with products cost the MNIST
# model a quarter of its time (a shard of 16 images: 10.8 against 7.9 ms, on two threads). For the
# other models single runs differ by more.
_FEWER_FUSIONS: Options = {"xla_cpu_experimental_ynn_fusion_type": "LIBRARY_FUSION_TYPE_REDUCE"}

_TURN_SLOTS = 64


@functools.cache
def compiler_options() -> Options:
    """Return what all programs of a run are compiled with: what this version of XLA knows of it."""
    import jax

    options = {**_ONE_THREAD, **_FEWER_FUSIONS}
    try:
        jax.jit(lambda number: number, compiler_options=options).lower(0.0).compile()
    except RuntimeError:  # "No such compile option"
        return _ONE_THREAD
    return options


def prepare_environment() -> None:
    """Before JAX is imported: look for no device but the CPU, and take every machine for one of two
    cores."""
    os.environ["JAX_PLATFORMS"] = "cpu"
    os.environ["NPROC"] = str(_THREADS)
    os.environ.setdefault("TPU_SKIP_MDS_QUERY", "1")


def configure(compilation_cache: str | None) -> None:
    """After JAX is imported. `compilation_cache`: a folder that keeps compiled programs between
    processes."""
    import jax

    config: Any = jax.config
    # Programs are called from threads that wait for the result: handing them to another thread only
    # costs.
    config.update("jax_cpu_enable_async_dispatch", False)
    if compilation_cache is not None:
        Path(compilation_cache).mkdir(parents=True, exist_ok=True)
        config.update("jax_compilation_cache_dir", compilation_cache)
        config.update("jax_persistent_cache_min_compile_time_secs", 0)
        config.update("jax_persistent_cache_min_entry_size_bytes", -1)


@contextlib.contextmanager
def compile_turn(compilation_cache: str | None, program_text: str) -> Iterator[None]:
    """Lets one process at a time compile a program, where they share a cache: the replicas of a
    gang start together
    with the same program, and the ones that waited read what the first one wrote. Other programs
    rarely wait for it. The kernel gives the turn back when its holder dies."""
    if compilation_cache is None:
        yield
        return
    slot = hashlib.sha256(program_text.encode()).digest()[0] % _TURN_SLOTS
    with Path(compilation_cache, f"turn-{slot}.lock").open("ab") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def thread_count(process_count: int) -> int:
    """Threads that run programs of shards, in each of the processes that share this machine's CPUs.
    One more than it
    has CPUs: a program waits now and then for XLA's pool, and a process for the sums of the others.
    Measured with two CPUs: one process with three threads 1.01 to 1.1 times two threads; two
    processes, MNIST,
    1,350 to 1,450 images a second with two threads each, 1,180 to 1,280 with one."""
    return max(1, available_cpu_count() // process_count) + 1


def available_cpu_count() -> int:
    """CPUs that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
