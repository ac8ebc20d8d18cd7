"""PyTorch/XLA programs over CPU torch, started as a person would."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

from tests.clients.client import ENVIRONMENTS
from tests.conftest import require
from tests.stack import PODYARD
from tests.waiting import patient, until

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples" / "programs"
PROGRAMS = ROOT / "tests" / "programs"
SECONDS = 300.0


@pytest.fixture(scope="module")
def python() -> str:
    made = (ENVIRONMENTS / "torch" / ".made").is_file()
    found = str(ENVIRONMENTS / "torch" / "bin" / "python")
    return require(found if made else None, "the environment torch of `make real`")


def _environ(**changes: str) -> dict[str, str]:
    return {
        name: value for name, value in os.environ.items() if not name.startswith("PODYARD_")
    } | changes


def _run(
    kind: str, folder: Path, *command: str, options: Sequence[str] = (), **changes: str
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*PODYARD, "run", "--tpu", kind, *options, "--", *command],
        env=_environ(**changes), capture_output=True, text=True, timeout=patient(SECONDS),
        stdin=subprocess.DEVNULL,
        cwd=folder,
    )  # fmt: skip


def _lines(
    kind: str, folder: Path, *command: str, options: Sequence[str] = (), **changes: str
) -> list[str]:
    done = _run(kind, folder, *command, options=options, **changes)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.splitlines()


def test_a_cnn_trains_on_eight_cores_and_the_master_saves_it(python: str, tmp_path: Path) -> None:
    lines = _lines("v3-8", tmp_path, python, str(EXAMPLES / "torch_xla_mnist.py"))
    assert (
        lines[-2].startswith("epoch 2: 8 cores, accuracy ")
        and float(lines[-2].rpartition(" ")[2]) > 0.95
    )
    assert lines[-1] == "saved mnist_cnn.pt" and (tmp_path / "mnist_cnn.pt").stat().st_size > 80_000


def test_a_step_is_priced_on_all_cores(python: str, tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    program = str(EXAMPLES / "torch_xla_mnist.py")
    command = [
        *PODYARD,
        "run",
        "--tpu",
        "v3-8",
        "--batch",
        "128",
        "--report",
        str(report),
        "--",
        python,
        program,
    ]
    done = subprocess.run(
        command, env=_environ(), capture_output=True, text=True, timeout=SECONDS, cwd=tmp_path
    )
    assert "step torch_train_step: " in done.stderr and "examples per second" in done.stderr, (
        done.stderr
    )
    found = json.loads(report.read_text())
    train, evaluate = found["modules"]
    assert (train["name"], train["runs"], train["devices"], train["fits"]) == (
        "torch_train_step",
        16,
        8,
        True,
    )
    assert (evaluate["name"], evaluate["runs"]) == ("torch_step", 4)
    assert 1e-5 < train["deviceSecondsPerRun"] < 1e-3 and found["doubts"] == []
    # Forward, and twice as much backward but for the first layer's images: multiplications and
    # additions of 16 images.
    products = 16 * (2 * 24 * 24 * 10 * 25 + 3 * (8 * 8 * 20 * 250 + 320 * 50 + 50 * 10))
    assert train["flopsPerDevice"] == pytest.approx(2 * products, rel=0.35)


@pytest.mark.parametrize("way", ["data", "fsdp", "tensor"])
def test_spmd_trains_as_plain_pytorch_does_and_its_collectives_are_priced(
    python: str, way: str, tmp_path: Path
) -> None:
    report = tmp_path / "report.json"
    program = str(PROGRAMS / "torch_spmd.py")
    options = ["--report", str(report)]
    lines = _lines("v5litepod-8", tmp_path, python, program, way, options=options)
    assert _way(lines[0]) < 1e-5, lines
    (train,) = json.loads(report.read_text())["modules"]
    assert (train["name"], train["devices"], train["fits"]) == ("torch_train_step", 8, True)
    sharded = {
        "data": [],
        "fsdp": ["{devices=[8,1]0,1,2,3,4,5,6,7} (32, 64)"],
        "tensor": ["{devices=[2,4]0,2,4,6,1,3,5,7} (128, 16)"],
    }
    assert lines[1:] == sharded[way]
    # Of 132,864 parameters with both of AdamW's states: all, an eighth, or all of the embedding and
    # the head with an eighth of the layers. Small arrays are padded to tiles.
    parameters = {"data": 132_864, "fsdp": 132_864 / 8, "tensor": 32_768 + 100_096 / 8}[way]
    assert 12 * parameters < train["argumentBytes"] < 12 * parameters + 300_000


def test_a_sharded_step_costs_what_it_costs_in_jax(python: str, tmp_path: Path) -> None:
    own, other = (
        _step_of(interpreter, tmp_path, str(PROGRAMS / f"sharded_mlp_{name}.py"))
        for name, interpreter in (("torch", python), ("jax", sys.executable))
    )
    assert own["deviceSecondsPerRun"] == pytest.approx(other["deviceSecondsPerRun"], rel=0.05)
    for figure in ("flopsPerDevice", "argumentBytes", "peakBytes"):
        assert own[figure] == pytest.approx(other[figure], rel=0.01), figure


def _step_of(interpreter: str, folder: Path, program: str) -> dict[str, Any]:
    """The training step in the report of a program."""
    report = folder / "report.json"
    _lines("v5litepod-8", folder, interpreter, program, options=["--report", str(report)])
    modules = json.loads(report.read_text())["modules"]
    return next(one for one in modules if one["name"] in ("torch_train_step", "jit_step"))


def _way(line: str) -> float:
    """Return the largest difference of the losses from plain PyTorch's."""
    return float(line.rpartition(", ")[2].split()[0])


