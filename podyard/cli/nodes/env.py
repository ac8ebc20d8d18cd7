"""`podyard env|run`: how clients find a running Podyard."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import shlex
import sqlite3
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import click
from click.core import ParameterSource

from podyard.base.clock import OsClock
from podyard.base.errors import PodyardError
from podyard.base.files import read_json
from podyard.cli.kit.client import (
    LOCATION_DEFAULT,
    PROJECT_DEFAULT,
    Client,
    Target,
    find,
    read_token,
)
from podyard.cli.kit.options import FULL_ATTENTION, data_option, mfu_option, settings_of
from podyard.cli.kit.output import say
from podyard.cli.nodes import ssh_setup
from podyard.cli.nodes.gcloud import folder
from podyard.cli.nodes.tpu_hosts import SSH_PORT_VARIABLE
from podyard.http import client_variables
from podyard.http.gcloud_authority import PROXY_FILE, authority, roots_path
from podyard.settings import Settings

if TYPE_CHECKING:
    from podyard.cli.programs.program_environment import ProgramOptions

FILE = click.Path(dir_okay=False, path_type=Path)
CA_VARIABLE = "CLOUDSDK_CORE_CUSTOM_CA_CERTS_FILE"
PROXY_VARIABLES = ("CLOUDSDK_PROXY_TYPE", "CLOUDSDK_PROXY_ADDRESS", "CLOUDSDK_PROXY_PORT")
_WHOAMI_SECONDS_MAX = 2.0  # exports are of use while Podyard is busy, too
_NEVER_OLD_SECONDS = 2**32  # 2106: seconds since the epoch that every file system can keep


def _token_count(ctx: click.Context, param: click.Parameter, value: str | None) -> int | None:
    """A whole number, also as `1e12`."""
    if value is None:
        return None
    from podyard.engine.plan.tokens import read_count

    try:
        return read_count(value)
    except ValueError as error:
        raise click.BadParameter(str(error), ctx, param) from None


@click.command()
@data_option
@click.option("--unset", is_flag=True, help="Print `unset` lines instead of exports.")
@click.option(
    "-o",
    "--output",
    type=click.Choice(("sh", "json")),
    default="sh",
    show_default=True,
    help="Output format.",
)
@click.option("--project", metavar="PROJECT", help="Default project to export.")
@click.option("--zone", "location", metavar="ZONE", help="Default zone to export.")
@click.option(
    "--session",
    is_flag=True,
    help="Also redirect Google's hosts, as `podyard run` does, while this Podyard runs.",
)
@click.option("--end", is_flag=True, help="With --session: stop it and delete its files.")
def env(
    data: str | None,
    unset: bool,
    output: str,
    project: str | None,
    location: str | None,
    session: bool,
    end: bool,
) -> int:
    """Print exports that make gcloud, Google's libraries and Terraform use this Podyard."""
    settings = settings_of(data)
    if end:
        return _end_session(settings, session)
    if unset:
        names = dict.fromkeys(
            (
                *exports(_nobody(), settings),
                "CLOUDSDK_AUTH_AUTH_HOST",
                "CLOUDSDK_CORE_ACCOUNT",
                "OAUTHLIB_INSECURE_TRANSPORT",
                "PODYARD_GRPC_TARGET",
                SSH_PORT_VARIABLE,
            )
        )
        click.echo("\n".join(f"unset {name}" for name in names))
        return 0
    target = _target(settings, data, project, location)
    variables = _variables_of(target, settings, project, location)
    for line in ssh_setup.notes(settings):
        say(line)
    if CA_VARIABLE not in variables:
        say(
            f"podyard env: {variables['PODYARD_URL']} does not run on {settings.data}: gcloud "
            "commands of other services "
            "go to Google with your token; `podyard run -- gcloud ...` keeps them here"
        )
    if session:
        variables = _session_variables(target, settings, variables)
    if output == "json":
        click.echo(json.dumps(variables, indent=2))
    else:
        click.echo(
            "\n".join(f"export {name}={shlex.quote(value)}" for name, value in variables.items())
        )
    return 0


def _session_variables(
    target: Target, settings: Settings, variables: Mapping[str, str]
) -> dict[str, str]:
    """The exports with those of a session, which is started unless it runs."""
    from podyard.cli.redirect import redirect, session

    before = {**os.environ, **variables}
    environ = without_proxy(before, settings)
    redirected = session.start(
        target, settings.data, environ, _grpc_address(target, settings),
        storage_url(target, settings),
    )  # fmt: skip
    # gcloud's own proxy would refuse the hosts that are not Google's.
    own = without_proxy(variables, settings)
    return own | {name: redirected[name] for name in (*redirect.VARIABLES, "GOOGLE_CLOUD_PROJECT")}


