"""Unmodified programs on the hosts of nodes: sent with `gcloud ... scp` and started with `ssh --worker=all`, as Cloud
TPU's documentation has it. The hosts have the software of their runtime version, or the JAX that `podyard runtime
install jax` gives them."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from podyard.programs.environments import FOLDER_VARIABLE
from tests.conftest import require
from tests.gcloud import TPU_VM, Terminal, create_node, dials_port_22
from tests.stack import PODYARD, open_stack

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parents[2]
FOLDER = {FOLDER_VARIABLE: str(ROOT / ".venv-clients" / "runtimes")}
ZONE = "europe-west4-a"
PODS = {  # node -> type and runtime version
    "one": ("v3-8", "tpu-vm-base"),
    "four": ("v3-32", "tpu-vm-base"),
    "keras": ("v3-8", "tpu-vm-tf-2.18.0-pjrt"),
    "torch": ("v3-8", "tpu-vm-pt-2.0"),
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
]


@pytest.fixture(scope="module")
def terminal(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Terminal]:
    require("gcloud" if dials_port_22() else None, "gcloud, and hosts that listen on port 22")
    environ = {name: value for name, value in os.environ.items() if not name.startswith("PODYARD_")} | FOLDER
    made = subprocess.run([*PODYARD, "runtime", "install", "jax"], env=environ, capture_output=True, text=True)
    assert made.returncode == 0, made.stderr
    with open_stack(tmp_path_factory.mktemp("yard"), FOLDER) as stack:
        for node, (kind, version) in PODS.items():
            create_node(stack, node, kind, ZONE, version)
        yield Terminal(stack, tmp_path_factory.mktemp("home"))


@pytest.mark.parametrize(("program", "arguments", "node", "says"), RUNS)
def test_a_program_on_all_hosts_of_a_node(
    terminal: Terminal, program: str, arguments: str, node: str, says: str
) -> None:
    sent = terminal.run(f"{TPU_VM} scp {ROOT / program} {node}: --zone {ZONE} --worker=all")
    assert sent.returncode == 0, sent.stderr
    command = f"python {Path(program).name} {arguments}"
    done = terminal.run(f"{TPU_VM} ssh {node} --zone {ZONE} --worker=all --command='{command}'")
    assert done.returncode == 0, done.stdout + done.stderr
    assert says in done.stdout
