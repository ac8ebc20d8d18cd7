"""Every name inside of JAX that Podyard's hook uses, and whether this JAX has it.

JAX gives no interface to stand in for a backend. What it has instead are the factories of its
backends, the function that compiles, and the hook that its fast path calls after a run. All of them
are private and may change with a release: so they stand here, and nowhere else, and `missing` finds
out before anything is replaced.
"""

from __future__ import annotations

import atexit
import ctypes
import importlib
import os
import re
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import jax
import numpy as np

# None of this has types that a checker can use.
api: Any = importlib.import_module("jax._src.api")
array: Any = importlib.import_module("jax._src.array")
compiler: Any = importlib.import_module("jax._src.compiler")
config: Any = importlib.import_module("jax._src.config")
core: Any = importlib.import_module("jax._src.core")
dispatch: Any = importlib.import_module("jax._src.dispatch")
distributed: Any = importlib.import_module("jax._src.distributed")
dtypes: Any = importlib.import_module("jax._src.dtypes")
pjit: Any = importlib.import_module("jax._src.pjit")
sharding_impls: Any = importlib.import_module("jax._src.sharding_impls")
conditionals: Any = importlib.import_module("jax._src.lax.control_flow.conditionals")
xla_bridge: Any = importlib.import_module("jax._src.xla_bridge")
mlir: Any = importlib.import_module("jax._src.interpreters.mlir")
pxla: Any = importlib.import_module("jax._src.interpreters.pxla")
_jax: Any = importlib.import_module("jax._src.lib")._jax
xla_client: Any = importlib.import_module("jax._src.lib").xla_client
ir: Any = importlib.import_module("jax._src.lib.mlir").ir
passmanager: Any = importlib.import_module("jax._src.lib.mlir").passmanager

TESTED = ("0.9", "0.10", "0.11")  # versions of JAX that the tests run with

DeviceList = Any
Client = Any
Device = Any

_NAMES = (
    (api, "_post_hook_state _nan_check_posthook clean_up"),
    (compiler, "compile_or_get_cached"),
    (conditionals, "cond_p platform_index_p _cond_lowering _platform_index_lowering"),
    (config, "debug_nans debug_infs config_ext _read"),
    (dispatch, "_batched_device_put_impl device_put_p"),
    (dispatch, "_common_device_put_lowering _tpu_gpu_device_put_lowering"),
    (distributed, "global_state"),
    (xla_bridge, "register_backend_factory _backend_factories _backends num_cpu_devices"),
    (xla_bridge, "make_pjrt_tpu_topology"),
    (xla_client, "make_cpu_client DeviceAssignment"),
    (_jax, "Device Client make_gloo_tcp_collectives"),
    (pxla, "ExecuteReplicated batched_device_put"),
    (mlir, "ModuleContext register_lowering"),
    (pjit, "_run_python_pjit"),
)
_NAMES_OF_DRY_RUNS = (
    (array, "ArrayImpl"),
    (config, "use_shardy_partitioner"),
    (core, "physical_aval"),
    (dispatch, "_device_put_sharding_impl"),
    (dtypes, "extended issubdtype"),
    (pjit, "_get_fastpath_data"),
    (pxla, "MeshExecutable"),
    (sharding_impls, "physical_sharding make_single_device_sharding"),
    (xla_client, "batched_device_put HloSharding OpSharding"),
)
_UNKNOWN_OPTION = re.compile("No such compile option: '(.+?)'")
_cpu_id: Any = _jax.Device.id  # before anything replaces it


def missing(*, dry_run: bool = False) -> list[str]:
    """The names that this JAX does not have."""
    return [
        f"{owner.__name__}.{name}"
        for owner, names in (*_NAMES, *(_NAMES_OF_DRY_RUNS if dry_run else ()))
        for name in names.split()
        if not hasattr(owner, name)
    ]


def register_tpu(make_client: Callable[[], Client]) -> None:
    """`make_client` makes the backend `tpu`, in place of libtpu."""
    xla_bridge._backend_factories.pop("tpu", None)
    xla_bridge.register_backend_factory("tpu", make_client, priority=300, fail_quietly=False)


def make_client_of(device_count: int) -> Client:
    """XLA's client for CPUs with `device_count` devices in this process, joined to the other
    processes if there are
    any."""
    state = distributed.global_state
    joined: dict[str, Any] = {}
    if state.client is not None and state.num_processes > 1:
        joined = {
            "distributed_client": state.client,
            "node_id": state.process_id,
            "num_nodes": state.num_processes,
            "collectives": _jax.make_gloo_tcp_collectives(distributed_client=state.client),
        }
    return xla_client.make_cpu_client(asynchronous=True, num_devices=device_count, **joined)