def _end_session(settings: Settings, is_session: bool) -> int:
    from podyard.cli.redirect import redirect, session

    if not is_session:
        raise click.UsageError("--end can only be used with --session")
    was_there = session.end(settings.data)
    say("the session has ended" if was_there else "there is no session")
    click.echo("\n".join(f"unset {name}" for name in redirect.VARIABLES))
    return 0


# Options end where the command begins: `podyard run gcloud ... --zone Z` is gcloud's.
@click.command(
    name="run", context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False}
)
@data_option
@click.option(
    "--pass-google", is_flag=True, help="Forward calls of Google's other APIs to Google, unchanged."
)
@click.option(
    "--tpu",
    "accelerator_type",
    metavar="TYPE",
    help="Show COMMAND the devices of a slice, such as v3-8.",
)
@click.option(
    "--runtime", metavar="VERSION", help="Runtime version whose software COMMAND runs with."
)
@click.option(
    "--workers", type=click.IntRange(1), help="Processes to start [default: one for each host]."
)
@click.option(
    "--slices",
    type=click.IntRange(1, 64),
    default=1,
    show_default=True,
    help="Slices of a multislice.",
)
@click.option(
    "--numerics",
    type=click.Choice(["mxu", "f32"]),
    default="mxu",
    show_default=True,
    help="Numerics of products.",
)
@click.option(
    "--strict",
    is_flag=True,
    help="Raise RESOURCE_EXHAUSTED for a module that does not fit; with several types or --tokens, "
    "exit with 4 if the program fits on no type.",
)
@click.option(
    "--lenient", is_flag=True, help="Go on with a warning where a TPU rejects the program."
)
@click.option(
    "--compiler",
    type=click.Choice(["podyard", "xla-tpu"]),
    default="podyard",
    show_default=True,
    help="Compiler to estimate with.",
)
@click.option(
    "--batch", type=click.IntRange(1), help="Examples (or tokens) of a step, for the rate."
)
@click.option(
    "--zone",
    envvar=["PODYARD_LOCATION", "CLOUDSDK_COMPUTE_ZONE"],
    help="Zone of the price [default: one that sells it].",
)
@click.option(
    "--tokens",
    callback=_token_count,
    metavar="COUNT",
    help="Tokens of a whole run, such as 1e12, for its hours and cost (with --dry-run).",
)
@click.option(
    "--tokens-per-step",
    type=click.IntRange(1),
    help="Tokens of a step [default: from its integer arguments].",
)
@click.option("--dry-run", is_flag=True, help="Compute nothing: end after --steps training steps.")
@click.option(
    "--steps", type=click.IntRange(1), default=3, show_default=True, help="Steps of a dry run."
)
@click.option(
    "--step",
    metavar="NAME",
    help="Jitted function that is the training step [default: found by its calls].",
)
@mfu_option
@click.option("--report", type=FILE, help="Write the report to FILE as JSON.")
@click.option("--trace", type=FILE, help="Write a Perfetto trace of the training step to FILE.")
@click.argument("command", nargs=-1, type=click.UNPROCESSED, required=True)
def run_command(  # noqa: PLR0913
    data: str | None,
    pass_google: bool,
    accelerator_type: str | None,
    runtime: str | None,
    workers: int | None,
    slices: int,
    numerics: str,
    strict: bool,
    lenient: bool,
    compiler: str,
    batch: int | None,
    zone: str | None,
    tokens: int | None,
    tokens_per_step: int | None,
    dry_run: bool,
    steps: int,
    step: str | None,
    mfu: str,
    report: Path | None,
    trace: Path | None,
    command: tuple[str, ...],
) -> int:
    """Run COMMAND with the exports of `podyard env`, and with Google's TPU API redirected to this
    Podyard.

    With --tpu, COMMAND runs as on the hosts of a TPU slice instead, and needs no running Podyard.
    JAX shows the slice's devices, and products have the numerics of its matrix unit. At the end
    Podyard prints how long each module would take on the slice, whether it fits, and what it costs.
    """
    if accelerator_type is None:
        return _run_with_exports(command, data, pass_google)
    from podyard.cli.programs.program_environment import ProgramOptions
    from podyard.cli.programs.run_report.prices import zone_of
    from podyard.hardware.accelerator_types import parse

    kinds = [parse(name) for name in accelerator_type.split(",")]
    zones = [zone_of(kind, zone) for kind in kinds]
    options = ProgramOptions(
        kind=kinds[0],
        zone=zones[0],
        workers=workers,
        numerics=numerics,
        strict=strict,
        lenient=lenient,
        compiler=compiler,
        batch=batch,
        report=report,
        trace=trace,
        dry_run_steps=steps * dry_run,
        step_name=step,
        slices=slices,
        software=None if runtime is None else _software(runtime),
        has_full_attention=mfu == FULL_ATTENTION,
        tokens=tokens,
        tokens_per_step=tokens_per_step,
    )
    pairs = zip(kinds, zones, strict=True)
    several = [dataclasses.replace(options, kind=kind, zone=own) for kind, own in pairs]
    return _run_on_slices(command, several)


