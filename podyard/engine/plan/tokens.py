"""Tokens of a training step, from the integer arguments of its module: batch x sequence."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence
from decimal import Decimal, InvalidOperation

from podyard.engine.program.ir import Program, TensorType

# Tokens are integers of 16 bits or more: images are u8, quantized weights s8.
_TYPES = frozenset({"s16", "u16", "s32", "u32", "s64", "u64"})
# PRNG keys of JAX are u32 and end with 2 (threefry) or 4 (rbg): jax/_src/prng.py.
_KEY_WORDS = frozenset({2, 4})
_SHOWN_MAX = 3
TOKENS_MAX = 10**18  # of a run
INPUTS_MAX = 20  # arguments of a module: packed batches have five (tokens, positions, segments)
_TYPE = re.compile(r"(\w+)\[([\d,]+)\]")


@dataclasses.dataclass(frozen=True, slots=True)
class TokensPerStep:
    """`count` None: not known. `source`: a clause for people, where it comes from or why it is not
    known."""

    count: int | None
    source: str


def token_inputs(program: Program) -> tuple[str, ...]:
    """Return the types of arguments that may hold tokens, such as `s32[256,2048]`, each once."""
    types = (program.types[value] for value in program.body.parameters)
    return tuple(dict.fromkeys(str(one) for one in types if _may_be_tokens(one)))[:INPUTS_MAX]


def tokens_per_step(inputs: Sequence[str], turns: int, replicas: int = 1) -> TokensPerStep:
    """Return the tokens of a step. `inputs`: as in `token_inputs`. `turns`: of the training loop in
    the module, as in `engine.training_loop`: a batch for each turn is the first dimension.
    `replicas`: of a module that has one replica's part of the batch."""
    if not inputs:
        return TokensPerStep(None, "the step has no integer argument of batch x sequence")
    sizes = {read_type(text).size for text in inputs}
    shown = ", ".join(inputs[:_SHOWN_MAX])
    if len(sizes) > 1:
        return TokensPerStep(None, f"the step has integer arguments of several sizes: {shown}")
    text, size = inputs[0], sizes.pop() * replicas
    if not turns:
        part = f", {replicas} replicas" if replicas > 1 else ""
        return TokensPerStep(size, f"from the argument {text}{part}")
    if turns > 1 and read_type(text).shape[0] == turns:
        return TokensPerStep(size // turns, f"from the argument {text}, {turns} steps of the loop")
    return TokensPerStep(None, f"the loop's part of the argument {text} is not known")


def _may_be_tokens(one: TensorType) -> bool:
    if len(one.shape) < 2 or one.dtype not in _TYPES or not one.size:
        return False
    return one.dtype != "u32" or one.shape[-1] not in _KEY_WORDS


def read_type(text: str) -> TensorType:
    """Raises ValueError for a text that `token_inputs` does not write."""
    match = _TYPE.fullmatch(text)
    if match is None:
        raise ValueError(f"{text[:80]!r} is not a type such as s32[256,2048]")
    return TensorType(tuple(map(int, match[2].split(","))), match[1])


def steps_of(tokens: int, per_step: int) -> int:
    """Return the steps that `tokens` take; the last one may be shorter."""
    return -(-tokens // per_step)


def read_count(text: str) -> int:
    """Return the number of tokens of a text such as `1e12`. Raises ValueError for what is not a
    number from 1 to TOKENS_MAX."""
    try:
        count = Decimal(text)
    except InvalidOperation:
        count = Decimal(0)
    if not (count.is_finite() and 1 <= count <= TOKENS_MAX):
        raise ValueError(f"{text[:80]!r} is not a number of tokens: use 1 to 1e18, such as 1e12")
    return int(count)
