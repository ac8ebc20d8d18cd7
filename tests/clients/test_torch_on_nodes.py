"""PyTorch/XLA on hosts of nodes: bits, four hosts, a preemption. `test_programs_on_nodes.py` runs the examples."""

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

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parents[2]
FOLDER = {FOLDER_VARIABLE: str(ROOT / ".venv-clients" / "runtimes")}
ZONE = "europe-west4-a"
PODS = {"one": "v3-8", "four": "v3-32"}  # node -> type
VERSION = "tpu-vm-pt-2.0"
RUNS = [
    ("tests/programs/torch_bits.py", "fork", "one", ""),
    ("tests/programs/torch_collectives.py", "", "four", "process 31 7 32 1 8 32"),
]


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    require("gcloud" if dials_port_22() else None, "gcloud, and hosts that listen on port 22")
    environ = {name: value for name, value in os.environ.items() if not name.startswith("PODYARD_")} | FOLDER
    made = subprocess.run([*PODYARD, "runtime", "install", "pytorch"], env=environ, capture_output=True, text=True)
    assert made.returncode == 0, made.stderr
    with open_stack(tmp_path_factory.mktemp("yard"), FOLDER) as found:
        for node, kind in PODS.items():
            create_node(found, node, kind, ZONE, version=VERSION)
        yield found


@pytest.fixture(scope="module")
def terminal(stack: Stack, tmp_path_factory: pytest.TempPathFactory) -> Terminal:
    return Terminal(stack, tmp_path_factory.mktemp("home"))


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


def test_training_is_saved_on_the_notice_of_a_preemption_and_goes_on_on_the_next_node(
    stack: Stack, terminal: Terminal, tmp_path: Path
) -> None:
    program = ROOT / "examples/programs/torch_xla_resume.py"
    kept = tmp_path / "kept.pt"
    create_node(stack, "spot", "v3-8", ZONE, version=VERSION, schedulingConfig={"preemptible": True})
    assert terminal.run(f"{TPU_VM} scp {program} spot: --zone {ZONE}").returncode == 0
    running = terminal.start(f"{TPU_VM} ssh spot --zone {ZONE} --command='python torch_xla_resume.py kept.pt 100000'")
    assert running.stdout is not None
    for line in running.stdout:
        if line.startswith("step 5 "):
            break
    fault = {"effect": "preempt", "match": {"resource": "*spot*"}, "notice": "60s", "count": 1}
    stack.call("POST", "/podyard/v1/faults", fault)
    saved = next(line for line in running.stdout if line.startswith("saved at step "))
    end(running)  # ssh's exit code after a signal is 255: gcloud takes it for a lost connection, and starts again
    step = int(saved.split()[-1])
    fetched = terminal.run(f"{TPU_VM} scp spot:kept.pt {kept} --zone {ZONE}")
    assert fetched.returncode == 0, fetched.stderr
    for source in (kept, program):
        assert terminal.run(f"{TPU_VM} scp {source} one: --zone {ZONE}").returncode == 0
    command = f"python torch_xla_resume.py kept.pt {step + 200}"
    again = terminal.run(f"{TPU_VM} ssh one --zone {ZONE} --command='{command}'")
    lines = again.stdout.splitlines()
    assert int(lines[0].removeprefix("starts at step ")) >= step, again.stderr
    assert lines[-1].startswith(f"trained {step + 200} steps"), again.stderr
