"""A report as a JSON object. The names are the API's style and stay; every field of an estimate is
there."""

from __future__ import annotations

import dataclasses
import re
from typing import Any

from podyard.engine.report.summary import HourlyPrice, Report, cost_text, hourly_text
from podyard.engine.timing.estimate import (
    ArgumentEstimate,
    CollectiveEstimate,
    Estimate,
    OpEstimate,
)

COST_JSON_DIGITS = 12


def document(report: Report) -> dict[str, Any]:
    """Times in seconds (`...Seconds`) or cycles of `clockHz`, sizes in bytes, shares 0 to 1, money
    as decimal text."""
    estimate = report.estimate
    plain = {
        _camel(field.name): getattr(estimate, field.name)
        for field in dataclasses.fields(estimate)
        if field.name not in ("ops", "largest_buffers", "doubts", "collective_ops", "arguments")
    }
    return {
        "program": report.program,
        "summary": report.headline,
        **confidence(report.estimate),
        "device": report.device,
        **plain,
        "mfu": estimate.mfu,
        "hfu": estimate.hfu,
        "collectives": list(estimate.collectives),
        "collectiveOps": [_record(one) for one in estimate.collective_ops],
        "arguments": [_record(one) for one in estimate.arguments],
        "unknownOps": list(estimate.unknown_ops),
        "boundSeconds": dict(report.bound_seconds),
        "exampleCount": report.example_count,
        "stepsPerEpoch": report.steps_per_epoch,
        "epochSeconds": report.epoch_seconds,
        "sliceEnergyJoules": report.slice_joules,
        "energyNote": report.energy_note,
        "zone": report.zone,
        "prices": [_price(report, price) for price in report.prices],
        "largestBuffers": [dataclasses.asdict(buffer) for buffer in estimate.largest_buffers],
        "ops": [_op(report, op) for op in estimate.ops],
    }


def confidence(estimate: Estimate) -> dict[str, Any]:
    """Return which figures are lower bounds, and why; nothing where none is."""
    if not estimate.doubts:
        return {}
    bounds = [
        "modelledSeconds",
        *(["peakHbmBytes", "fits"] if estimate.is_memory_lower_bound else []),
    ]
    return {
        "confidence": estimate.confidence,
        "lowerBounds": bounds,
        "reasons": list(estimate.reasons),
    }


def _price(report: Report, price: HourlyPrice) -> dict[str, Any]:
    """A usage without a price has a `reason` instead of amounts."""
    step, epoch = report.cost_of_step(price), report.cost_of_epoch(price)
    if price.nanos_per_hour is None or step is None:
        return {"usage": price.usage, "reason": price.note}
    return {
        "usage": price.usage,
        "currency": price.currency,
        "perHour": hourly_text(price.nanos_per_hour),
        "perStep": cost_text(step, COST_JSON_DIGITS),
        "perEpoch": None if epoch is None else cost_text(epoch, COST_JSON_DIGITS),
        "effectiveFrom": price.effective_from,
        "source": price.note,
        "verified": price.verified,
    }


def _op(report: Report, op: OpEstimate) -> dict[str, Any]:
    told = {_camel(field.name): getattr(op, field.name) for field in dataclasses.fields(op)}
    return {
        **told,
        "unitCycles": dict(op.unit_cycles),
        "seconds": report.seconds_of(op),
        "share": report.share_of(op),
    }


def _record(one: CollectiveEstimate | ArgumentEstimate) -> dict[str, Any]:
    return {_camel(name): value for name, value in dataclasses.asdict(one).items()}


def _camel(name: str) -> str:
    return re.sub(r"_(.)", lambda match: match[1].upper(), name)
