"""Programs of users' frameworks on JAX: flax, optax, orbax, Keras, and an older JAX, started as a
person would."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.stack import PODYARD

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples" / "programs"
PROGRAMS = ROOT / "tests" / "programs"


def _run(
    environment: str, folder: Path, kind: str, *command: str
) -> tuple[subprocess.CompletedProcess[str], Any]:
    python = ROOT / ".venv-clients" / environment / "bin" / "python"
    report = folder / "report.json"
    environ = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("PODYARD_", "JAX_"))
    }
    done = subprocess.run(
        [*PODYARD, "run", "--tpu", kind, "--report", str(report), "--", str(python), *command],
        env=environ, capture_output=True, text=True, timeout=300, cwd=folder,
        stdin=subprocess.DEVNULL,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done, json.loads(report.read_text())


def _step(report: Any) -> Any:
    return next(module for module in report["modules"] if module["digest"] == report["step"])


def test_flax_trains_on_the_four_hosts_of_a_slice(tmp_path: Path) -> None:
    done, report = _run("flax", tmp_path, "v3-32", str(EXAMPLES / "flax_data_parallel.py"))
    lines = sorted(line for line in done.stdout.splitlines() if " devices, loss " in line)
    assert [line.split(":")[0] for line in lines] == [
        f"[worker {n}] host {n} of 4" for n in range(4)
    ]
    assert len({line.rpartition(" ")[2] for line in lines}) == 1
    assert (_step(report)["name"], _step(report)["runs"], _step(report)["devices"]) == (
        "jit_train_step",
        10,
        32,
    )


def test_a_transformer_is_split_over_two_axes(tmp_path: Path) -> None:
    done, report = _run("flax", tmp_path, "v5litepod-8", str(EXAMPLES / "sharded_transformer.py"))
    assert done.stdout.startswith("{'data': 4, 'model': 2}: loss "), done.stderr
    assert _step(report)["name"] == "jit_train_step" and _step(report)["fits"]


@pytest.mark.parametrize("data", ["fashion", "cifar10"])
def test_keras_trains_on_all_devices(data: str, tmp_path: Path) -> None:
    done, report = _run("flax", tmp_path, "v3-8", str(EXAMPLES / "keras_cnn.py"), data)
    assert done.stdout.splitlines()[-1].startswith("8 devices, accuracy "), done.stderr
    assert (_step(report)["name"], _step(report)["runs"]) == ("jit_train_step", 18)


def test_orbax_writes_and_reads_sharded_arrays(tmp_path: Path) -> None:
    done, _ = _run(
        "flax", tmp_path, "v3-8", str(PROGRAMS / "checkpoints.py"), str(tmp_path / "kept")
    )
    assert done.stdout == "restored True, split True\n", done.stderr


def test_a_dry_run_writes_no_checkpoints_of_what_it_did_not_compute(tmp_path: Path) -> None:
    program = str(PROGRAMS / "train_and_save.py")
    done, _ = _run("flax", tmp_path, "v3-8", program, str(tmp_path / "real"), "64")
    assert done.stdout == "saved [0, 2, 4]\n"
    python = str(ROOT / ".venv-clients" / "flax" / "bin" / "python")
    options = ["--tpu", "v3-8", "--dry-run", "--steps", "100", "--", python]
    dry = subprocess.run(
        [*PODYARD, "run", *options, program, str(tmp_path / "dry"), "20000"],
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert dry.stdout == "saved []\n", dry.stderr
    assert (
        dry.stderr.count("podyard: a dry run writes no checkpoints of arrays without values\n") == 1
    )
    assert sorted(path.name for path in (tmp_path / "dry").iterdir() if path.is_dir()) == [
        "small",
        "small_tree",
    ]


def _python(environment: str) -> str:
    path = ROOT / ".venv-clients" / environment / "bin" / "python"
    if environment == "jax011" and not path.exists():
        pytest.skip("JAX 0.11 needs Python 3.12")
    return str(path)


OTHERS = pytest.mark.parametrize("environment", ["jax09", "jax011"])


@OTHERS
def test_another_jax_sees_the_same_devices(environment: str, tmp_path: Path) -> None:
    _python(environment)
    done, report = _run(environment, tmp_path, "v3-32", str(PROGRAMS / "data_parallel.py"), "5")
    lines = sorted(line for line in done.stdout.splitlines() if "TPU_" in line)
    assert [line.split()[2:7] for line in lines] == [
        [str(n), "4", "32", "8", f"TPU_{first}(process={n},({x},{y},0,0))"]
        for n, first, x, y in ((0, 0, 0, 0), (1, 4, 2, 0), (2, 16, 0, 2), (3, 20, 2, 2))
    ]
    assert _step(report)["runs"] == 5


def test_a_newer_jax_runs_dry(tmp_path: Path) -> None:
    python = _python("jax011")
    command = [*PODYARD, "run", "--tpu", "v5p-64", "--dry-run", "--steps", "2", "--", python]
    done = subprocess.run(
        [*command, str(PROGRAMS / "llama.py"), "1"],
        capture_output=True,
        text=True,
        timeout=300,
        cwd=tmp_path,
    )
    assert done.returncode == 0 and "step jit_train_step: " in done.stderr, done.stderr


def test_an_older_jax_refuses_a_dry_run_in_words(tmp_path: Path) -> None:
    python = str(ROOT / ".venv-clients" / "jax09" / "bin" / "python")
    command = [
        *PODYARD,
        "run",
        "--tpu",
        "v5p-64",
        "--dry-run",
        "--",
        python,
        str(PROGRAMS / "llama.py"),
        "1",
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, cwd=tmp_path)
    assert done.returncode == 1
    assert done.stderr.startswith("podyard: a dry run needs JAX 0.10 or newer; this is JAX 0.9.")


@OTHERS
def test_bits_of_another_jax_are_those_of_its_own_devices(environment: str, tmp_path: Path) -> None:
    python = _python(environment)
    environ = os.environ | {"JAX_PLATFORMS": "cpu"}
    plain = subprocess.run(
        [python, str(PROGRAMS / "bits.py")],
        env=environ,
        capture_output=True,
        text=True,
        timeout=300,
    )
    environ = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("PODYARD_", "JAX_"))
    }
    same = subprocess.run(
        [*PODYARD, "run", "--tpu", "v3-8", "--numerics", "f32", "--", python,
            str(PROGRAMS / "bits.py")],
        env=environ, capture_output=True, text=True, timeout=300, cwd=tmp_path,
    )  # fmt: skip
    assert plain.stdout == same.stdout and len(plain.stdout.splitlines()) == 9, same.stderr