def make_client_alone(device_count: int) -> Client:
    """XLA's client for CPUs with devices that no other process shares, and that run nothing."""
    return xla_client.make_cpu_client(asynchronous=True, num_devices=device_count)


def describe_topologies(describe: Callable[..., Sequence[Device]]) -> None:
    """`describe(name, **options)` gives the devices of a TPU topology, in place of libtpu."""

    def make(topology_name: str = "", **options: Any) -> Any:
        devices = describe(topology_name, **options)
        return SimpleNamespace(_make_compile_only_devices=lambda: list(devices))

    xla_bridge.make_pjrt_tpu_topology = make


def make_cpus_local() -> None:
    """The backend `cpu` of a process has its own CPUs only: a second client that joins the others
    would collide with
    the first at the coordinator. There is one, unless the program itself asks for more."""

    def make() -> Client:
        asked = xla_bridge.num_cpu_devices.value
        ours = os.environ.get("JAX_NUM_CPU_DEVICES") == str(asked)
        return xla_client.make_cpu_client(
            asynchronous=True, num_devices=None if ours or asked < 0 else asked
        )

    xla_bridge._backend_factories["cpu"].factory = make


def join_processes(count: int, index: int) -> None:
    """Do the work of `jax.distributed.initialize()` for programs on several hosts that do not call
    it: a TPU's own runtime joins the hosts of a slice. Its arguments come from the environment."""
    if distributed.global_state.client is None:
        distributed.global_state.initialize(num_processes=count, process_id=index)


def leave_processes() -> None:
    """This process will end without a word to the ones that it is joined to. The end of JAX, and
    that of its client, would wait up to five minutes until all others end as well."""
    atexit.unregister(api.clean_up)
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(distributed.global_state.client))


def has_backends() -> bool:
    return bool(xla_bridge._backends)


def process_count() -> int:
    """Return how many processes are joined: 1 if this one is alone."""
    return (
        int(distributed.global_state.num_processes)
        if distributed.global_state.client is not None
        else 1
    )


def cpu_id(device: Device) -> int:
    """The id that XLA's client gave a device."""
    return int(_cpu_id.__get__(device))


def replace_on(kind: str, name: str, make: Callable[[Any], Any]) -> None:
    """The attribute `name` of all objects of the type `kind` ("Device", "Client"); `make` gets what
    was there."""
    owner = getattr(_jax, kind)
    setattr(owner, name, make(getattr(owner, name, None)))


def wrap_compile(
    around: Callable[[Callable[..., Any], Client, Any, DeviceList], Any],
    leave_out: Callable[[str], None],
) -> None:
    """Calls `around(compile, client, module, devices)` for each module; `compile()` compiles it as
    it then is.

    Programs give options for the TPU's compiler, which XLA's for CPUs refuses: `leave_out` is told
    their names.
    """
    inner = compiler.compile_or_get_cached

    def compile_or_get_cached(
        backend: Client, computation: Any, devices: Any, options: Any, host_callbacks: Any,
        executable_devices: DeviceList, *rest: Any, **named: Any,
    ) -> Any:  # fmt: skip
        options.device_assignment = xla_client.DeviceAssignment.create(
            np.array([[cpu_id(device) for device in executable_devices]])
        )

        def compile_now() -> Any:
            while True:
                try:
                    return inner(
                        backend,
                        computation,
                        devices,
                        options,
                        host_callbacks,
                        executable_devices,
                        *rest,
                        **named,
                    )
                except XlaRuntimeError as error:
                    option = _UNKNOWN_OPTION.search(str(error))
                    kept = [
                        one
                        for one in options.env_option_overrides
                        if option and one[0] != option[1]
                    ]
                    if option is None or len(kept) == len(options.env_option_overrides):
                        raise
                    options.env_option_overrides = kept
                    leave_out(option[1])

        return around(compile_now, backend, computation, executable_devices)

    compiler.compile_or_get_cached = compile_or_get_cached


def wrap_slow_runs(around: Callable[[Callable[[], Any], Any], Any]) -> None:
    """Calls `around(run, executable)` for each run that does not take the fast path."""
    inner = pxla.ExecuteReplicated.__call__

    def call(self: Any, *args: Any) -> Any:
        return around(lambda: inner(self, *args), self.xla_executable)

    pxla.ExecuteReplicated.__call__ = call


def wrap_first_calls(around: Callable[..., Any]) -> None:
    """Calls `around(call, function, args, kwargs)` for each call of a jitted function that misses
    the fast path."""
    inner = pjit._run_python_pjit

    def run(p: Any, args_flat: Any, fun: Any, args: Any, kwargs: Any) -> Any:
        return around(lambda: inner(p, args_flat, fun, args, kwargs), fun, args, kwargs)

    pjit._run_python_pjit = run


