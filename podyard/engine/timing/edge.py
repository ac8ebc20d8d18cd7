"""The Edge TPU: its facts, and a bound on the time of one inference.

It is not a Cloud TPU and no node has one. How its array is built is not published, so there is no
model of cycles here: only what the published peak and the link to the host allow.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Literal

from podyard.base.errors import invalid


@dataclasses.dataclass(frozen=True, slots=True)
class EdgeTpu:
    """Per chip. `watts` is drawn at the peak; `sram_bytes` caches weights; the link goes to the
    host's memory."""

    peak_int8_ops_per_second: int
    watts: float
    sram_bytes: int
    link_bytes_per_second: int
    sources: Mapping[str, str]


EDGE_TPU = EdgeTpu(
    peak_int8_ops_per_second=4_000_000_000_000,
    watts=2.0,
    sram_bytes=8_000_000,
    link_bytes_per_second=500_000_000,
    sources={
        "peak_int8_ops_per_second": (
            "Coral USB Accelerator datasheet 1.4; https://coral.ai/docs/edgetpu/faq"
        ),
        "watts": (
            "Coral USB Accelerator datasheet 1.4: 2 TOPS per watt; "
            "https://coral.ai/docs/edgetpu/faq"
        ),
        "sram_bytes": (
            "about 8 MB, from memory of https://coral.ai/docs/edgetpu/compiler, unverified"
        ),
        "link_bytes_per_second": "USB 3.1 Gen 1 (datasheet): 5 Gbit/s with 10 bits for 8; "
        "what protocols "
        "leave of it "
        "is not counted",
    },
)

Bound = Literal["compute", "link"]


@dataclasses.dataclass(frozen=True, slots=True)
class EdgeEstimate:
    """One inference, after the first has filled the cache. `seconds` is a lower bound, `joules`
    goes with it (the chip draws its full power as long as it works, and nothing is said of
    idling)."""

    seconds: float
    compute_seconds: float
    link_seconds: float
    streamed_weight_bytes: int
    bound: Bound
    joules: float


def analyze_int8(
    macs: int, weight_bytes: int, activation_bytes: int, element_type: str = "int8"
) -> EdgeEstimate:
    """A roofline of compute and link: weights beyond the cache come from the host for each
    inference.

    `activation_bytes`: what goes in and comes out over the link; what stays inside is free.
    Raises PodyardError INVALID_ARGUMENT for negative sizes and for every element type but int8 and
    uint8.
    """
    if element_type not in ("int8", "uint8"):
        raise invalid(
            "an Edge TPU computes with integers of 8 bits; quantize the model, it is "
            f"{element_type}"
        )
    if min(macs, weight_bytes, activation_bytes) < 0:
        raise invalid(
            f"sizes are not negative: macs={macs}, weights={weight_bytes}, "
            f"activations={activation_bytes}"
        )
    streamed = max(0, weight_bytes - EDGE_TPU.sram_bytes)
    compute_seconds = 2 * macs / EDGE_TPU.peak_int8_ops_per_second
    link_seconds = (streamed + activation_bytes) / EDGE_TPU.link_bytes_per_second
    return EdgeEstimate(
        seconds=max(compute_seconds, link_seconds),
        compute_seconds=compute_seconds,
        link_seconds=link_seconds,
        streamed_weight_bytes=streamed,
        bound="compute" if compute_seconds >= link_seconds else "link",
        joules=EDGE_TPU.watts * compute_seconds,
    )
