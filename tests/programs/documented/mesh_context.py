"""Shardings by a mesh in context: `pjit`, `set_mesh`, sharding in types, host memory, compilation
ahead of time."""

import functools
import hashlib
import warnings

import jax
import jax.numpy as jnp
import numpy as np
from jax.ad_checkpoint import checkpoint_name
from jax.experimental import mesh_utils, topologies
from jax.experimental.pjit import pjit
from jax.sharding import AxisType, Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

warnings.simplefilter("ignore", DeprecationWarning)
count = jax.device_count()
mesh = Mesh(mesh_utils.create_device_mesh((count // 2, 2)), axis_names=("data", "model"))


def digest(tree):
    return hashlib.sha256(
        b"".join(np.asarray(leaf).tobytes() for leaf in jax.tree.leaves(tree))
    ).hexdigest()[:16]


def normal(seed, *shape):
    return jax.random.normal(jax.random.key(seed), shape)


def block(x, params):
    hidden = jax.nn.relu(x @ params["up"])
    hidden = jax.lax.with_sharding_constraint(hidden, P("data", "model"))
    return x + hidden @ params["down"]


SPECS = {"up": P(None, "model"), "down": P("model", None)}
params = {"up": normal(0, 32, 128) / 6, "down": normal(1, 128, 32) / 11}
x = normal(2, 4 * count, 32)
with mesh:
    forward = pjit(block, in_shardings=(P("data", None), SPECS), out_shardings=P("data", None))
    gradient = pjit(
        jax.grad(lambda params, x: (block(x, params) ** 2).mean()),
        in_shardings=(SPECS, P("data", None)),
        out_shardings=SPECS,
    )
    found = forward(x, params)
    gradients = gradient(params, x)
print("pjit", found.sharding.spec, gradients["up"].sharding.spec, digest((found, gradients)))

# Sharding in types: the shapes say how arrays lie, and a product says which axis is summed.
explicit = jax.make_mesh((count // 2, 2), ("data", "model"), axis_types=(AxisType.Explicit,) * 2)
with jax.set_mesh(explicit):
    rows, weights = (
        jax.device_put(x, P("data", "model")),
        jax.device_put(params["up"], P("model", None)),
    )

    @jax.jit
    def multiply(rows, weights):
        return jnp.matmul(rows, weights, out_sharding=P("data", None))

    product = multiply(rows, weights)
    print("types", jax.typeof(rows), jax.typeof(product), digest(product))
    gathered = jax.sharding.reshard(product, P())
    manual = jax.shard_map(
        lambda r: jax.lax.psum(r.sum(), "data"),
        in_specs=P("data"),
        out_specs=P(),
        axis_names={"data"},
    )
    print(
        "manual",
        digest(jax.jit(manual)(jax.sharding.reshard(product, P("data", None)))),
        gathered.sharding.spec,
    )

# Ahead of time, with options for the TPU's compiler, which others do not know.
shapes = jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=NamedSharding(mesh, P("data")))
lowered = jax.jit(lambda x: jnp.tanh(x @ x.T)).lower(shapes)
on_tpu = jax.default_backend() == "tpu"
options = (
    {"xla_tpu_enable_latency_hiding_scheduler": True, "xla_tpu_scoped_vmem_limit_kib": "65536"}
    if on_tpu
    else {}
)
ahead = lowered.compile(compiler_options=options)
print(
    "ahead",
    lowered.out_info.shape,
    digest(ahead(jax.device_put(x, NamedSharding(mesh, P("data"))))),
)
jitted = jax.jit(lambda x: x * 2, compiler_options=options)
print("options", float(jitted(x).sum()) == float((x * 2).sum()))

# What is for TPUs only, and what is for all.
chosen = jax.jit(
    lambda x: jax.lax.platform_dependent(x, tpu=lambda x: x + 1, default=lambda x: x - 1)
)
print("chosen", float(chosen(0.0)) == (1.0 if on_tpu else -1.0))
print("attached", topologies.get_attached_topology().devices == jax.devices())

# Optimizer state that waits in the host's memory.
on_host = NamedSharding(mesh, P("data"), memory_kind="pinned_host")
on_device = on_host.with_memory_kind("device")


@functools.partial(jax.jit, donate_argnums=0, out_shardings=(on_host, on_device))
def update(momentum, gradient):
    momentum = 0.9 * jax.device_put(momentum, on_device) + gradient
    return momentum, -0.1 * momentum


momentum = jax.device_put(jnp.zeros_like(x), on_host)
for _ in range(3):
    momentum, step = update(momentum, jax.device_put(x, on_device))
print(
    "host memory",
    momentum.sharding.memory_kind,
    step.sharding.memory_kind,
    digest((momentum, step)),
)

offload = jax.checkpoint_policies.save_and_offload_only_these_names(
    names_which_can_be_saved=[],
    names_which_can_be_offloaded=["hidden"],
    offload_src="device",
    offload_dst="pinned_host",
)


@functools.partial(jax.checkpoint, policy=offload)
def layer(w, x):
    return jnp.sin(checkpoint_name(x @ w, "hidden")).sum()


print("offloaded", digest(jax.jit(jax.grad(layer))(normal(3, 32, 32), x)))
exported = jax.export.export(jax.jit(lambda x: jnp.cos(x @ x.T)))(
    jax.ShapeDtypeStruct((8, 8), jnp.float32)
)
again = jax.export.deserialize(exported.serialize())
print("exported", again.platforms == (jax.default_backend(),), digest(again.call(normal(4, 8, 8))))
