"""`podyard dataset list|add`: the files that programs would download."""

from __future__ import annotations

import hashlib
import shutil
import tempfile
from collections.abc import Iterable
from pathlib import Path

import click

from podyard.base.errors import invalid
from podyard.cli.kit.command_names.groups import CommandGroup
from podyard.cli.kit.listing import Item, lists
from podyard.cli.kit.options import data_option, settings_of
from podyard.cli.kit.output import say
from podyard.programs.datasets.published import FOLDER, FOLDER_MODE, SETS

_COLUMNS = {
    "DATASET": "dataset", "FILE": "file", "STATE": "state", "SIZE": "bytes|bytes",
    "FOR": "for|text",
}  # fmt: skip
_FILE_MODE = 0o644  # programs on nodes run as other users
_NAMES = [item.name for item in SETS]


@click.group(cls=CommandGroup, default="list")
def dataset() -> None:
    """Data sets that programs find without internet: list, add."""


@dataset.command(name="list")
@data_option
@lists(_COLUMNS)
def list_datasets(data: str | None) -> Iterable[Item]:
    """List the files of data sets: added, or missing.

    STATE is "added" for a file with the published content, and "other content" for another one.
    """
    folder = _folder(data)
    rows = []
    for published in SETS:
        for name, digest in published.files.items():
            path = folder / published.name / name
            is_there = path.is_file()
            rows.append(
                {
                    "dataset": published.name,
                    "file": name,
                    "state": _state(path, digest) if is_there else "missing",
                    "bytes": path.stat().st_size if is_there else None,
                    "for": published.title,
                }
            )
    return rows


@dataset.command()
@click.argument("name", metavar="DATASET", type=click.Choice(_NAMES))
@click.argument(
    "files", metavar="FILE...", nargs=-1, required=True, type=click.Path(path_type=Path)
)
@data_option
def add(name: str, files: tuple[Path, ...], data: str | None) -> None:
    """Add files of a data set, under the names with which they are published.

    Programs on nodes of this machine and under `podyard run --tpu` then load the set without
    internet, unchanged. `podyard dataset` lists names of sets and files.
    """
    (published,) = (item for item in SETS if item.name == name)
    for file in files:
        if file.name not in published.files:
            known = ", ".join(published.files)
            raise invalid(f"{file.name} is not a file of {name}: use {known}", "files")
        if not file.is_file():
            raise invalid(f"{file} is not a file: name a file that was downloaded", "files")
    folder = _folder(data)
    target = folder / name
    target.mkdir(parents=True, exist_ok=True)
    for own in (folder, target):
        own.chmod(FOLDER_MODE)
    for file in files:
        # A program never finds half of a file.
        with tempfile.NamedTemporaryFile(dir=target, delete=False) as part:
            with file.open("rb") as source:
                shutil.copyfileobj(source, part)
            copy = Path(part.name)
        copy.chmod(_FILE_MODE)
        copy.replace(target / file.name)
        say(f"{target / file.name}: {_state(target / file.name, published.files[file.name])}")


def _folder(data: str | None) -> Path:
    return settings_of(data).datasets_path / FOLDER


def _state(path: Path, digest: str) -> str:
    with path.open("rb") as file:
        content = hashlib.file_digest(file, "md5").hexdigest()
    return "added" if content == digest else "other content"


COMMANDS = {"dataset": dataset}
