"""`podyard storage`: buckets and objects, with gcloud storage's names of commands and options."""

from __future__ import annotations

import contextlib
import os
import sys
from pathlib import Path
from typing import Any
from urllib.parse import quote

import click

from podyard.base.errors import Code, PodyardError
from podyard.cli.kit.client import Client, Target, find
from podyard.cli.kit.command_names.groups import CommandGroup
from podyard.cli.kit.names import matching
from podyard.cli.kit.options import output_option, project_options, settings_of
from podyard.cli.kit.output import emit, say
from podyard.cli.kit.tables import size_text
from podyard.cli.nodes.env import storage_url
from podyard.cli.storage import copy as storage_copy
from podyard.cli.storage.copy import GS, ObjectUrl, object_url

_SUFFIX = "/storage/v1/"
_RECURSIVE = click.option("-r", "-R", "--recursive", is_flag=True, help="Include everything below.")


@click.group(cls=CommandGroup, default="ls")
def storage() -> None:
    """Manage buckets and objects."""


def storage_client(data: str | None, project: str | None) -> Client:
    """Raises UNAVAILABLE where the storage of this Podyard is not known."""
    if data is not None:
        for name in ("PODYARD_URL", "PODYARD_TOKEN", "CLOUDSDK_API_ENDPOINT_OVERRIDES_STORAGE"):
            os.environ.pop(name, None)
    settings = settings_of(data)
    target = find(settings, project)
    url = storage_url(target, settings)
    if url is None:
        url = os.environ.get("CLOUDSDK_API_ENDPOINT_OVERRIDES_STORAGE", "").removesuffix(_SUFFIX)
    if not url:
        text = (
            f"the storage of {target.url} is not known: run `podyard env` where it runs, and "
            "use its exports"
        )
        raise PodyardError(Code.UNAVAILABLE, text)
    return Client(Target(url, target.token, target.project, target.location))


def complete_bucket(
    context: click.Context, _parameter: click.Parameter, incomplete: str
) -> list[str]:
    """Complete gs:// and the name of a bucket. Nothing where no Podyard answers."""
    if not incomplete.startswith(GS):
        return [GS] if GS.startswith(incomplete) else []
    options = context.params
    try:
        client = storage_client(options.get("data"), options.get("project"))
        with contextlib.closing(client):
            items = client.pages("/storage/v1/b", "items", project=client.target.project)
            return [f"{GS}{name}/" for name in matching(items, incomplete.removeprefix(GS))]
    except PodyardError:
        return []


@storage.command("mb")
@click.argument("buckets", nargs=-1, required=True)
@click.option(
    "-l", "--location", metavar="LOCATION", help="Location, for example US or us-central1."
)
@project_options
def make_buckets(
    buckets: tuple[str, ...], location: str | None, data: str | None, project: str | None
) -> None:
    """Create buckets: podyard storage mb gs://NAME."""
    client = storage_client(data, project)
    for text in buckets:
        body = {"name": object_url(text).bucket, **({"location": location} if location else {})}
        client.call("POST", "/storage/v1/b", body, project=client.target.project)
        say(f"Created gs://{body['name']}")


@storage.command("rb")
@click.argument("buckets", nargs=-1, required=True, shell_complete=complete_bucket)
@project_options
def remove_buckets(buckets: tuple[str, ...], data: str | None, project: str | None) -> None:
    """Delete empty buckets."""
    client = storage_client(data, project)
    for text in buckets:
        name = object_url(text).bucket
        client.delete(f"/storage/v1/b/{quote(name, safe='')}")
        say(f"Deleted gs://{name}")


@storage.command("ls")
@click.argument("urls", nargs=-1, shell_complete=complete_bucket)
@_RECURSIVE
@click.option("-l", "--long", "is_long", is_flag=True, help="Show sizes and times.")
@output_option
@project_options
def list_urls(
    urls: tuple[str, ...],
    recursive: bool,
    is_long: bool,
    output: str,
    data: str | None,
    project: str | None,
) -> None:
    """List buckets, or the objects of a bucket."""
    client = storage_client(data, project)
    rows: list[dict[str, Any]] = []
    if not urls:
        found = client.pages("/storage/v1/b", "items", project=client.target.project)
        rows = [{"url": f"{GS}{bucket['name']}/"} for bucket in found]
    for text in urls:
        rows += _rows(client, object_url(text), recursive=recursive)
    if output != "table":
        emit(rows, output)
        return
    for row in rows:
        size = size_text(row["size"]) if "size" in row else ""
        click.echo(
            f"{size:>12}  {row.get('updated', ''):24}  {row['url']}" if is_long else row["url"]
        )