def test_spmd_is_one_process_for_each_host(python: str, tmp_path: Path) -> None:
    lines = _lines("v3-32", tmp_path, python, str(PROGRAMS / "torch_spmd.py"), "data")
    assert len(lines) == 4 and all(_way(line) < 1e-5 for line in lines)


@pytest.mark.parametrize(("way", "rows"), [("processes", 8), ("spmd", 4)])
def test_flash_attention_is_a_kernel_with_its_own_time(
    python: str, way: str, rows: int, tmp_path: Path
) -> None:
    report = tmp_path / "report.json"
    options = ["--report", str(report)]
    program = str(PROGRAMS / "torch_flash.py")
    (line,) = _lines("v5litepod-4", tmp_path, python, program, way, options=options)
    assert _way(line) < 1e-5, line
    (train,) = json.loads(report.read_text())["modules"]
    assert [one.partition(":")[0] for one in train["kernels"]] == [
        "_flash_attention_dkv_kernel",
        "_flash_attention_dq_kernel",
        "_flash_attention_kernel",
    ]
    assert train["doubts"] == []
    # Nine products of attention (two forward, seven backward), of a chip's rows and heads.
    heads = 2 if way == "processes" else 1
    attention = 2 * 9 * rows * heads * 128 * 128 * 32
    dense = 6 * rows * 128 * (12 * 64 * 64 + 64 * 256)
    assert train["flopsPerDevice"] == pytest.approx(attention + dense, rel=0.15)


def test_flash_attention_takes_masks_segments_and_a_bias(python: str, tmp_path: Path) -> None:
    program = str(PROGRAMS / "torch_flash.py")
    (line,) = _lines("v5litepod-4", tmp_path, python, program, "masks")
    assert _way(line) < 1e-5, line


def test_zero_has_a_part_of_the_states_in_each_process_and_resumes(
    python: str, tmp_path: Path
) -> None:
    report = tmp_path / "report.json"
    options = ["--report", str(report)]
    program = str(PROGRAMS / "torch_zero.py")
    losses, states = _lines("v5litepod-4", tmp_path, python, program, options=options)
    assert _way(losses) < 1e-5, losses
    assert states == "0.500 of two states for each parameter"
    (train,) = json.loads(report.read_text())["modules"]
    assert train["doubts"] == [] and train["devices"] == 4
    # Parameters, gradients and AdamW's two states are 16 bytes for each parameter without ZeRO.
    assert train["argumentBytes"] < 16 * 132_864


def test_a_scan_computes_each_turn_and_its_gradient(python: str, tmp_path: Path) -> None:
    sums, losses = _lines("v5litepod-4", tmp_path, python, str(PROGRAMS / "torch_scan.py"))
    turns = "[[2.0, 4.0], [8.0, 12.0], [18.0, 24.0]]"
    assert sums == f"[9.0, 12.0] {turns} [3.0, 3.0] [[3.0, 3.0], [2.0, 2.0], [1.0, 1.0]]"
    assert _way(losses) < 1e-5, losses


