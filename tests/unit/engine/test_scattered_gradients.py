"""Steps of an optimizer on a table whose gradient is scattered. Cycles and peaks are what the
compiler has for the same programs (libtpu 0.0.42.1)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax import nn

from tests.unit.engine.meshes import BF16, F32, SplitMesh, estimate_by

_ROWS, _FEATURES, _TOKENS = 16384, 512, 256
_Loss = Callable[[Any, Any, Any], Any]


def _looked_up(table: Any, text: Any, labels: Any) -> Any:
    """The table is looked up, and no more."""
    return jnp.mean(
        jnp.square(jnp.tanh(table[text].astype(BF16)) * labels[:, None].astype(BF16)).astype(F32)
    )


def _tied(table: Any, text: Any, labels: Any) -> Any:
    """The table gives the scores, too."""
    scores = jnp.einsum("nd,vd->nv", jnp.tanh(table[text].astype(BF16)), table.astype(BF16)).astype(
        F32
    )
    hit = jnp.where(jnp.arange(_ROWS)[None] == labels[:, None], scores, 0)
    return jnp.mean(nn.logsumexp(scores, -1) - jnp.sum(hit, -1))


def _step(loss: _Loss, optimizer: str) -> Callable[..., Any]:
    def step(table: Any, state: Any, text: Any, labels: Any) -> Any:
        value, grad = jax.value_and_grad(loss)(table, text, labels)
        if optimizer == "sgd":
            return table - 0.01 * grad, state, value
        state = 0.9 * state + (grad if optimizer == "momentum" else 0.1 * grad)
        return table - 0.01 * state, state, value

    return step


@pytest.mark.parametrize(
    ("loss", "optimizer", "devices", "cycles", "peak"),
    [
        (_looked_up, "momentum", 1, 384_167, 67_903_488),
        (_looked_up, "momentum", 8, 384_577, 67_903_488),
        (_looked_up, "sgd", 8, 321_711, 134_224_896),
        (_looked_up, "scaled momentum", 1, 471_522, 101_194_752),
        (_tied, "momentum", 1, 718_011, 76_292_096),
        (_tied, "momentum", 8, 870_539, 93_069_312),
        (_tied, "sgd", 1, 644_059, 109_846_528),
        (_tied, "scaled momentum", 8, 945_238, 134_223_872),
    ],
)
def test_what_a_gradient_is_added_to_is_scattered_into(
    loss: _Loss, optimizer: str, devices: int, cycles: int, peak: int
) -> None:
    """A gradient that is multiplied first (`scaled momentum`) is an array of its own, as that of
    SGD is."""
    mesh = SplitMesh({"data": devices})
    table = mesh.array((_ROWS, _FEATURES), None, None)
    tokens = mesh.array((_TOKENS * devices,), "data", dtype=jnp.int32)
    estimate = estimate_by(
        _step(loss, optimizer), "v3-8", table, table, tokens, tokens, donated=(0, 1)
    )
    assert estimate.cycles == pytest.approx(cycles, rel=0.02)
    assert estimate.peak_hbm_bytes == pytest.approx(peak, rel=0.02)
