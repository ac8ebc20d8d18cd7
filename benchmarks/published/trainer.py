"""Dry runs of MaxText for published rows: `podyard run --dry-run` of the trainer with the flags of
the row, and no change to it."""

from __future__ import annotations

import dataclasses
import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.published.rows import PublishedRow, TrainerCount
from podyard.base.clock import OsClock

SECONDS_MAX = 1800.0
_ARGUMENTS = (
    "run_name=published", "dataset_type=synthetic", "steps=10", "enable_checkpointing=false",
    "enable_tensorboard=false", "skip_jax_distributed_system=true",
)  # fmt: skip
_TFLOPS = re.compile(r"Total TFLOPs: ([\d.]+)")
_ATTENTION = re.compile(r"and ([\d.]+)% attention flops")
# The mosaic programs of kernels, which nothing reads where the kernel has its cost.
_KERNEL_BODY = re.compile(r'(@tpu_custom_call\([^)]*\) \{)backend_config = "(?:[^"\\]|\\.)*", ')
_KEEP = """
import os, pathlib, shutil, subprocess, sys
code = subprocess.call([sys.executable, *sys.argv[2:]])
modules = pathlib.Path(os.environ["PODYARD_TPU_RUN"]) / "modules"
shutil.copytree(modules, sys.argv[1], dirs_exist_ok=True)
sys.exit(code)
"""


@dataclasses.dataclass(frozen=True, slots=True)
class MaxText:
    """`python`: of an environment with MaxText's requirements; `folder`: MaxText's repository."""

    python: Path
    folder: Path


class TrainerError(Exception):
    """A dry run that ended without a step."""


def dry_run(row: PublishedRow, trainer: MaxText) -> tuple[bytes, TrainerCount]:
    """Return the training step of a row as it was lowered, and what the trainer says of it.

    Raises TrainerError with the end of the log where the trainer fails.
    """
    clock = OsClock()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "keep.py").write_text(_KEEP)
        before = clock.monotonic_seconds()
        done = subprocess.run(
            _command(row, trainer, folder),
            cwd=trainer.folder, env=_environ(row), capture_output=True, text=True,
            timeout=SECONDS_MAX,
        )  # fmt: skip
        seconds = clock.monotonic_seconds() - before
        log = done.stdout + done.stderr
        tflops, attention = _TFLOPS.search(log), _ATTENTION.search(log)
        if done.returncode or tflops is None or attention is None:
            raise TrainerError(f"exit code {done.returncode}: ...{log[-1500:]}")
        digest = json.loads((folder / "report.json").read_text())["step"]
        text = (folder / "modules" / f"{digest}.mlir").read_text()
    count = TrainerCount(float(tflops[1]), float(attention[1]) / 100, seconds, _rss_bytes())
    return _KERNEL_BODY.sub(r"\1", text).encode(), count


def _command(row: PublishedRow, trainer: MaxText, folder: Path) -> list[str]:
    podyard = [str(Path(sys.executable).parent / "podyard"), "run", "--tpu", row.type]
    options = ["--slices", str(row.slices), *(["--workers", "1"] if row.slices == 1 else [])]
    report = ["--dry-run", "--steps", "2", "--report", str(folder / "report.json")]
    keep = [str(trainer.python), str(folder / "keep.py"), str(folder / "modules")]
    program = ["-m", "maxtext.trainers.pre_train.train", "src/maxtext/configs/base.yml"]
    output = f"base_output_directory={folder}"
    return [
        *podyard, *options, *report, "--", *keep, *program, *_ARGUMENTS, output, *(row.flags or ()),
    ]  # fmt: skip


def _environ(row: PublishedRow) -> dict[str, str]:
    environ = os.environ | {"PYTHONPATH": "src"}
    if row.scoped_vmem_kib is not None:
        limit = f"--xla_tpu_scoped_vmem_limit_kib={row.scoped_vmem_kib}"
        environ["LIBTPU_INIT_ARGS"] = limit
    return environ


def _rss_bytes() -> int:
    """Of the largest process that ended so far."""
    import resource

    return resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024
