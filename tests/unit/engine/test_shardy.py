"""Shardings of all values against Shardy's, which comes with jaxlib, on the sharded programs of the
record.

The TPU compiler simplifies and numbers operations before it propagates. So values that a loop never
changes are made free variables here (a canonicalization); and what the model does because of the
rest is left out.
"""

from __future__ import annotations

import re
from typing import Any
from unittest import mock

import pytest

from benchmarks.corpus.data import load_rows, load_texts
from podyard.engine.program import factors, propagation
from podyard.engine.program.from_stablehlo import parse_stablehlo
from podyard.engine.program.ir import HloOperation, walk
from podyard.engine.program.propagation import Propagation

pytestmark = pytest.mark.xdist_group("shardy")

ROWS = {row.program: row for row in load_rows().values() if row.devices > 1 and not row.is_limit}
# Small ones of all kinds; the others take half a minute together.
QUICK = (
    "adam-tree-clipped-fsdp8", "dlrm-train-rows-split8", "experts-by-hand-8",
    "gpt-tiny-train-fsdp4-tensor2",
    "llama-1b-decode-tensor8-scan", "llama-7b-train-fsdp64-scan-remat", "table-rows-split8",
    "two-tower-contrastive-8",
)  # fmt: skip
# Shardy copies numbers that are known for each of their readers; a mask that two read is one value
# here.
COPIED = {"gpt-medium-train-fsdp8-scan": 12}
_PIPELINE = "builtin.module(inline,canonicalize{top-down=true region-simplify=disabled})"
_NUMBER = "podyard_number"
_Split = list[tuple[str, ...]]


def shardy(text: str) -> tuple[str, dict[int, _Split]]:
    """The module before propagation, with a number on each operation, and the sharding of each
    first result."""
    from jax._src.interpreters import mlir
    from jaxlib.mlir import ir
    from jaxlib.mlir.passmanager import PassManager

    context: Any = mlir.make_ir_context()
    with context:
        module: Any = ir.Module.parse(text)
        PassManager.parse(_PIPELINE).run(module.operation)
        for number, operation in enumerate(_operations(module.operation)):
            operation.attributes[_NUMBER] = ir.IntegerAttr.get(
                ir.IntegerType.get_signless(64), number
            )
        plain = module.operation.get_asm(large_elements_limit=8)
        PassManager.parse("builtin.module(sdy-propagation-pipeline)").run(module.operation)
        found: dict[int, _Split] = {}
        for operation in _operations(module.operation):
            if _NUMBER in operation.attributes and operation.name != "stablehlo.while":
                given = (
                    str(operation.attributes["sdy.sharding"])
                    if "sdy.sharding" in operation.attributes
                    else ""
                )
                first = re.search(r"<@\w+, \[(.*?)\]", given)
                dims = re.findall(r"\{([^{}]*)\}", first[1]) if first else []
                found[ir.IntegerAttr(operation.attributes[_NUMBER]).value] = [
                    tuple(re.findall(r'"(\w+)"', dim)) for dim in dims
                ]
        return plain, found


def _operations(operation: Any) -> list[Any]:
    found = []
    for region in operation.regions:
        for block in region.blocks:
            for inner in block.operations:
                if inner.operation.name.startswith(("stablehlo.", "sdy.constant")) and len(
                    inner.operation.results
                ):
                    found.append(inner.operation)
                found += _operations(inner.operation)
    return found


def _is_otherwise(text: str) -> tuple[int, int]:
    """(values that are compared, those that lie otherwise)."""
    plain, theirs = shardy(text)
    numbers = [re.search(rf"{_NUMBER} = (\d+)", line) for line in plain.split("\n")]
    broadcast = factors._RULES["broadcast_in_dim"]

    def never_plain(builder: Any, operation: HloOperation) -> None:
        broadcast(builder, operation)
        builder.rule.is_plain = False

    with (
        mock.patch.dict(factors._RULES, {"broadcast_in_dim": never_plain}),
        mock.patch.object(propagation, "_from_results", lambda body: body.operations),
        mock.patch.object(propagation, "_is_choice", lambda *_: False),
    ):
        program = parse_stablehlo(plain)
        spread = Propagation(program, list(program.types))
        spread.run()
    compared = other = 0
    for operation in walk(program.body):
        line = re.search(r"\d+", operation.where)
        number = numbers[int(line[0]) - 1] if line else None
        if number is None or int(number[1]) not in theirs or operation.opcode == "while":
            continue
        dims = spread.dims.get(operation.results[0], [])
        own = [tuple(dict.fromkeys(program.mesh.names[axis] for axis in axes)) for axes in dims]
        compared += 1
        other += [axes for axes in own if axes] != [axes for axes in theirs[int(number[1])] if axes]
    return compared, other


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[] if name in QUICK else [pytest.mark.slow])
        for name in sorted(ROWS)
    ],
)
def test_values_lie_as_shardy_lays_them(name: str) -> None:
    compared, other = _is_otherwise(load_texts()[ROWS[name].text_hash])
    assert compared > 0
    assert other == COPIED.get(name, 0)
