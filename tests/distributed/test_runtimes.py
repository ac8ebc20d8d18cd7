"""Hosts with the software of their runtime version: environments that pip makes from wheels of
these tests."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from podyard.hardware.software import SOFTWARE
from podyard.programs import environments
from tests.stack import PODYARD, Stack, open_stack, until
from tests.wheels import write_wheels

ZONE = "us-central1-a"
TENSORFLOW, OTHER = (
    item for item in SOFTWARE if item.name in ("tensorflow-2.15.1", "tensorflow-2.16.1")
)
pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("stack")]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, boxes: str) -> Path:
    """Of the environments."""
    return tmp_path_factory.mktemp("runtimes")


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory, boxes: str, folder: Path) -> Iterator[Stack]:
    pip = write_wheels(tmp_path_factory.mktemp("wheels"), TENSORFLOW.lock_lines())
    settings = {**pip, "PODYARD_BOXES": boxes, environments.FOLDER_VARIABLE: str(folder)}
    with open_stack(tmp_path_factory.mktemp("yard"), settings) as found:
        yield found


def _tpu(stack: Stack, *arguments: str) -> subprocess.CompletedProcess[str]:
    env = {name: value for name, value in os.environ.items() if not name.startswith("PODYARD_")}
    command = [
        *PODYARD,
        "tpu",
        arguments[0],
        "--data",
        str(stack.data),
        "--zone",
        ZONE,
        *arguments[1:],
    ]
    return subprocess.run(
        command, env=env, capture_output=True, text=True, timeout=180, stdin=subprocess.DEVNULL
    )


def _hosts(stack: Stack, node: str) -> list[dict[str, Any]]:
    path = f"/podyard/v1/projects/demo/locations/{ZONE}/nodes/{node}/hosts"
    found: list[dict[str, Any]] = stack.call("GET", path)["hosts"]
    return found


def test_hosts_of_a_version_have_its_packages_and_wait_for_them(
    stack: Stack, boxes: str, folder: Path
) -> None:
    stack.create_node("old", "v2-32", ZONE, runtimeVersion="tpu-vm-tf-2.8.0-pod")
    done = _tpu(
        stack,
        "exec",
        "old",
        "--worker",
        "all",
        "--",
        "python -c 'import keras; print(keras.__version__)'",
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["2.15.0"] * 4
    assert "podyard tpu: TensorFlow 2.15.1: making an environment" in done.stderr
    assert [path.name for path in folder.iterdir() if path.is_dir()] == [
        environments.path_of(TENSORFLOW, folder).name
    ]
    said = {host["software"] for host in _hosts(stack, "old")}
    why = f"no environment of TensorFlow 2.8.0 for Python 3.{sys.version_info.minor}"
    assert said == {f"tpu-vm-tf-2.8.0-pod: TensorFlow 2.15.1 here ({why})"}

    found = _tpu(stack, "exec", "old", "--", "env; readlink -f $(which python)").stdout
    assert (str(stack.data) in found) == (boxes == "off")  # a box knows no path of the machine's
    assert f"\nPATH={environments.path_of(TENSORFLOW, folder)}/bin:" in f"\n{found}"

    changed = "touch $VIRTUAL_ENV/mine && ls $VIRTUAL_ENV"
    assert "mine" in _tpu(stack, "exec", "old", "--worker", "0", "--", changed).stdout.split()
    others = _tpu(stack, "exec", "old", "--worker", "1", "--", "ls $VIRTUAL_ENV").stdout.split()
    assert ("mine" in others) == (boxes == "off")  # in a box, what a host changes is for itself
    stack.delete_node("old", ZONE)


def test_without_the_packages_a_host_has_podyard_s_python_and_says_why(stack: Stack) -> None:
    stack.create_node("new", "v2-8", ZONE, runtimeVersion="tpu-vm-tf-2.16.1-pjrt")
    done = _tpu(stack, "exec", "new", "--", "python -c 'import sys; print(sys.prefix)'")
    assert (done.returncode, done.stdout) == (0, f"{sys.prefix}\n"), done.stderr
    (host,) = _hosts(stack, "new")
    assert host["software"].startswith(
        "tpu-vm-tf-2.16.1-pjrt: the Python of Podyard here (TensorFlow 2.16.1 cannot be installed: "
    )
    assert "No matching distribution found for" in host["software"]
    stack.delete_node("new", ZONE)


def test_a_node_that_goes_while_its_hosts_wait_does_not_wait(stack: Stack, folder: Path) -> None:
    path = environments.path_of(TENSORFLOW, folder)
    (path / "podyard.made").unlink(missing_ok=True)
    with environments.lock_path(path).open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # as if another process made it
        stack.create_node(
            "short",
            "v2-8",
            ZONE,
            runtimeVersion="tpu-vm-tf-2.8.0",
            metadata={"startup-script": "true"},
        )
        until(
            lambda: "another process" in _hosts(stack, "short")[0]["software"] or None,
            30,
            "the host to wait",
        )
        home = stack.data / "agents" / "local" / "hosts" / _hosts(stack, "short")[0]["host"]
        assert home.is_dir()
        stack.delete_node("short", ZONE)
        until(lambda: not home.exists() or None, 20, "the end of its host")
