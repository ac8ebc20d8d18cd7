"""StableHLO as TensorFlow's bridge writes it, made into a module of the slice: each replica is a
device of a mesh."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence

SUM = "podyard_all_reduce"  # what stands for a sum over replicas in the module of one
_HEAD = re.compile(r"^module [^\n]*\{$", re.MULTILINE)
_MAIN = re.compile(r"func\.func @main\((.*)\) -> (.*) \{$", re.MULTILINE)
_LOCATION = re.compile(r' ?loc\((?:[^()"]|"(?:[^"\\]|\\.)*"|\([^()]*\))*\)')
_LOCATIONS = re.compile(r"^#loc.*\n", re.MULTILINE)
_COPY = re.compile(r"(%\S+) = mhlo\.copy (%\S+) : (tensor<[^>]*>)")
_ALIAS = re.compile(r"parameter_number = (\d+) : i64\}, output_index = array<i64(?:: (\d+))?>")
# A custom call gives a tuple unless it has one result.
_TUPLE = re.compile(r"(%\S+) = (stablehlo\.custom_call [^\n]*) -> tuple<([^\n]*)>$", re.MULTILINE)
_OF_TUPLE = re.compile(
    r"(%\S+) = stablehlo\.get_tuple_element (%\S+)\[(\d+)\] : \([^\n]*\) -> (tensor<[^>]*>)"
)
_SUM = re.compile(
    rf"(%\S+) = stablehlo\.custom_call @{SUM}\((%\S+)\)[^\n]* "
    r": \((tensor<(?:[\dx]*x)?(\w+)>)\) -> tensor<[^>\n]*>"
)
_TENSOR = re.compile(r"tensor<[^>]*>")
_NOT_IN_NAMES = re.compile(r"\W+")


def of_one_device(text: str, name: str) -> str:
    """The module with its variables' results in the place of their arguments."""
    body, arguments, results, given = _parts(text)
    signature = ", ".join(
        f"%arg{place}: {one}{given(place)}" for place, one in enumerate(arguments)
    )
    head = f"func.func public @main({signature}) -> ({', '.join(results)}) {{"
    return _HEAD.sub(_module(name, 1), _MAIN.sub(lambda _: head, body, count=1), count=1)


def over_replicas(text: str, name: str, replicas: int, split: int) -> str:
    """A replica's module on each of `replicas` devices. The first `split` arguments are a replica's
    part of the batch, the others (variables) are the same on all."""
    if replicas == 1:
        return of_one_device(text, name)
    body, arguments, results, given = _parts(text)
    channels = itertools.count(1)
    body = _SUM.sub(lambda place: _all_reduce(place, next(channels), replicas), body)
    is_split = [place < split and "x" in one for place, one in enumerate(arguments)]
    whole = [
        _times(one, replicas) if cut else one for one, cut in zip(arguments, is_split, strict=True)
    ]
    numbers = range(len(arguments))
    names = ", ".join(f"%arg{place}" for place in numbers)
    returned = (
        ", ".join(f"%0#{place}" for place in range(len(results))) if len(results) > 1 else "%0"
    )
    inner = returned.replace("%0", "%1")
    count = f":{len(results)}" if len(results) > 1 else ""
    types = ", ".join(results)
    signature = ", ".join(f"%arg{place}: {whole[place]}{given(place)}" for place in numbers)
    own = ", ".join(f"%own{place}: {arguments[place]}" for place in numbers)
    shardings_in = ", ".join(
        _sharding(one, cut) for one, cut in zip(arguments, is_split, strict=True)
    )
    shardings_out = ", ".join(_sharding(one, cut=False) for one in results)
    main = f"""{_module(name, replicas)}
  sdy.mesh @mesh = <["replica"={replicas}]>
  func.func public @main({signature}) -> ({types}) {{
    %0{count} = sdy.manual_computation({names}) in_shardings=[{shardings_in}] out_shardings=[{shardings_out}] \
manual_axes={{"replica"}} ({own}) {{
      %1{count} = func.call @replica({names.replace("%arg", "%own")}) : ({", ".join(arguments)}) -> ({types})
      sdy.return {inner} : {types}
    }} : ({", ".join(whole)}) -> ({types})
    return {returned} : {types}
  }}"""  # noqa: E501
    plain = ", ".join(f"%arg{place}: {one}" for place, one in enumerate(arguments))
    body = _MAIN.sub(
        lambda _: f"func.func private @replica({plain}) -> ({types}) {{", body, count=1
    )
    return _HEAD.sub(lambda _: main, body, count=1)


def _parts(text: str) -> tuple[str, list[str], list[str], _Given]:
    """The text as StableHLO only, types of its arguments and results, and what is written into
    which result."""
    body = _LOCATIONS.sub("", _LOCATION.sub("", text))
    body = _COPY.sub(r"\1 = stablehlo.reshape \2 : (\3) -> \3", body)
    body = _TUPLE.sub(_results_of_call, body)
    body = _OF_TUPLE.sub(r"\1 = stablehlo.reshape \2#\3 : (\4) -> \4", body)
    main, head = _MAIN.search(body), _HEAD.search(body)
    if main is None or head is None:
        raise ValueError("TensorFlow's bridge gave no module with a function main")
    aliases = {int(argument): int(result or 0) for argument, result in _ALIAS.findall(head[0])}
    return body, _TENSOR.findall(main[1]), _TENSOR.findall(main[2]), _Given(aliases)


def _results_of_call(call: re.Match[str]) -> str:
    result, operation, types = call.groups()
    count = types.count("tensor<")
    return f"{result}:{count} = {operation} -> ({types})" if count else f"{operation} -> ()"


def _all_reduce(place: re.Match[str], channel: int, replicas: int) -> str:
    result, operand, tensor, element = place.groups()
    groups = f"dense<[{list(range(replicas))}]> : tensor<1x{replicas}xi64>"
    left, right, total = (f"%sum{channel}_{part}" for part in ("left", "right", "total"))
    return f"""{result} = "stablehlo.all_reduce"({operand}) <{{channel_handle = \
#stablehlo.channel_handle<handle = {channel}, type = 1>, replica_groups = {groups}, \
use_global_device_ids}}> ({{
    ^bb0({left}: tensor<{element}>, {right}: tensor<{element}>):
      {total} = stablehlo.add {left}, {right} : tensor<{element}>
      stablehlo.return {total} : tensor<{element}>
    }}) : ({tensor}) -> {tensor}"""


class _Given:
    def __init__(self, aliases: dict[int, int]) -> None:
        self._aliases = aliases

    def __call__(self, argument: int) -> str:
        result = self._aliases.get(argument)
        return "" if result is None else f" {{tf.aliasing_output = {result} : i32}}"


def _module(name: str, devices: int) -> str:
    name = _NOT_IN_NAMES.sub("_", name)
    return (
        f"module @{name} attributes {{mhlo.num_partitions = {devices} : i32, "
        "mhlo.num_replicas = "
        f"1 : i32}} {{"
    )


def _times(type_: str, count: int) -> str:
    first, _, rest = type_.removeprefix("tensor<").partition("x")
    return f"tensor<{int(first) * count}x{rest}"


def _sharding(type_: str, cut: bool) -> str:
    rank = type_.count("x") - type_.count("complex")
    dims: Sequence[str] = ['{"replica"}' if cut and axis == 0 else "{}" for axis in range(rank)]
    return f"<@mesh, [{', '.join(dims)}]>"
