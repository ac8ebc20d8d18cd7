"""Training with `jax.pmap` and its collectives: batch normalization over groups of devices, rings,
keys per device."""

import functools
import hashlib

import jax
import jax.numpy as jnp
import numpy as np
import optax

here, everywhere = jax.local_device_count(), jax.device_count()
pairs = np.arange(everywhere).reshape(-1, 2).tolist()
halves = np.arange(everywhere).reshape(2, -1).tolist()
ring = [(source, (source + 1) % everywhere) for source in range(everywhere)]
chance = np.random.default_rng(jax.process_index())
optimizer = optax.chain(
    optax.clip_by_global_norm(1.0), optax.adamw(optax.cosine_decay_schedule(1e-2, 10))
)


def digest(tree):
    leaves = [np.asarray(leaf) for leaf in jax.tree.leaves(tree)]
    return hashlib.sha256(b"".join(leaf.tobytes() for leaf in leaves)).hexdigest()[:16]


def local(x):
    """The rows of this process."""
    return np.stack(
        [
            shard.data
            for shard in sorted(x.addressable_shards, key=lambda one: one.index[0].start or 0)
        ]
    )


def normalize(x, groups):
    mean = jax.lax.pmean(x.mean(0), "batch", axis_index_groups=groups)
    square = jax.lax.pmean((x**2).mean(0), "batch", axis_index_groups=groups)
    return (x - mean) * jax.lax.rsqrt(square - mean**2 + 1e-5)


def loss_of(params, key, x, labels):
    x = jax.nn.relu(normalize(x @ params["first"], pairs))
    kept = jax.random.bernoulli(key, 0.9, x.shape)
    return optax.softmax_cross_entropy_with_integer_labels(
        (x * kept) @ params["second"], labels
    ).mean()


@functools.partial(jax.pmap, axis_name="batch", donate_argnums=(0, 1), in_axes=(0, 0, None, 0, 0))
def train_step(params, state, key, x, labels):
    key = jax.random.fold_in(key, jax.lax.axis_index("batch"))
    loss, gradient = jax.value_and_grad(loss_of)(params, key, x, labels)
    loss, gradient = jax.lax.pmean((loss, gradient), axis_name="batch")
    updates, state = optimizer.update(gradient, state, params)
    return optax.apply_updates(params, updates), state, loss


keys = jax.random.split(jax.random.PRNGKey(0), 2)
params = {
    "first": jax.random.normal(keys[0], (32, 64)) / 32**0.5,
    "second": jax.random.normal(keys[1], (64, 10)) / 8,
}
params, state = jax.tree.map(
    lambda leaf: jnp.stack([leaf] * here), (params, optimizer.init(params))
)
for step in range(10):
    x, labels = (
        chance.normal(size=(here, 16, 32)).astype(np.float32),
        chance.integers(0, 10, (here, 16)),
    )
    params, state, loss = train_step(params, state, jax.random.PRNGKey(step), x, labels)
assert all((local(leaf) == local(leaf)[0]).all() for leaf in jax.tree.leaves(params))


@functools.partial(jax.pmap, axis_name="i", static_broadcasted_argnums=1)
def collectives(x, power):
    x = x**power
    return {
        "sum": jax.lax.psum(x, "i"),
        "sum of a half": jax.lax.psum(x, "i", axis_index_groups=halves),
        "largest of a pair": jax.lax.pmax(x, "i", axis_index_groups=pairs),
        "gathered": jax.lax.all_gather(x, "i").sum(),
        "neighbour": jax.lax.ppermute(x, "i", ring),
        "exchanged": jax.lax.all_to_all(x + jnp.arange(float(everywhere)), "i", 0, 0),
        "scattered": jax.lax.psum_scatter(x + jnp.arange(float(everywhere)), "i"),
        "index": jax.lax.axis_index("i"),
    }


first = jax.process_index() * here
for name, value in collectives(jnp.arange(first, first + here, dtype=jnp.float32), 2).items():
    print(name, jnp.ravel(local(value)).tolist()[:8])
by_both = jax.pmap(
    lambda x: jax.vmap(lambda y: jax.lax.psum(y, ("i", "j")), axis_name="j")(x), axis_name="i"
)
print("both axes", local(by_both(jnp.ones((here, 5))))[0].tolist())
print(
    "trained", everywhere, digest(jax.tree.map(lambda leaf: local(leaf)[0], (params, state, loss)))
)
