"""Environments of software: made once, and shared by all hosts and programs of this user.

A virtual environment with the packages of a lock file, in a folder whose name tells them apart. One
process makes it while others wait; what was left half done is made again. pip's own settings hold:
an index, a proxy, a cache.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import itertools
import os
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from podyard.base.clock import RealClock
from podyard.base.interpreter import python_command
from podyard.hardware.software import LOCKED_PYTHON, SOFTWARE, Software
from podyard.programs import SITE_HOOK

FOLDER_VARIABLE = "PODYARD_RUNTIMES_FOLDER"
MAKE_SECONDS_MAX = 1800.0  # TensorFlow takes one to two minutes; a slow line ten times as long
_LOCK_LOOK_SECONDS = 0.2
_DONE = "podyard.made"  # there once all packages are
_PYTHON = sys.version_info.minor
_PACKAGE = ("Collecting ", "Processing ")  # how pip's lines begin, one for each package
_ERROR_CHARACTERS_MAX = 400
_ADDRESS = re.compile(r"\S*://\S+")

Tell = Callable[[str], None]


def default_folder(environ: Mapping[str, str] = os.environ) -> Path:
    from platformdirs import user_cache_path

    text = environ.get(FOLDER_VARIABLE)
    return (
        Path(text).expanduser().absolute()
        if text
        else user_cache_path("podyard", appauthor=False) / "runtimes"
    )


def path_of(software: Software, folder: Path) -> Path:
    text = "\n".join((*_wants(software), sys.version, sys.base_prefix))
    return folder / f"{software.name}-{hashlib.sha256(text.encode()).hexdigest()[:8]}"


def lock_path(path: Path) -> Path:
    """Held by the process that makes the environment at `path`."""
    return path.with_name(f"{path.name}.lock")


def is_made(software: Software, folder: Path) -> bool:
    return (path_of(software, folder) / _DONE).exists()


def make(
    software: Software,
    folder: Path,
    clock: RealClock,
    tell: Tell,
    leaving: threading.Event | None = None,
) -> Path:
    """The environment's folder, once all packages are in it. `tell` hears how far it is; `leaving`
    ends it.

    Raises OSError that says why it cannot be made: no room, no network, no wheel.
    """
    path = path_of(software, folder)
    if is_made(software, folder):
        return path
    folder.mkdir(parents=True, exist_ok=True)
    deadline = clock.monotonic_seconds() + MAKE_SECONDS_MAX

    def check() -> None:
        if leaving is not None and leaving.is_set():
            raise OSError(f"{software.title}: nobody waits for it any more")
        if clock.monotonic_seconds() > deadline:
            raise OSError(f"{software.title}: not installed after {MAKE_SECONDS_MAX:.0f} s")

    with _lock(
        lock_path(path), clock, check, lambda: tell(f"{software.title}: another process makes it")
    ):
        if is_made(software, folder):
            return path
        shutil.rmtree(path, ignore_errors=True)
        wanted = _wants(software)
        tell(f"{software.title}: making an environment")
        try:
            _run(tuple(python_command("-m", "venv", str(path))), lambda _line: None, check)
            python = str(path / "bin" / "python")
            options = (
                "--disable-pip-version-check",
                "--no-input",
                "--progress-bar",
                "off",
                "--retries",
                "2",
            )
            alone = ("--no-deps",) if _is_locked() else ()
            counted = itertools.count(1)

            def note(line: str) -> None:
                if line.startswith(_PACKAGE):
                    tell(f"{software.title}: {_progress(next(counted), wanted)}")
                elif line.startswith("Installing collected packages"):
                    tell(f"{software.title}: installing the packages")

            _run((python, "-I", "-m", "pip", "install", *options, *alone, *wanted), note, check)
            (packages,) = (path / "lib").glob("python3.*/site-packages")
            shutil.copy(SITE_HOOK.with_name("podyard_programs.pth"), packages)
            (path / _DONE).touch()
        except OSError as error:
            shutil.rmtree(path, ignore_errors=True)
            raise OSError(f"{software.title} cannot be installed: {error}") from error
    return path


def remove(software: Software, folder: Path) -> bool:
    """Return whether any was there: those of earlier lock files and other Pythons go, too."""
    found = [path for path in folder.glob(f"{software.name}-*") if path.is_dir()]
    for path in found:
        (path / _DONE).unlink(missing_ok=True)
        shutil.rmtree(path, ignore_errors=True)
        lock_path(path).unlink(missing_ok=True)
    return bool(found)


def list_made(folder: Path) -> tuple[Software, ...]:
    return tuple(item for item in SOFTWARE if is_made(item, folder))


def activate(environment: Mapping[str, str], path: Path) -> dict[str, str]:
    """Return what changes where programs run in the environment at `path`."""
    first = str(path / "bin")
    rest = [
        entry for entry in environment.get("PATH", "").split(os.pathsep) if entry not in ("", first)
    ]
    return {"PATH": os.pathsep.join((first, *rest)), "VIRTUAL_ENV": str(path)}


def _wants(software: Software) -> tuple[str, ...]:
    return software.lock_lines() if _is_locked() else software.packages


def _progress(count: int, wanted: Sequence[str]) -> str:
    return f"package {count} of {len(wanted)}" if _is_locked() else f"package {count}"


def _is_locked() -> bool:
    """The lock files are of one Python; with another, pip finds what goes with the packages that
    are asked for."""
    return _PYTHON == LOCKED_PYTHON


@contextlib.contextmanager
def _lock(
    path: Path, clock: RealClock, check: Callable[[], None], tell: Callable[[], None]
) -> Iterator[None]:
    # pip inherits the file: an environment that a killed process was making stays locked until pip
    # has ended.
    file = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    os.set_inheritable(file, True)
    try:
        told = False
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if not told:
                    tell()
                    told = True
                check()
                clock.sleep(_LOCK_LOOK_SECONDS)
        yield
    finally:
        os.close(file)


def _run(command: tuple[str, ...], note: Tell, check: Callable[[], None]) -> None:
    """Raises OSError with the last that the command wrote if it fails."""
    environ = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    process = subprocess.Popen(
        command, env=environ, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, text=True,
        errors="replace", start_new_session=True, close_fds=False,
    )  # fmt: skip
    lines: list[str] = []

    output = process.stdout
    assert output is not None

    def read() -> None:
        for line in output:
            lines.append(line.strip())
            note(line.strip())

    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    try:
        while reader.is_alive():
            reader.join(_LOCK_LOOK_SECONDS)
            check()
        code = process.wait()
    except BaseException:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, 9)
        process.wait()
        raise
    finally:
        reader.join()
        output.close()
    if code != 0:
        errors = [line for line in lines if line.startswith("ERROR:")] or lines
        text = _ADDRESS.sub("...", " ".join(errors[-2:]))
        raise OSError(
            text.removeprefix("ERROR: ")[:_ERROR_CHARACTERS_MAX]
            or f"{command[0]} ended with {code}"
        )