def _rows(client: Client, url: ObjectUrl, *, recursive: bool) -> list[dict[str, Any]]:
    """Objects, and folders unless `recursive`. Raises NOT_FOUND when a name means nothing."""
    if recursive or any(character in url.name for character in "*?["):
        found, prefixes = storage_copy.list_objects(client, url, recursive=recursive), list[str]()
    else:
        found, prefixes = _level(client, url)
        if url.name and not url.name.endswith("/") and f"{url.name}/" in prefixes and not found:
            found, prefixes = _level(client, ObjectUrl(url.bucket, f"{url.name}/"))
        elif url.name and not url.name.endswith("/"):
            found, prefixes = [one for one in found if one["name"] == url.name], []
    if url.name and not found and not prefixes:
        raise PodyardError(Code.NOT_FOUND, f"{url} matches no object")
    rows = [
        {
            "url": str(ObjectUrl(url.bucket, one["name"])),
            "size": int(one["size"]),
            "updated": one["updated"],
        }
        for one in found
    ]
    return rows + [{"url": str(ObjectUrl(url.bucket, prefix))} for prefix in prefixes]


def _level(client: Client, url: ObjectUrl) -> tuple[list[dict[str, Any]], list[str]]:
    found: list[dict[str, Any]] = []
    prefixes: list[str] = []
    token: str | None = None
    while True:
        path = f"/storage/v1/b/{quote(url.bucket, safe='')}/o"
        page = client.call("GET", path, prefix=url.name, delimiter="/", pageToken=token)
        found += page.get("items", ())
        prefixes += page.get("prefixes", ())
        token = page.get("nextPageToken")
        if not token:
            return found, prefixes


@storage.command("cat")
@click.argument("urls", nargs=-1, required=True, shell_complete=complete_bucket)
@project_options
def print_objects(urls: tuple[str, ...], data: str | None, project: str | None) -> None:
    """Print the contents of objects."""
    client = storage_client(data, project)
    for text in urls:
        with client.stream(object_url(text).path, alt="media") as pieces:
            for piece in pieces:
                sys.stdout.buffer.write(piece)
    sys.stdout.buffer.flush()


@storage.command("rm")
@click.argument("urls", nargs=-1, required=True, shell_complete=complete_bucket)
@_RECURSIVE
@project_options
def remove(urls: tuple[str, ...], recursive: bool, data: str | None, project: str | None) -> None:
    """Delete objects; with -r and a bucket also the bucket."""
    client = storage_client(data, project)
    for text in urls:
        url = object_url(text)
        if not url.name and not recursive:
            raise click.UsageError(f"{text} is a bucket: use -r to delete it with all objects")
        found = storage_copy.list_objects(client, url, recursive=recursive)
        if url.name and not found:
            raise PodyardError(Code.NOT_FOUND, f"{url} matches no object")
        for one in found:
            client.delete(ObjectUrl(url.bucket, one["name"]).path)
            say(f"Deleted {ObjectUrl(url.bucket, one['name'])}")
        if not url.name:
            client.delete(f"/storage/v1/b/{quote(url.bucket, safe='')}")
            say(f"Deleted gs://{url.bucket}")


@storage.command("cp")
@click.argument("sources", nargs=-1, required=True)
@click.argument("target")
@_RECURSIVE
@project_options
def copy(
    sources: tuple[str, ...], target: str, recursive: bool, data: str | None, project: str | None
) -> None:
    """Copy files and objects: podyard storage cp FILE... gs://BUCKET/FOLDER/."""
    client = storage_client(data, project)
    if not target.startswith(GS) and not any(source.startswith(GS) for source in sources):
        raise click.UsageError("one side must be gs://BUCKET/OBJECT")
    pairs = [
        pair
        for source in sources
        for pair in _pairs(client, source, target, recursive=recursive, several=len(sources) > 1)
    ]
    for source, to in pairs:
        _copy_one(client, source, to)


Place = Path | ObjectUrl


