"""Constraints on shardings, exchanges between devices, and kernels of a step, in StableHLO."""

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
LANES = 128


@dataclasses.dataclass(frozen=True, slots=True)
class KernelCall:
    """A kernel as an operation. `cost`: of one device. `results`: their types. `row_operands`,
    `row_results`: places of those that hold one number for each row; the kernel has it in each
    lane. `taken`, `returned`: how operands and results are split; empty: they are not."""

    cost: KernelCost
    results: tuple[Type, ...]
    row_operands: tuple[int, ...] = ()
    row_results: tuple[int, ...] = ()
    taken: tuple[TensorSharding, ...] = ()
    returned: tuple[TensorSharding, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True)
class GroupExchange:
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
    call: KernelCall = a[1]
    operands = [
        w.broadcast_in(one, (*one.shape, LANES), range(len(one.shape)))
        if place in call.row_operands
        else one
        for place, one in enumerate(a[0])
    ]
    types = tuple(
        ((*shape, LANES), element) if place in call.row_results else (shape, element)
        for place, (shape, element) in enumerate(call.results)
    )
    if call.taken:
        results = _sharded_call(w, call, operands, types)
    else:
        results = w.add_many(_custom_call(call, operands, types), types)
    return [
        _first_lane(w, one) if place in call.row_results else one
        for place, one in enumerate(results)
    ]


def _first_lane(w: Writer, value: Value) -> Value:
    shape = value.shape[:-1]
    lane = w.slice(value, (0,) * len(value.shape), (*shape, 1), (1,) * len(value.shape))
    return w.reshape(lane, shape)


def _sharded_call(
    w: Writer, call: KernelCall, operands: Sequence[Value], types: Sequence[Type]
) -> list[Value]:
    """Each device calls the kernel with its part."""
    taken = [_with_rank(one, len(v.shape)) for one, v in zip(call.taken, operands, strict=True)]
    returned = [_with_rank(one, len(t[0])) for one, t in zip(call.returned, types, strict=True)]
    shards = [
        Value(f"%shard{place}", sharding.shard_shape(value.shape), value.element)
        for place, (value, sharding) in enumerate(zip(operands, taken, strict=True))
    ]
    own = [
        (sharding.shard_shape(shape), element)
        for (shape, element), sharding in zip(types, returned, strict=True)
    ]
    count = f":{len(own)}" if len(own) > 1 else ""
    inner = [f"%kernel#{n}" if count else "%kernel" for n in range(len(own))]
    axes = ", ".join(f'"{name}"' for name, _ in taken[0].mesh.axes)
    text = (
        f"sdy.manual_computation({', '.join(one.name for one in operands)}) "
        f"in_shardings=[{_texts(w, taken)}] out_shardings=[{_texts(w, returned)}] "
        f"manual_axes={{{axes}}} ({', '.join(f'{one.name}: {one.type}' for one in shards)}) {{\n"
        f"        %kernel{count} = {_custom_call(call, shards, own)}\n"
        f"        sdy.return {', '.join(inner)} : {_types(own)}\n"
        f"      }} : ({', '.join(one.type for one in operands)}) -> ({_types(types)})"
    )
    return w.add_many(text, types)


def _with_rank(sharding: TensorSharding, rank: int) -> TensorSharding:
    """Further dimensions are whole."""
    return dataclasses.replace(
        sharding, dims=(sharding.dims + ((),) * (rank - len(sharding.dims)))[:rank]
    )


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
