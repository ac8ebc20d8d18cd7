"""torch_xla.core.xla_model: devices, ordinals, the optimizer's step, and exchanges between the
processes."""

from __future__ import annotations

import gc
import io
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch_xla import _collectives, _process, _steps
from torch_xla._refusals import refusal
from torch_xla.debug import metrics
from torch_xla.runtime import xla_device as xla_device
from torch_xla.stablehlo import INSTEAD

from podyard.base.clock import OsClock

REDUCE_SUM, REDUCE_MUL, REDUCE_AND, REDUCE_OR, REDUCE_MIN, REDUCE_MAX = (
    "sum",
    "mul",
    "and",
    "or",
    "min",
    "max",
)

_Groups = Sequence[Sequence[int]] | None
_closures: list[Callable[[], object]] = []
_seed: list[int] = [0]


def is_xla_tensor(tensor: Any) -> bool:
    """CPU tensors stand for those of the device: the two cannot be told apart."""
    return isinstance(tensor, torch.Tensor)


def get_xla_supported_devices(
    devkind: str | None = None, max_devices: int | None = None
) -> list[str] | None:
    if devkind not in (None, "TPU"):
        return None
    count = 1 if _process.place().spawned else len(_process.host_devices())
    return [f"xla:{number}" for number in range(count)][:max_devices]


def xla_real_devices(devices: Sequence[Any] | None = None) -> list[str]:
    own = _process.host_devices()
    first = _process.place().local_ordinal
    found = get_xla_supported_devices() if devices is None else devices
    return [f"TPU:{own[first + (torch.device(str(one)).index or 0)].number}" for one in found or ()]


def xla_device_hw(device: Any) -> str:
    return "CPU" if str(device) == "cpu" else "TPU"


def xla_device_kind(device: Any = None) -> str:  # noqa: ARG001
    return str(_process.generation().device_kind)


def xrt_world_size(defval: int = 1) -> int:  # noqa: ARG001
    return int(_process.place().world)


def get_ordinal(defval: int = 0) -> int:  # noqa: ARG001
    return int(_process.place().ordinal)


def get_local_ordinal(defval: int = 0) -> int:  # noqa: ARG001
    return int(_process.place().local_ordinal)


def is_master_ordinal(local: bool = True) -> bool:
    return (get_local_ordinal() if local else get_ordinal()) == 0


def master_print(*args: Any, fd: Any = None, local: bool = False, flush: bool = False) -> None:
    if is_master_ordinal(local=local):
        print(*args, file=fd or sys.stdout, flush=flush)


def set_replication(device: Any, devices: Any) -> None:
    """Processes know of each other from their start."""


# The step


def mark_step(wait: bool = False, reset_scope: bool = True) -> None:  # noqa: ARG001
    metrics.count("MarkStep")
    _steps.end()
    closures = _closures[:]
    _closures.clear()
    for closure in closures:
        closure()


def add_step_closure(
    closure: Callable[..., object], args: Sequence[Any] = (), run_async: bool = False
) -> None:
    def run() -> object:
        return closure(*args)

    _closures.append(threading.Thread(target=run, daemon=True).start if run_async else run)


def wait_device_ops(devices: Sequence[Any] = ()) -> None:
    """Nothing is under way: PyTorch has computed each operation when it was called."""


def unlazy(tensors: Sequence[Any]) -> None:
    """Tensors are computed already."""


def _fetch_gradients(optimizer: Any) -> list[Any]:
    """Accelerate calls it, too."""
    groups = optimizer.__getstate__()["param_groups"]
    return [one.grad for settings in groups for one in settings["params"] if one.grad is not None]


def reduce_gradients(optimizer: Any, groups: _Groups = None, pin_layout: bool = True) -> None:
    group = _collectives.group_of(groups)
    if group is None:
        return
    all_reduce(
        REDUCE_SUM,
        _fetch_gradients(optimizer),
        scale=1.0 / group.size,
        groups=groups,
        pin_layout=pin_layout,
    )


def optimizer_step(
    optimizer: Any,
    barrier: bool = False,
    optimizer_args: Mapping[str, Any] | None = None,
    groups: _Groups = None,
    pin_layout: bool = True,
) -> Any:
    """The gradients' mean over the processes, and the optimizer's step."""
    reduce_gradients(optimizer, groups, pin_layout)
    loss = optimizer.step(**(optimizer_args or {}))
    _steps.note_step()
    if barrier:
        mark_step()
    return loss


# Exchanges


def all_reduce(
    reduce_type: str,
    inputs: Any,
    scale: float = 1.0,
    groups: _Groups = None,
    pin_layout: bool = True,  # noqa: ARG001
) -> Any:
    """A tensor gives a tensor; a list's tensors get the result, and nothing is returned."""
    alone = isinstance(inputs, torch.Tensor)
    tensors = [inputs] if alone else list(inputs)
    group = _collectives.group_of(groups)
    if group is None:
        reduced = [tensor.detach().clone() for tensor in tensors] if alone else tensors
    else:
        metrics.count("AllReduce")
        reduced = group.reduce(tensors, reduce_type, f"all_reduce ({reduce_type})")
        _steps.add("reduced" if alone else "reduced in place")
    with torch.no_grad():
        if scale != 1.0:
            reduced = [tensor.mul_(scale) for tensor in reduced]
        if alone:
            return reduced[0]
        for tensor, result in zip(tensors, reduced, strict=True):
            if tensor is not result:
                tensor.copy_(result)
    return None


