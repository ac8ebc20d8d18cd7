"""The report of an inference on an Edge TPU, for `podyard estimate`."""

from __future__ import annotations

import json

from podyard.base.errors import invalid
from podyard.engine.analysis import parse_module
from podyard.engine.edge.inference import EdgeInference
from podyard.engine.edge.tflite_inference import analyze_tflite
from podyard.engine.edge.tflite_model import is_tflite, read_model
from podyard.engine.program.serialized import text_of_bytes
from podyard.engine.report.edge_tpu import NAME, analyze_edge
from podyard.engine.report.summary import time_text
from podyard.engine.timing.edge import EDGE_TPU

_FIGURES = ("peak_int8_ops_per_second", "watts", "sram_bytes", "link_bytes_per_second")


def edge_report(name: str, module: bytes, form: str) -> str:
    """Return the report of an inference, as a table or JSON. `module` is a TensorFlow Lite model or
    StableHLO. Raises PodyardError as their readers do, and INVALID_ARGUMENT for HTML."""
    if form == "html":
        raise invalid("an Edge TPU has no page in HTML: use table or json", "output")
    if is_tflite(module):
        inference = analyze_tflite(read_model(module))
    else:
        inference = analyze_edge(parse_module(text_of_bytes(module)))
    if form == "json":
        document = {
            "program": name,
            "acceleratorType": NAME,
            "fits": inference.fits,
            "sramBytes": EDGE_TPU.sram_bytes,
            "operations": inference.operations,
            **({"onHost": inference.on_host} if inference.on_host else {}),
            "macs": inference.macs,
            "weightBytes": inference.weight_bytes,
            "activationBytes": inference.activation_bytes,
            "seconds": inference.estimate.seconds,
            "streamedWeightBytes": inference.estimate.streamed_weight_bytes,
            "bound": inference.estimate.bound,
            "joules": inference.estimate.joules,
            "sources": {figure: EDGE_TPU.sources[figure] for figure in _FIGURES},
        }
        return json.dumps(document, indent=2) + "\n"
    return "\n".join(_lines(name, inference)) + "\n"


def _lines(name: str, inference: EdgeInference) -> list[str]:
    estimate = inference.estimate
    room = f"{_megabytes(inference.weight_bytes)} of {_megabytes(EDGE_TPU.sram_bytes)}"
    memory = (
        f"fits ({room})"
        if inference.fits
        else f"does not fit ({room}): {_megabytes(estimate.streamed_weight_bytes)} come from "
        "the host at each inference"
    )
    return [
        f"{name} on an Edge TPU, one inference",
        f"operations      {_counts(inference.operations)}",
        *([f"on the host     {_counts(inference.on_host)}"] if inference.on_host else ()),
        f"MACs            {inference.macs:,}",
        f"on-chip memory  {memory}",
        f"latency         at least {time_text(estimate.seconds)} ({estimate.bound})",
        f"energy          at least {estimate.joules * 1e6:.3g} uJ",
        *(f"source          {figure}: {EDGE_TPU.sources[figure]}" for figure in _FIGURES),
    ]


def _counts(operations: dict[str, int]) -> str:
    return ", ".join(f"{name} {count}" for name, count in operations.items())


def _megabytes(size: int) -> str:
    """Return a size in the unit of the chip's data sheet."""
    return f"{size / 1e6:.3g} MB"
