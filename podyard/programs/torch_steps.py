"""The steps of a PyTorch program as modules: what is computed between two `mark_step`, recorded
once for each kind.

PyTorch computes an operation when it is called. While a step is recorded, each operation is noted
below autograd, with the tensors that it takes by their place in memory; at the step's end, what
leads to a tensor that is still there, or to one that was changed, is written as StableHLO. That is
the graph that torch_xla would compile.
"""

from __future__ import annotations

import contextlib
import sys
import weakref
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import torch
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_map

from podyard.base.clock import OsClock
from podyard.programs.records import ModuleRuns, Recorder
from podyard.programs.torch_graph import marks
from podyard.programs.torch_graph.module_text import (
    ModuleBorder,
    device_module,
    partitioned_module,
)
from podyard.programs.torch_graph.parallel import PARALLEL, GroupExchange, KernelCall
from podyard.programs.torch_graph.shardings import TensorSharding
from podyard.programs.torch_graph.stablehlo_writer import Shape, Value, Writer
from podyard.programs.torch_operations import OPERATIONS

RECORDED_MAX = 200  # steps of a program that are recorded, in search of one of each kind
ELEMENTS = {
    torch.float32: "f32", torch.float64: "f32", torch.bfloat16: "bf16", torch.float16: "f16",
    torch.int64: "i64",
    torch.int32: "i32", torch.int16: "i16", torch.int8: "i8", torch.uint8: "ui8", torch.bool: "i1",
}  # fmt: skip
_READS = "_local_scalar_dense"
_EACH = "_foreach_"


class _Ref(NamedTuple):
    """A value of the step."""

    number: int
    shape: Shape
    element: str


class _StepNode(NamedTuple):
    name: str
    arguments: list[Any]
    results: list[_Ref]


