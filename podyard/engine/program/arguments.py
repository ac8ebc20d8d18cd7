"""Arguments of a StableHLO module's main function: their names, donation and memory."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping

from podyard.engine.program.ir import HOST_KINDS


@dataclasses.dataclass(slots=True)
class MainArguments:
    """`names`: for each argument its index and all its names. `donated`: results by argument;
    `donors`: arguments whose memory any result may take. `on_host`: arguments in the memory of the
    host."""

    values: list[int] = dataclasses.field(default_factory=list)
    names: list[tuple[str, ...]] = dataclasses.field(default_factory=list)
    donated: dict[int, int] = dataclasses.field(default_factory=dict)
    donors: set[int] = dataclasses.field(default_factory=set)
    on_host: set[int] = dataclasses.field(default_factory=set)

    def add(self, value: int, names: Iterable[str], attributes: Mapping[str, object]) -> None:
        own_names = (str(len(self.values)), *names)
        self.values.append(value)
        self.names.append(tuple(dict.fromkeys(name for name in own_names if name)))
        aliased = attributes.get("tf.aliasing_output")
        if isinstance(aliased, int):
            self.donated[value] = aliased
        if attributes.get("jax.buffer_donor") == "true":
            self.donors.add(value)
        if is_on_host(attributes):
            self.on_host.add(value)


def is_on_host(attributes: Mapping[str, object]) -> bool:
    """Return True for an argument or a result that JAX keeps in the memory of the host."""
    return attributes.get("mhlo.memory_kind") in HOST_KINDS