def watch_device_puts(after: Callable[[Any, Sequence[Any]], None]) -> None:
    """Calls `after(array, values)` when values of the host or of other devices were put on devices
    as `array`."""
    inner, inner_whole = pxla.batched_device_put, dispatch._batched_device_put_impl

    def put_shards(aval: Any, sharding: Any, xs: Any, *rest: Any, **named: Any) -> Any:
        array = inner(aval, sharding, xs, *rest, **named)
        after(array, xs)
        return array

    def put_arrays(*xs: Any, **named: Any) -> Any:
        arrays = inner_whole(*xs, **named)
        for value, array in zip(xs, arrays, strict=True):
            if array is not value:
                after(array, [value])
        return arrays

    pxla.batched_device_put, dispatch._batched_device_put_impl = put_shards, put_arrays


def set_fast_run_hook(after: Callable[[Any, Any, Any, Any], None]) -> None:
    """Calls `after(function, args, kwargs, results)` for each run on the fast path, in all threads.
    JAX has one such hook, and uses it where a program asks for a check of NaN or infinity: then
    both run."""

    def both(function: Any, args: Any, kwargs: Any, results: Any) -> None:
        api._nan_check_posthook(function, args, kwargs, results)
        after(function, args, kwargs, results)

    def update_all(_value: Any) -> None:
        checked = config._read("jax_debug_nans") or config._read("jax_debug_infs")
        api._post_hook_state.set_global(both if checked else after)

    def update_thread(_value: Any) -> None:
        checked = config.debug_nans.get_local() is True or config.debug_infs.get_local() is True
        api._post_hook_state.set_local(both if checked else config.config_ext.unset)

    for option in (config.debug_nans, config.debug_infs):
        option._add_hooks(update_all, update_thread)


def lower_callbacks_for_cpu() -> None:
    """Lowering is for `cpu`, which the backend's name is not: callbacks ask for both."""
    inner = mlir.ModuleContext.get_backend

    def get_backend(self: Any, *args: Any, **named: Any) -> Any:
        if self.backend is not None and len(self.platforms) == 1:
            return self.backend
        return inner(self, *args, **named)

    mlir.ModuleContext.get_backend = get_backend


def choose_branches_for_tpu() -> None:
    """`platform_dependent` asks for the name that lowering is for: on the TPU's backend, branches
    of a `tpu` are
    taken."""

    def wrap(inner: Callable[..., Any], parameter: str) -> Callable[..., Any]:
        def lowering(ctx: Any, *args: Any, **params: Any) -> Any:
            backend, branches = ctx.module_context.backend, params.get(parameter)
            if branches is not None and backend is not None and backend.platform == "tpu":
                here = {"tpu": "cpu", "cpu": "not here"}
                params[parameter] = tuple(
                    names and tuple(here.get(name, name) for name in names) for names in branches
                )
            return inner(ctx, *args, **params)

        return lowering

    index, choice = conditionals.platform_index_p, conditionals.cond_p
    mlir.register_lowering(index, wrap(conditionals._platform_index_lowering, "platforms"))
    mlir.register_lowering(choice, wrap(conditionals._cond_lowering, "branches_platforms"))


def version() -> str:
    return str(jax.__version__)


XlaRuntimeError = (
    _jax.JaxRuntimeError if hasattr(_jax, "JaxRuntimeError") else xla_client.XlaRuntimeError
)


# What only a dry run needs: it stands in for executables and arrays.
Call = Any
Array = Any
Sharding = Any


def replace_calls(around: Callable[[Callable[..., Any], Call, tuple[Any, ...]], Any]) -> None:
    """Calls `around(run, call, args)` for each run: `run(call, *args)` executes it,
    `call.xla_executable` is what `compile` gave, and `args` are those that the module has, in its
    order (after the tokens of ordered effects)."""
    inner = pxla.ExecuteReplicated.__call__

    def execute(self: Any, *args: Any) -> Any:
        return around(inner, self, args)

    pxla.ExecuteReplicated.__call__ = execute
    pjit._get_fastpath_data = _no_fast_path
    pxla.MeshExecutable.create_cpp_call = _no_fast_path


def _no_fast_path(*_args: Any, **_named: Any) -> None:
    """The fast path runs executables itself."""


def call_of(call: Call, executable: Any) -> Call:
    """The same call of another executable."""
    copy = object.__new__(pxla.ExecuteReplicated)
    for name in pxla.ExecuteReplicated.__slots__:
        if name != "__weakref__":
            setattr(copy, name, getattr(call, name))
    copy.xla_executable = executable
    return copy


def module_arguments(call: Call, args: Sequence[Any]) -> list[Any]:
    """Return what of the arguments the module has; without the tokens of its ordered effects."""
    return [value for place, value in enumerate(args) if place in call.kept_var_idx]


def token_count(call: Call) -> int:
    return len(call.ordered_effects)


