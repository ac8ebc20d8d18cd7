"""A decoder-only transformer that predicts the next token: pre-norm, GELU, learned positions, tied
embedding.

Source: Radford et al., "Language models are unsupervised multitask learners" (2019), section 2.3.
Its tensors are those of GPT-2, under other names: docs/howto/reference-models.md.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from podyard.base.errors import invalid
from podyard.engine.recipes.layers import causal_attention, layer_norm
from podyard.engine.recipes.model import Model
from podyard.engine.recipes.tensors import Tensor, normal, numbers_below, ones, zeros
from podyard.engine.recipes.texts import FEATURE, tokens_of
from podyard.engine.training.optimizers import Adam

# Training tokens of OpenWebText in the byte-pair encoding of 50,257 tokens.
_DATA_TOKENS = 9_035_582_198
_UNROLLED_LAYERS_MAX = 4
_DEVIATION = 0.02
_EXPANSION = 4
# Of the logits of all examples that are judged in one program.
_JUDGED_BYTES_MAX = 256 << 20


def transformer_lm(arguments: Mapping[str, Any]) -> Model:
    """Arguments as in the manifest of the program. Raises PodyardError INVALID_ARGUMENT when width
    is not a multiple
    of heads."""
    width, heads = arguments["width"], arguments["heads"]
    if width % heads:
        raise invalid(
            f"arguments.heads divides the width {width} evenly, which {heads} does not",
            "arguments.heads",
        )
    scan = arguments["scan"]
    network = TransformerLm(
        layers=arguments["layers"],
        width=width,
        heads=heads,
        sequence=arguments["sequence"],
        vocabulary=arguments["vocabulary"],
        dtype=jnp.dtype(arguments["dtype"]),
        scan=arguments["layers"] > _UNROLLED_LAYERS_MAX if scan is None else scan,
        remat=arguments["remat"],
    )
    logits_bytes = 4 * network.sequence * network.vocabulary
    data = tokens_of(
        arguments["data"],
        network.sequence,
        network.vocabulary,
        max(1, _JUDGED_BYTES_MAX // logits_bytes),
    )
    return Model(
        params=network.params(),
        features={FEATURE: numbers_below(network.vocabulary, (network.sequence + 1,))},
        loss=network.loss,
        optimizer=lambda _global_batch: Adam(arguments["learningRate"]),
        # The data is one long text; an example is a window, and windows share their edge tokens.
        example_count=max(1, (_DATA_TOKENS - 1) // network.sequence),
        evaluate=network.evaluate,
        predict=network.predict,
        input=data,
    )


@dataclasses.dataclass(frozen=True)
class TransformerLm:
    """`sequence`: tokens seen at once. Parameters are float32; those of the blocks, under "blocks",
    are stacked
    [layers, ...] with `scan`, else a tuple. `remat`: only a block's input is kept for the backward
    pass."""

    layers: int
    width: int
    heads: int
    sequence: int
    vocabulary: int
    dtype: Any
    scan: bool
    remat: bool

    def params(self) -> dict[str, Any]:
        blocks: Any = (self._block_params(()),) * self.layers
        if self.scan:
            blocks = self._block_params((self.layers,))
        return {
            "embedding": Tensor((self.vocabulary, self.width), normal(_DEVIATION)),
            "positions": Tensor((self.sequence, self.width), normal(_DEVIATION)),
            "blocks": blocks,
            "norm": _norm_params((), self.width),
        }

    def _block_params(self, leading: tuple[int, ...]) -> dict[str, Any]:
        width, inner = self.width, _EXPANSION * self.width
        # Each layer adds twice to the running sum: smaller, so that the sum's deviation does not
        # grow with depth.
        adding = _DEVIATION / math.sqrt(2 * self.layers)
        return {
            "norm1": _norm_params(leading, width),
            "attention_in": _dense_params(leading, width, 3 * width, _DEVIATION),
            "attention_out": _dense_params(leading, width, width, adding),
            "norm2": _norm_params(leading, width),
            "mlp_in": _dense_params(leading, width, inner, _DEVIATION),
            "mlp_out": _dense_params(leading, inner, width, adding),
        }

    def loss(
        self, params: Any, statistics: Any, batch: Any, _key: Any
    ) -> tuple[Any, tuple[Mapping[str, Any], Any]]:
        return self.evaluate(params, statistics, batch)["loss"], ({}, statistics)

    def evaluate(self, params: Any, _statistics: Any, batch: Any) -> Mapping[str, Any]:
        """Mean cross entropy of batch["tokens"] [n, sequence + 1]: each but the first, from those
        before it."""
        tokens, targets = batch[FEATURE][:, :-1], batch[FEATURE][:, 1:]
        logits = self.logits(params, tokens)
        # By index, not by one-hot: a one-hot row is as long as the vocabulary.
        chosen = jnp.take_along_axis(jax.nn.log_softmax(logits), targets[..., None], axis=-1)
        return {"loss": -jnp.mean(chosen)}

    def predict(self, params: Any, _statistics: Any, batch: Any) -> Any:
        """[n, sequence]: the likeliest token behind each of the first `sequence` ones."""
        return jnp.argmax(self.logits(params, batch[FEATURE][:, :-1]), axis=-1)

    def logits(self, params: Any, tokens: Any) -> Any:
        """[n, sequence] -> [n, sequence, vocabulary] in float32."""
        x = (params["embedding"][tokens] + params["positions"]).astype(self.dtype)
        block = jax.checkpoint(self._block) if self.remat else self._block
        if self.scan:
            x, _ = lax.scan(lambda x, own: (block(x, own), None), x, params["blocks"])
        else:
            for own in params["blocks"]:
                x = block(x, own)
        x = layer_norm(x, params["norm"]["scale"], params["norm"]["bias"])
        table = params["embedding"].astype(self.dtype)
        return jnp.einsum("nsw,vw->nsv", x, table, preferred_element_type=jnp.float32)

    def _block(self, x: Any, own: Any) -> Any:
        """x [n, sequence, width] -> the same; `own`: the block's parameters."""
        normed = layer_norm(x, own["norm1"]["scale"], own["norm1"]["bias"])
        parts = self._dense(normed, own["attention_in"]).reshape(*x.shape[:2], 3, self.heads, -1)
        attended = causal_attention(parts[:, :, 0], parts[:, :, 1], parts[:, :, 2])
        x = x + self._dense(attended.reshape(x.shape), own["attention_out"])
        normed = layer_norm(x, own["norm2"]["scale"], own["norm2"]["bias"])
        return x + self._dense(jax.nn.gelu(self._dense(normed, own["mlp_in"])), own["mlp_out"])

    def _dense(self, x: Any, own: Any) -> Any:
        return x @ own["kernel"].astype(self.dtype) + own["bias"].astype(self.dtype)


def _dense_params(
    leading: tuple[int, ...], entering: int, leaving: int, deviation: float
) -> dict[str, Tensor]:
    return {
        "kernel": Tensor((*leading, entering, leaving), normal(deviation)),
        "bias": Tensor((*leading, leaving), zeros),
    }


def _norm_params(leading: tuple[int, ...], width: int) -> dict[str, Tensor]:
    return {"scale": Tensor((*leading, width), ones), "bias": Tensor((*leading, width), zeros)}
