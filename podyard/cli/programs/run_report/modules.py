"""The table of a program's modules: the same for `podyard run`, nodes and jobs."""

from __future__ import annotations

from collections.abc import Sequence

from podyard.cli.kit import tables
from podyard.domain.ran_module import ProgramRun, RanModule
from podyard.engine.report.summary import time_text
from podyard.hardware.accelerator_types import parse


def module_table(modules: Sequence[RanModule], device_word: str) -> str:
    """Return the table for people; what is not known is `-`."""
    memory = f"MEMORY OF A {device_word.upper()}"
    headings = ("MODULE", "RUNS", "ON THE TPU", "HERE", "MFU", "HFU", memory)
    return tables.table(headings, [_row(module) for module in modules])


def _row(module: RanModule) -> tuple[str, ...]:
    here = tables.NOTHING if module.wall_seconds is None else time_text(module.wall_seconds)
    if module.seconds is None:
        unknown = (tables.NOTHING,) * 3
        return (module.name, str(module.runs), tables.NOTHING, here, *unknown)
    shares = (
        tables.NOTHING if share is None else f"{share:.1%}" for share in (module.mfu, module.hfu)
    )
    runs, seconds = str(module.runs), time_text(module.seconds)
    return (module.name, runs, seconds, here, *shares, module.verdict)


def run_text(run: ProgramRun, accelerator_type: str) -> str:
    """Return what a program has run, for people."""
    lines = [module_table(run.modules, parse(accelerator_type).generation.device_word)]
    if run.modules_left_out:
        lines.append(f"and {run.modules_left_out} more modules")
    if not run.step:
        lines.append("no training step found")
    elif run.steps is not None:
        seconds = tables.NOTHING if run.step_seconds is None else time_text(run.step_seconds)
        lines.append(f"training step {run.step}: {run.steps:,} x {seconds} ({run.step_reason})")
    if run.seconds is not None:
        lines.append(f"in all {time_text(run.seconds)} on the TPU")
    if run.error:
        lines.append(f"the program failed: {run.error}")
    return "\n".join(lines)
