"""`podyard hardware|auth`."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

import click

from podyard.cli.kit.command_names.groups import CommandGroup
from podyard.cli.kit.listing import Item, lists
from podyard.cli.kit.options import client_of, output_option, target_options
from podyard.cli.kit.output import emit
from podyard.cli.tools.keys import api_key, key
from podyard.cli.tools.tokens import accept, invitation, token
from podyard.engine.report.edge_tpu import NAME, is_edge_tpu
from podyard.hardware import accelerator_types, runtime_versions
from podyard.hardware.generations import GENERATIONS
from podyard.hardware.published_devices import published_device


@click.group(cls=CommandGroup, default="list")
def hardware() -> None:
    """Show TPU generations and accelerator types."""


@hardware.command(name="list")
@click.option("--generation", help="Only this generation, for example v4.")
@lists(
    {
        name.upper(): name
        for name in ("type", "generation", "topology", "chips", "cores", "hosts", "torus")
    }
)
def list_types(generation: str | None) -> Iterable[Item]:
    """List accelerator types."""
    if generation is not None and generation not in GENERATIONS:
        raise click.UsageError(f"unknown generation {generation!r}: use {', '.join(GENERATIONS)}")
    return [
        {
            "type": kind.name,
            "generation": kind.generation.name,
            "topology": kind.topology.text,
            "chips": kind.chip_count,
            "cores": kind.core_count,
            "hosts": kind.host_count,
            "torus": "".join("T" if wrap else "-" for wrap in kind.topology.wrap),
            "source": kind.source,
        }
        for kind in accelerator_types.all_types(generation)
    ]


@hardware.command()
@click.argument("name")
@output_option
def show(name: str, output: str) -> None:
    """Show a generation (v4), an accelerator type (v4-128) or edgetpu, with the source of each
    number."""
    found = GENERATIONS.get(name)
    if is_edge_tpu(name):
        from podyard.engine.timing.edge import EDGE_TPU

        data = {
            "name": NAME,
            **_plain(dataclasses.asdict(EDGE_TPU)),
            "note": "It is not a Cloud TPU: no node has one.",
        }
    elif found is not None:
        data = _plain(dataclasses.asdict(found))
        data["runtimeVersions"] = [
            item.version for item in runtime_versions.runtime_versions_of(found)
        ]
    else:
        kind = accelerator_types.parse(name)
        data = _plain(dataclasses.asdict(kind))
        data["generation"] = kind.generation.name
        device = published_device(kind)
        figures = {
            "bf16_teraflops": device.bf16_teraflops,
            "bf16_teraflops_source": device.bf16_teraflops_source,
            "hbm_gib": device.hbm_gib,
            "hbm_gib_source": device.hbm_gib_source,
        }
        data |= {"device": figures}
        data["chips_per_host_bounds"] = kind.chips_per_host_bounds
        data["host_bounds"] = kind.host_bounds
    emit(data, "yaml" if output == "table" else output)


@click.group(cls=CommandGroup)
def auth() -> None:
    """Manage tokens, keys and roles."""


for command in (token, invitation, accept, key, api_key):
    auth.add_command(command)


@auth.command(name="whoami")
@target_options
@output_option
def whoami(data: str | None, project: str | None, location: str | None, output: str) -> None:
    """Show the email of your token and its roles."""
    found = client_of(data, project, location).call("GET", "/podyard/v1/whoami")
    rows = [
        {"email": found["email"], "project": place, "roles": " ".join(r)}
        for place, r in found["roles"].items()
    ]
    emit(
        rows if output == "table" else found,
        output,
        {"EMAIL": "email", "PROJECT": "project", "ROLES": "roles"},
    )


@auth.command(name="print-token")
@target_options
def print_token(data: str | None, project: str | None, location: str | None) -> None:
    """Print the owner's token, for signing in with a browser or for curl."""
    click.echo(client_of(data, project, location).target.token)


def _plain(value: object) -> dict[str, object]:
    """Tuples and mappings as YAML and JSON know them."""
    assert isinstance(value, dict)
    return {str(key): _item(item) for key, item in value.items()}


def _item(value: object) -> object:
    if isinstance(value, dict):
        return _plain(value)
    return [_item(part) for part in value] if isinstance(value, tuple | list) else value


COMMANDS = {"hardware": hardware, "auth": auth}
