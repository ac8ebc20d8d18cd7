"""Adds the modelled planes of the devices to what `jax.profiler` writes.

JAX has one session of its profiler at a time. It writes a file for each process, named after the
machine: processes of several hosts share this machine, so theirs are named after the host as well.
"""

from __future__ import annotations

import dataclasses
import importlib
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from podyard.base.errors import PodyardError
from podyard.hardware.accelerator_types import AcceleratorType
from podyard.programs.jax_runs import Runs
from podyard.programs.records import ModuleRuns, Recorder
from podyard.programs.say import say

if TYPE_CHECKING:
    from podyard.engine.timing.estimate import Estimate
    from podyard.programs.profile.device_plane import TracedModule

_profiler: Any = importlib.import_module("jax._src.lib")._profiler

SUFFIX = ".xplane.pb"
MODULES_TRACED_MAX = 100  # that are priced for a trace, in the program's own process


@dataclasses.dataclass(frozen=True, slots=True)
class DeviceTracer:
    """`devices`: the numbers of this process' devices; `worker`: the host, None for one host."""

    runs: Runs
    recorder: Recorder
    kind: AcceleratorType
    devices: Sequence[int]
    worker: int | None

    def install(self) -> None:
        """Makes sessions of JAX's profiler end with the planes of the devices, where this JAX has
        such sessions."""
        inner: Any = getattr(_profiler, "ProfilerSession", None)
        if not hasattr(inner, "stop_and_export"):
            return
        tracer = self

        class ProfilerSession:
            """A session that also notes which modules run."""

            def __init__(self, *args: Any, **named: Any) -> None:
                self._inner = inner(*args, **named)
                tracer.runs.start_trace()

            def stop_and_export(self, log_dir: str) -> None:
                modules = tracer.runs.stop_trace()
                for file in _export(self._inner, log_dir, tracer.worker):
                    tracer.add_planes(file, modules)

            def __getattr__(self, name: str) -> Any:
                return getattr(self._inner, name)

        _profiler.ProfilerSession = ProfilerSession

    def add_planes(self, file: Path, modules: Sequence[ModuleRuns]) -> None:
        """Adds what the modules did on the devices to a trace. Raises nothing: a trace without
        these planes is one of the host."""
        # half a second, which programs without a trace do not pay
        from podyard.programs.profile.device_plane import device_space

        try:
            space = device_space(
                list(self._modules_of(modules)), self.kind.generation, self.devices
            )
            with file.open("ab") as stream:
                stream.write(space)
        except OSError as error:
            say(f"no modelled planes in {file}: {error}")

    def _modules_of(self, modules: Sequence[ModuleRuns]) -> Iterator[TracedModule]:
        from podyard.programs.profile.device_plane import TracedModule

        estimates: dict[str, Estimate | None] = {}
        for module in modules:
            if module.digest not in estimates:
                has_room = len(estimates) < MODULES_TRACED_MAX
                estimates[module.digest] = self._estimate(module) if has_room else None
            estimate = estimates[module.digest]
            if estimate is not None:
                # at most 60 bits: viewers read it as a signed number
                program_id = int(module.digest[:15], 16)
                yield TracedModule(module.name, program_id, estimate)

    def _estimate(self, module: ModuleRuns) -> Estimate | None:
        from podyard.programs.estimator import analyze

        text = self.recorder.text_of(module)
        if text is None:
            say(f"{module.name} is not in the trace: use podyard run --tpu, which keeps modules")
            return None
        try:
            return analyze(text.encode(), self.kind, slices=None)
        except PodyardError as error:
            say(f"{module.name} is not in the trace: {error.message}")
        return None


def _export(session: Any, log_dir: str, worker: int | None) -> list[Path]:
    """Return the traces of a session, written to `log_dir`; none for a folder in the cloud."""
    if "://" in log_dir:
        session.stop_and_export(log_dir)
        say(f"no modelled planes in {log_dir}: use a folder of this machine")
        return []
    target = Path(log_dir)
    target.mkdir(parents=True, exist_ok=True)
    # a folder of this process, so that no other process writes to the same file
    with tempfile.TemporaryDirectory(prefix=".podyard-", dir=target) as folder:
        session.stop_and_export(folder)
        traces = []
        for file in sorted(Path(folder).rglob("*")):
            if not file.is_file():
                continue
            host, _, suffix = file.name.partition(".")
            name = file.name if worker is None else f"{host}-w-{worker}.{suffix}"
            path = target / file.relative_to(folder).with_name(name)
            path.parent.mkdir(parents=True, exist_ok=True)
            file.replace(path)
            if path.name.endswith(SUFFIX):
                traces.append(path)
    return traces
