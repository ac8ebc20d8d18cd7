"""What each command prints on terminals of 80 and 160 columns and in a pipe, for one yard whose
clock stands still.

`tests/data/cli_outputs` keeps it, a file for each group; `test_golden_outputs.py` fails when a text
changes.
`python -m tests.unit.cli.golden_outputs --record` writes the files again: read what git says has
changed.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import functools
import io
import os
import pty
import re
import shlex
import struct
import sys
import tempfile
import termios
import threading
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from unittest import mock

from podyard.cli.kit import commands
from tests.unit.cli.command_walk import parse
from tests.unit.cli.golden_yard import open_golden_yard
from tests.yard import ZONE, Yard

FOLDER = Path(__file__).parents[2] / "data" / "cli_outputs"
COMMAND = "python -m tests.unit.cli.golden_outputs --record"
PIPE = "pipe"
WIDTHS: Mapping[str, int | None] = {"80 columns": 80, "160 columns": 160, PIPE: None}
TERMINAL_LINES = 50
_HEAD, _EXIT = "\N{BLACK RIGHT-POINTING TRIANGLE} ", "(exit code {code})"
_SEPARATOR = ": "

# Lines that read. A command that is here twice shows something else the second time.
READS = (
    "top --once",
    "nodes",
    "jobs",
    "logs trains",
    "events",
    "events -o wide --limit 8",
    "tpu list",
    "tpu list -o wide",
    "tpu list -o csv",
    "tpu list -o name",
    "tpu list --filter state=READY --sort-by ~name",
    "tpu describe pod",
    "tpu env pod",
    "tpu hosts pod -o wide",
    "tpu programs pod",
    "qr list",
    "qr list -o wide",
    "qr describe wish",
    "reservation list",
    "reservation list -o wide",
    "queue list",
    "pods list",
    f"pods show {ZONE}-v2-0",
    f"pods defragment {ZONE}-v2-0 v2-32",
    "hardware list --generation v2",
    "hardware show v3-32",
    "job list",
    "job list -o wide",
    "job describe trains",
    "job evaluations trains",
    "job artifacts trains",
    "job logs trains --grep loss",
    "sweep list",
    "sweep describe rates",
    "estimate digits-cnn --accelerator-type v2-8",
    "plan digits-cnn --steps 1000 --types v2-8 --zone us-central1-f --samples 100",
    "explain mxu --m 2 --k 2 --n 2 --rows 2 --cols 2",
    "explain all-reduce --ranks 3 --bytes 12",
    "explain tpu-v1",
    "bill show",
    "bill costs",
    "bill costs --month 2026-03",
    "bill explore --group-by user --from 2026-03-01",
    "bill explore --group-by zone --from 2026-03-01 --bucket month",
    "bill what-if --month 2026-03 --usage spot",
    "bill invoice 2026-03",
    "bill invoice --list",
    "bill invoice",
    "bill explain 2026-03 tpu-v2-device/us-central1/preemptible@1.35",
    "bill account show",
    "bill credit list",
    "bill credit-note list",
    "budget list",
    "budget events",
    "commitment list",
    "price list --type v2-8 --region us-central1",
    "price show v2-8 --region us-central1",
    "price diff 2026-11-01 2026-11-01",
    "calls --unserved",
    "completion bash",
    "project list",
    "auth api-key list",
    "auth invitation list",
    "auth key list",
    "auth print-token",
    "auth token list",
    "auth whoami",
    "agent list",
    "agent describe local",
    "clock show",
    "fault effects",
    "fault list",
    "nodes --filter sate=READY",
    "tpu describe nothing",
    "webhook list",
    "webhook deliveries chat",
    "budget delete",
)
_CHANGES = "it changes what the others show; its test is with what it changes"
_MACHINE = "it shows, or works on, this machine: processes, folders, ports or the hosts of nodes"
_LATER = (
    "it is written after the answers, when the server has time: "
    "tests/distributed/test_door.py "
    "has its output"
)
_LONG = "it runs for long: tests/simulation and tests/unit/programs run it"
_STORAGE = "storage is a process of its own: tests/contract/test_storage.py has its output"
NOT_RECORDED: Mapping[str, str] = {
    path: reason
    for reason, paths in {
        _MACHINE: "up, down, status, open, demo, doctor, tpu devices, tpu exec, tpu scp, "
        "tpu notebook, tpu ssh, tpu "
        "ssh-config, "
        "runtime install, runtime list, runtime remove, tensorboard, predict, env, run, ssh "
        "connect, ssh setup, "
        "connect, agent join, fsck, admin adopt-folders, admin backup, admin copy-database, admin "
        "restore, job stacks, "
        "job download, job export, dataset list, dataset add, bill export, bill replay",
        _LATER: "admin audit",
        _LONG: "simulate, job wait",
        _STORAGE: (
            "storage cat, storage cp, storage ls, storage mb, storage rb, storage rm, storage sync"
        ),
        _CHANGES: "tpu create, tpu delete, tpu preempt, tpu schedule-maintenance, tpu start, tpu "
        "stop, qr create, "
        "qr delete, qr reset, reservation create, reservation delete, job cancel, job clone, job "
        "launch, job resize, "
        "job submit, sweep cancel, sweep submit, bill account link, bill account set, bill "
        "account unlink, bill close, "
        "bill credit add, bill credit end, bill credit-note create, budget delete, budget set, "
        "commitment buy, "
        "commitment end, project create, project reset, project update, auth accept, auth "
        "api-key create, "
        "auth api-key delete, auth invitation create, auth invitation revoke, auth key create, "
        "auth key delete, "
        "auth token create, auth token describe, auth token renew, auth token revoke, agent "
        "drain, agent remove, "
        "agent resume, agent token, clock advance, clock pause, clock set-rate, fault "
        "add, fault rm, "
        "webhook set, webhook delete, webhook test",
    }.items()
    for path in paths.split(", ")
}
# What differs from one run to the next or from one machine to the next, and what stands for it.
_RANDOM = (
    (re.compile(r"(?<=-)[0-9a-f]{24}\b"), "0" * 24),
    (re.compile(r"\bpdy_[\w-]{43}"), f"pdy_{'0' * 43}"),
    (re.compile(r"(?<=127\.0\.0\.1:)\d+"), "PORT"),
    (re.compile(r"\b127\.(?!0\.0\.1\b)\d+\.\d+\.\d+"), "127.A.B.C"),
    (re.compile(r"(?<![.\d])\d{12}\b"), "123456789012"),
    (re.compile(r"(?<=^id: ')\d+(?=')", re.MULTILINE), "NUMBER"),
    (re.compile(r"(?<=JAX_COORDINATOR_PORT=)\d+|(?<=NPROC=)\d+"), "NUMBER"),
)


def mask(text: str) -> str:
    for pattern, instead in _RANDOM:
        text = pattern.sub(instead, text)
    return text


@contextlib.contextmanager
def _terminal(columns: int) -> Iterator[io.StringIO]:
    """Standard output and errors are a pseudo terminal that is this wide; gives what was written to
    it."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", TERMINAL_LINES, columns, 0, 0))
    written, chunks = io.StringIO(), list[bytes]()

    def read() -> None:
        # Linux ends a terminal whose other side is closed with EIO
        with contextlib.suppress(OSError):
            while chunk := os.read(ours, 65536):
                chunks.append(chunk)

    reader = threading.Thread(target=read)
    reader.start()
    try:
        with os.fdopen(theirs, "w", encoding="utf-8") as stream, contextlib.ExitStack() as stack:
            for name in ("stdout", "__stdout__", "stderr", "__stderr__"):
                stack.enter_context(mock.patch.object(sys, name, stream))
            yield written
    finally:
        reader.join()
        os.close(ours)
        written.write(b"".join(chunks).decode().replace("\r\n", "\n"))


