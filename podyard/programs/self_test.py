"""A self-test that this Python's JAX shows the devices of a slice: a program like any other, with
the hook around it.

Prints a line of JSON for each part: `part`, `ok`, and what it found.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any


def main() -> None:
    import jax
    import jax.numpy as jnp
    import numpy as np

    def say(part: str, check: Callable[[], tuple[bool, str]]) -> None:
        try:
            ok, found = check()
        except Exception as error:  # of JAX, whatever it is
            ok, found = False, f"{type(error).__name__}: {error}"
        print(json.dumps({"part": part, "ok": ok, "found": found}), flush=True)

    def devices() -> tuple[bool, str]:
        found = jax.devices()
        of_kind = (
            f"{len(found)} {found[0].device_kind} devices, "
            f"{jax.local_device_count()} of them "
            "on this host"
        )
        return jax.default_backend() == "tpu", f"JAX {jax.__version__} shows {of_kind}"

    def total() -> tuple[bool, str]:
        count = jax.local_device_count()
        lax: Any = jax.lax
        found = jax.pmap(lambda x: lax.psum(x, "i"), axis_name="i")(jnp.ones(count))
        return float(
            found[0]
        ) == jax.device_count(), f"a sum of ones over all devices is {float(found[0]):g}"

    def numerics() -> tuple[bool, str]:
        fine = np.float32(1 + 2**-10)  # bfloat16 has no such number
        found = float(jax.jit(lambda x: x @ x)(jnp.full((1, 1), fine))[0, 0])
        rounded = found == 1.0
        return True, f"products are of {'bfloat16' if rounded else 'float32'} numbers"

    def memory() -> tuple[bool, str]:
        stats = jax.local_devices()[0].memory_stats()
        return (
            stats is not None,
            f"a device has {(stats or {}).get('bytes_limit', 0) / 2**30:.2f} GiB for programs",
        )

    for part, check in (
        ("devices", devices),
        ("sums", total),
        ("numerics", numerics),
        ("memory", memory),
    ):
        say(part, check)


if __name__ == "__main__":
    main()