class StepRecording(TorchDispatchMode):  # type: ignore[misc]
    """`is_partitioned`: the step is a program for all devices, which XLA partitions; else one
    device's."""

    def __init__(self, devices: int, is_partitioned: bool = False) -> None:
        super().__init__()
        self._devices = devices
        self._is_partitioned = is_partitioned
        self._taken: dict[tuple[Any, ...], _Ref] = {}  # arguments
        self._shardings: dict[int, TensorSharding] = {}  # of arguments
        self._refs: dict[tuple[Any, ...], _Ref] = {}
        # A weak reference keeps the place of a memory that is gone from being used again.
        self._storages: dict[int, StorageWeakRef] = {}
        self._host: set[int] = set()  # storages
        self._nodes: list[_StepNode] = []
        self._reads: dict[int, _Ref] = {}  # by the host
        self._changes: dict[tuple[Any, ...], _Ref] = {}  # the last of each tensor, in place
        self._results: list[tuple[Any, _Ref]] = []
        self._count = 0
        self.failure = ""
        self._depth = 0
        self._table = torch._decomp.decomposition_table

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if self._depth and func._schema.name.partition("::")[2] not in OPERATIONS:
            with self:  # autograd is left out here, which takes these apart otherwise
                found = func.decompose(*args, **(kwargs or {}))
            if found is not NotImplemented:
                return found
        found = func(*args, **(kwargs or {}))
        try:
            self._note(func, args, kwargs or {}, found)
        except Exception as error:  # the program goes on without
            self.failure = self.failure or f"{func}: {error!r}"
        return found

    def note_exchange(
        self, name: str, tensors: Sequence[Any], results: Sequence[Any], exchange: GroupExchange
    ) -> None:
        """`name`: an operation of StableHLO, of each of the tensors."""
        for tensor, result in zip(tensors, results, strict=True):
            self._add(name, [self._ref(tensor), exchange], [result])

    def note_kernel(
        self, operands: Sequence[Any], results: Sequence[Any], call: KernelCall
    ) -> None:
        self._add("kernel", [[self._ref(one) for one in operands], call], results)

    def constrain(self, tensor: Any, sharding: TensorSharding) -> None:
        """The tensor is marked: as an argument of the step, or as what the step has computed."""
        ref = self._ref(tensor)
        if ref == self._taken.get(self._key(tensor)):
            self._shardings[ref.number] = sharding
        else:
            self._add("sharding_constraint", [ref, sharding], [tensor])

    # --- what is noted

    def _note(self, func: Any, args: Any, kwargs: Any, found: Any) -> None:
        name = func._schema.name.partition("::")[2]
        if name == _READS:
            self._reads[self._count] = self._ref(args[0])
            return
        if name.startswith(_EACH):
            self._note_each(func, name, args, kwargs, found)
            return
        results = [one for one in tree_flatten(found)[0] if isinstance(one, torch.Tensor)]
        if not results:
            return
        if "device" in kwargs and str(kwargs["device"]).startswith("xla") and name == "_to_copy":
            return  # a copy from the host: an argument of the step
        if self._is_of_host(args, kwargs):
            self._host.update(self._key(one)[0] for one in results)
            return
        if func.is_view and all(self._key(one) in self._refs for one in results):
            # seen before, such as a matrix that is transposed twice
            self._results += [(weakref.ref(one), self._ref(one)) for one in results]
            return
        changes = name.endswith("_") and not name.endswith("__")
        plain = name[:-1] if changes else name
        arguments = self._arguments(func, args, kwargs)
        if changes:
            self._drop_overlaps(results[0])
        if plain in OPERATIONS:
            self._add(plain, arguments, results)
        elif not self._take_apart(func, plain if changes else "", args, kwargs, results):
            self._add(name, [], results)
        if changes:
            self._note_change(results[0])

    def _note_each(self, func: Any, name: str, args: Any, kwargs: Any, found: Any) -> None:
        """An operation on lists of tensors, as optimizers call it."""
        changes = name.endswith("_")
        plain = name[len(_EACH) :].removesuffix("_")
        arguments = self._arguments(func, args, kwargs)
        for place, result in enumerate(args[0] if changes else found):
            own = [
                one[place] if isinstance(one, list | tuple) and not isinstance(one, _Ref) else one
                for one in arguments
            ]
            if changes:
                self._drop_overlaps(result)
            self._add(plain, own, [result])
            if changes:
                self._note_change(result)

    def _note_change(self, tensor: Any) -> None:
        key = self._key(tensor)
        self._changes[key] = self._refs[key]

    def _is_of_host(self, args: Any, kwargs: Any) -> bool:
        """Made of nothing that is on the device: it gets there by a copy, if at all."""
        if self._depth or str(kwargs.get("device", "")).startswith("xla"):
            return False
        tensors = [one for one in tree_flatten((args, kwargs))[0] if isinstance(one, torch.Tensor)]
        return all(self._key(one)[0] in self._host for one in tensors)

    def _arguments(self, func: Any, args: Any, kwargs: Any) -> list[Any]:
        """In the schema's order, with defaults; tensors as values."""
        found = []
        for place, one in enumerate(func._schema.arguments):
            value = args[place] if place < len(args) else kwargs.get(one.name, one.default_value)
            found.append(tree_map(self._argument, value))
        return found

    def _argument(self, value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            return self._ref(value)
        return value if isinstance(value, bool | int | float) else None

    def _add(self, name: str, arguments: list[Any], results: Sequence[Any]) -> None:
        refs = [self._new(one) for one in results]
        self._nodes.append(_StepNode(name, arguments, refs))
        for one, ref in zip(results, refs, strict=True):
            self._bind(one, ref)
            if not one.is_meta:
                self._results.append((weakref.ref(one), ref))

    def _take_apart(
        self, func: Any, plain: str, args: Any, kwargs: Any, results: Sequence[Any]
    ) -> bool:
        if plain:
            packet = getattr(torch.ops.aten, plain, None)
            func = getattr(packet, func._overloadname, None)
        rule = self._table.get(func)
        if rule is None or self._depth > 3:
            return False
        count = len(self._nodes)
        self._depth += 1
        try:
            with self:
                found = rule(*tree_map(self._shadow, args), **tree_map(self._shadow, kwargs))
        except Exception:
            del self._nodes[count:]
            return False
        finally:
            self._depth -= 1
        parts = [one for one in tree_flatten(found)[0] if isinstance(one, torch.Tensor)]
        if len(parts) < len(results):
            return False
        for one, part in zip(results, parts, strict=False):
            self._bind(one, self._ref(part))
            if not one.is_meta:
                self._results.append((weakref.ref(one), self._ref(part)))
        return True

    def _shadow(self, value: Any) -> Any:
        """A tensor without contents, for PyTorch's rules of what an operation consists of."""
        if isinstance(value, torch.device):
            return torch.device("meta")
        if not isinstance(value, torch.Tensor) or value.is_meta:
            return value
        with torch.utils._python_dispatch._disable_current_modes():
            shadow = torch.empty_strided(
                value.shape, value.stride(), dtype=value.dtype, device="meta"
            )
        self._bind(shadow, self._ref(value))
        return shadow

    # --- tensors and values

    def _key(self, tensor: Any) -> tuple[Any, ...]:
        storage = tensor.untyped_storage()
        if storage._cdata not in self._storages:
            self._storages[storage._cdata] = StorageWeakRef(storage)
        return (
            storage._cdata,
            tensor.storage_offset(),
            tuple(tensor.shape),
            tuple(tensor.stride()),
            tensor.dtype,
        )

    def _new(self, tensor: Any) -> _Ref:
        self._count += 1
        return _Ref(self._count, tuple(tensor.shape), ELEMENTS.get(tensor.dtype, "f32"))

    def _ref(self, tensor: Any) -> _Ref:
        key = self._key(tensor)
        if key not in self._refs:
            ref = self._refs[key] = self._taken[key] = self._new(tensor)
            if (sharding := marks.sharding_of(tensor)) is not None:
                self._shardings[ref.number] = sharding
        return self._refs[key]

    def _bind(self, tensor: Any, ref: _Ref) -> None:
        self._refs[self._key(tensor)] = ref

    def _drop_overlaps(self, tensor: Any) -> None:
        """Drop what is written to from the other views of it."""
        changed = self._key(tensor)
        first, last = _extent(changed)
        for key in [one for one in self._refs if one[0] == changed[0] and one != changed]:
            begin, end = _extent(key)
            if begin < last and first < end:
                del self._refs[key]

    # --- the module

    def module(self, name: str) -> bytes:
        """StableHLO; empty where nothing was computed."""
        return self.write(name)[0]

    def write(self, name: str) -> tuple[bytes, list[int], list[int]]:
        """The module, and the numbers of its arguments and results."""
        makers = {ref.number: node for node in self._nodes for ref in node.results}
        roots = dict.fromkeys(
            ref.number
            for ref in (*self._reads.values(), *self._remaining_values())
            if ref.number in makers
        )
        needed = self._need(list(roots), makers)
        nodes = [node for node in self._nodes if any(ref.number in needed for ref in node.results)]
        if not nodes:
            return b"", [], []
        writer, values = Writer(), dict[int, Value]()
        uncovered, arguments_of = dict[str, int](), list[int]()

        def value_of(one: Any) -> Any:
            if not isinstance(one, _Ref):
                return one
            if one.number not in values:
                values[one.number] = writer.argument(one.shape, one.element)
                arguments_of.append(one.number)
            return values[one.number]

        for node in nodes:
            arguments = tree_map(
                value_of, node.arguments, is_leaf=lambda one: isinstance(one, _Ref)
            )
            for ref, value in zip(
                node.results, self._write(writer, node, arguments, uncovered), strict=False
            ):
                if value is not None:
                    values[ref.number] = value
        notes = []
        if uncovered:
            count = sum(uncovered.values())
            named = ", ".join(sorted(uncovered))
            notes.append(f"podyard: {count} of {len(nodes)} operations are not in it: {named}")
        results = [number for number in roots if number in values]
        border = ModuleBorder(
            name,
            [values[number] for number in results],
            self._devices,
            self._aliases(arguments_of, results),
            {
                place: self._shardings[number]
                for place, number in enumerate(arguments_of)
                if number in self._shardings
            },
            notes,
        )
        text = (partitioned_module if self._is_partitioned else device_module)(writer, border)
        return text.encode(), arguments_of, results

    def _remaining_values(self) -> Iterator[_Ref]:
        """The values that are there after the step."""
        for key, ref in self._changes.items():
            if not self._storages[key[0]].expired():
                yield ref
        for weak, ref in self._results:
            tensor = weak()
            if tensor is not None and self._refs.get(self._key(tensor)) == ref:
                yield ref

    def _aliases(self, arguments: list[int], results: list[int]) -> dict[int, int]:
        """Results that take an argument's memory: what the step writes in place."""
        places = {number: place for place, number in enumerate(arguments)}
        last = {number: place for place, number in enumerate(results)}
        return {
            places[ref.number]: last[now.number]
            for key, ref in self._taken.items()
            if ref.number in places
            and (now := self._refs.get(key)) is not None
            and now.number in last
            and (now.shape, now.element) == (ref.shape, ref.element)
        }

    def _write(
        self, writer: Writer, node: _StepNode, arguments: list[Any], uncovered: dict[str, int]
    ) -> list[Any]:
        first = node.results[0]
        operation = OPERATIONS.get(node.name) or PARALLEL.get(node.name)
        if operation is None:
            uncovered[node.name] = uncovered.get(node.name, 0) + 1
            return [None] * len(node.results)
        try:
            results = operation(writer, arguments, (first.shape, first.element))
            # as among the results: gradients nobody asked for
            return [value for value in results if value is not None]
        except Exception:
            uncovered[node.name] = uncovered.get(node.name, 0) + 1
            return [writer.constant(0.0, ref.shape, ref.element) for ref in node.results]

    def _need(self, numbers: list[int], makers: dict[int, _StepNode]) -> set[int]:
        found: set[int] = set()
        while numbers:
            number = numbers.pop()
            if number in found:
                continue
            found.add(number)
            if number in makers:
                leaves = tree_flatten(
                    makers[number].arguments, is_leaf=lambda one: isinstance(one, _Ref)
                )[0]
                numbers += [one.number for one in leaves if isinstance(one, _Ref)]
        return found


def _extent(key: tuple[Any, ...]) -> tuple[int, int]:
    _, offset, shape, stride, _ = key
    return offset, offset + 1 + sum(
        (size - 1) * step for size, step in zip(shape, stride, strict=True)
    )


class TorchSteps:
    """The kinds of steps of one process. A kind is what the step moved to the device, and what it
    exchanged."""

    def __init__(self, recorder: Recorder, devices: int, is_partitioned: bool = False) -> None:
        self._recorder = recorder
        self._devices = devices
        self._is_partitioned = is_partitioned
        self._events: list[str] = []
        self._kinds: dict[str, ModuleRuns | None] = {}
        self._counts: dict[str, int] = {}
        self._firsts: dict[str, float] = {}
        self._clock = OsClock()
        self._recording: StepRecording | None = None
        self._recorded = 0
        self._has_stepped = False
        self._steps = -1  # what comes before the first boundary is the program's preparation

    def add(self, event: str) -> None:
        self._events.append(event)

    def begin_batch(self, event: str) -> None:
        """A batch goes to the device: a program that calls no `mark_step` begins its next step with
        it."""
        if self._has_stepped:
            self.end()
        self.add(event)

    def step(self) -> None:
        """torch_xla has stepped the optimizer."""
        self._has_stepped = True

    def stop(self) -> None:
        """Another one goes on."""
        recording, self._recording = self._recording, None
        if recording is not None:
            recording.__exit__(None, None, None)

    def constrain(self, tensor: Any, sharding: TensorSharding) -> None:
        if self._recording is not None:
            self._recording.constrain(tensor, sharding)

    def end(self) -> None:
        """The boundary between two steps."""
        recording, self._recording = self._recording, None
        self._has_stepped = False
        if recording is not None:
            recording.__exit__(None, None, None)
        self._steps += 1
        if self._events and self._steps:
            self._count(" ".join(self._events), recording)
        self._events.clear()
        del recording
        waiting = any(module is None for module in self._kinds.values())
        if self._steps and waiting and self._recorded < RECORDED_MAX:
            self._recorded += 1
            self._recording = StepRecording(self._devices, self._is_partitioned)
            self._recording.__enter__()

    def _count(self, kind: str, recording: StepRecording | None) -> None:
        module = self._kinds.get(kind)
        self._counts[kind] = self._counts.get(kind, 0) + 1
        self._firsts.setdefault(kind, self._clock.monotonic_seconds())
        if module is None and recording is not None and kind in self._kinds:
            trains = self._trains()
            name = "torch_train_step" if trains else "torch_step"
            if recording.failure:
                self._recorded = RECORDED_MAX
                print(f"podyard: steps are not estimated: {recording.failure}", file=sys.stderr)
            elif text := recording.module(name):
                module = self._recorder.add(text, name, self._devices)
                module.feeds_itself = trains  # the optimizer changes the parameters in place
                module.runs, module.first = self._counts[kind] - 1, self._firsts[kind]
        self._kinds[kind] = module
        if module is not None:
            module.count()

    def _trains(self) -> bool:
        return any(event in ("step", "reduced in place") for event in self._events)

    @contextlib.contextmanager
    def pause(self) -> Iterator[StepRecording | None]:
        """Leave out of the step what happens here: it is not the device's."""
        recording, self._recording = self._recording, None
        if recording is None:
            yield None
            return
        recording.__exit__(None, None, None)
        try:
            yield recording
        finally:
            if self._recording is None:  # else a step has ended meanwhile
                self._recording = recording
                recording.__enter__()
