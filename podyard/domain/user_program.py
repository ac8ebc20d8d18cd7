"""A user's own program, as a job runs it on every host of its slice: a file, a folder or a command
of the shell.

Pure: what a request may say, and the script that a host runs.
"""

from __future__ import annotations

import dataclasses
import posixpath
import re
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from podyard.base.errors import PodyardError, invalid

# of a command, of a set-up script, and of one value: Linux takes 128 KiB for one argument
TEXT_BYTES_MAX = 64 << 10
ENVIRONMENT_BYTES_MAX = 256 << 10
NAMES_MAX = 500  # of variables, and of arguments
MOUNTS_MAX = 1000
OWN_PREFIX = "PODYARD_"  # what such variables say is the platform's to say
ENTRY_SUFFIXES = (".py", ".sh")
REQUIREMENTS, PROJECT = "requirements.txt", "pyproject.toml"
SEPARATOR = ", "  # of those of them that a source has
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_ENTRIES = ("train.py", "main.py", "__main__.py", "run.sh")  # looked for where none is named
_NAMED_MAX = 10  # files in an error
_MODULE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ProgramFile:
    """An object of the storage that hosts get before the program starts. `target`: where it is put;
    with a "/" at its end, where an archive is unpacked; "": it is the source. `digest`, `bytes`:
    what the name stood for when the job was submitted. `folder`: the one at the top of an archive,
    which is left out of the paths."""

    uri: str
    target: str = ""
    digest: str = ""
    bytes: int = 0
    folder: str = ""

    @property
    def name(self) -> str:
        return posixpath.basename(self.uri)

    @property
    def is_unpacked(self) -> bool:
        return self.target.endswith("/")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class UserProgram:
    """`command`: text for the shell; without one `module` or `entry` is run with `args`. `secrets`:
    variables that are shown by name only. `packages`: what pip installs of the source ("":
    nothing); with an equal `packages_key` it is the same. `output`: where the program is to write;
    "": the platform says where."""

    command: str = ""
    entry: str = ""
    module: str = ""
    args: tuple[str, ...] = ()
    setup: str = ""
    env: Mapping[str, str] = dataclasses.field(default_factory=dict)
    secrets: Mapping[str, str] = dataclasses.field(default_factory=dict)
    source: ProgramFile | None = None
    mounts: tuple[ProgramFile, ...] = ()
    packages: str = ""
    packages_key: str = ""
    output: str = ""

    @property
    def title(self) -> str:
        """A few words for lists."""
        if self.command:
            return next(filter(None, map(str.strip, self.command.splitlines())), "")[:60]
        return f"-m {self.module}" if self.module else self.entry

    @property
    def files(self) -> tuple[ProgramFile, ...]:
        return self.mounts if self.source is None else (self.source, *self.mounts)

    @classmethod
    def of_stored(cls, stored: Mapping[str, Any]) -> UserProgram:
        source = stored["source"]
        nested = {
            "source": source and ProgramFile(**source),
            "mounts": tuple(ProgramFile(**mount) for mount in stored["mounts"]),
            "args": tuple(stored["args"]),
        }
        return cls(**{**stored, **nested})


def check_user_program(program: UserProgram) -> None:
    """Raises INVALID_ARGUMENT for what no host could run."""
    ways = [name for name in ("command", "entry", "module") if getattr(program, name).strip()]
    if len(ways) > 1:
        raise invalid(f"specify either run.{ways[0]} or run.{ways[1]}, not both", f"run.{ways[1]}")
    if not ways and program.source is None:
        raise invalid("run.command or run.source is required", "run.command")
    if ways == ["entry"] and program.source is None:
        raise invalid("run.entry is a file of run.source: set run.source", "run.entry")
    if program.command and program.args:
        raise invalid(
            "run.args cannot be combined with run.command: write them into the command", "run.args"
        )
    if program.module and not _MODULE.fullmatch(program.module):
        raise invalid(
            f"run.module is {program.module[:100]!r}: "
            "it must be a module's name, for example train",
            "run.module",
        )
    if program.entry:
        _check_entry(program.entry)
    for name in ("command", "setup"):
        _check_text(getattr(program, name), f"run.{name}", TEXT_BYTES_MAX)
    if len(program.args) > NAMES_MAX:
        raise invalid(
            f"run.args has {len(program.args)} arguments: at most {NAMES_MAX} are allowed",
            "run.args",
        )
    for number, text in enumerate(program.args):
        _check_text(text, f"run.args[{number}]", TEXT_BYTES_MAX)
    _check_variables(program)
    _check_mounts(program.mounts)


def _check_entry(entry: str) -> None:
    parts = entry.split("/")
    if (
        entry.startswith("/")
        or ".." in parts
        or "" in parts
        or "\\" in entry
        or not entry.isprintable()
    ):
        text = (
            f"run.entry is {entry[:100]!r}: it must be the path of a file inside "
            "run.source, for "
            "example src/train.py"
        )
        raise invalid(text, "run.entry")
    if not entry.endswith(ENTRY_SUFFIXES):
        text = (
            f"run.entry is {entry[:100]!r}: it must be a .py or .sh file; use run.command for "
            "anything else"
        )
        raise invalid(text, "run.entry")


def _check_text(text: str, field: str, most: int) -> None:
    if "\0" in text:
        raise invalid(f"{field} contains a NUL character", field)
    if (size := len(text.encode())) > most:
        raise invalid(
            f"{field} has {size} bytes: at most {most} are allowed; put it into a file "
            "of run.source",
            field,
        )


