"""The folder, archive or file that a job is submitted with from this machine: a file as it is, a
folder as a zip of it."""

from __future__ import annotations

import os
import stat
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from podyard.base.errors import Code, PodyardError
from podyard.cli.kit.client import Client
from podyard.cli.kit.output import say

GS = "gs://"
_LEFT_OUT = frozenset(
    {".git", ".hg", "__pycache__", ".venv", ".mypy_cache", ".pytest_cache", ".ruff_cache"}
)
_EPOCH = (1980, 1, 1, 0, 0, 0)  # the same files give the same archive, and the same object


def upload(client: Client, text: str) -> str:
    """The gs:// name of what `text` names: an object, a file or a folder."""
    if text.startswith(GS):
        return text
    path = Path(text).expanduser()
    if not path.exists():
        raise PodyardError(
            Code.NOT_FOUND, f"{text} does not exist: name a file, a folder or a gs:// object"
        )
    if path.is_dir():
        with tempfile.TemporaryFile() as packed:
            count = _pack(path, packed)
            packed.seek(0)
            found = _send(client, f"{path.resolve().name or 'source'}.zip", packed)
        say(f"{text}: {count} files in {found}")
        return found
    with path.open("rb") as file:
        return _send(client, path.name, file)


def _send(client: Client, name: str, file: IO[bytes]) -> str:
    answer = client.send(f"{client.own_path()}/jobs:upload", file, name=name)
    return str(answer["uri"])


def _pack(folder: Path, out: IO[bytes]) -> int:
    """Return how many files there are. Links are packed as the files that they stand for."""
    count = 0
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED, compresslevel=6) as archive:
        for path, name in _files(folder):
            info = zipfile.ZipInfo(name, _EPOCH)
            info.compress_type = zipfile.ZIP_DEFLATED
            info.external_attr = (
                stat.S_IFREG | (0o755 if os.access(path, os.X_OK) else 0o644)
            ) << 16
            with path.open("rb") as source, archive.open(info, "w", force_zip64=True) as target:
                while piece := source.read(1 << 20):
                    target.write(piece)
            count += 1
    if not count:
        raise PodyardError(Code.INVALID_ARGUMENT, f"{folder} has no files")
    return count


def _files(folder: Path) -> Iterator[tuple[Path, str]]:
    """(file, name in the archive), in the order of names. Raises FAILED_PRECONDITION for what
    cannot be packed."""
    for entry in sorted(folder.rglob("*")):
        name = entry.relative_to(folder)
        if _LEFT_OUT.intersection(name.parts) or entry.is_dir():
            continue
        target = entry.resolve()
        if entry.is_symlink() and not target.is_relative_to(folder.resolve()):
            text = (
                f"{entry} is a link that leads out of {folder}: copy the file, or remove the link"
            )
            raise PodyardError(Code.FAILED_PRECONDITION, text)
        if not target.is_file():
            raise PodyardError(Code.FAILED_PRECONDITION, f"{entry} is not a file: remove it")
        yield entry, name.as_posix()