def _run_on_slices(command: Sequence[str], several: Sequence[ProgramOptions]) -> int:
    """Run a command on one type of slice, or dry on several. Raises a usage error for several types
    or --tokens without --dry-run."""
    from podyard.cli.programs.run_program import run_on_types, run_program
    from podyard.cli.redirect import redirect

    first = several[0]
    if first.tokens_per_step is not None and first.tokens is None:
        raise click.UsageError("--tokens-per-step can only be used with --tokens")
    if first.tokens is not None and not first.dry_run_steps:
        raise click.UsageError("--tokens can only be used with --dry-run")
    if len(several) == 1 and first.tokens is None:
        return redirect.end_like(run_program(command, several[0]))
    if not first.dry_run_steps:
        raise click.UsageError("--tpu with several types can only be used with --dry-run")
    return redirect.end_like(run_on_types(command, several))


def _run_with_exports(command: Sequence[str], data: str | None, pass_google: bool) -> int:
    """Run a command against the running Podyard. Raises a usage error for options of --tpu."""
    from podyard.cli.redirect import redirect

    context = click.get_current_context()
    for name in context.params:
        is_given = context.get_parameter_source(name) is ParameterSource.COMMANDLINE
        if is_given and name not in ("data", "pass_google", "command"):
            raise click.UsageError(f"--{name.replace('_', '-')} can only be used with --tpu")
    settings = settings_of(data)
    target = _target(settings, data, None, None)
    variables = _variables_of(target, settings)
    environ = without_proxy({**os.environ, **variables}, settings)
    grpc = _grpc_address(target, settings)
    storage = storage_url(target, settings)
    with redirect.redirect(
        target, environ, grpc, pass_google=pass_google, storage_url=storage
    ) as environment:
        code = redirect.run(command, environment)
    return redirect.end_like(code)


def _software(version: str) -> Path:
    """The environment of a runtime version, which is made if there is none; says if it is another
    release's."""
    from podyard.cli.nodes import runtimes

    choice, path = runtimes.make(version)
    if choice.why:
        say(f"podyard run: {choice.sentence()}")
    return path


def without_proxy(environ: Mapping[str, str], settings: Settings) -> dict[str, str]:
    """`environ` without gcloud's settings of our proxy: `podyard run` has its own proxy and
    authority."""
    if environ.get(CA_VARIABLE) != str(roots_path(settings.data)):
        return dict(environ)
    return {
        name: value
        for name, value in environ.items()
        if name not in (*PROXY_VARIABLES, CA_VARIABLE)
    }


def exports(target: Target, settings: Settings) -> dict[str, str]:
    """The variables, by client: ours, gcloud's, Terraform's, cloud-tpu-client's."""
    grpc = _grpc_address(target, settings)
    return {
        **client_variables.own_variables(target.url, target.token, target.project, target.location),
        **client_variables.gcloud_variables(
            target.url, str(settings.token_path), target.project, target.location
        ),
        "CLOUDSDK_CONFIG": str(settings.data / "gcloud"),
        **_proxy(target, settings),
        **client_variables.library_variables(target.url, target.token, target.project),
        **_storage(target, settings),
        **({} if grpc is None else {"PODYARD_GRPC_TARGET": f"{grpc[0]}:{grpc[1]}"}),
        **_ssh_port(settings),
    }


