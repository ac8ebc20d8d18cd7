"""The record of the programs of today: StableHLO texts, and the compiler's answers. No JAX in
here."""

from __future__ import annotations

import dataclasses
import gzip
import hashlib
import json
import lzma
from pathlib import Path

_FOLDER = Path(__file__).parents[2] / "tests" / "data"
ROWS = _FOLDER / "programs_of_today.jsonl.gz"
TEXTS = _FOLDER / "programs_of_today_texts.json.xz"
GENERATIONS = ("v3", "v5e", "v4", "v5p", "v6e")
# Slices by the number that their names carry: cores on v3, v4 and v5p, chips elsewhere.
_NAMES = {"v3": "v3-{}", "v4": "v4-{}", "v5e": "v5litepod-{}", "v5p": "v5p-{}", "v6e": "v6e-{}"}


@dataclasses.dataclass(frozen=True, slots=True)
class Recorded:
    """What the compiler said of a program on a slice.

    `cycles`: the sum of its estimates of one device's kernels, loops times their turns.
    `collectives`: (kind, count, group size, bytes). `kernels`: (name, cycles of one run, runs),
    those with most cycles. `uncosted`: operations without cycles, by kind. `needed_bytes`: the
    peak, or of a program that does not fit what the compiler says that it needs; all other figures
    are then 0."""

    program: str
    accelerator_type: str
    devices: int
    text_hash: str
    compiler_version: str
    fits: bool
    needed_bytes: int
    cycles: int
    fetched_bytes: int
    accessed_bytes: int
    flops: int
    argument_bytes: int
    output_bytes: int
    temporary_bytes: int
    alias_bytes: int
    code_bytes: int
    peak_bytes: int
    collectives: tuple[tuple[str, int, int, int], ...]
    kernels: tuple[tuple[str, int, int], ...]
    uncosted: tuple[tuple[str, int], ...]
    unknown_loops: int
    seconds: float

    @property
    def generation(self) -> str:
        return next(
            g for g, name in _NAMES.items() if self.accelerator_type.startswith(name.format(""))
        )

    @property
    def hbm_peak_bytes(self) -> int:
        """The peak without what lies in the chip's own memory, which the compiler counts from v4
        on: at most what all buffers of the device's memory need next to each other."""
        buffers = self.argument_bytes + self.output_bytes + self.temporary_bytes - self.alias_bytes
        return min(self.peak_bytes, buffers)

    @property
    def is_limit(self) -> bool:
        """Return whether it is recorded because it needs about as much memory as there is."""
        return self.program.startswith("limit-")

    @property
    def is_single(self) -> bool:
        """Return whether it is one convolution, or one of its gradients: these have figures of
        their own."""
        return self.program.startswith("single-")

    @property
    def is_kept_out(self) -> bool:
        """Never used in fitting: a third, by name."""
        return int(hashlib.sha256(self.program.encode()).hexdigest(), 16) % 3 == 0


Rows = dict[tuple[str, str], Recorded]


def slice_for(generation: str, devices: int) -> str:
    """The smallest slice with that many devices: cores on v3, chips from v4 on."""
    if generation in ("v4", "v5p"):
        return _NAMES[generation].format(max(8, 2 * devices))
    return _NAMES[generation].format(max(8, devices) if generation == "v3" else devices)


def load_rows(path: Path = ROWS) -> Rows:
    if not path.exists():
        return {}
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        rows = [Recorded(**_frozen(json.loads(line))) for line in lines]
    return {(row.program, row.generation): row for row in rows}


def _frozen(fields: dict[str, object]) -> dict[str, object]:
    """Lists as tuples."""
    made: dict[str, object] = {}
    for name, value in fields.items():
        made[name] = tuple(map(tuple, value)) if isinstance(value, list) else value
    return made


def save_rows(rows: Rows, path: Path = ROWS) -> None:
    lines = "".join(json.dumps(dataclasses.asdict(rows[key])) + "\n" for key in sorted(rows))
    path.write_bytes(gzip.compress(lines.encode(), mtime=0))


def load_texts(path: Path = TEXTS) -> dict[str, str]:
    """StableHLO by hash."""
    if not path.exists():
        return {}
    texts: dict[str, str] = json.loads(lzma.decompress(path.read_bytes()))
    return texts


def save_texts(texts: dict[str, str], path: Path = TEXTS) -> None:
    path.write_bytes(lzma.compress(json.dumps(texts).encode(), preset=9))
