"""No gcloud command sends anything outside with the exports of `podyard env`."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.contract import leaks

pytestmark = [
    pytest.mark.real,
    pytest.mark.slow,
    pytest.mark.xdist_group("contract"),
    pytest.mark.skipif(shutil.which("gcloud") is None, reason="gcloud is not installed"),
    pytest.mark.skipif(
        os.geteuid() != 0 or shutil.which("ip") is None, reason="needs root and iproute2"
    ),
]
COMMANDS_TRIED = 4


@pytest.fixture
def namespaces() -> Iterator[contextlib.ExitStack]:
    with contextlib.ExitStack() as found:
        yield found


def test_commands_of_other_services_are_refused_here_and_nothing_leaves(
    tmp_path: Path, namespaces: contextlib.ExitStack
) -> None:
    try:
        namespace = namespaces.enter_context(leaks.watched())
    except subprocess.CalledProcessError as error:
        pytest.skip(f"network namespaces cannot be made here: {error.stderr}")
    stack = leaks.WatchedStack(tmp_path, namespace.name)
    try:
        stack.up()
        for command in leaks.COMMANDS[:COMMANDS_TRIED]:
            done = stack.gcloud(command)
            assert done.returncode == 1, done.stdout
            (said,) = done.stderr.splitlines()
            assert said.startswith("ERROR: (gcloud."), said
            assert leaks.REFUSED in said
        done = stack.podyard("calls", "--unserved", "-o", "json")
        calls = {
            (call["method"], call["host"], call["path"]): call["calls"]
            for call in json.loads(done.stdout)
        }
        assert calls["GET", "pubsub.googleapis.com", "/v1/projects/demo/topics"] == 1
        assert len(calls) == COMMANDS_TRIED
        for command in leaks.SERVED:
            done = stack.gcloud(command)
            assert done.returncode == 0, done.stderr
        assert done.stdout == Path("/etc/hostname").read_text()
        # What is served goes the same way, and the API may be killed: the exports outlive it.
        before = stack.podyard("env").stdout
        leaks.run("kill", "-9", str(stack.pid("api")))
        done = stack.run(
            "sh", "-c", f"{before}\nsleep 3; gcloud compute tpus tpu-vm list --zone us-central1-f"
        )
        assert (done.returncode, done.stdout) == (0, ""), done.stderr
        assert (namespace.sent_bytes(), namespace.heard) == (0, [])
        # The listener does hear what leaves.
        stack.run("curl", "-s", "-m", "3", "https://pubsub.googleapis.com/")
        assert namespace.sent_bytes() > 0
        assert "name pubsub.googleapis.com" in namespace.heard
    finally:
        stack.down()
        stack.http.close()
