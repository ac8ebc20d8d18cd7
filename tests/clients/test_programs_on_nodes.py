"""Unmodified programs on the hosts of nodes: sent with `gcloud ... scp` and started with `ssh
--worker=all`, as Cloud TPU's documentation has it. The hosts have the software of their runtime
version, or the JAX that `podyard runtime install jax` gives them."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from podyard.programs.environments import FOLDER_VARIABLE
from tests.conftest import require
from tests.gcloud import TPU_VM, Terminal, create_node, dials_port_22, end
from tests.stack import PODYARD, Stack, open_stack

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("clients")]
ROOT = Path(__file__).parents[2]
FOLDER = {FOLDER_VARIABLE: str(ROOT / ".venv-clients" / "runtimes")}
ZONE = "europe-west4-a"
PYTORCH = "tpu-vm-pt-2.0"
PODS = {  # node -> type and runtime version
    "one": ("v3-8", "tpu-vm-base"),
    "four": ("v3-32", "tpu-vm-base"),
    "keras": ("v3-8", "tpu-vm-tf-2.18.0-pjrt"),
    "torch": ("v3-8", PYTORCH),
    "torch-four": ("v3-32", PYTORCH),
}
# Program, its arguments, the node, and what it prints: a word of each host's last line.
RUNS = [
    ("tests/programs/data_parallel.py", "20", "one", "TPU_0(process=0,(0,0,0,0))"),
    ("tests/programs/data_parallel.py", "5 initialize", "four", "TPU_4(process=1,(2,0,0,0))"),
    ("tests/programs/bits.py", "", "one", "transformer"),
    ("tests/programs/checkpoints.py", "$HOME/kept", "one", "restored True, split True"),
    ("examples/programs/flax_data_parallel.py", "", "one", "host 0 of 1: 8 devices, loss"),
    ("examples/programs/flax_data_parallel.py", "", "four", "host 3 of 4: 32 devices, loss"),
    ("examples/programs/sharded_transformer.py", "", "one", "{'data': 4, 'model': 2}: loss"),
    ("examples/programs/keras_cnn.py", "fashion", "one", "8 devices, accuracy"),
    ("examples/programs/keras_cnn.py", "cifar10", "one", "8 devices, accuracy"),
    ("examples/programs/tpu_strategy_cnn.py", "cifar10", "keras", "8 devices, 8 replicas"),
    ("examples/programs/tpu_strategy_loop.py", "", "keras", "8 replicas, loss"),
    ("examples/programs/torch_xla_launch.py", "", "torch", ": loss "),
    ("examples/programs/torch_xla_mnist.py", "", "torch", ": 8 cores, accuracy"),
    ("tests/programs/torch_collectives.py", "", "torch-four", "process 31 7 32 1 8 32"),
]


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    require("gcloud" if dials_port_22() else None, "gcloud, and hosts that listen on port 22")
    environ = {
        name: value for name, value in os.environ.items() if not name.startswith("PODYARD_")
    } | FOLDER
    made = subprocess.run(
        [*PODYARD, "runtime", "install", "jax"], env=environ, capture_output=True, text=True
    )
    assert made.returncode == 0, made.stderr
    with open_stack(tmp_path_factory.mktemp("yard"), FOLDER) as found:
        for node, (kind, version) in PODS.items():
            create_node(found, node, kind, ZONE, version)
        yield found


@pytest.fixture(scope="module")
def terminal(stack: Stack, tmp_path_factory: pytest.TempPathFactory) -> Terminal:
    return Terminal(stack, tmp_path_factory.mktemp("home"))


def _run(terminal: Terminal, program: str, arguments: str, node: str) -> str:
    """Return what it prints on all hosts of the node."""
    sent = terminal.run(f"{TPU_VM} scp {ROOT / program} {node}: --zone {ZONE} --worker=all")
    assert sent.returncode == 0, sent.stderr
    command = f"python {Path(program).name} {arguments}"
    done = terminal.run(f"{TPU_VM} ssh {node} --zone {ZONE} --worker=all --command='{command}'")
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize(("program", "arguments", "node", "says"), RUNS)
def test_a_program_on_all_hosts_of_a_node(
    terminal: Terminal, program: str, arguments: str, node: str, says: str
) -> None:
    assert says in _run(terminal, program, arguments, node)


def test_eight_processes_of_torch_xla_have_the_bits_of_one(terminal: Terminal) -> None:
    bits = [
        _run(terminal, "tests/programs/torch_bits.py", start, "torch").split()
        for start in ("fork", "")
    ]
    assert (len(bits[0]), len(bits[1])) == (8, 1)
    assert set(bits[0]) == set(bits[1])


def test_training_is_saved_on_the_notice_of_a_preemption_and_goes_on_on_the_next_node(
    stack: Stack, terminal: Terminal, tmp_path: Path
) -> None:
    program = ROOT / "examples/programs/torch_xla_resume.py"
    kept = tmp_path / "kept.pt"
    create_node(
        stack, "spot", "v3-8", ZONE, version=PYTORCH, schedulingConfig={"preemptible": True}
    )
    assert terminal.run(f"{TPU_VM} scp {program} spot: --zone {ZONE}").returncode == 0
    running = terminal.start(
        f"{TPU_VM} ssh spot --zone {ZONE} --command='python torch_xla_resume.py kept.pt 100000'"
    )
    assert running.stdout is not None
    for line in running.stdout:
        if line.startswith("step 5 "):
            break
    fault = {"effect": "preempt", "match": {"resource": "*spot*"}, "notice": "60s", "count": 1}
    stack.call("POST", "/podyard/v1/faults", fault)
    saved = next(line for line in running.stdout if line.startswith("saved at step "))
    # ssh's exit code after a signal is 255: gcloud takes it for a lost connection, and starts again
    end(running)
    step = int(saved.split()[-1])
    fetched = terminal.run(f"{TPU_VM} scp spot:kept.pt {kept} --zone {ZONE}")
    assert fetched.returncode == 0, fetched.stderr
    for source in (kept, program):
        assert terminal.run(f"{TPU_VM} scp {source} torch: --zone {ZONE}").returncode == 0
    command = f"python torch_xla_resume.py kept.pt {step + 200}"
    again = terminal.run(f"{TPU_VM} ssh torch --zone {ZONE} --command='{command}'")
    lines = again.stdout.splitlines()
    assert int(lines[0].removeprefix("starts at step ")) >= step, again.stderr
    assert lines[-1].startswith(f"trained {step + 200} steps"), again.stderr
