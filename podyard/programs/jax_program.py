"""The changes to a program that imports JAX where a TPU is asked for."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from podyard.programs import slice as slices
from podyard.programs.records import Recorder, recorder_of
from podyard.programs.say import say

if TYPE_CHECKING:
    from podyard.programs.jax_dry_run import DryRun


def apply(_jax: Any) -> None:
    """Raises what goes wrong, for the hook's line."""
    of = slices.from_environment()
    if of is None:
        return
    from podyard.programs import jax_devices, jax_internals, jax_runs
    from podyard.programs.arrays.jax_memory import DeviceMemory
    from podyard.programs.lowering import tpu_rules
    from podyard.programs.lowering.report import report
    from podyard.programs.modules.compilation import ModuleCompiler
    from podyard.programs.profile.jax_profile import DeviceTracer

    steps = int(os.environ.get(slices.DRY_RUN_VARIABLE) or 0)
    _check_jax(dry_run=steps > 0)
    folder = os.environ.get(slices.RUN_VARIABLE)
    recorder = recorder_of(Path(folder) if folder else None, of.process_index)
    memory = DeviceMemory(of.generation)
    dry = _dry_run(recorder, steps) if steps else None
    runs = jax_runs.install(memory, dry_run=steps > 0)
    tpu_rules.wrap_lowering(report)
    backend = jax_devices.install(of, memory)
    compiler = ModuleCompiler(
        recorder,
        memory,
        runs,
        dry,
        backend,
        rounds=os.environ.get(slices.NUMERICS_VARIABLE, "mxu") == "mxu",
        strict=os.environ.get(slices.STRICT_VARIABLE) == "1",
    )
    jax_internals.wrap_compile(compiler.compile, _sayer_of_options())
    recorder.watch_failure()
    own = slice(of.process_index * of.devices_per_process, None)
    numbers = [device.number for device in slices.devices_of(of)[own][: of.devices_per_process]]
    worker = of.process_index if of.process_count > 1 else None
    DeviceTracer(runs, recorder, slices.own_kind(), numbers, worker).install()
    sys.excepthook = _end_behind(sys.excepthook)


def _sayer_of_options() -> Callable[[str], None]:
    """Return a function that says once of each compiler option that it has no effect."""
    told: set[str] = set()

    def leave_out(option: str) -> None:
        if option not in told:
            told.add(option)
            say(
                f"compiler option {option} has no effect here: XLA's compiler for CPUs "
                "does not have it"
            )

    return leave_out


def _check_jax(*, dry_run: bool) -> None:
    """Raise for a JAX that does not have the names that are replaced."""
    from podyard.programs import jax_internals
    from podyard.programs.lowering import tpu_rules

    version = jax_internals.version()
    if dry_run and not jax_internals.has_partitioner():
        raise SystemExit(f"podyard: a dry run needs JAX 0.10 or newer; this is JAX {version}")
    if absent := [*jax_internals.missing(dry_run=dry_run), *tpu_rules.missing()]:
        raise RuntimeError(f"JAX {version} has no {', '.join(absent)}")
    if not version.startswith(jax_internals.TESTED):
        say(f"JAX {version} was not tested: {', '.join(jax_internals.TESTED)} were")


def _end_behind(inner: Callable[..., Any]) -> Callable[..., Any]:
    """The traceback of a worker that fails, and its end: the others may wait for it in a sum."""

    def excepthook(kind: Any, error: BaseException, traceback: Any) -> None:
        from podyard.programs import jax_internals

        inner(kind, error, traceback)
        if jax_internals.process_count() > 1:
            jax_internals.leave_processes()

    return excepthook


def _dry_run(recorder: Recorder, steps: int) -> DryRun:
    from podyard.programs import jax_internals
    from podyard.programs.jax_dry_run import DryRun

    dry = DryRun(steps, os.environ.get(slices.STEP_VARIABLE) or None, recorder.write)
    jax_internals.replace_calls(dry.call)
    jax_internals.replace_device_puts(dry.put)
    jax_internals.replace_values(dry.value)
    return dry
