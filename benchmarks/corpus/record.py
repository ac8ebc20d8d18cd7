"""Records what the TPU compiler says of the programs of today: `python -m benchmarks.corpus.record`
(extra `xla-tpu`).

Each program is compiled for a slice of every generation that `wanted` names. `--only PART` and
`--generation NAME` choose; `--limits` records programs around the limit of memory instead,
`--singles` single convolutions. `--again` compiles what the record has already, `--texts` only
writes the programs' StableHLO again.
"""

from __future__ import annotations

import argparse
import hashlib
import tempfile
import time
from collections import Counter
from pathlib import Path

from benchmarks.corpus import limits
from benchmarks.corpus.data import (
    GENERATIONS,
    Recorded,
    load_rows,
    load_texts,
    save_rows,
    save_texts,
    slice_for,
)
from benchmarks.corpus.layout import Made
from benchmarks.corpus.programs import PROGRAMS, wanted
from benchmarks.corpus.singles import SINGLES
from podyard.base.errors import PodyardError
from podyard.engine.exact.client import ExactCompiler, ExactVerdict
from podyard.engine.timing.memory import named_total_bytes
from podyard.hardware.generations import cost_model

_LIMIT_SECONDS = 90.0
# Of each program, the kernels with most cycles are kept, so that a reader sees where the time is.
_KERNELS = 24


def recorded(
    name: str, accelerator_type: str, text: str, devices: int, compiler: ExactCompiler
) -> Recorded:
    """The compiler's answer about one program. Raises PodyardError when it refuses for another
    reason than memory."""
    start = time.monotonic()
    verdict = compiler.compile(text, accelerator_type, devices, _LIMIT_SECONDS)
    return answer(name, text, verdict, round(time.monotonic() - start, 1))


def answer(name: str, text: str, verdict: ExactVerdict, seconds: float) -> Recorded:
    sent = Counter[tuple[str, int, int]]()
    for one in verdict.collectives:
        sent[one.kind.removesuffix("-start"), one.group_size, one.nbytes] += one.count
    kernels = sorted(
        (op for op in verdict.ops if op.cycles), key=lambda op: -(op.cycles or 0) * op.count
    )
    return Recorded(
        program=name,
        accelerator_type=verdict.accelerator_type,
        devices=verdict.partitions,
        text_hash=hash_of(text),
        compiler_version=verdict.compiler_version,
        fits=verdict.fits,
        needed_bytes=verdict.peak_bytes
        if verdict.fits
        else named_total_bytes(verdict.out_of_memory_text) or 0,
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
        collectives=tuple(
            (kind, count, size, nbytes) for (kind, size, nbytes), count in sorted(sent.items())
        ),
        kernels=tuple((op.name, op.cycles or 0, op.count) for op in kernels[:_KERNELS]),
        uncosted=tuple(sorted(Counter(op.kind for op in verdict.ops if op.cycles is None).items())),
        unknown_loops=len(verdict.unknown_trip_loops),
        seconds=seconds,
    )


def hash_of(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def made_of(name: str) -> Made:
    if name.startswith(limits.PREFIX):
        return limits.build(name)
    return SINGLES[name]() if name in SINGLES else PROGRAMS[name]()


class _Recorder:
    def __init__(self, compiler: ExactCompiler, again: bool) -> None:
        self._compiler = compiler
        self._again = again

    def record(self, name: str, generation: str, keep: bool = True) -> Recorded | None:
        """None where the compiler refuses for another reason than memory, which is printed."""
        key, made = (name, generation), made_of(name)
        rows = load_rows()
        if key in rows and not self._again:
            return rows[key]
        kind = slice_for(generation, made.layout.devices)
        try:
            row = recorded(name, kind, made.text(), made.layout.devices, self._compiler)
        except PodyardError as error:
            print(f"{name} on {kind}: {error.message[:300]}", flush=True)
            return None
        if keep:
            # another process may record other programs meanwhile
            save_rows(load_rows() | {key: row})
        fits = (
            f"{row.cycles} cycles, peak {row.peak_bytes}"
            if row.fits
            else f"needs {row.needed_bytes}"
        )
        print(f"{name} on {kind}: {fits}, {row.seconds} s", flush=True)
        return row

    def record_limits(self, family: str, generation: str) -> None:
        """Programs of the family at shares of the memory, on both sides of the limit. Sizes follow
        the line through the last two answers."""
        usable = cost_model(generation).hbm_usable_bytes
        points: list[tuple[int, float]] = []

        def ask(size: int) -> Recorded | None:
            row = self.record(f"{limits.PREFIX}{family}-{size}", generation, keep=False)
            if row is not None and size not in dict(points):
                points.append((size, row.needed_bytes / usable))
            return row

        if ask(8) is None or ask(32) is None:
            return
        for share in limits.SHARES:
            for _ in range(limits.TRIES):
                (first, low), (last, high) = points[-2:]
                if high == low:
                    return
                row = ask(max(1, round(last + (share - high) * (last - first) / (high - low))))
                if row is None:
                    break
                if abs(row.needed_bytes / usable - share) <= limits.NEAR:
                    save_rows(load_rows() | {(row.program, generation): row})
                    break


def _write_texts() -> None:
    """The StableHLO of all programs of the record, as it was compiled where it is known already."""
    rows, known = load_rows().values(), load_texts()
    texts = {row.text_hash: known[row.text_hash] for row in rows if row.text_hash in known}
    for name in sorted({row.program for row in rows if row.text_hash not in texts}):
        text = made_of(name).text()
        texts[hash_of(text)] = text
    save_texts(texts)


def main() -> None:
    """Adds to the record program by program, so that it can be interrupted."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--only", nargs="*", default=[""], help="parts of the names of programs to record"
    )
    parser.add_argument(
        "--generation", nargs="*", default=list(GENERATIONS), help="generations to record"
    )
    parser.add_argument(
        "--again", action="store_true", help="compile what is recorded already, too"
    )
    parser.add_argument(
        "--texts", action="store_true", help="only write the StableHLO of all recorded programs"
    )
    parser.add_argument("--singles", action="store_true", help="record single convolutions instead")
    parser.add_argument(
        "--limits", action="store_true", help="record programs around the limit of memory instead"
    )
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as locks:
        compiler = ExactCompiler(lock_folder=Path(locks))
        recorder = _Recorder(compiler, given.again)
        for generation in [] if given.texts else given.generation:
            for name in limits.FAMILIES if given.limits else SINGLES if given.singles else PROGRAMS:
                if not any(part in name for part in given.only):
                    continue
                if given.limits:
                    recorder.record_limits(name, generation)
                elif given.singles or generation in wanted(name):
                    recorder.record(name, generation)
        compiler.close()
    _write_texts()


if __name__ == "__main__":
    main()
