"""The check that a command's Python goes through the proxy of `podyard run`.

httplib2 uses a proxy only if PySocks is installed, and otherwise calls Google itself without a
warning.
What is looked at is files: another Python is not started for it, and a command that starts one by
itself is not seen.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path

SHEBANG_BYTES_MAX = 512  # Linux takes 256 of the first line; the form for longer ones has two
_PYTHON = re.compile(r"python(\d+(?:\.\d+)?)?")
_VERSION = re.compile(r"python(\d+\.\d+)")
# What pip writes where the first line would be too long: a shell that starts Python with the same
# file.
_LONG_SHEBANG = re.compile(r"#!/bin/sh\n'''exec' \"?([^\"\n]+?)\"? \"\$0\"")


def past_the_proxy(program: str, environ: Mapping[str, str]) -> Path | None:
    """Return where httplib2 was found, when the program is a Python, or one's script, that has no
    PySocks; else None."""
    path = shutil.which(program, path=environ.get("PATH"))
    python = None if path is None else _python_of(Path(path), environ)
    if python is None:
        return None
    folders = list(_folders(python, environ))
    if any((folder / "socks.py").is_file() for folder in folders):
        return None
    return next((folder for folder in folders if (folder / "httplib2").is_dir()), None)


def _python_of(path: Path, environ: Mapping[str, str]) -> Path | None:
    if _PYTHON.fullmatch(path.name):
        return path
    try:
        with path.open("rb") as file:
            head = file.read(SHEBANG_BYTES_MAX).decode("utf-8", "replace")
    except OSError:
        return None
    if long := _LONG_SHEBANG.match(head):
        words = [long[1]]
    else:
        words = head.splitlines()[0].removeprefix("#!").split() if head.startswith("#!") else []
    if words and Path(words[0]).name == "env":
        names = [word for word in words[1:] if not word.startswith("-") and "=" not in word]
        words = [shutil.which(names[0], path=environ.get("PATH")) or ""] if names else []
    return Path(words[0]) if words and _PYTHON.fullmatch(Path(words[0]).name) else None


def _folders(python: Path, environ: Mapping[str, str]) -> Iterator[Path]:
    """Yield where this Python looks for packages, as far as the file system tells."""
    yield from (Path(item) for item in environ.get("PYTHONPATH", "").split(os.pathsep) if item)
    own = python.parent.parent
    try:
        options = (own / "pyvenv.cfg").read_text(encoding="utf-8")
    except OSError:
        options = None
    if options is not None:
        yield from own.glob("lib/python*/site-packages")
        if not re.search(
            r"^include-system-site-packages\s*=\s*true\s*$", options, re.MULTILINE | re.IGNORECASE
        ):
            return
    # The interpreter's own folders: those of its version only, which its file's name says.
    real = python.resolve()
    named = _VERSION.match(real.name)
    version = named[1] if named else "*"
    prefixes = dict.fromkeys((real.parent.parent, Path("/usr/local")))
    for prefix in prefixes:
        yield from prefix.glob(f"lib/python{version}/site-packages")
        yield from prefix.glob(f"lib/python{version}/dist-packages")
    yield real.parent.parent / "lib" / "python3" / "dist-packages"  # Debian's
    yield from Path(environ.get("HOME", "/")).glob(f".local/lib/python{version}/site-packages")