def all_gather(
    value: Any,
    dim: int = 0,
    groups: _Groups = None,
    output: Any = None,
    pin_layout: bool = True,  # noqa: ARG001
) -> Any:
    """The values of all processes, one after the other along `dim`."""
    if not isinstance(value, torch.Tensor):
        found = [all_gather(one, dim, groups) for one in value]
        for target, one in zip(output or (), found, strict=bool(output)):
            target.copy_(one)
        return output or found
    group = _collectives.group_of(groups)
    if group is None:
        result = value.detach().clone()
    else:
        result = group.join(value, dim)
    return result if output is None else output.copy_(result)


def reduce_scatter(  # noqa: PLR0913
    reduce_type: str,
    input: Any,
    scale: float,
    scatter_dim: int,
    shard_count: int,
    groups: _Groups = None,
    output: Any = None,
    pin_layout: bool = True,  # noqa: ARG001
) -> Any:
    """This process' part, along `scatter_dim`, of the reduction."""
    if not isinstance(input, torch.Tensor):
        return [
            reduce_scatter(reduce_type, one, scale, scatter_dim, shard_count, groups)
            for one in input
        ]
    group = _collectives.group_of(groups)
    size = 1 if group is None else group.size
    if shard_count != size or input.shape[scatter_dim] % shard_count:
        raise ValueError(
            f"{shard_count} parts of {input.shape[scatter_dim]} elements for {size} processes: "
            "each process gets one part, and all parts are equal"
        )
    part = input if group is None else group.reduce_part(input, reduce_type, scatter_dim)
    result = part * scale
    return result if output is None else output.copy_(result)


def all_to_all(
    value: Any,
    split_dimension: int,
    concat_dimension: int,
    split_count: int,
    groups: _Groups = None,
    pin_layout: bool = True,  # noqa: ARG001
) -> Any:
    group = _collectives.group_of(groups)
    if group is None:
        return value.detach().clone()
    if split_count != group.size or value.shape[split_dimension] % split_count:
        raise ValueError(
            f"{split_count} parts of {value.shape[split_dimension]} elements for "
            f"{group.size} processes: "
            "each process gets one part, and all parts are equal"
        )
    pieces = torch.stack(value.detach().chunk(split_count, dim=split_dimension))
    return torch.cat(list(group.exchange(pieces, "all_to_all")), dim=concat_dimension)


def collective_permute(value: Any, pairs: Sequence[Sequence[int]]) -> Any:
    """`pairs`: (from, to). A process that nobody sends to gets zeros."""
    if not isinstance(value, torch.Tensor):
        return [collective_permute(one, pairs) for one in value]
    group = _collectives.group_of()
    values = value.detach()[None] if group is None else group.gather(value, "collective_permute")
    sources = [source for source, target in pairs if target == get_ordinal()]
    return values[sources[0]].clone() if sources else torch.zeros_like(value)


def collective_broadcast(
    tensors: Sequence[Any],
    root_ordinal: int = 0,
    groups: _Groups = None,
    pin_layout: bool = True,  # noqa: ARG001
) -> None:
    """The tensors of one process, in all."""
    group = _collectives.group_of(groups)
    if group is None:
        return
    own = get_ordinal() == root_ordinal
    buffer = io.BytesIO()
    if own:
        torch.save([tensor.detach() for tensor in tensors], buffer)
    if root_ordinal not in group.members:
        raise ValueError(f"process {root_ordinal} is not a member of {group.members}")
    data = group.gather_bytes(buffer.getvalue(), "collective_broadcast")[
        group.members.index(root_ordinal)
    ]
    if not own:
        with torch.no_grad():
            for tensor, value in zip(tensors, torch.load(io.BytesIO(data)), strict=True):
                tensor.copy_(value)


def broadcast_master_param(model: Any) -> None:
    collective_broadcast([tensor.data for tensor in (*model.parameters(), *model.buffers())])


def rendezvous(tag: str, payload: bytes = b"", replicas: Sequence[int] = ()) -> list[bytes]:
    """Waits until all processes are here, and gives what each has brought."""
    place = _process.place()
    rest = [one for one in range(place.world) if one not in replicas]
    group = _collectives.group_of([list(replicas), *([one] for one in rest)] if replicas else None)
    return [payload] if group is None else group.gather_bytes(payload, f"rendezvous {tag!r}")


