"""One stack of real processes for all clients, and one world that others are copies of."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.contract.world import World
from tests.gcloud import Terminal
from tests.stack import Stack, open_stack
from tests.yard import open_yard


@pytest.fixture(scope="session")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    with open_stack(tmp_path_factory.mktemp("contract")) as found:
        yield found


@pytest.fixture
def terminal(stack: Stack, tmp_path: Path) -> Terminal:
    return Terminal(stack, tmp_path)


@pytest.fixture(scope="session")
def prepared_world(tmp_path_factory: pytest.TempPathFactory) -> World:
    """A world that is in its folder only: for `open_copy`."""
    with open_yard(tmp_path_factory.mktemp("prepared")) as yard:
        return World(yard)
