"""Clients that need environments: one stack of real processes, and `podyard run` for each program.

`make real FILES=tests/clients` installs the environments. Nothing here is collected unless this
folder is asked for by name."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.clients.client import Client
from tests.clients.outside import Outside
from tests.stack import Stack, open_stack

HERE = Path(__file__).parent
FLEET = HERE / "fleet.yaml"


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    asked = (
        Path(config.invocation_params.dir, argument.split("::")[0]).resolve()
        for argument in config.args
    )
    return None if any(path == HERE or HERE in path.parents for path in asked) else True


@pytest.fixture(scope="session")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    with open_stack(tmp_path_factory.mktemp("clients"), {"PODYARD_FLEET": str(FLEET)}) as found:
        yield found


@pytest.fixture(scope="session")
def outside() -> Iterator[Outside]:
    """All that is not Podyard, for all programs."""
    with Outside() as found:
        yield found


@pytest.fixture
def client(
    request: pytest.FixtureRequest, stack: Stack, outside: Outside, tmp_path: Path
) -> Iterator[Callable[..., object]]:
    """`client(case, *arguments)` runs a case of the module's `PROGRAM` in its `ENVIRONMENT`, and
    gives its answer."""
    module = request.module
    runner = Client(
        module.ENVIRONMENT, HERE / "programs" / module.PROGRAM, stack, outside, tmp_path
    )
    yield runner.run
    assert not outside.refused, "a request left the machine"
