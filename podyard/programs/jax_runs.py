"""Counts the runs of each module, and lets only one run of several devices be in flight.

XLA's devices for CPUs share one pool of threads. When two runs are in flight, each may hold threads
that the other's sum waits for, and both wait until XLA aborts. JAX calls a hook after each run of
its fast path, in the thread that started it: waiting there for the run bounds them to one by
construction.
"""

from __future__ import annotations

import atexit
import threading
from collections.abc import Callable, Sequence
from typing import Any

import jax

from podyard.base.clock import OsClock
from podyard.programs import jax_internals as internals
from podyard.programs.arrays.jax_host_input import HostInput
from podyard.programs.arrays.jax_memory import DeviceMemory
from podyard.programs.records import MODULES_MAX, ModuleRuns
from podyard.programs.step.call_sites import call_site

# longer than most steps of a small program; the end of a program waits no longer
_PARK_SECONDS = 1.0
# of a profiler's trace: a viewer gets slow long before
TRACED_RUNS_MAX = 10_000
_MAIN = threading.main_thread().ident
_monotonic = OsClock().monotonic_seconds
_Signature = tuple[object, ...]


class Runs:
    """The module that a function runs: JAX's hook names the function, and a function has a module
    for each signature.

    `counts_calls`: False where a dry run counts them, before it runs anything.
    """

    def __init__(self, host_input: HostInput, memory: DeviceMemory, *, counts_calls: bool) -> None:
        self._host_input = host_input
        self._memory = memory
        self._counts_calls = counts_calls
        self._of_executable: dict[int, tuple[Any, ModuleRuns]] = {}
        self._of_function: dict[int, tuple[Any, dict[_Signature | None, ModuleRuns]]] = {}
        self._by_results: dict[_Signature, ModuleRuns] = {}
        self._thread = threading.local()
        self._exit = _Exit()
        self._traced: list[ModuleRuns] | None = None

    def add_module(self, executable: Any, module: ModuleRuns) -> None:
        """A program that compiles without end is counted up to MODULES_MAX: what is counted is kept
        alive."""
        if len(self._of_executable) < MODULES_MAX:
            self._of_executable[id(executable)] = (executable, module)

    def start_trace(self) -> None:
        """From now on, the modules that run are noted, the first TRACED_RUNS_MAX."""
        self._traced = []

    def stop_trace(self) -> list[ModuleRuns]:
        """Return the modules that ran since `start_trace`, in their order."""
        traced, self._traced = self._traced, None
        return traced or []

    def _count(self, module: ModuleRuns) -> None:
        module.runs += 1  # its time is that of runs that are waited for
        if self._traced is not None and len(self._traced) < TRACED_RUNS_MAX:
            self._traced.append(module)

    def function(self) -> Any:
        """The function that this thread compiles or runs for the first time, or None: ahead of
        time."""
        called = getattr(self._thread, "called", None)
        return None if called is None else called[0]

    def slow_call(self, call: Callable[..., Any], function: Any, args: Any, kwargs: Any) -> Any:
        """`call()`, during which runs belong to `function`."""
        before = getattr(self._thread, "called", None)
        self._thread.called = (function, args, kwargs)
        try:
            return call()
        finally:
            self._thread.called = before

    def slow_run(self, run: Callable[[], Any], executable: Any) -> Any:
        """`run()`, which executes a module that is compiled. The first run is waited for: it tells
        how long a run takes here, where later ones are not waited for."""
        started = _monotonic()
        results = run()
        known = self._of_executable.get(id(executable))
        if known is not None:
            module = known[1]
            if self._counts_calls:
                module.call(call_site())
            if _wait(module, results, is_first=module.runs == 0) and self._counts_calls:
                module.time(_monotonic() - started)
            self._after_slow_run(module, results)
        return results

    def _after_slow_run(self, module: ModuleRuns, results: Sequence[Any]) -> None:
        self._count(module)
        self._exit.pass_by()
        self._by_results[_signature(results)] = module
        called = getattr(self._thread, "called", None)
        if called is not None:
            function, args, kwargs = called
            _, modules = self._of_function.setdefault(id(function), (function, {}))
            if modules and None in modules and modules[None] is not module:
                modules[None] = module  # more than one: from now on, signatures tell them apart
            modules.setdefault(None, module)
            modules[_signature((args, kwargs))] = module
            self._host_input.after_run(module, (args, kwargs))
        self._memory.after_run(module, called[1:] if called is not None else (), results)

    def after_fast_run(self, function: Any, args: Any, kwargs: Any, results: Any) -> None:
        module = self._module_of(function, args, kwargs, results)
        if module is not None:
            module.call(call_site())
            self._count(module)
            self._host_input.after_run(module, (args, kwargs))
            self._memory.after_run(module, (args, kwargs), results)
        started = _monotonic()
        if _wait(module, results) and module is not None:
            module.time(_monotonic() - started)
        self._exit.pass_by()

    def _module_of(self, function: Any, args: Any, kwargs: Any, results: Any) -> ModuleRuns | None:
        own = getattr(function, "_fun", None)
        if own is None:  # compiled ahead of time, or called inside of another function's first call
            called = getattr(self._thread, "called", None)
            own = called[0] if called is not None else function
        known = self._of_function.get(id(own))
        if known is None:
            return self._by_results.get(_signature(jax.tree.leaves(results)))
        modules = known[1]
        if len(modules) == 2:  # its one signature, and None
            return modules[None]
        return modules.get(_signature((args, kwargs)), modules[None])