def _pairs(
    client: Client, source: str, target: str, *, recursive: bool, several: bool
) -> list[tuple[Path | dict[str, Any], Place]]:
    """Return what is copied where. As in gcloud: a folder keeps its name, a target that ends with a
    slash is a folder."""
    found: list[tuple[Path | dict[str, Any], str]] = []
    if source.startswith(GS):
        url = object_url(source)
        objects = storage_copy.list_objects(client, url, recursive=recursive)
        if not objects:
            raise PodyardError(
                Code.NOT_FOUND,
                f"{url} matches no object" + ("" if recursive else "; folders need -r"),
            )
        stem = url.name.rstrip("/").rpartition("/")[0] if recursive else None
        for one in objects:
            name = one["name"] if stem is None else one["name"][len(stem) + 1 if stem else 0 :]
            found.append((one, name.rpartition("/")[2] if stem is None else name))
    else:
        path = Path(source).expanduser()
        if path.is_dir() and not recursive:
            raise click.UsageError(f"{source} is a folder: use -r")
        if not path.exists():
            raise PodyardError(Code.NOT_FOUND, f"{source} does not exist")
        files = sorted(one for one in path.rglob("*") if one.is_file()) if path.is_dir() else [path]
        root = path.resolve().parent if path.is_dir() else path.parent
        found = [
            (one, (one.resolve() if path.is_dir() else one).relative_to(root).as_posix())
            for one in files
        ]
    is_folder = recursive or several or len(found) > 1 or target.endswith("/")
    if target.startswith(GS):
        to = object_url(target)
        return [(one, to.below(name) if is_folder or not to.name else to) for one, name in found]
    folder = Path(target).expanduser()
    is_folder = is_folder or folder.is_dir()
    return [
        (one, storage_copy.local_path(folder, name) if is_folder else folder) for one, name in found
    ]


def _copy_one(client: Client, source: Path | dict[str, Any], to: Place) -> None:
    if isinstance(source, Path):
        assert isinstance(to, ObjectUrl)
        storage_copy.upload(client, source, to)
        storage_copy.note(source, to, source.stat().st_size)
        return
    url = ObjectUrl(source["bucket"], source["name"])
    if isinstance(to, ObjectUrl):
        storage_copy.copy(client, url, to)
    else:
        storage_copy.download(client, source, to)
    storage_copy.note(url, to, int(source["size"]))


@storage.command("sync")
@click.argument("source")
@click.argument("target")
@click.option("--delete", is_flag=True, help="Delete what is only at the target.")
@click.option("--dry-run", is_flag=True, help="Print what would be copied and deleted.")
@project_options
def sync(
    source: str, target: str, delete: bool, dry_run: bool, data: str | None, project: str | None
) -> None:
    """Copy what differs from one folder to another. At least one of them is gs://."""
    if not source.startswith(GS) and not target.startswith(GS):
        raise click.UsageError("one side must be gs://BUCKET/FOLDER")
    client = storage_client(data, project)
    if not source.startswith(GS) and not Path(source).expanduser().is_dir():
        raise click.UsageError(f"{source} is not a folder")
    here, there = _tree(client, source), _tree(client, target)
    changed = [
        name
        for name, one in here.items()
        if name not in there or _digest(one) != _digest(there[name])
    ]
    for name in changed:
        to: Place = (
            object_url(target).below(name)
            if target.startswith(GS)
            else storage_copy.local_path(Path(target).expanduser(), name)
        )
        if dry_run:
            say(f"Would copy {name} to {to}")
        else:
            _copy_one(client, here[name], to)
    gone = sorted(set(there) - set(here)) if delete else []
    for name in gone:
        if not dry_run:
            one = there[name]
            if isinstance(one, Path):
                one.unlink()
            else:
                client.delete(ObjectUrl(one["bucket"], one["name"]).path)
        say(f"{'Would delete' if dry_run else 'Deleted'} {name}")
    say(f"{len(changed)} copied, {len(gone)} deleted, {len(here) - len(changed)} unchanged")


def _tree(client: Client, place: str) -> dict[str, Path | dict[str, Any]]:
    """Files or objects below a place, by their path below it."""
    if not place.startswith(GS):
        folder = Path(place).expanduser()
        return {
            path.relative_to(folder).as_posix(): path
            for path in sorted(folder.rglob("*"))
            if path.is_file()
        }
    url = object_url(place)
    prefix = f"{url.name.rstrip('/')}/" if url.name else ""
    found = storage_copy.list_objects(client, ObjectUrl(url.bucket, prefix), recursive=True)
    return {
        one["name"][len(prefix) :]: one
        for one in found
        if one["name"] != prefix and one["name"][-1] != "/"
    }


def _digest(one: Path | dict[str, Any]) -> str:
    return storage_copy.checksum(one) if isinstance(one, Path) else str(one["crc32c"])


COMMANDS = {"storage": storage}