@contextlib.contextmanager
def _pipe() -> Iterator[io.StringIO]:
    """Neither standard output nor errors are a terminal."""
    written = io.StringIO()
    with (
        io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True) as stream,
        contextlib.ExitStack() as stack,
    ):
        for name in ("stdout", "__stdout__", "stderr", "__stderr__"):
            stack.enter_context(mock.patch.object(sys, name, stream))
        try:
            yield written
        finally:
            buffer = stream.buffer
            assert isinstance(buffer, io.BytesIO)
            written.write(buffer.getvalue().decode())


def run(argv: Sequence[str], columns: int | None) -> str:
    """Return what `podyard ARGV` prints, with its exit code unless it is 0."""
    code: object = 0
    opened = _pipe() if columns is None else _terminal(columns)
    with warnings.catch_warnings(), mock.patch.object(sys, "stdin", io.StringIO()):
        warnings.simplefilter("ignore", ResourceWarning)  # a process of its own would end here
        with opened as written:
            try:
                commands.run(list(argv))
            except SystemExit as ended:
                code = ended.code
    text = mask(written.getvalue())
    return text if code == 0 else f"{text}{_EXIT.format(code=code)}\n"


def collect(yard: Yard) -> dict[str, str]:
    """The text of each line of `READS` in each width, by the line and the width."""
    found = {}
    environment = {**_environment(), "PODYARD_URL": yard.url, "PODYARD_TOKEN": yard.token}
    with mock.patch.dict(os.environ, environment, clear=True):
        for line in READS:
            for name, columns in WIDTHS.items():
                found[f"{line}{_SEPARATOR}{name}"] = run(shlex.split(line), columns)
    return found


def _environment() -> dict[str, str]:
    """Of this process, without what decides how a terminal looks or whom the command line talks
    to."""
    left_out = ("NO_COLOR", "COLUMNS", "LINES", "PODYARD_", "CLOUDSDK_")
    return {name: text for name, text in os.environ.items() if not name.startswith(left_out)} | {
        "TERM": "xterm"
    }


def files_of(found: Mapping[str, str]) -> dict[str, str]:
    """Name -> text of the files that keep it. Widths that print the same are written once."""
    files: dict[str, list[str]] = {}
    for line in READS:
        texts: dict[str, list[str]] = {}
        for name in WIDTHS:
            texts.setdefault(found[f"{line}{_SEPARATOR}{name}"], []).append(name)
        for text, names in texts.items():
            files.setdefault(f"{line.split()[0]}.txt", []).append(
                f"{_HEAD}podyard {line}{_SEPARATOR}{', '.join(names)}\n{text}\n"
            )
    return {name: "".join(parts) for name, parts in files.items()}


def read() -> dict[str, str]:
    # Bytes: reading text would turn a bar's carriage returns into line ends.
    return {path.name: path.read_bytes().decode() for path in sorted(FOLDER.glob("*.txt"))}


@functools.cache
def recorded_paths() -> frozenset[str]:
    """Commands that have a golden."""
    found = set()
    for line in READS:
        with contextlib.suppress(Exception):
            found.add(parse(shlex.split(line)))
    return frozenset(found)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.unit.cli.golden_outputs", description=__doc__
    )
    parser.add_argument(
        "--record", action="store_true", required=True, help="Write the files again."
    )
    parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder, open_golden_yard(Path(folder)) as yard:
        files = files_of(collect(yard))
    FOLDER.mkdir(exist_ok=True)
    for path in FOLDER.glob("*.txt"):
        path.unlink()
    for name, text in files.items():
        (FOLDER / name).write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
