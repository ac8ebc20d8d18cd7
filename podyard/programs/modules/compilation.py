"""The way of a module: recorded, judged, rounded and compiled."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from podyard.base.clock import OsClock
from podyard.programs import jax_internals, jax_numerics
from podyard.programs.arrays.jax_memory import DeviceMemory
from podyard.programs.arrays.memory_limits import early_refusal, size_text
from podyard.programs.jax_devices import TpuBackend
from podyard.programs.jax_dry_run import DryRun, executable_of
from podyard.programs.jax_runs import Runs
from podyard.programs.modules import module_text
from podyard.programs.records import ModuleRuns, Recorder, order_line, slice_line
from podyard.programs.say import say
from podyard.programs.step.training_step import is_eager_loop, is_library_function

# how long a compilation waits for the verdict under --strict: the TPU compiler takes minutes
VERDICT_SECONDS = 600.0


@dataclasses.dataclass(frozen=True, slots=True)
class ModuleCompiler:
    """`dry`: the dry run that the process is in, if it is in one. `rounds`: with the numerics of
    the matrix unit. `strict`: a module that does not fit raises an error."""

    recorder: Recorder
    memory: DeviceMemory
    runs: Runs
    dry: DryRun | None
    backend: TpuBackend
    rounds: bool
    strict: bool

    def compile(
        self, compile_now: Callable[[], Any], client: Any, module: Any, devices: Sequence[Any]
    ) -> Any:
        """Return the executable of a module. Raises XlaRuntimeError where a TPU would."""
        if client.platform != "tpu":
            return compile_now()
        name = str(module.operation.attributes["sym_name"]).strip('"')
        kind = self.backend.described.get(client)
        code, sources = module_text.text_of(module)
        if order := order_line(self.backend.places(client, devices)):
            code, sources = order + code, b"\n" + sources
        if kind is not None:
            code, sources = slice_line(kind) + code, b"\n" + sources
        text = code.decode()
        record = self.recorder.add(code, name, len(devices), sources)
        function = self.runs.function()
        record.is_library = is_library_function(function)
        record.is_eager_loop = is_eager_loop(function)
        memory = self.memory if kind is None else DeviceMemory(kind.generation)
        if refusal := early_refusal(text, len(devices), memory.limit, memory.tiling):
            raise jax_internals.XlaRuntimeError(refusal)
        if self.strict:
            _refuse_what_does_not_fit(self.recorder, record, memory)
        if self.rounds and kind is None:
            jax_numerics.round_operands(module)
        clock = OsClock()
        started = clock.monotonic_seconds()
        if self.dry is None and kind is None:
            executable = compile_now()
        else:
            _check_partitioner()

            def estimate(seconds: float = VERDICT_SECONDS) -> Mapping[str, object]:
                return self.recorder.verdict(record, seconds)

            executable = executable_of(compile_now, module, devices, text, record, estimate)
            executable.has_kernels = module_text.TARGET in text
            if kind is not None:
                executable.topology = kind.name
            elif self.dry is not None:
                self.dry.add(executable)
        record.compile_seconds = clock.monotonic_seconds() - started
        self.runs.add_module(executable, record)
        return executable


def _refuse_what_does_not_fit(recorder: Recorder, record: ModuleRuns, memory: DeviceMemory) -> None:
    """Raises what a TPU says when it compiles a module that does not fit, or has no room left to
    load it."""
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


def _check_partitioner() -> None:
    if not jax_internals.has_partitioner():
        raise NotImplementedError(
            "a dry run and compilation for a topology need JAX 0.10 or newer; this is JAX "
            f"{jax_internals.version()}"
        )