def mesh_reduce(tag: str, data: Any, reduce_fn: Callable[[list[Any]], Any]) -> Any:
    with _steps.pause():
        buffer = io.BytesIO()
        torch.save(_to_cpu(data), buffer)
        values = [
            torch.load(io.BytesIO(one), weights_only=False)
            for one in rendezvous(tag, buffer.getvalue())
        ]
        return reduce_fn(values)


# Data


def send_cpu_data_to_device(data: Any, device: Any, input_sharding: Any = None) -> Any:
    """`input_sharding`: a ShardingSpec for the tensors that have its rank, or one for each key of a
    dict."""
    if isinstance(input_sharding, Mapping):
        if not isinstance(data, Mapping):
            raise ValueError("input batch should be a dict when input sharding is a dict.")
        if missing := [key for key in data if key not in input_sharding]:
            raise KeyError(f"Keys: {missing} are missing from input_sharding.")
        return {
            key: send_cpu_data_to_device(one, device, input_sharding[key])
            for key, one in data.items()
        }

    def send(tensors: list[Any]) -> list[Any]:
        sent = [one.to(device) for one in tensors]
        for one in sent if input_sharding is not None else ():
            if input_sharding.can_apply(one):
                input_sharding.apply(one)
        return sent

    return ToXlaTensorArena(send).transform(data)


class ToXlaTensorArena:
    """Applies a function of tensors to those in dicts, lists and tuples."""

    def __init__(
        self,
        convert_fn: Callable[[list[Any]], list[Any]],
        select_fn: Callable[[Any], bool] = lambda one: isinstance(one, torch.Tensor),
    ) -> None:
        self._convert = convert_fn
        self._select = select_fn

    def transform(self, data: Any) -> Any:
        if self._select(data):
            return self._convert([data])[0]
        if isinstance(data, Mapping):
            found = {key: self.transform(value) for key, value in data.items()}
            return found if type(data) is dict else type(data)(found)  # type: ignore[call-arg]
        if isinstance(data, tuple) and hasattr(data, "_fields"):
            return type(data)(*map(self.transform, data))
        if isinstance(data, list | tuple | set):
            return type(data)(map(self.transform, data))
        return data


def _to_cpu(data: Any, convert: bool = True) -> Any:
    return ToXlaTensorArena(
        lambda tensors: [one.detach().cpu() if convert else one for one in tensors]
    ).transform(data)


_maybe_convert_to_cpu = _to_cpu


def save(
    data: Any, file_or_path: Any, master_only: bool = True, global_master: bool = False
) -> None:
    """Every process calls it: the master writes, and the others wait for it."""
    writes = not master_only or is_master_ordinal(local=not global_master)
    with _steps.pause():
        if writes:
            torch.save(_to_cpu(data), file_or_path)
        rendezvous("torch_xla.core.xla_model.save")


def set_rng_state(seed: int, device: Any = None) -> None:  # noqa: ARG001
    _seed[0] = seed
    torch.manual_seed(seed)


def get_rng_state(device: Any = None) -> int:  # noqa: ARG001
    return _seed[0]


def get_memory_info(device: Any = None) -> dict[str, int]:  # noqa: ARG001
    """Return what tensors take, of what a device of the slice has for programs."""
    storages = {
        one.untyped_storage().data_ptr(): one.untyped_storage().nbytes()
        for one in gc.get_objects()
        # `isinstance` asks some for their class
        if issubclass(type(one), torch.Tensor) and one.layout == torch.strided
    }
    used, limit = sum(storages.values()), _process.generation().hbm_usable_bytes_per_device
    return {
        "bytes_used": used,
        "bytes_limit": limit,
        "peak_bytes_used": used,
        "kb_total": limit // 1024,
        "kb_free": (limit - used) // 1024,
    }


def do_on_ordinals(
    target: Callable[..., Any], data: Any = (), ordinals: Sequence[int] = (0,)
) -> None:
    if get_ordinal() in ordinals:
        target(*_to_cpu(data))
    rendezvous("torch_xla.core.xla_model.do_on_ordinals")


class RateTracker:
    """Examples per second: lately (smoothed), and since the start."""

    def __init__(self, smooth_factor: float | None = None) -> None:
        self._clock = OsClock()
        self._smooth = 0.4 if smooth_factor is None else smooth_factor
        self._start = self._last = self._clock.monotonic_seconds()
        self._rate = 0.0
        self._count = self._pending = 0

    def add(self, count: int) -> None:
        self._count += count
        self._pending += count

    def rate(self) -> float:
        now = self._clock.monotonic_seconds()
        if self._pending and now > self._last:
            latest = self._pending / (now - self._last)
            smooth = self._smooth if self._rate else 0.0
            self._rate = self._rate * smooth + latest * (1.0 - smooth)
            self._last, self._pending = now, 0
        return self._rate

    def global_rate(self) -> float:
        passed = self._clock.monotonic_seconds() - self._start
        return self._count / passed if passed else 0.0


get_stablehlo = refusal("torch_xla.core.xla_model.get_stablehlo", INSTEAD)
get_stablehlo_bytecode = refusal("torch_xla.core.xla_model.get_stablehlo_bytecode", INSTEAD)