def _variables_of(
    target: Target, settings: Settings, project: str | None = None, location: str | None = None
) -> dict[str, str]:
    """Return the variables, with the caller's account in gcloud's folder where this data folder's
    Podyard runs. A project, zone or token that the user names stays a variable."""
    variables = exports(target, settings)
    if CA_VARIABLE not in variables:
        return variables
    try:
        with contextlib.closing(Client(target, timeout_seconds=_WHOAMI_SECONDS_MAX)) as client:
            email = str(client.call("GET", "/podyard/v1/whoami").get("email"))
        account = folder.GcloudAccount(email, target.token, target.project, target.location)
        folder.sign_in(settings.data / "gcloud", account)
        own = read_token(settings.token_path)
    except (PodyardError, OSError, sqlite3.Error) as error:
        say(f"gcloud has no account, and uses the token alone: {error}")
        return variables
    named = {
        "CLOUDSDK_CORE_ACCOUNT": email if target.token != own else "",
        "CLOUDSDK_CORE_PROJECT": project or _unless(target.project, PROJECT_DEFAULT),
        "CLOUDSDK_COMPUTE_ZONE": location or _unless(target.location, LOCATION_DEFAULT),
    }
    return folder.with_account(
        variables, target.url, {n: value for n, value in named.items() if value}
    )


def _unless(name: str, default: str) -> str:
    return "" if name == default else name


def _ssh_port(settings: Settings) -> dict[str, str]:
    """Return where hosts answer at their external addresses, with `podyard connect`: the server's
    own addresses of hosts are for machines of its network."""
    port = read_json(settings.state_path).get("sshPort")
    return {} if port is None else {SSH_PORT_VARIABLE: str(port)}


def _storage(target: Target, settings: Settings) -> dict[str, str]:
    """Return where gcloud, google-cloud-storage and gcsfs find objects. The libraries send no token
    to what they take for an emulator: it is in the path."""
    url = storage_url(target, settings) or target.url
    return {
        "CLOUDSDK_API_ENDPOINT_OVERRIDES_STORAGE": f"{url}/storage/v1/",
        "STORAGE_EMULATOR_HOST": f"{url}/_t/{target.token}",
        "TENSORSTORE_GCS_HTTP_URL": f"{url}/_t/{target.token}",  # orbax
        "GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT": "false",
    }


def storage_url(target: Target, settings: Settings) -> str | None:
    """Of the Podyard on this data folder; None when the target is another."""
    port = read_json(settings.state_path).get("ports", {}).get("storage")
    if not isinstance(port, int) or not _is_here(target, settings):
        return None
    parts = urlsplit(target.url)
    return f"{parts.scheme}://{parts.netloc.removesuffix(f':{parts.port}')}:{port}"


def _proxy(target: Target, settings: Settings) -> dict[str, str]:
    """gcloud's own settings of a proxy: that of the Podyard on this data folder, which lets nothing
    out."""
    if target.url and not _is_here(target, settings):
        return {}
    port = read_json(settings.data / PROXY_FILE).get("port", 0)
    if target.url:
        # else the roots are those of the yard over there
        if not read_json(settings.state_path).get("connectedTo"):
            authority(settings.data, OsClock())
        _tell_gcloud_where_it_is(settings.data / "gcloud")
    return {
        "CLOUDSDK_PROXY_TYPE": "http",
        "CLOUDSDK_PROXY_ADDRESS": "127.0.0.1",
        "CLOUDSDK_PROXY_PORT": str(port),
        CA_VARIABLE: str(roots_path(settings.data)),
    }


def _tell_gcloud_where_it_is(folder: Path) -> None:
    """Every ten minutes gcloud asks metadata.google.internal, past its proxy, whether it runs at
    Google. No setting prevents that, but gcloud keeps the answer in a file: ours says no, and never
    gets old (googlecloudsdk/core/credentials/gce_cache.py)."""
    path = folder / "gce"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if not path.exists() or path.read_text(encoding="ascii", errors="replace") != "False":
        path.write_text("False", encoding="ascii")
    os.utime(path, (_NEVER_OLD_SECONDS, _NEVER_OLD_SECONDS))


def _is_here(target: Target, settings: Settings) -> bool:
    return bool(read_json(settings.state_path).get("url") == target.url)


def _grpc_address(target: Target, settings: Settings) -> tuple[str, int] | None:
    """Return where the gRPC front of the Podyard on this data folder listens; None when the target
    is another, or has none."""
    state = read_json(settings.state_path)
    port = state.get("grpcPort")
    if not isinstance(port, int) or not _is_here(target, settings):
        return None
    return urlsplit(target.url).hostname or "127.0.0.1", port


def _target(
    settings: Settings, data: str | None, project: str | None, location: str | None
) -> Target:
    if data is not None:
        for name in ("PODYARD_URL", "PODYARD_TOKEN"):
            os.environ.pop(name, None)
    return find(settings, project, location)


def _nobody() -> Target:
    return Target("", "", PROJECT_DEFAULT, LOCATION_DEFAULT)


COMMANDS = {"env": env, "run": run_command}