def _check_variables(program: UserProgram) -> None:
    total = 0
    for field, given in (("run.env", program.env), ("run.secrets", program.secrets)):
        if len(given) > NAMES_MAX:
            raise invalid(
                f"{field} has {len(given)} variables: at most {NAMES_MAX} are allowed", field
            )
        for name, value in given.items():
            if not _VARIABLE.fullmatch(name):
                text = (
                    f"{field}: {name[:100]!r} is not a variable's name: use letters, digits "
                    "and underscores"
                )
                raise invalid(text, field)
            if name.startswith(OWN_PREFIX):
                raise invalid(
                    f"{field}: {name[:100]} is set by the platform: use another name", field
                )
            _check_text(value, f"{field}.{name[:100]}", TEXT_BYTES_MAX)
            total += len(name) + len(value.encode())
    if twice := program.env.keys() & program.secrets.keys():
        raise invalid(f"{min(twice)} is in both run.env and run.secrets: keep one", "run.secrets")
    if total > ENVIRONMENT_BYTES_MAX:
        raise invalid(
            f"run.env has {total} bytes: at most {ENVIRONMENT_BYTES_MAX} are allowed", "run.env"
        )


def _check_mounts(mounts: Sequence[ProgramFile]) -> None:
    if len(mounts) > MOUNTS_MAX:
        raise invalid(
            f"run.files has {len(mounts)} files: at most {MOUNTS_MAX} are allowed", "run.files"
        )
    targets = [mount.target for mount in mounts]
    for target in targets:
        parts = target.split("/")
        if (
            not target.strip("/~")
            or ".." in parts
            or not target.isprintable()
            or len(target) > 1000
        ):
            text = (
                f"run.files: {target[:100]!r} is not a path: use one below /, ~ or the working "
                "folder, without .."
            )
            raise invalid(text, "run.files")
        if targets.count(target) > 1:
            raise invalid(f"run.files: {target[:100]} is there twice", "run.files")


def choose_entry(program: UserProgram, files: Sequence[str]) -> str:
    """The file that is run: the one that is named, or the one that is obvious; `files`: all of the
    source's.

    Raises INVALID_ARGUMENT that says which there are.
    """
    runnable = [name for name in files if name.endswith(ENTRY_SUFFIXES)]
    if program.entry:
        if program.entry in files:
            return program.entry
        what = f"run.entry {program.entry!r} is not in run.source"
    else:
        at_top = [name for name in runnable if "/" not in name]
        usual = [name for name in _ENTRIES if name in at_top]
        if usual or len(at_top) == 1:
            return usual[0] if usual else at_top[0]
        what = "run.entry is required: run.source has no train.py or main.py at its top"
    shown = ", ".join(sorted(runnable, key=lambda name: (name.count("/"), name))[:_NAMED_MAX])
    raise invalid(
        f"{what}; it has {shown}" if shown else f"{what}, and no .py or .sh file", "run.entry"
    )


def command_text(program: UserProgram) -> str:
    """Return what the shell runs."""
    if program.command:
        return program.command
    if program.module:
        words = ["python", "-u", "-m", program.module]
    else:
        words = ["bash" if program.entry.endswith(".sh") else "python", program.entry]
        words[1:1] = ["-u"] if words[0] == "python" else []
    return f"exec {shlex.join([*words, *program.args])}"


def program_environment(program: UserProgram, job_id: str, attempt: int) -> dict[str, str]:
    """Return what the program finds in addition to what every program on its host does."""
    output = program.output.rstrip("/")
    # Vertex AI's names for parts of the output.
    parts = {"MODEL_DIR": "model", "CHECKPOINT_DIR": "checkpoints", "TENSORBOARD_LOG_DIR": "logs"}
    where = {f"AIP_{name}": f"{output}/{part}/" for name, part in parts.items()} if output else {}
    own = {"PODYARD_JOB": job_id, "PODYARD_ATTEMPT": str(attempt), "PYTHONUNBUFFERED": "1", **where}
    if output:
        own["PODYARD_OUTPUT"] = f"{output}/"
    return own | dict(program.env) | dict(program.secrets)


def default_output(zone: str, job_id: str) -> str:
    """Return where a job writes in the bucket for jobs: plain names, by which it is found."""
    return f"/jobs/{zone}/{job_id}"


def gs_parts(uri: str, field: str) -> tuple[str, str]:
    """(bucket, name) of gs://BUCKET/NAME. Raises INVALID_ARGUMENT."""
    scheme, _, rest = uri.partition("://")
    bucket, _, name = rest.partition("/")
    if scheme != "gs" or not bucket or not name:
        raise invalid(f"{field} is {uri[:200]!r}: it must be gs://BUCKET/NAME", field)
    return bucket, name


def refused_fields(given: Mapping[str, object]) -> PodyardError | None:
    """`given`: fields of a request by their names on the wire. The first that a user's program has
    no use for."""
    for name, value in given.items():
        if value:
            return invalid(f"{name} cannot be used with run: it is for recipes and programs", name)
    return None


def depends_on_source(requirements: str) -> bool:
    """Return whether the lines of a requirements.txt name other files of the source."""
    lines = (line.strip() for line in requirements.splitlines())
    return any(
        line.startswith(("-", ".", "/", "file:")) or "://" in line or line.endswith(".whl")
        for line in lines
    )