@pytest.mark.parametrize(
    ("case", "error"),
    [
        ("fsdp1", "XlaFullyShardedDataParallel (FSDP v1) is not emulated: use FSDPv2, "),
        ("stablehlo", "get_stablehlo is not emulated: operations are computed when they are"),
        ("unmarked", "shardings need SPMD: call torch_xla.runtime.use_spmd() at the start"),
        ("rank", "Partition spec length (1) should be equal to the input rank (2)."),
        ("axis", "Axis name rows is not defined in the given mesh"),
        ("spmd", "SPMD has one process for each host, and this is one of 4: call use_spmd()"),
        ("carry", "`fn` must return a carry with the shapes and dtypes of the one that it takes"),
        ("minibatch", "minibatch=True is not emulated on 4 hosts: load the whole batch on each"),
        ("auto", "use_spmd(auto=True) is not emulated: nothing here searches for shardings."),
    ],
)
def test_what_is_not_emulated_says_so_and_what_to_do(
    python: str, case: str, error: str, tmp_path: Path
) -> None:
    kind = "v3-32" if case == "minibatch" else "v5litepod-4"
    done = _run(kind, tmp_path, python, str(PROGRAMS / "torch_refusals.py"), case)
    assert done.returncode == 1 and error in done.stderr, done.stderr


def test_a_dry_run_is_rejected(python: str, tmp_path: Path) -> None:
    options = ["--dry-run"]
    program = str(PROGRAMS / "torch_scan.py")
    done = _run("v5litepod-4", tmp_path, python, program, options=options)
    assert done.returncode == 1 and "losses are 0" not in done.stderr
    assert "a dry run needs JAX: steps of PyTorch are computed; leave --dry-run" in done.stderr


def test_a_dry_run_goes_on_if_a_library_only_imports_torch_xla(python: str, tmp_path: Path) -> None:
    program = "import torch_xla.runtime, torch_xla.core.xla_model; print('imported')"
    done = _run("v5litepod-4", tmp_path, python, "-c", program, options=["--dry-run"])
    assert (done.returncode, done.stdout) == (3, "imported\n"), done.stderr


LONG_EVALUATION = """
import torch, torch_xla.core.xla_model as xm
device = xm.xla_device()
model = torch.nn.Linear(256, 10).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for batch in range(4):
    optimizer.zero_grad()
    model(torch.ones(64, 256).to(device)).logsumexp(1).mean().backward()
    xm.optimizer_step(optimizer, barrier=True)
losses = []
with torch.no_grad():
    for batch in range(20):
        losses.append(model(torch.ones(4096, 256).to(device)).logsumexp(1).mean())
        xm.mark_step()
"""


def test_a_long_evaluation_is_not_the_training_step(python: str, tmp_path: Path) -> None:
    done = _run("v5litepod-1", tmp_path, python, "-c", LONG_EVALUATION)
    assert done.returncode == 0, done.stderr
    assert "training step torch_train_step: " in done.stderr, done.stderr


def test_recorded_steps_compute_what_pytorch_has_computed(python: str, tmp_path: Path) -> None:
    _lines("v3-8", tmp_path, python, str(PROGRAMS / "torch_graph.py"), str(tmp_path))
    files = sorted(tmp_path.glob("*.mlir"))
    assert [file.stem for file in files] == [
        "attention_adam",
        "attention_adamw",
        "conv_rmsprop",
        "conv_sgd",
    ]
    for file in files:
        assert not file.read_text().startswith("//"), "an operation is not covered"
        _compare_with_xla(file)


def _compare_with_xla(file: Path) -> None:
    import jax
    from jax._src.lib import xla_client

    values = np.load(file.with_suffix(".npz"))
    device = jax.devices("cpu")[0]
    executable = device.client.compile_and_load(
        file.read_bytes(), [device], xla_client.CompileOptions()
    )
    with jax.enable_x64(True):
        arguments = [
            jax.device_put(values[f"in{place}"])
            for place in range(sum(n.startswith("in") for n in values))
        ]
    arrays = executable.execute_sharded(arguments).disassemble_into_single_device_arrays()
    for name in (one for one in values if one.startswith("out")):
        found = np.asarray(arrays[int(name[3:])][0])
        np.testing.assert_allclose(
            found, values[name], rtol=2e-3, atol=2e-3, err_msg=f"{file.stem} {name}"
        )


def test_a_program_of_torch_xla_2_trains_in_bfloat16(python: str, tmp_path: Path) -> None:
    (line,) = _lines("v5litepod-4", tmp_path, python, str(EXAMPLES / "torch_xla_launch.py"))
    assert line.startswith("4 devices of type TPU, device xla:0: loss 6.3")


