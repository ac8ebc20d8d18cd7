"""The examples of docs/howto/clients.md, as they stand there: each prints what its last comment
says."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.clients.client import Client
from tests.clients.outside import Outside
from tests.stack import Stack

PAGE = Path(__file__).parents[2] / "docs" / "howto" / "clients.md"
ZONE = "us-central1-f"
ENVIRONMENTS = {"SkyPilot": "sky", "Ray": "ray", "TensorFlow": "tf", "cloud-tpu-client": "tf"}
EXAMPLES = dict(
    re.findall(r"^## (.+?)\n.*?^```python\n(.+?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
)
pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("clients")]


@pytest.fixture(scope="module")
def node(stack: Stack) -> Iterator[None]:
    """The node that the page says is there."""
    stack.create_node("mine", "v2-8", ZONE)
    yield
    stack.delete_node("mine", ZONE)


def test_each_client_has_an_example() -> None:
    assert EXAMPLES.keys() == ENVIRONMENTS.keys()


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_prints_what_it_says(
    name: str, node: None, stack: Stack, outside: Outside, tmp_path: Path
) -> None:
    program = tmp_path / "example.py"
    program.write_text(EXAMPLES[name])
    client = Client(ENVIRONMENTS[name], program, stack, outside, tmp_path)
    expected = EXAMPLES[name].rstrip().rpartition("  # ")[2]
    assert client.printed().splitlines()[-1].startswith(expected)
    assert not outside.refused
