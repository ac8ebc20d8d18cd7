"""Programs over several devices against what the TPU compiler made of them: arguments and
collectives.

`tests/data/sharded_programs.json.xz` has each program's StableHLO with its hash, and the compiler's
answer of `benchmarks/record_sharded_programs.py`. Of a collective: kind, runs, devices in a group
(0 of a permutation), bytes.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from functools import cache

import pytest

from benchmarks.record_sharded_programs import Compiled, load
from podyard.engine import Estimate, analyze_stablehlo

pytestmark = pytest.mark.xdist_group("sharded programs")

ROWS, TEXTS = load()
# What is known to come out otherwise, and why; see docs/internals/sharding.md.
OTHERWISE = {
    "cmoe": "places of a maximum",
    "c_sp": "gathers of this version of the compiler are over both axes", "sp_mlp": "the same",
    "fsdp4": "GSPMD splits a product along an idle axis", "lm_2d": "permutations of positions",
    "lm_2d_scan": "the same", "lm_2d_v5e": "how far apart readers share a gather",
    "lm_fsdp_scan": "two sums of a loop are one",
}  # fmt: skip


@cache
def estimate_of(name: str) -> Estimate:
    return analyze_stablehlo(TEXTS[ROWS[name].text_hash], ROWS[name].accelerator_type)


def sent_by(estimate: Estimate) -> Counter[tuple[str, int]]:
    sent = Counter[tuple[str, int]]()
    for one in estimate.collective_ops:
        sent[one.kind, 0 if one.kind == "collective-permute" else one.group_size] += one.count
    return sent


def compiled_by(row: Compiled) -> Counter[tuple[str, int]]:
    sent = Counter[tuple[str, int]]()
    for kind, count, size, _ in row.collectives:
        sent[kind, size] += count
    return sent


@pytest.mark.slow
@pytest.mark.parametrize("name", ROWS)
def test_arguments_are_the_compilers(name: str) -> None:
    assert estimate_of(name).argument_bytes == ROWS[name].argument_bytes
    assert estimate_of(name).doubts == ()


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(ROWS.keys() - OTHERWISE.keys()))
def test_devices_send_what_the_compiler_lets_them_send(name: str) -> None:
    estimate, row = estimate_of(name), ROWS[name]
    assert sent_by(estimate) == compiled_by(row)
    if name.startswith("lm_fsdp"):  # kinds and groups are equal; one array crosses in another type
        return
    nbytes = sum(
        one.count * one.nbytes for one in estimate.collective_ops if one.kind != "reduce-scatter"
    )
    compiled = sum(
        count * size for kind, count, _, size in row.collectives if kind != "reduce-scatter"
    )
    assert nbytes == pytest.approx(compiled, rel=0.02)


@pytest.mark.slow
def test_most_programs_send_what_the_compiler_lets_them_send() -> None:
    equal = [name for name in ROWS if sent_by(estimate_of(name)) == compiled_by(ROWS[name])]
    print(f"{len(equal)} of {len(ROWS)} programs send the same")
    assert set(ROWS) - set(equal) == set(OTHERWISE)


def test_the_record_is_whole() -> None:
    assert {row.text_hash for row in ROWS.values()} == set(TEXTS)
    assert all(
        hashlib.sha256(text.encode()).hexdigest()[:16] == text_hash
        for text_hash, text in TEXTS.items()
    )