def array_of(value: Any) -> Array:
    """The array below a key, or the value itself."""
    return getattr(value, "_base_array", value)


def results_of(call: Call, make: Callable[[Any, Sharding], Array]) -> list[Any]:
    """The results of a call from arrays that `make(aval, sharding)` gives."""
    found = []
    handlers = call.out_handler
    for handler, aval, sharding in zip(
        handlers.handlers, handlers.out_avals, handlers.out_shardings, strict=True
    ):
        # keys: arrays of numbers with another face
        if dtypes.issubdtype(aval.dtype, dtypes.extended):
            aval, sharding = (
                core.physical_aval(aval),
                sharding_impls.physical_sharding(aval, sharding),
            )
        found.append(handler(single_arrays(make(aval, sharding))))
    return found


def single_arrays(array: Array) -> list[Array]:
    """Those of each device of this process."""
    arrays: list[Array] = array._arrays
    return arrays


def parts_of(array: Array, device: Device | None) -> list[Array]:
    """Return the array of each device of this process, or the one of `device`."""
    if array.sharding.num_devices == 1:
        return [array]
    parts = single_arrays(array)
    if device is None:
        return parts
    return [parts[array.sharding._addressable_device_assignment.index(device)]]


def array_from(aval: Any, sharding: Sharding, of_device: Any, committed: bool = True) -> Array:
    """An array whose part on each device of this process is `of_device`, a NumPy array that is not
    copied."""
    devices = list(sharding._addressable_device_assignment)
    return xla_client.batched_device_put(
        aval, sharding, [of_device] * len(devices), devices, committed
    )


def replace_device_puts(around: Callable[[Callable[..., Any], Any, Any, Any], Any]) -> None:
    """Calls `around(put, value, aval, sharding)` for what is put on devices; `put()` does it."""
    inner_put, inner_batch = dispatch._device_put_sharding_impl, pxla.batched_device_put

    def device_put(x: Any, aval: Any, device: Any, copy: Any) -> Any:
        sharding = (
            sharding_impls.make_single_device_sharding(device)
            if isinstance(device, _jax.Device)
            else device
        )
        return around(lambda: inner_put(x, aval, device, copy), [x], aval, sharding)

    def put_shards(
        aval: Any, sharding: Any, xs: Any, devices: Any, *rest: Any, **named: Any
    ) -> Any:
        return around(
            lambda: inner_batch(aval, sharding, xs, devices, *rest, **named), xs, aval, sharding
        )

    dispatch._device_put_sharding_impl, pxla.batched_device_put = device_put, put_shards


def replace_values(around: Callable[[Callable[[], Any], Array], Any]) -> None:
    """Calls `around(read, array)` for each array that is read as one of NumPy."""
    inner = array.ArrayImpl._value.fget
    array.ArrayImpl._value = property(lambda self: around(lambda: inner(self), self))


def op_sharding(
    dims: Sequence[int], mesh: Sequence[int], order: Sequence[int], replicated: int
) -> Any:
    """XLA's spelling of a sharding: `dims` pieces per dimension of the value, of devices that lie
    in a `mesh`, whose axes are taken in the `order`; `replicated` devices at the end have the same
    piece."""
    if replicated * int(np.prod(dims)) == replicated:
        return xla_client.HloSharding.replicate().to_proto()
    last = [replicated] if replicated > 1 else []
    return xla_client.HloSharding.iota_tile(
        [*dims, *last], list(mesh), list(order),
        [xla_client.OpSharding.Type.REPLICATED] if last else [],
    ).to_proto()  # fmt: skip


def has_partitioner() -> bool:
    """Return whether Shardy's passes can be used: up to JAX 0.9 they end the process at the first
    loop or call."""
    return tuple(map(int, version().split(".")[:2])) >= (0, 10)


def uses_partitioner() -> bool:
    """Return whether this program leaves shardings to Shardy."""
    return bool(config.use_shardy_partitioner.value)


def propagate_shardings(module: Any) -> Any:
    """A copy of `module` with the shardings of all values, as Shardy finds them."""
    with module.context:
        copy = ir.Module.parse(module.operation.get_asm())
        passmanager.PassManager.parse("builtin.module(inline,sdy-propagation-pipeline)").run(
            copy.operation
        )
    return copy


def wrap_calls_of_exports(export: Any, around: Callable[[Callable[[Any], Any], Any], Any]) -> None:
    """Calls `around(lower, exported)` where a program calls an exported function; `lower(exported)`
    lowers it."""
    inner = export._call_exported_lowering

    def lowering(ctx: Any, *args: Any, exported: Any) -> Any:
        return around(lambda one: inner(ctx, *args, exported=one), exported)

    mlir.register_lowering(export.call_exported_p, lowering, platform="cpu")
