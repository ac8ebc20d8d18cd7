"""Files of a program's modules and runs, which Podyard reads: the program itself talks to nobody.

RUN/modules/HASH.mlir       the StableHLO of a module, as JAX lowered it
RUN/sources/HASH.txt        for each of its lines, the program's line that it comes from, or nothing
RUN/verdicts/HASH.json      its estimate, where Podyard puts it there (`podyard run`, for `--strict`
and dry runs) RUN/processes/WORKER-PID.json   the modules of one process with their counts,
rewritten every second
"""

from __future__ import annotations

import atexit
import dataclasses
import hashlib
import json
import os
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from podyard.base.clock import OsClock
from podyard.base.errors import PodyardError
from podyard.base.files import make_inner_folder, read_inside, read_json, write_atomically
from podyard.hardware.accelerator_types import AcceleratorType, kind_of
from podyard.programs import slice as slices
from podyard.programs.step.call_sites import Site, label

SUFFIX = ".mlir"
_SLICE, _LINE_BYTES_MAX = "// slice: ", 200
_ORDER = "// podyard devices: "
_ORDER_BYTES_MAX = 2**17  # of more than 10,000 devices
NOT_LOWERED = b"// not lowered: "  # what a module is instead of its text, before the reason
VERDICTS = "verdicts"
SOURCES = "sources"
PROCESSES_MAX = 1_000  # of a run, that are read
RUN_BYTES_MAX = 16 * 2**20  # of the counts of all processes of a run, that are read
WRITE_SECONDS = 1.0
MODULES_MAX = 2_000  # of one process: a program that compiles without end must not fill the disk
MODULE_BYTES_MAX = 64 * 2**20  # what a module's text may have to be handed over
# call sites of a module that are told apart: code that is made at run time has new ones without end
SITES_MAX = 100
ERROR_CHARACTERS_MAX = 500  # of the exception that ends a program: its first sentence

_monotonic = OsClock().monotonic_seconds
_recorders: list[Recorder] = []
_by_process: dict[tuple[Path | None, int, int], Recorder] = {}


@dataclasses.dataclass(slots=True)
class ModuleRuns:
    """A module of one process. `devices`: how many it runs on; `timed_runs`, `timed_seconds`: runs
    that were waited for, and their time on this machine. `first`, `last`: when the first run and
    the last one ended, in seconds of the machine's clock, where no run is timed. `calls`: from the
    most frequent call site, `site`; None: not known. `is_library`, `feeds_itself`,
    `is_eager_loop`: as in `training_step.ModuleUse`. `host_input`: arguments that the host sends at
    each run, as keys. `other_bytes`: of a device, arrays that were alive next to the module's
    arguments and results, at most."""

    digest: str
    name: str
    devices: int
    compile_seconds: float = 0.0
    runs: int = 0
    first: float = 0.0
    last: float = 0.0
    host_input: tuple[str, ...] = ()
    other_bytes: int = 0
    is_library: bool = False
    feeds_itself: bool | None = None
    site: str = ""
    calls: int | None = None
    timed_runs: int = 0
    timed_seconds: float = 0.0
    is_eager_loop: bool = False
    _sites: dict[Site | None, int] = dataclasses.field(
        default_factory=dict, repr=False, compare=False
    )
    _best: Site | None = dataclasses.field(default=None, repr=False, compare=False)

    def call(self, site: Site | None) -> None:
        """Counts a call that begins."""
        if len(self._sites) >= SITES_MAX and site not in self._sites:
            site = None
        calls = self._sites[site] = self._sites.get(site, 0) + 1
        if calls > (self.calls or 0):
            self.calls = calls
            if site != self._best:
                self._best, self.site = site, "" if site is None else label(site)

    def to_json(self) -> dict[str, object]:
        names = (field.name for field in dataclasses.fields(self))
        return {name: getattr(self, name) for name in names if not name.startswith("_")}

    def time(self, seconds: float) -> None:
        """Adds a run that took so long on this machine, from its start to its end."""
        self.timed_runs += 1
        self.timed_seconds += seconds

    def count(self) -> None:
        self.last = _monotonic()
        if self.runs == 0:
            self.first = self.last
        self.runs += 1


def slice_line(kind: AcceleratorType) -> bytes:
    """Return the line with which the text of a module begins that is compiled for another slice
    than the run's."""
    return f"{_SLICE}{kind.name} {kind.topology.text}\n".encode()


def slice_of_text(text: bytes) -> AcceleratorType | None:
    """Return the slice of a module's first line. None: the run's, or a line that is not ours."""
    words = text[:_LINE_BYTES_MAX].partition(b"\n")[0].decode(errors="replace")
    name, _, topology = words.removeprefix(_SLICE).partition(" ")
    try:
        return kind_of(name, topology) if words.startswith(_SLICE) else None
    except PodyardError:
        return None


def order_line(order: Sequence[int]) -> bytes:
    """Return a line of a module's text: the place of each of its devices in the list of the
    slice's; empty where they are in that order, or not all of them."""
    if list(order) == list(range(len(order))) or sorted(order) != list(range(len(order))):
        return b""
    return f"{_ORDER}{','.join(map(str, order))}\n".encode()


