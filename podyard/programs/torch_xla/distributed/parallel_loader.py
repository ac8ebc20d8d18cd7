"""torch_xla.distributed.parallel_loader: batches, moved to the device, with a step after each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from torch_xla import _steps
from torch_xla.core import xla_model as xm


class PerDeviceLoader:
    def __init__(
        self,
        loader: Any,
        device: Any,
        batches_per_execution: int = 1,
        input_sharding: Any = None,
    ) -> None:
        self._loader = loader
        self._device = device
        self._batches_per_execution = batches_per_execution
        self._input_sharding = input_sharding

    def __iter__(self) -> Iterator[Any]:
        with _steps.pause():
            batches = enumerate(self._loader)
        while True:
            with _steps.pause():
                number, batch = next(batches, (0, None))
            if batch is None:
                break
            if number % self._batches_per_execution == 0:
                xm.mark_step()
            yield xm.send_cpu_data_to_device(batch, self._device, self._input_sharding)
        xm.mark_step()

    def __len__(self) -> int:
        return len(self._loader)


class ParallelLoader:
    """Batches are made in this thread: the CPU that would do so ahead is the one that computes the
    step."""

    def __init__(
        self,
        cpu_loader: Any,
        devices: Sequence[Any],
        batchdim: int = 0,
        batches_per_execution: int = 1,
        input_sharding: Any = None,
        **_options: Any,
    ) -> None:
        self._loader = cpu_loader
        self._input_sharding = input_sharding
        self._devices = [str(device) for device in devices]
        self.batchdim = batchdim
        self._batches_per_execution = batches_per_execution

    def per_device_loader(self, device: Any) -> PerDeviceLoader:
        if str(device) not in self._devices:
            raise RuntimeError(
                f"{device} is not among the devices of this loader: {', '.join(self._devices)}"
            )
        return PerDeviceLoader(
            self._loader, device, self._batches_per_execution, self._input_sharding
        )

    def per_device_samples(self) -> int:
        return len(self._loader)

    def close(self) -> None:
        """Nothing runs ahead."""


class MpDeviceLoader:
    """A loader whose batches are on the device. Transformers' Trainer sets `input_sharding` among
    its options."""

    def __init__(self, loader: Any, device: Any, **options: Any) -> None:
        self._loader = loader
        self._device = device
        self._parallel_loader_kwargs = options

    def __iter__(self) -> Iterator[Any]:
        return iter(
            ParallelLoader(
                self._loader, [self._device], **self._parallel_loader_kwargs
            ).per_device_loader(self._device)
        )

    def __len__(self) -> int:
        return len(self._loader)
