"""What a program asks JAX about itself while it trains: traces, memory, compiled steps, callbacks
and checks."""

import hashlib
import logging
import tempfile
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.experimental import checkify, io_callback
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

logging.basicConfig(level=logging.WARNING)
jax.config.update("jax_compilation_cache_dir", tempfile.mkdtemp())
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
jax.config.update("jax_threefry_partitionable", True)
mesh = Mesh(jax.devices(), ("data",))
whole, split = NamedSharding(mesh, P()), NamedSharding(mesh, P("data"))
optimizer = optax.MultiSteps(optax.lion(1e-3), every_k_schedule=2)
seen = []


def digest(tree):
    return hashlib.sha256(
        b"".join(np.asarray(leaf).tobytes() for leaf in jax.tree.leaves(tree))
    ).hexdigest()[:16]


def loss_of(params, x, y):
    with jax.named_scope("first"):
        x = jax.nn.gelu(jnp.einsum("bi,ih->bh", x, params["first"]))
    with jax.named_scope("second"):
        x = (x.astype(jnp.bfloat16) @ params["second"].astype(jnp.bfloat16)).astype(jnp.float32)
    return optax.huber_loss(x, y).mean()


@jax.jit(donate_argnums=(0, 1))
def train_step(params, state, x, y):
    loss, gradient = jax.value_and_grad(loss_of)(params, x, y)
    updates, state = optimizer.update(gradient, state, params)
    jax.debug.callback(lambda value: seen.append(float(value)), loss)
    return optax.apply_updates(params, updates), state, loss


@jax.profiler.annotate_function
def batch(step):
    chance = np.random.default_rng(step)
    size = 8 * jax.device_count()
    return jax.device_put(
        (chance.normal(size=(size, 24)).astype("f"), chance.normal(size=(size, 6)).astype("f")),
        split,
    )


keys = jax.random.split(jax.random.key(0))
params = {
    "first": jax.random.normal(keys[0], (24, 96)) / 5,
    "second": jax.random.normal(keys[1], (96, 6)) / 10,
}
params = jax.device_put(params, whole)
state = jax.jit(optimizer.init, out_shardings=whole)(params)

compiled = train_step.lower(params, state, *batch(0)).compile()
print(
    "arguments",
    compiled.memory_analysis().argument_size_in_bytes,
    compiled.cost_analysis()["flops"] > 0,
)
print(
    "shardings",
    [sharding.spec for sharding in compiled.input_shardings[0][2:]],
    compiled.as_text().split()[0],
)
folder = tempfile.mkdtemp()
options = jax.profiler.ProfileOptions()
options.host_tracer_level = 2
with jax.profiler.trace(folder, profiler_options=options):
    for step in range(6):
        with jax.profiler.StepTraceAnnotation("train", step_num=step):
            params, state, loss = compiled(params, state, *batch(step))
    jax.block_until_ready(params)
traces = Path(folder).glob("plugins/profile/*/*")
print("trace", sorted(trace.name.split(".", 1)[1] for trace in traces))
server = jax.profiler.start_server(0)
jax.profiler.stop_server()
jax.effects_barrier()
if jax.process_index() == 0:  # a callback runs on the first device's host
    print("losses seen", len(seen), seen[-1] == float(loss))
kept = jax.device_put(jnp.ones((256, 1024)), split)
stats = [device.memory_stats() for device in jax.local_devices()]
print("memory", all(one is None or 0 < one["bytes_in_use"] <= one["bytes_limit"] for one in stats))
jax.profiler.save_device_memory_profile(Path(folder, "memory.prof"))
print("profile", Path(folder, "memory.prof").stat().st_size > 0, len(jax.live_arrays()) > 4)


@jax.jit
def with_effects(x):
    jax.debug.inspect_array_sharding(
        x, callback=lambda sharding: print("inside", sharding.shard_shape((16,)))
    )
    io_callback(lambda value: print("value", value), None, x.sum(), ordered=True)
    io_callback(lambda value: print("then", value), None, x.max(), ordered=True)
    return jax.pure_callback(lambda x: np.sort(x), jax.ShapeDtypeStruct((4,), x.dtype), x[3::-1])


print("sorted", with_effects(jnp.arange(16.0)).tolist())


def checked(x):
    checkify.check(jnp.all(x > 0), "{x} is not positive", x=x.min())
    return jnp.log(x)


error, _ = jax.jit(checkify.checkify(checked, errors=checkify.user_checks | checkify.nan_checks))(
    jnp.arange(-1.0, 3)
)
print("checked", error.get().splitlines()[0])
with jax.debug_nans(True):
    try:
        jax.jit(jnp.log)(-1.0)
    except FloatingPointError as wrong:
        print("not a number", type(wrong).__name__)
with jax.transfer_guard("disallow"):
    try:
        jnp.ones(3) + np.ones(3)
    except Exception as wrong:
        print("guarded", "transfer" in str(wrong))
with jax.default_device(jax.local_devices()[-1]):
    print("default device", (jnp.ones(3) * 2).devices() == {jax.local_devices()[-1]})
with (
    jax.checking_leaks(),
    jax.numpy_rank_promotion("warn"),
    jax.default_matmul_precision("highest"),
):
    exact = jax.jit(lambda x: x @ x.T)(batch(1)[0])
jax.clear_caches()
print("trained", digest((params, state, loss)), digest(exact))
