"""`shard_map` with rings of `ppermute`: products that overlap with their exchange, ring attention,
a pipeline."""

import functools
import hashlib

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

count = jax.device_count()
mesh = jax.make_mesh((count,), ("i",), axis_types=(jax.sharding.AxisType.Auto,))
ring = [(source, (source + 1) % count) for source in range(count)]


def digest(tree):
    return hashlib.sha256(
        b"".join(np.asarray(leaf).tobytes() for leaf in jax.tree.leaves(tree))
    ).hexdigest()[:16]


def normal(seed, *shape):
    return jax.random.normal(jax.random.key(seed), shape)


@jax.jit
@functools.partial(
    jax.shard_map, mesh=mesh, in_specs=(P("i", None), P(None, "i")), out_specs=P(None, "i")
)
def gathered_product(rows, columns):
    """`rows @ columns`, of which each device has some rows and some columns: the rows go round."""
    height, index = rows.shape[0], jax.lax.axis_index("i")
    product = jax.lax.pcast(jnp.zeros((height * count, columns.shape[1])), "i", to="varying")

    def body(turn, carry):
        product, rows = carry
        at = (index - turn) % count
        product = jax.lax.dynamic_update_slice(product, rows @ columns, (at * height, 0))
        return product, jax.lax.ppermute(rows, "i", ring)

    return jax.lax.fori_loop(0, count, body, (product, rows))[0]


@functools.partial(
    jax.shard_map, mesh=mesh, in_specs=(P(None, "i"), P("i", None)), out_specs=P("i", None)
)
def scattered_product(left, right):
    return jax.lax.psum_scatter(left @ right, "i", scatter_dimension=0, tiled=True)


@functools.partial(
    jax.shard_map, mesh=mesh, in_specs=P(None, "i", None), out_specs=P(None, "i", None)
)
def ring_attention(q, k, v):
    """Attention of a long sequence, of which each device has a part: keys and values go round."""

    def body(carry, _):
        largest, total, result, k, v = carry
        scores = jnp.einsum("bqd,bkd->bqk", q, k) / q.shape[-1] ** 0.5
        now = jnp.maximum(largest, scores.max(-1))
        weights, scale = jnp.exp(scores - now[..., None]), jnp.exp(largest - now)
        total = total * scale + weights.sum(-1)
        result = result * scale[..., None] + jnp.einsum("bqk,bkd->bqd", weights, v)
        k, v = (jax.lax.ppermute(x, "i", ring) for x in (k, v))
        return (now, total, result, k, v), None

    start = (jnp.full_like(q[..., 0], -jnp.inf), jnp.zeros_like(q[..., 0]), jnp.zeros_like(q))
    (_, total, result, _, _), _ = jax.lax.scan(body, (*start, k, v), length=count)
    return result / total[..., None]


@functools.partial(jax.shard_map, mesh=mesh, in_specs=(P("i"), P()), out_specs=P(), check_vma=False)
def pipeline(weights, batches):
    """A layer on each device; micro batches go from one to the next."""
    index, (weight,) = jax.lax.axis_index("i"), weights

    def turn(state, number):
        x = jnp.where(index == 0, batches[jnp.minimum(number, len(batches) - 1)], state)
        x = jnp.tanh(x @ weight)
        return jax.lax.ppermute(x, "i", ring), x

    _, found = jax.lax.scan(turn, jnp.zeros_like(batches[0]), jnp.arange(len(batches) + count - 1))
    return jax.lax.psum(jnp.where(index == count - 1, found[count - 1 :], 0), "i")


def attention(q, k, v):
    return jax.nn.softmax(jnp.einsum("bqd,bkd->bqk", q, k) / q.shape[-1] ** 0.5) @ v


def put(x, *spec):
    return jax.device_put(x, NamedSharding(mesh, P(*spec)))


def whole(x):
    return jax.jit(lambda x: x, out_shardings=NamedSharding(mesh, P()))(x).addressable_data(0)


left, right = normal(0, 4 * count, 8 * count), normal(1, 8 * count, 4 * count)
products = (
    whole(gathered_product(put(left, "i", None), put(right, None, "i"))),
    whole(jax.jit(scattered_product)(put(left, None, "i"), put(right, "i", None))),
)
parts = [put(normal(seed, 2, 8 * count, 16), None, "i", None) for seed in range(3)]
gradient = jax.jit(
    jax.grad(lambda q, k, v: (ring_attention(q, k, v) ** 2).sum(), argnums=(0, 1, 2))
)
rings = [whole(x) for x in (jax.jit(ring_attention)(*parts), *gradient(*parts))]
alone = jax.jit(attention)(*(whole(x) for x in parts))
weights, batches = normal(3, count, 16, 16) / 4, normal(4, 6, 4, 16)
stages = jax.jit(pipeline)(put(weights, "i"), put(batches)).addressable_data(0)
layers = functools.reduce(lambda x, weight: jnp.tanh(x @ weight), weights, batches)
for name, found, expected in (
    ("products", products[0], left @ right),
    ("scattered", products[1], left @ right),
    ("ring attention", rings[0], alone),
    ("pipeline", stages, layers),
):
    print(name, count, bool(np.allclose(found, expected, atol=0.2)), digest(found))
print("gradients", digest(rings[1:]))