def test_accelerate_launches_its_processes(python: str, tmp_path: Path) -> None:
    options = ["--tpu", "--num_processes", "8", "--main_training_function", "main"]
    command = ["-m", "accelerate.commands.launch", *options]
    lines = _lines("v3-8", tmp_path, python, *command, str(EXAMPLES / "torch_accelerate.py"))
    assert lines[-1] == "DistributedType.XLA xla:0" and lines[-2].startswith(
        "epoch 1: 8 processes, "
    )
    assert (tmp_path / "accelerate_model" / "model.safetensors").is_file()


def test_lightning_finds_its_accelerator(python: str, tmp_path: Path) -> None:
    lines = _lines("v3-8", tmp_path, python, "-W", "ignore", str(EXAMPLES / "torch_lightning.py"))
    assert "8 processes, xla:0, XLAStrategy" in lines and lines[-1] == "accuracy 1.0000"


def test_eight_processes_have_the_bits_of_one_that_adds_in_the_same_order(
    python: str, tmp_path: Path
) -> None:
    program = str(PROGRAMS / "torch_bits.py")
    alone = subprocess.run(
        [python, program], env=_environ(), capture_output=True, text=True, timeout=SECONDS
    )
    lines = _lines("v3-8", tmp_path, python, program, "fork", OMP_NUM_THREADS="1")
    assert lines == [alone.stdout.strip()] * 8, alone.stderr


@pytest.mark.parametrize(("kind", "hosts"), [("v3-8", 1), ("v3-32", 4)])
def test_processes_tell_each_other_everything_on_one_host_and_on_four(
    python: str, kind: str, hosts: int, tmp_path: Path
) -> None:
    lines = [
        line.partition("] ")[2] or line
        for line in _lines(kind, tmp_path, python, str(PROGRAMS / "torch_collectives.py"))
    ]
    world, devices = 8 * hosts, ",".join(f"xla:{number}" for number in range(8))
    assert (
        sorted(line for line in lines if "program" in line)
        == [f"program {devices} 1 TPU v3 TPU"] * hosts
    )
    found = sorted(
        (line.split()[1:7] for line in lines if "process" in line), key=lambda words: int(words[0])
    )
    assert found == [[str(n), str(n % 8), str(world), "1", "8", str(world)] for n in range(world)]


@pytest.mark.parametrize(
    ("case", "error"),
    [
        ("raises", "ValueError: a bad batch"),
        ("newer", "ValueError: a bad batch"),
        ("deaf", "ValueError: a bad batch"),
        ("killed", "process 3 terminated with signal SIGKILL"),
        (
            "uneven",
            (
                "process 0, 1, 2, 4, 5, 6, 7: all_reduce (sum) of float32[4, 4], "
                "float32[4]; process "
                "3: the end of"
            ),
        ),
        ("shapes", "process 3: all_reduce (sum) of float32[3]"),
        ("nprocs", "Unsupported nprocs (4). Please use nprocs=1 or None"),
    ],
)
def test_a_process_that_fails_ends_the_others_and_its_own_error_is_told(
    python: str, case: str, error: str, tmp_path: Path
) -> None:
    done = _run("v3-8", tmp_path, python, str(PROGRAMS / "torch_failures.py"), case)
    assert done.returncode == 1 and error in done.stderr, done.stderr
    assert done.stderr.count("terminated with the following error") <= 1
    assert "During handling of" not in done.stderr, done.stderr
    assert _processes_of("torch_failures.py") == []


def test_a_version_that_was_not_tested_is_named_once(python: str, tmp_path: Path) -> None:
    program = str(PROGRAMS / "torch_failures.py")
    done = _run("v3-32", tmp_path, python, program, "untested")
    assert done.stderr.count("PyTorch 9.9.0 was not tested: ") == 1, done.stderr


def test_a_failure_on_one_host_ends_all_four(python: str, tmp_path: Path) -> None:
    done = _run("v3-32", tmp_path, python, str(PROGRAMS / "torch_failures.py"), "raises")
    assert done.returncode == 1 and "ValueError: a bad batch" in done.stderr
    assert "waits for another process" not in done.stderr
    assert _processes_of("torch_failures.py") == []


