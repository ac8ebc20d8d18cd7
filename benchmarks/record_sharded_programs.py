"""Compiles the sharded programs of `tests/data/sharded_programs.json.xz` again with the TPU
compiler (extra `xla-tpu`).

    python -m benchmarks.record_sharded_programs [--only NAME ...]

The programs are their StableHLO text, kept next to the answers: another is added by its text.
Nothing here is fitted.
"""

from __future__ import annotations

import argparse
import dataclasses
import hashlib
import json
import lzma
from collections import Counter
from pathlib import Path

from podyard.engine.exact import client
from podyard.hardware.accelerator_types import parse

PATH = Path(__file__).parents[1] / "tests" / "data" / "sharded_programs.json.xz"


@dataclasses.dataclass(frozen=True)
class Compiled:
    """`collectives`: (kind, runs, devices in a group or 0, bytes of one)."""

    program: str
    accelerator_type: str
    text_hash: str
    compiler_version: str
    argument_bytes: int
    collectives: tuple[tuple[str, int, int, int], ...]


def load() -> tuple[dict[str, Compiled], dict[str, str]]:
    """The compiler's answers by program, and the texts by hash."""
    data = json.loads(lzma.decompress(PATH.read_bytes()))
    rows = [
        Compiled(**{**row, "collectives": tuple(map(tuple, row["collectives"]))})
        for row in data["rows"]
    ]
    return {row.program: row for row in rows}, data["texts"]


def record(row: Compiled, text: str) -> Compiled:
    verdict = client.compile_exact(
        text, row.accelerator_type, parse(row.accelerator_type).device_count
    )
    sent = Counter[tuple[str, int, int]]()
    for one in verdict.collectives:
        sent[one.kind.removesuffix("-start"), one.group_size, one.nbytes] += one.count
    return Compiled(
        row.program,
        row.accelerator_type,
        hashlib.sha256(text.encode()).hexdigest()[:16],
        verdict.compiler_version,
        verdict.argument_bytes,
        tuple(sorted((kind, count, size, nbytes) for (kind, size, nbytes), count in sent.items())),
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="*", default=[], help="names of programs; all without")
    only = parser.parse_args().only
    rows, texts = load()
    for name, row in rows.items():
        if not only or name in only:
            rows[name] = record(row, texts[row.text_hash])
            print(
                name,
                "as before" if rows[name].collectives == row.collectives else "otherwise",
                flush=True,
            )
    data = {"rows": [dataclasses.asdict(row) for row in rows.values()], "texts": texts}
    PATH.write_bytes(lzma.compress(json.dumps(data, sort_keys=True).encode(), preset=9))


if __name__ == "__main__":
    main()
