"""One stack of real processes for all clients."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.stack import Stack, open_stack


@pytest.fixture(scope="session")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    with open_stack(tmp_path_factory.mktemp("contract")) as found:
        yield found