def test_the_notice_of_a_preemption_reaches_all_and_training_goes_on_from_the_checkpoint(
    python: str, tmp_path: Path
) -> None:
    program = [python, str(EXAMPLES / "torch_xla_resume.py"), str(tmp_path / "kept.pt"), "30"]
    command = [*PODYARD, "run", "--tpu", "v3-8", "--", *program]
    with subprocess.Popen(
        command, env=_environ(), stdout=subprocess.PIPE, text=True, cwd=tmp_path
    ) as process:
        assert process.stdout is not None
        early = []
        while not early or not early[-1].startswith("step 5 "):
            early.append(process.stdout.readline())
        process.send_signal(signal.SIGTERM)
        rest, _ = process.communicate(timeout=patient(60))
    saved = int(rest.splitlines()[-1].removeprefix("saved at step "))
    assert process.returncode == -signal.SIGTERM and saved < 30
    resumed = _lines("v3-8", tmp_path, *program)
    assert resumed[:1] == [f"starts at step {saved}"]
    (tmp_path / "kept.pt").unlink()
    whole = _lines("v3-8", tmp_path, *program)
    assert whole[-1].startswith("trained 30 steps: ") and resumed[-1] == whole[-1]
    assert resumed[1:] == whole[saved + 1 :]


def test_a_program_that_is_killed_leaves_nothing_running(python: str, tmp_path: Path) -> None:
    program = [python, str(EXAMPLES / "torch_xla_resume.py"), str(tmp_path / "kept.pt"), "100000"]
    process = subprocess.Popen(
        [*PODYARD, "run", "--tpu", "v3-8", "--", *program],
        env=_environ(),
        stdout=subprocess.DEVNULL,
        cwd=tmp_path,
    )
    until(lambda: len(_processes_of("torch_xla_resume.py")) > 9, 60, "all processes to run")
    process.kill()
    process.wait()
    until(lambda: not _processes_of("torch_xla_resume.py"), 20, "no process to be left")


def test_without_a_tpu_there_is_no_torch_xla(python: str, tmp_path: Path) -> None:
    done = _run("v3-8", tmp_path, "env", "PODYARD_TPU=off", python, "-c", "import torch_xla")
    assert "No module named 'torch_xla'" in done.stderr


def test_what_documents_of_tpus_say(python: str, tmp_path: Path) -> None:
    code = """
import json
import os
os.environ["XRT_TPU_CONFIG"] = "tpu_worker;0;10.1.2.3:8470"
import importlib.metadata, io, torch, torch_xla, torch_xla.core.xla_model as xm, torch_xla.debug.metrics as met
device = xm.xla_device()
t1, t2 = torch.randn(2, 2, device=device), torch.ones(2, 2).to("xla")
print(device, (t1 @ t2).shape, xm.xla_device_hw(device), xm.xrt_world_size(), xm.get_xla_supported_devices()[-1])
kept = t2.cpu()
t2.add_(1)
print(kept.sum().item(), t2.sum().item(), torch.tril_indices(2, 2, device=device).tolist())
with torch.autocast("xla", dtype=torch.bfloat16):
    print((t1 @ t2).dtype)
buffer = io.BytesIO()
xm.save({"t": t2}, buffer)
buffer.seek(0)
print(torch.load(buffer, map_location=device)["t"].sum().item())
xm.mark_step()
print(met.metrics_report().split(), importlib.metadata.version("torch_xla") == torch_xla.__version__)
print(xm.get_memory_info(device)["bytes_limit"] > 15 * 2**30)
"""  # noqa: E501
    assert _lines("v3-8", tmp_path, python, "-c", code) == [
        "xla:0 torch.Size([2, 2]) TPU 1 xla:7", "4.0 8.0 [[0, 1, 1], [0, 0, 1]]", "torch.bfloat16",
        "8.0",
        "['Counter:', 'MarkStep', 'Value:', '1'] True", "True",
    ]  # fmt: skip


def test_torchrun_starts_the_processes(python: str, tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text("""
import torch, torch.distributed as dist, torch_xla, torch_xla.runtime as xr, torch_xla.core.xla_model as xm
import torch_xla.distributed.xla_backend

def train(index):
    dist.init_process_group("xla", init_method="xla://")
    value = torch.ones(1, device=torch_xla.device())
    dist.all_reduce(value)
    xm.master_print(f"{dist.get_world_size()} {value.item()} {xm.all_reduce(xm.REDUCE_SUM, value).item()}")

torch_xla.launch(train)
""")  # noqa: E501
    command = [python, "-m", "torch.distributed.run", "--nproc_per_node=4", str(program)]
    assert _lines("v5litepod-4", tmp_path, *command, OMP_NUM_THREADS="1") == ["4 4.0 16.0"]


def _processes_of(name: str) -> list[psutil.Process]:
    found = []
    for process in psutil.process_iter():
        try:
            if any(word.endswith(name) for word in process.cmdline()):
                found.append(process)
        except psutil.Error:
            continue
    return found
