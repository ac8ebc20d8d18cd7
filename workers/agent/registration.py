"""The registration of an agent: its machine, and its name."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping
from pathlib import Path

from podyard.base import reach, this_machine
from podyard.base.agent_identity import AgentIdentity
from podyard.base.clock import RealClock
from podyard.base.errors import Code, PodyardError
from podyard.programs import environments


class Registration:
    """`cores`, `memory_bytes`: 0 is all that the machine has. `is_dialled`: the API checks that it
    reaches the address, as others will."""

    def __init__(  # noqa: PLR0913
        self,
        replicas_max: int,
        hosts_max: int,
        bind_address: str,
        data: Path,
        clock: RealClock,
        *,
        cores: int = 0,
        memory_bytes: int = 0,
        labels: Mapping[str, str] | None = None,
        is_dialled: bool = False,
    ) -> None:
        self.bind_address = bind_address
        self._replicas_max = replicas_max
        self._hosts_max = hosts_max
        self._data = data
        self._clock = clock
        self._cores = cores
        self._memory_bytes = memory_bytes
        self._labels = dict(labels or {})
        self._is_dialled = is_dialled

    @classmethod
    def of_joined(cls, identity: AgentIdentity, data: Path, clock: RealClock) -> Registration:
        return cls(
            identity.replicas_max,
            identity.hosts_max,
            identity.advertise,
            data,
            clock,
            cores=identity.cores,
            memory_bytes=identity.memory_bytes,
            labels=identity.labels,
            is_dialled=True,
        )

    @contextlib.contextmanager
    def message(self) -> Iterator[dict[str, object]]:
        """As the API reads it; while the context is open, the API can dial our address."""
        runtimes = [
            software.name for software in environments.list_made(environments.default_folder())
        ]
        message: dict[str, object] = {
            "replicasMax": self._replicas_max,
            "hostsMax": self._hosts_max,
            "bindAddress": self.bind_address,
            "pid": os.getpid(),
            "machine": this_machine.declaration(
                self._data,
                self._clock,
                cores_said=self._cores,
                memory_said=self._memory_bytes,
                labels=self._labels,
                runtimes=runtimes,
            ),
        }
        if not self._is_dialled:
            yield message
            return
        with contextlib.ExitStack() as stack:
            try:
                port, number = stack.enter_context(reach.answering(self.bind_address))
            except OSError as error:
                text = (
                    f"cannot listen at the advertised address {self.bind_address}: {error.strerror}"
                )
                raise PodyardError(Code.UNAVAILABLE, text) from None
            yield {**message, "probe": {"port": port, "number": number}}
