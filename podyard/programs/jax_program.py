"""What happens to a program that imports JAX where a TPU is asked for."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from podyard.base.clock import OsClock
from podyard.programs import slice as slices
from podyard.programs.arrays.memory_limits import early_refusal, size_text
from podyard.programs.records import ModuleRuns, Recorder
from podyard.programs.say import say
from podyard.programs.step.training_step import is_library_function

if TYPE_CHECKING:
    from podyard.programs.arrays.jax_memory import DeviceMemory
    from podyard.programs.jax_dry_run import DryRun

# how long a compilation waits for the verdict under --strict: the TPU compiler takes minutes
VERDICT_SECONDS = 600.0


def apply(_jax: Any) -> None:
    """Raises what goes wrong, for the hook's line."""
    of = slices.from_environment()
    if of is None:
        return
    from podyard.programs import jax_devices, jax_internals, jax_numerics, jax_runs
    from podyard.programs.arrays.jax_memory import DeviceMemory
    from podyard.programs.lowering import tpu_rules
    from podyard.programs.lowering.report import report
    from podyard.programs.modules import module_text

    steps = int(os.environ.get(slices.DRY_RUN_VARIABLE) or 0)
    _check_jax(dry_run=steps > 0)
    folder = os.environ.get(slices.RUN_VARIABLE)
    recorder = Recorder(Path(folder) if folder else None, of.process_index)
    rounds = os.environ.get(slices.NUMERICS_VARIABLE, "mxu") == "mxu"
    strict = os.environ.get(slices.STRICT_VARIABLE) == "1"
    memory = DeviceMemory(of.generation)
    dry = _dry_run(recorder, steps) if steps else None
    runs = jax_runs.install(memory, dry_run=steps > 0)
    clock = OsClock()

    def compile_module(
        compile_now: Callable[[], Any], client: Any, module: Any, devices: Any
    ) -> Any:
        if client.platform != "tpu":
            return compile_now()
        name = str(module.operation.attributes["sym_name"]).strip('"')
        code = module_text.text_of(module)
        text = code.decode()
        record = recorder.add(code, name, len(devices))
        record.is_library = is_library_function(runs.function())
        if refusal := early_refusal(text, len(devices), memory.limit, memory.tiling):
            raise jax_internals.XlaRuntimeError(refusal)
        if strict:
            _refuse_what_does_not_fit(recorder, record, memory)
        if rounds:
            jax_numerics.round_operands(module)

        def estimate(seconds: float = VERDICT_SECONDS) -> Mapping[str, object]:
            return recorder.verdict(record, seconds)

        started = clock.monotonic_seconds()
        if dry is None:
            executable = compile_now()
        else:
            executable = dry.compile(compile_now, module, devices, text, record, estimate)
            executable.has_kernels = module_text.TARGET in text
        record.compile_seconds = clock.monotonic_seconds() - started
        runs.add_module(executable, record)
        return executable

    tpu_rules.wrap_lowering(report)
    jax_internals.wrap_compile(compile_module, _sayer_of_options())
    jax_devices.install(of, memory)
    recorder.watch_failure()
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


def _refuse_what_does_not_fit(recorder: Recorder, record: ModuleRuns, memory: DeviceMemory) -> None:
    """Raises what a TPU says when it compiles a module that does not fit, or has no room left to
    load it."""
    from podyard.programs import jax_internals

    found = recorder.verdict(record, VERDICT_SECONDS)
    if not found:
        say(f"no verdict on {record.name} within {VERDICT_SECONDS:.0f} s: it is compiled")
    elif found.get("fits") is False:
        raise jax_internals.XlaRuntimeError(str(found.get("refusal", "")))
    else:
        wanted = int(str(found.get("peak_bytes", 0))) - int(str(found.get("argument_bytes", 0)))
        free = memory.free_bytes()
        if wanted > free:
            room = size_text(free)
            raise jax_internals.XlaRuntimeError(
                "RESOURCE_EXHAUSTED: Error loading program: Attempting to reserve "
                f"{size_text(wanted)} at the bottom of"
                f" memory. That was not possible. There are {room} free, 0B reserved, and "
                f"{room} reservable."
            )