class _Exit:
    """Lets daemon threads stop between two runs when the program ends.

    A thread that comes back from native code while the interpreter is being taken down is ended by
    unwinding its stack, and JAX's C++ aborts the process at that. A thread that waits for a lock
    forever is not.
    """

    def __init__(self) -> None:
        self._seen: dict[int, float] = {}
        self._ends = False
        self._forever = threading.Lock()
        self._forever.acquire()
        atexit.register(self._park_threads)

    def pass_by(self) -> None:
        own = threading.get_ident()
        if own == _MAIN:
            return
        if self._ends:
            self._seen.pop(own, None)
            self._forever.acquire()
        self._seen[own] = _monotonic()

    def _park_threads(self) -> None:
        """Waits for the threads that have run something a moment ago."""
        self._ends = True
        clock, until = OsClock(), _monotonic() + _PARK_SECONDS
        busy = {own for own, at in list(self._seen.items()) if at > _monotonic() - _PARK_SECONDS}
        while (
            busy & set(self._seen) & {thread.ident for thread in threading.enumerate()}
            and _monotonic() < until
        ):
            clock.sleep(0.005)


def install(memory: DeviceMemory, *, dry_run: bool) -> Runs:
    host_input = HostInput()
    internals.watch_device_puts(host_input.after_put)
    internals.watch_device_puts(memory.after_put)
    runs = Runs(host_input, memory, counts_calls=not dry_run)
    internals.wrap_first_calls(runs.slow_call)
    internals.wrap_slow_runs(runs.slow_run)
    internals.set_fast_run_hook(runs.after_fast_run)
    return runs


def _signature(tree: Any) -> _Signature:
    return tuple(
        (leaf.shape, str(leaf.dtype))
        if hasattr(leaf, "dtype") and hasattr(leaf, "shape")
        else repr(leaf)
        for leaf in jax.tree.leaves(tree)
    )


def _wait(module: ModuleRuns | None, results: Any, *, is_first: bool = False) -> bool:
    """Wait for a run of several devices, or the first of a module. Return True if it was waited
    for."""
    if module is None or module.devices > 1 or is_first:
        for leaf in jax.tree.leaves(results):
            if hasattr(leaf, "block_until_ready"):
                leaf.block_until_ready()
                return True
    return False
