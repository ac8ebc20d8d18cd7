"""What a program would take on a slice: the result of an analysis. No JAX in here."""

from __future__ import annotations

import dataclasses
from typing import Literal

from podyard.engine.program.doubts import Doubt
from podyard.engine.timing.kernels import Bound


def overhead_seconds(device: float, dispatch: float, feed: float, host_loop: bool) -> float:
    """Return what a step of `device` seconds waits for the host."""
    return (
        dispatch + max(0.0, feed - device) if host_loop else max(0.0, max(dispatch, feed) - device)
    )


@dataclasses.dataclass(frozen=True, slots=True)
class OpEstimate:
    """One kernel, in the order they run. `cycles` are those of all its `count` executions;
    `start_cycles` is when the first one starts. `unit_cycles`: how long each unit works for it, by
    "mxu", "vpu", "hbm", "ici"."""

    name: str
    kind: str
    cycles: float
    bytes: int
    flops: int
    bound: Bound
    count: int = 1
    start_cycles: float = 0.0
    unit_cycles: tuple[tuple[str, float], ...] = ()
    where: str = ""


@dataclasses.dataclass(frozen=True, slots=True)
class BufferEstimate:
    """An array in memory: `kind` is argument, result or temporary."""

    name: str
    kind: str
    nbytes: int


@dataclasses.dataclass(frozen=True, slots=True)
class PeakBytes:
    """Bytes of temporaries at the peak, in HBM and in the chip's own memory; (name, bytes) of those
    in HBM. Of the bodies of a loop also what their kernels take, one after another, and kinds of
    collectives that run next to them."""

    nbytes: int = 0
    near_bytes: int = 0
    values: tuple[tuple[str, int], ...] = ()
    cycles: float = 0.0
    kinds: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True)
class ArgumentEstimate:
    """An argument of the program: its shape and the bytes of an element, and the bytes of a
    device's part of it."""

    shape: tuple[int, ...]
    itemsize: float
    device_bytes: int


@dataclasses.dataclass(frozen=True, slots=True)
class CollectiveEstimate:
    """A collective of `arrays` arrays, `nbytes` in all as the larger of what a device gives and
    gets, that runs `count` times between the devices of each of `groups` groups; `axes`: of the
    mesh, by name. `seconds` are of all runs, `hidden_seconds` those of them that pass while
    products are computed."""

    kind: str
    count: int
    arrays: int
    nbytes: int
    group_size: int
    groups: int
    axes: str
    seconds: float
    hidden_seconds: float


@dataclasses.dataclass(frozen=True, slots=True)
class Estimate:
    """One step of a program. All figures are those of one device (a core on v2 and v3, a chip from
    v4 on), except `modelled_seconds` and the parts of the time, which are the step's on the whole
    slice.

    `cycles` is the compiler's measure: the kernels of one device, without what the compiler gives
    no cycles (sorting, collectives, and from v4 on what is fetched ahead). `traffic_seconds` is how
    long its memory takes to move `hbm_bytes`: no run can be shorter. `modelled_seconds` and `ops`
    are of a run: with all of that.
    The host starts the next step while the devices run one: `overhead_seconds` are what it takes
    longer than they do. With `host_loop` it waits for every step, and all that it takes counts.
    `peak_hbm_bytes` is what the compiler calls `peak_memory_in_bytes`. From v4 on that is the
    larger of what HBM holds and of arguments and results with what the chip's own memory holds;
    `on_chip_bytes` are by how much it is more than what HBM holds. `fits` judges HBM.
    `bound` names what most of the step waits for. `unknown_ops` were priced by their bytes only.
    `doubts`: what is not modelled; with any, times are lower bounds.
    `energy_joules` are one device's; None where the generation's power is not published.
    """

    accelerator_type: str
    compiler: str
    devices: int
    modelled_seconds: float
    compute_seconds: float
    collective_seconds: float
    overhead_seconds: float
    # What the host takes to start a step, and to send the devices their part of the batch.
    dispatch_seconds: float
    feed_seconds: float
    cycles: float
    flops: int
    hbm_bytes: int
    ici_bytes: int
    mxu_utilization: float
    argument_bytes: int
    result_bytes: int
    temporary_bytes: int
    peak_hbm_bytes: int
    usable_hbm_bytes: int
    fits: bool
    memory_text: str
    bound: Bound
    energy_joules: float | None
    ops: tuple[OpEstimate, ...]
    collectives: tuple[str, ...]
    largest_buffers: tuple[BufferEstimate, ...]
    unknown_ops: tuple[str, ...]
    clock_hz: float
    traffic_seconds: float = 0.0
    global_batch: int | None = None
    host_loop: bool = False
    doubts: tuple[Doubt, ...] = ()
    collective_ops: tuple[CollectiveEstimate, ...] = ()
    # By how much the peak is more than what HBM holds, because of the chip's own memory (from v4
    # on).
    on_chip_bytes: int = 0
    # What HBM must have room for: results have their places from the start. 0: the peak without
    # what is on the chip.
    allocated_bytes: int = 0
    # Of the step, what published rates do not explain, of matrix units, memory and links: start,
    # windows and layouts of kernels, fitted on compiled programs, and the host's part.
    fitted_share: float = 0.0
    arguments: tuple[ArgumentEstimate, ...] = ()
    # Of the whole program, for each device: products, convolutions and what kernels state, without
    # and with what is computed again. Causal attention counts half in `model_flops`; the other half
    # are `masked_flops`. The peaks are one device's: bf16's, and that of the types of most
    # products.
    model_flops: float = 0.0
    masked_flops: float = 0.0
    hardware_flops: float = 0.0
    peak_flops_per_second: float = 0.0
    dtype_peak_flops_per_second: float = 0.0
    # What the kernels of the step take longer than the compiler says, because no product sustains
    # the peak.
    unsustained_seconds: float = 0.0

    def with_full_attention(self) -> Estimate:
        """Return the estimate with causal attention counted in full."""
        return dataclasses.replace(
            self, model_flops=self.model_flops + self.masked_flops, masked_flops=0.0
        )

    @property
    def mfu(self) -> float:
        """Model FLOPs utilization: model FLOPs over what the bf16 peak allows in the time of the
        step."""
        return self._utilization(self.model_flops)

    @property
    def hfu(self) -> float:
        """Hardware FLOPs utilization: the same with what is computed again."""
        return self._utilization(self.hardware_flops)

    def _utilization(self, flops: float) -> float:
        possible = self.peak_flops_per_second * self.modelled_seconds
        return flops / possible if possible else 0.0

    @property
    def needed_hbm_bytes(self) -> int:
        """Return what has to fit into `usable_hbm_bytes`."""
        return self.allocated_bytes or self.peak_hbm_bytes - self.on_chip_bytes

    @property
    def device_seconds(self) -> float:
        """Of a step, without the host."""
        return self.compute_seconds + self.collective_seconds

    @property
    def confidence(self) -> Literal["modelled", "lower bound"]:
        """With a doubt, the time is a lower bound, and so is whatever follows from it."""
        return "lower bound" if self.doubts else "modelled"

    @property
    def reasons(self) -> tuple[str, ...]:
        return tuple(doubt.text for doubt in self.doubts)

    @property
    def is_memory_lower_bound(self) -> bool:
        """Return whether the peak may be higher, so that `fits` means only that the known part
        fits."""
        return any(doubt.about_memory for doubt in self.doubts)
