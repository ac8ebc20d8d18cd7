"""The processes that a program is started as, and what each finds in its environment."""

from __future__ import annotations

import dataclasses
import math
import os
import re
from collections.abc import Sequence
from pathlib import Path

from podyard.base.errors import invalid
from podyard.base.rng import Streams
from podyard.domain import host
from podyard.domain.host import Multislice
from podyard.hardware.accelerator_types import AcceleratorType, kind_of
from podyard.hardware.process_bounds import TASK, caller_bounds, process_bounds
from podyard.programs import environments, hook_environment
from podyard.programs import slice as slices
from podyard.programs.datasets.published import FOLDER, FOLDER_VARIABLE
from podyard.programs.say import SAID_VARIABLE
from podyard.settings import from_environment

# more than a large machine carries: each takes a quarter of a GiB and seconds of a core to start
PROCESSES_MAX = 64
PROCESS_BYTES = 300 * 2**20  # of a program with JAX, before its arrays
# JAX asks the metadata server for what is not set, and there is none.
_NO_MULTISLICE = dict.fromkeys(
    ("MEGASCALE_COORDINATOR_ADDRESS", "MEGASCALE_NUM_SLICES", "MEGASCALE_SLICE_ID"), ""
)
_NOT_INHERITED = ("JAX_PLATFORMS", "JAX_NUM_PROCESSES", "JAX_PROCESS_ID", "JAX_COORDINATOR_ADDRESS")
_IMPORT = re.compile(rb"^\s*(?:import|from)\s+(tensorflow|jax)\b", re.MULTILINE)


@dataclasses.dataclass(frozen=True, slots=True)
class ProgramOptions:
    """`workers` None: one process for each host. `compiler` judges the modules. `batch`: examples
    of a step. `dry_run_steps`: 0, or runs of the training step of which none is computed.
    `step_name`: the training step; None: by the rule. `slices`: of a multislice. `software`: the
    environment that the command runs in; None: the caller's. `has_full_attention`: MFU counts
    causal attention in full. `tokens`: of a whole run that is asked for; `tokens_per_step`: None:
    from the training step."""

    kind: AcceleratorType
    zone: str
    workers: int | None = None
    numerics: str = "mxu"
    strict: bool = False
    lenient: bool = False
    compiler: str = "podyard"
    batch: int | None = None
    report: Path | None = None
    trace: Path | None = None
    dry_run_steps: int = 0
    step_name: str | None = None
    plan_steps: int = 10_000
    slices: int = 1
    software: Path | None = None
    has_full_attention: bool = False
    tokens: int | None = None
    tokens_per_step: int | None = None


def environments_of(
    command: Sequence[str], options: ProgramOptions, run: Path | None
) -> list[dict[str, str]]:
    """One for each process. `run`: the folder that they write to; None: nothing is recorded.

    Raises INVALID_ARGUMENT for more processes than this machine can carry, and for a number that
    does not fit.
    """
    count = _processes_per_slice(command, options)
    base = Streams().stream("addresses").randrange(host.ADDRESSES)
    addresses = [host.host_address(base, number) for number in range(count * options.slices)]
    port = host.coordinator_port(f"{base} {addresses[0]}")
    inherited = {
        name: value for name, value in os.environ.items() if name not in _NOT_INHERITED
    } | _NO_MULTISLICE
    common = {
        **hook_environment(inherited),
        FOLDER_VARIABLE: inherited.get(FOLDER_VARIABLE)
        or str(from_environment().datasets_path / FOLDER),
        slices.RUN_VARIABLE: "" if run is None else str(run),
        SAID_VARIABLE: "" if run is None else str(run / "said"),
        slices.NUMERICS_VARIABLE: options.numerics,
        slices.STRICT_VARIABLE: str(int(options.strict)),
        slices.LENIENT_VARIABLE: str(int(options.lenient)),
        slices.DRY_RUN_VARIABLE: str(options.dry_run_steps),
        slices.STEP_VARIABLE: options.step_name or "",
    }
    if options.software is not None:
        common |= environments.activate(inherited, options.software)
    found = []
    for index, address in enumerate(addresses):
        place, worker = divmod(index, count)
        hosts = addresses[place * count : (place + 1) * count]
        own = address if host.HAS_HOST_ADDRESSES else None
        multislice = Multislice(place, options.slices, addresses[0]) if options.slices > 1 else None
        values = host.slice_environment(options.kind, worker, hosts, port, own)
        values |= host.megascale_environment(multislice) | {
            "COLAB_TPU_ADDR": f"{hosts[0]}:{host.TENSORFLOW_PORT}"
        }
        if count == 1 and options.kind.host_count > 1:
            values |= _all_devices(options.kind)
        values |= _caller_bounds(options.kind, values, count)
        found.append({"TPU_NAME": "local"} | inherited | values | common)
    return found


def _all_devices(kind: AcceleratorType) -> dict[str, str]:
    """For one process instead of one for each host."""
    bounds = (*kind.topology.shape, 1)[:3]
    return {
        "TPU_PROCESS_BOUNDS": "1,1,1",
        "TPU_CHIPS_PER_PROCESS_BOUNDS": ",".join(map(str, bounds)),
        "TPU_VISIBLE_CHIPS": ",".join(map(str, range(math.prod(bounds)))),
        "JAX_NUM_CPU_DEVICES": str(kind.device_count),
        "NPROC": str(2 * kind.device_count),
    }


def _caller_bounds(kind: AcceleratorType, values: dict[str, str], count: int) -> dict[str, str]:
    """Return the caller's choice of chips. Raises INVALID_ARGUMENT for one that the slice does not
    have."""
    own = os.environ.get(slices.TYPE_VARIABLE, slices.OFF)  # on a host of a node
    host_kind = (
        None if own in ("", slices.OFF) else kind_of(own, os.environ.get("TPU_TOPOLOGY", ""))
    )
    chosen = caller_bounds(os.environ, host_kind)
    if count > 1:
        chosen.pop(TASK, None)
    try:
        process_bounds(values | chosen, kind)
    except ValueError as error:
        raise invalid(str(error)) from None
    return chosen


def _processes_per_slice(command: Sequence[str], options: ProgramOptions) -> int:
    hosts = options.kind.host_count
    if options.workers is not None:
        count = options.workers
    elif options.dry_run_steps or _imports_tensorflow(command):
        count = 1  # nothing is computed; under TensorFlow a slice has one controlling program
    else:
        count = hosts
    if count not in (1, hosts):
        use = "1" if hosts == 1 else f"{hosts}, one for each host, or 1"
        raise invalid(f"--workers {count}: use {use} for {options.kind.name}")
    carried = min(PROCESSES_MAX, max(1, _free_bytes() // PROCESS_BYTES))
    if count * options.slices > carried:
        raise invalid(
            f"{options.kind.name} has {count * options.slices} hosts, and this machine can carry "
            f"about {carried} "
            "processes: use a smaller type, --workers 1, or --dry-run"
        )
    return count


def _free_bytes() -> int:
    import psutil

    return int(psutil.virtual_memory().available)


def _imports_tensorflow(command: Sequence[str]) -> bool:
    """Programs for JAX may read their data with TensorFlow."""
    for word in command:
        path = Path(word)
        if path.suffix == ".py" and path.is_file():
            return set(_IMPORT.findall(path.read_bytes())) == {b"tensorflow"}
    return False
