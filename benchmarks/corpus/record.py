"""Records what the TPU compiler says of the programs of today: `python -m benchmarks.corpus.record` (extra `xla-tpu`).

Each program is compiled for a slice of every generation that `wanted` names. `--only PART` and `--generation NAME`
choose; `--again` compiles what the record has already. `--texts` writes the programs' StableHLO again.
"""

from __future__ import annotations

import argparse
import hashlib
import tempfile
import time
from collections import Counter
from pathlib import Path

from benchmarks.corpus.data import GENERATIONS, Recorded, load_rows, load_texts, save_rows, save_texts, slice_for
from benchmarks.corpus.programs import PROGRAMS, wanted
from podyard.base.errors import PodyardError
from podyard.engine.exact.client import ExactCompiler, ExactVerdict
from podyard.engine.timing.memory import named_total_bytes

_LIMIT_SECONDS = 120.0
# Of each program, the kernels with most cycles are kept, so that a reader sees where the time is.
_KERNELS = 24


def recorded(name: str, accelerator_type: str, text: str, devices: int, compiler: ExactCompiler) -> Recorded:
    """The compiler's answer about one program. Raises PodyardError when it refuses for another reason than memory."""
    start = time.monotonic()
    verdict = compiler.compile(text, accelerator_type, devices, _LIMIT_SECONDS)
    return answer(name, text, verdict, round(time.monotonic() - start, 1))


def answer(name: str, text: str, verdict: ExactVerdict, seconds: float) -> Recorded:
    sent = Counter[tuple[str, int, int]]()
    for one in verdict.collectives:
        sent[one.kind.removesuffix("-start"), one.group_size, one.nbytes] += one.count
    kernels = sorted((op for op in verdict.ops if op.cycles), key=lambda op: -(op.cycles or 0) * op.count)
    return Recorded(
        program=name,
        accelerator_type=verdict.accelerator_type,
        devices=verdict.partitions,
        text_hash=hash_of(text),
        compiler_version=verdict.compiler_version,
        fits=verdict.fits,
        needed_bytes=verdict.peak_bytes if verdict.fits else named_total_bytes(verdict.out_of_memory_text) or 0,
        cycles=verdict.cycles,
        fetched_bytes=verdict.fetched_bytes,
        accessed_bytes=round(verdict.bytes_accessed),
        flops=round(verdict.flops),
        argument_bytes=verdict.argument_bytes,
        output_bytes=verdict.output_bytes,
        temporary_bytes=verdict.temporary_bytes,
        alias_bytes=verdict.alias_bytes,
        code_bytes=verdict.code_bytes,
        peak_bytes=verdict.peak_bytes,
        collectives=tuple((kind, count, size, nbytes) for (kind, size, nbytes), count in sorted(sent.items())),
        kernels=tuple((op.name, op.cycles or 0, op.count) for op in kernels[:_KERNELS]),
        uncosted=tuple(sorted(Counter(op.kind for op in verdict.ops if op.cycles is None).items())),
        unknown_loops=len(verdict.unknown_trip_loops),
        seconds=seconds,
    )


def hash_of(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def main() -> None:
    """Adds to the record program by program, so that it can be interrupted."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="*", default=[""], help="parts of the names of programs to record")
    parser.add_argument("--generation", nargs="*", default=list(GENERATIONS), help="generations to record")
    parser.add_argument("--again", action="store_true", help="compile what is recorded already, too")
    parser.add_argument("--texts", action="store_true", help="only write the StableHLO of all recorded programs")
    given = parser.parse_args()
    rows = load_rows()
    with tempfile.TemporaryDirectory() as locks:
        compiler = ExactCompiler(lock_folder=Path(locks))
        for generation in [] if given.texts else given.generation:
            for name, build in PROGRAMS.items():
                key = (name, generation)
                if not any(part in name for part in given.only) or generation not in wanted(name):
                    continue
                if key in rows and not given.again:
                    continue
                made = build()
                kind = slice_for(generation, made.layout.devices)
                try:
                    rows[key] = row = recorded(name, kind, made.text(), made.layout.devices, compiler)
                except PodyardError as error:
                    print(f"{name} on {kind}: {error.message[:300]}", flush=True)
                    continue
                save_rows(rows)
                fits = f"{row.cycles} cycles, peak {row.peak_bytes}" if row.fits else f"needs {row.needed_bytes}"
                print(f"{name} on {kind}: {fits}, {row.seconds} s", flush=True)
        compiler.close()
    names = {name for name, _ in rows}
    texts = {
        text_hash: text for text_hash, text in load_texts().items() if text_hash in {r.text_hash for r in rows.values()}
    }
    missing = {row.program for row in rows.values() if row.text_hash not in texts}
    texts |= {hash_of(text): text for text in (PROGRAMS[name]().text() for name in PROGRAMS if name in names & missing)}
    save_texts(texts)


if __name__ == "__main__":
    main()
