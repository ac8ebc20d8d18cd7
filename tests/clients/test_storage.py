"""Google's library for Cloud Storage, gcsfs, orbax, TensorBoard and TensorFlow on gs://, as they
are documented."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.clients.client import Client
from tests.clients.outside import Outside
from tests.stack import PODYARD, Stack

PROGRAMS = Path(__file__).parent / "programs"
pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("clients")]


@pytest.mark.parametrize(
    ("environment", "program", "cases"),
    [
        ("storage", "storage_samples.py", 14),
        ("storage", "storage_gcsfs.py", 6),
        ("storage", "storage_orbax.py", 2),
        ("storage", "storage_fsspec.py", 137),
        ("tf", "storage_tensorflow.py", 6),
    ],
)
def test_a_client_works_as_documented(
    stack: Stack, outside: Outside, tmp_path: Path, environment: str, program: str, cases: int
) -> None:
    name = program.removesuffix(".py").replace("_", "-")
    subprocess.run(
        [*PODYARD, "storage", "mb", f"gs://{name}", "--data", str(stack.data)], check=True
    )
    results = Client(environment, PROGRAMS / program, stack, outside, tmp_path).run(name)
    print(
        f"{program}: {sum(result == 'ok' for result in results.values())} of {len(results)} cases"
    )
    assert results == dict.fromkeys(results, "ok")
    assert len(results) == cases
    assert not outside.refused, "a request left the machine"
