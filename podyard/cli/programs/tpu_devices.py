"""`podyard tpu devices`: whether a Python's JAX shows the devices of a slice. Needs no running
Podyard."""

from __future__ import annotations

import json
import subprocess
import sys

import click

from podyard.base.errors import failed_precondition
from podyard.cli.kit import output, tables

SECONDS_MAX = 120.0


@click.command()
@click.option(
    "--accelerator-type", default="v3-8", show_default=True, help="Accelerator type with one host."
)
@click.option(
    "--python",
    default=sys.executable,
    metavar="PATH",
    help="Python to test [default: Podyard's own].",
)
def devices(accelerator_type: str, python: str) -> int:
    """Test that programs see TPU devices: devices, sums, numerics, memory. Exit code 1 if a part
    fails."""
    from podyard.cli.programs.program_environment import ProgramOptions, environments_of
    from podyard.hardware.accelerator_types import parse
    from podyard.programs import self_test

    kind = parse(accelerator_type)
    (environ,) = environments_of((), ProgramOptions(kind, "", workers=1), None)
    try:
        done = subprocess.run(
            [python, self_test.__file__],
            env=environ,
            capture_output=True,
            text=True,
            timeout=SECONDS_MAX,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise failed_precondition(f"{python} cannot be tested: {error}") from error
    parts = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    rows = [(part["part"], "ok" if part["ok"] else "FAILED", part["found"]) for part in parts]
    if not rows:
        raise failed_precondition(
            f"{python} did not run the test: "
            f"{(done.stderr or 'it printed nothing').splitlines()[-1]}"
        )
    click.echo(tables.table(("PART", "STATE", "FOUND"), rows))
    for line in done.stderr.splitlines():
        if line.startswith("podyard: "):
            output.say(line)
    return 0 if done.returncode == 0 and all(part["ok"] for part in parts) else 1
