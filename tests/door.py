"""A Podyard with a door, and a machine that reaches nothing else of it."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.namespaces import Neighbour, neighbour
from tests.stack import PODYARD, Stack
from tests.waiting import patient


class DoorStack(Stack):
    """`options`: those of `podyard up` about the door."""

    options: tuple[str, ...] = ()

    def up_options(self) -> list[str]:
        return [*super().up_options(), "--storage-port", "0", "--public-port", "0", *self.options]

    def admin(self, command: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [*PODYARD, "admin", command, "--data", str(self.data), *arguments],
            capture_output=True,
            text=True,
            timeout=patient(60),
        )
        assert done.returncode == 0, done.stderr
        return done


@contextlib.contextmanager
def door_and_neighbour(data: Path) -> Iterator[tuple[DoorStack, Neighbour]]:
    """A stack whose door listens on the link to the neighbour."""
    if os.geteuid() != 0 or sys.platform != "linux":
        pytest.skip("network namespaces need root on Linux")
    with neighbour() as other:
        stack = DoorStack(data)
        stack.options = ("--bind", other.gateway, "--tls")
        try:
            stack.up()
            yield stack, other
        finally:
            stack.down()
            stack.http.close()
