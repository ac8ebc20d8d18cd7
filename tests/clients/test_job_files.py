"""The fields of job files against SkyPilot's own schemas, of the wheel: none may be unknown
here."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from podyard.domain import job_file

CODE = """
import json
from sky.utils import schemas
print(json.dumps([
    sorted(schemas.get_task_schema()["properties"]),
    sorted(schemas.get_resources_schema()["properties"]),
    sorted(schemas.get_resources_schema()["properties"]["accelerator_args"]["properties"]),
]))
"""
PYTHON = Path(__file__).parents[2] / ".venv-clients" / "sky" / "bin" / "python"
pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("clients")]


def test_each_field_of_skypilots_schemas_is_read_passed_over_or_refused_by_name() -> None:
    done = subprocess.run([PYTHON, "-c", CODE], capture_output=True, text=True, check=True)
    task, resources, arguments = (set(names) for names in json.loads(done.stdout.splitlines()[-1]))
    ours = [
        (task, {*job_file.TASK_READ, *job_file.TASK_IGNORED, *job_file.TASK_REFUSED}),
        (
            resources,
            {*job_file.RESOURCES_READ, *job_file.RESOURCES_IGNORED, *job_file.RESOURCES_REFUSED},
        ),
        (arguments, set(job_file.ACCELERATOR_ARGS)),
    ]
    for theirs, known in ours:
        assert theirs == known, (theirs - known, known - theirs)
