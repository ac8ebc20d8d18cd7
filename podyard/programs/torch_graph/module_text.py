"""The text of a step's module around its operations: one device's program among several, or a
program for all of them that XLA partitions."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

from podyard.programs.torch_graph.shardings import TensorSharding
from podyard.programs.torch_graph.stablehlo_writer import Value, Writer


@dataclasses.dataclass(frozen=True, slots=True)
class ModuleBorder:
    """`results` of the module. `aliases`: results that take the memory of an argument, by argument;
    `shardings`: of arguments, by place. `notes` stand in front of it, as comments."""

    name: str
    results: Sequence[Value]
    devices: int
    aliases: Mapping[int, int] = dataclasses.field(default_factory=dict)
    shardings: Mapping[int, TensorSharding] = dataclasses.field(default_factory=dict)
    notes: Sequence[str] = ()


def device_module(writer: Writer, border: ModuleBorder) -> str:
    """Return the program of one device among several, as `jax.shard_map` would print it: nothing is
    split, and what the devices exchange stands in it."""
    if border.devices == 1:
        return partitioned_module(writer, border)
    whole = (
        ", ".join(_replicate(one) for one in writer.arguments),
        ", ".join(map(_replicate, border.results)),
    )
    inner = ", ".join(f"{one.name.replace('arg', 'own')}: {one.type}" for one in writer.arguments)
    outer = ", ".join(one.name for one in writer.arguments)
    body = "".join(f"      {line.replace('%arg', '%own')}\n" for line in writer.lines)
    types = ", ".join(one.type for one in border.results)
    taken = ", ".join(one.type for one in writer.arguments)
    names = [f"%0#{n}" if len(border.results) > 1 else "%0" for n in range(len(border.results))]
    count = f":{len(border.results)}" if len(border.results) > 1 else ""
    returned = ", ".join(one.name.replace("%arg", "%own") for one in border.results)
    return (
        f'{_heading(border)}  sdy.mesh @mesh = <["i"={border.devices}]>\n'
        f"{_signature(writer, border)}    %0{count} = sdy.manual_computation({outer}) "
        f'in_shardings=[{whole[0]}] out_shardings=[{whole[1]}] manual_axes={{"i"}} '
        f"({inner}) {{\n{body}"
        f"      sdy.return {returned} : {types}\n    }} : ({taken}) "
        f"-> ({types})\n"
        f"    return {', '.join(names)} : {types}\n  }}\n}}\n"
    )


def partitioned_module(writer: Writer, border: ModuleBorder) -> str:
    """Return the program of all devices, with the shardings that the user has marked."""
    texts = {
        place: sharding.text(writer.mesh_name(sharding.mesh))
        for place, sharding in border.shardings.items()
    }
    meshes = "".join(
        f"  sdy.mesh @{name} = {mesh.text()}\n" for mesh, name in writer.meshes.items()
    )
    body = "".join(f"    {line}\n" for line in writer.lines)
    names = ", ".join(one.name for one in border.results)
    types = ", ".join(one.type for one in border.results)
    return (
        f"{_heading(border)}{meshes}{_signature(writer, border, texts)}{body}"
        f"    return {names} : {types}\n  }}\n}}\n"
    )


def _heading(border: ModuleBorder) -> str:
    comments = "".join(f"// {note}\n" for note in border.notes)
    return (
        f"{comments}module @{border.name} attributes "
        f"{{mhlo.num_partitions = {border.devices} : i32, mhlo.num_replicas = 1 : i32}} {{\n"
    )


def _signature(writer: Writer, border: ModuleBorder, shardings: Mapping[int, str] = {}) -> str:
    arguments = []
    for place, one in enumerate(writer.arguments):
        attributes = []
        if place in border.aliases:
            attributes.append(f"tf.aliasing_output = {border.aliases[place]} : i32")
        if place in shardings:
            attributes.append(f"sdy.sharding = #sdy.sharding{shardings[place]}")
        text = f" {{{', '.join(attributes)}}}" if attributes else ""
        arguments.append(f"{one.name}: {one.type}{text}")
    types = ", ".join(one.type for one in border.results)
    return f"  func.func public @main({', '.join(arguments)}) -> ({types}) {{\n"


def _replicate(value: Value) -> str:
    return f"<@mesh, [{', '.join(['{}'] * len(value.shape))}]>"