def order_of_text(text: bytes) -> tuple[int, ...]:
    """Return the places of a module's devices, from the first lines of its text; empty: they are in
    the slice's order, or the line is not ours."""
    head = text[:_ORDER_BYTES_MAX].decode(errors="replace")
    for line in head.split("\n", 2)[:2]:
        places = line.removeprefix(_ORDER).split(",")
        if line.startswith(_ORDER) and all(map(str.isdecimal, places)):
            order = tuple(map(int, places))
            return order if sorted(order) == list(range(len(order))) else ()
    return ()


def array_key(shape: Sequence[int], itemsize: float) -> str:
    """Return the key of an argument by its global shape and the bytes of an element, as
    `128x784:4`. Two arguments
    with the same key are told apart by nobody: they are as large."""
    return f"{'x'.join(map(str, shape))}:{itemsize:g}"


def recorder_of(folder: Path | None, worker: int) -> Recorder:
    """Return the recorder of this process. The frameworks that a program imports share it: a
    process has one file, and one of them must not write over the modules of another."""
    key = (folder, worker, os.getpid())
    if key not in _by_process:
        _by_process[key] = Recorder(folder, worker)
    return _by_process[key]


class Recorder:
    """Writes what one process does to the folder of its run; without a folder it only counts."""

    def __init__(self, folder: Path | None, worker: int) -> None:
        self._folder = folder
        self._path = (
            None if folder is None else folder / "processes" / f"{worker}-{os.getpid()}.json"
        )
        self._worker = worker
        self._replica = os.environ.get(slices.PROGRAM_VARIABLE, "")
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._modules: list[ModuleRuns] = []
        self._left_out = 0
        self._error = ""
        self._watches = False
        self._written = ""

    def add(self, text: bytes, name: str, devices: int, sources: bytes = b"") -> ModuleRuns:
        """A module that is compiled now. `sources`: the program's lines, by the lines of the text.
        Raises nothing: a disk that is full must not end the program."""
        module = ModuleRuns(hashlib.sha256(text).hexdigest()[:32], name, devices)
        with self._lock:
            if (
                self._folder is None
                or len(self._modules) >= MODULES_MAX
                or len(text) > MODULE_BYTES_MAX
            ):
                self._left_out += 1
                return module
            first = not self._modules
            self._modules.append(module)
        path = self._folder / "modules" / f"{module.digest}{SUFFIX}"
        try:
            if not path.exists():
                make_inner_folder(path.parent)
                if sources:
                    lines = self._folder / SOURCES / f"{module.digest}.txt"
                    make_inner_folder(lines.parent)
                    write_atomically(lines, sources)
                write_atomically(path, text)
        except OSError:
            self._left_out += 1
        if first:
            _recorders.append(self)
            atexit.register(self.write)
            threading.Thread(
                target=self._write_regularly, name="podyard-records", daemon=True
            ).start()
        return module

    def text_of(self, module: ModuleRuns) -> str | None:
        """Return the text of a module; None: it is not kept."""
        if self._folder is None:
            return None
        text = read_inside(self._folder, "modules", f"{module.digest}{SUFFIX}", MODULE_BYTES_MAX)
        return None if text is None else text.decode(errors="replace")

    def verdict(self, module: ModuleRuns, seconds: float) -> dict[str, object]:
        """Return what Podyard says of a module, at most `seconds` later; empty if it has said
        nothing by then."""
        if self._folder is None:
            return {}
        path = self._folder / VERDICTS / f"{module.digest}.json"
        clock, until = OsClock(), _monotonic() + seconds
        while not (found := read_json(path)) and _monotonic() < until:
            clock.sleep(0.02)
        return dict(found)

    def watch_failure(self) -> None:
        """Note the exception that ends the program, behind its traceback; once, if several
        frameworks ask for it."""
        if self._watches:
            return
        self._watches = True
        inner = sys.excepthook

        def excepthook(kind: Any, error: BaseException, traceback: Any) -> None:
            inner(kind, error, traceback)
            self.fail(f"{type(error).__name__}: {error}".removesuffix(": "))

        sys.excepthook = excepthook

    def fail(self, error: str) -> None:
        """Write the exception that ends the program, as `KeyError: 'x'`."""
        self._error = " ".join(error.split())[:ERROR_CHARACTERS_MAX]
        self.write()

    def write(self) -> None:
        """Writes the counts, if they have changed. A process that was forked has nothing to
        write."""
        if self._path is None or os.getpid() != self._pid:
            return
        with self._lock:
            modules, left_out = [module.to_json() for module in self._modules], self._left_out
        process = {"worker": self._worker, "pid": self._pid, "replica": self._replica}
        counts = {"modules": modules, "left_out": left_out, "error": self._error}
        text = json.dumps({**process, **counts})
        if text == self._written:
            return
        try:
            make_inner_folder(self._path.parent)
            write_atomically(self._path, text.encode())
            self._written = text
        except OSError:
            pass

    def _write_regularly(self) -> None:
        clock = OsClock()
        while True:
            clock.sleep(WRITE_SECONDS)
            self.write()


def write_now() -> None:
    """Write the counts of this process until now, for readers that look before its end."""
    for recorder in _recorders:
        recorder.write()
