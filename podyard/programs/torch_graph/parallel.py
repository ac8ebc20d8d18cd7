"""What a step has besides PyTorch's operations, in StableHLO: constraints on shardings, exchanges
between devices, kernels."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from podyard.base.kernel_cost import KERNEL_ATTRIBUTE, KernelCost
from podyard.programs.torch_graph.shardings import TensorSharding
from podyard.programs.torch_graph.stablehlo_writer import (
    Operation,
    Shape,
    Type,
    Value,
    Writer,
    sum_region,
    tensor_type,
)

_TARGET = "tpu_custom_call"


@dataclasses.dataclass(frozen=True, slots=True)
class KernelCall:
    """A kernel as an operation. `cost`: of one device. `taken`, `returned`: how its operands and
    results are split; empty: they are not."""

    cost: KernelCost
    results: tuple[Type, ...]
    taken: tuple[TensorSharding, ...] = ()
    returned: tuple[TensorSharding, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True)
class Exchange:
    """`groups`: the devices that exchange with each other, all of one size. `axis`: along which
    parts are joined or cut."""

    groups: tuple[tuple[int, ...], ...]
    axis: int = 0

    def text(self) -> str:
        """The attributes that all exchanges have."""
        rows = ", ".join(str(list(group)) for group in self.groups)
        shape = f"{len(self.groups)}x{len(self.groups[0])}"
        return (
            "channel_handle = #stablehlo.channel_handle<handle = 1, type = 1>, replica_groups = "
            f"dense<[{rows}]> : tensor<{shape}xi64>, use_global_device_ids"
        )


def _constrain(w: Writer, a: list[Any], to: Type) -> list[Value]:
    value, sharding = a
    text = f"sdy.sharding_constraint {value.name} {sharding.text(w.mesh_name(sharding.mesh))}"
    return [w.add(f"{text} : {value.type}", *to)]


def _all_reduce(w: Writer, a: list[Any], to: Type) -> list[Value]:
    value, exchange = a
    text = f'"stablehlo.all_reduce"({value.name}) <{{{exchange.text()}}}>'
    return [w.add(f"{text} ({sum_region(to[1])}) : ({value.type}) -> {value.type}", *to)]


def _all_gather(w: Writer, a: list[Any], to: Type) -> list[Value]:
    value, exchange = a
    how = f"all_gather_dim = {exchange.axis} : i64, {exchange.text()}"
    types = f"({value.type}) -> {tensor_type(*to)}"
    return [w.add(f'"stablehlo.all_gather"({value.name}) <{{{how}}}> : {types}', *to)]


def _reduce_scatter(w: Writer, a: list[Any], to: Type) -> list[Value]:
    value, exchange = a
    how = f"scatter_dimension = {exchange.axis} : i64, {exchange.text()}"
    types = f"({value.type}) -> {tensor_type(*to)}"
    text = f'"stablehlo.reduce_scatter"({value.name}) <{{{how}}}>'
    return [w.add(f"{text} ({sum_region(to[1])}) : {types}", *to)]


def _kernel(w: Writer, a: list[Any], to: Type) -> list[Value]:  # noqa: ARG001
    operands: Sequence[Value] = a[0]
    call: KernelCall = a[1]
    if not call.taken:
        return w.add_many(_custom_call(call, operands, call.results), call.results)
    shards = [
        Value(f"%shard{place}", sharding.shard_shape(value.shape), value.element)
        for place, (value, sharding) in enumerate(zip(operands, call.taken, strict=True))
    ]
    types = tuple(
        (sharding.shard_shape(shape), element)
        for (shape, element), sharding in zip(call.results, call.returned, strict=True)
    )
    count = f":{len(types)}" if len(types) > 1 else ""
    inner = [f"%kernel#{n}" if count else "%kernel" for n in range(len(types))]
    mesh = call.taken[0].mesh
    axes = ", ".join(f'"{name}"' for name, _ in mesh.axes)
    text = (
        f"sdy.manual_computation({', '.join(one.name for one in operands)}) "
        f"in_shardings=[{_texts(w, call.taken)}] out_shardings=[{_texts(w, call.returned)}] "
        f"manual_axes={{{axes}}} ({', '.join(f'{one.name}: {one.type}' for one in shards)}) {{\n"
        f"        %kernel{count} = {_custom_call(call, shards, types)}\n"
        f"        sdy.return {', '.join(inner)} : {_types(types)}\n"
        f"      }} : ({', '.join(one.type for one in operands)}) -> ({_types(call.results)})"
    )
    return w.add_many(text, call.results)


def _custom_call(call: KernelCall, operands: Sequence[Value], types: Sequence[Type]) -> str:
    record = call.cost.to_json().replace("\\", "\\5C").replace('"', "\\22")
    taken = ", ".join(one.type for one in operands)
    returned = _types(types) if len(types) == 1 else f"({_types(types)})"
    return (
        f"stablehlo.custom_call @{_TARGET}({', '.join(one.name for one in operands)}) "
        f'{{mhlo.frontend_attributes = {{{KERNEL_ATTRIBUTE} = "{record}"}}}} : '
        f"({taken}) -> {returned}"
    )


def _types(types: Sequence[tuple[Shape, str]]) -> str:
    return ", ".join(tensor_type(shape, element) for shape, element in types)


def _texts(w: Writer, shardings: Sequence[TensorSharding]) -> str:
    return ", ".join(one.text(w.mesh_name(one.mesh)) for one in shardings)


PARALLEL: dict[str, Operation] = {
    "sharding_constraint": _constrain,
    "all_reduce": _all_reduce,
    "all_gather": _all_gather,
    "reduce_scatter": _reduce_scatter,
    "kernel": _kernel,
}
