"""Rows of an export in the schema of Google's detailed usage cost export to BigQuery, one JSON
object a line.

Fields: cloud.google.com/billing/docs/how-to/export-data-bigquery-tables/detailed-usage. As there,
`cost` is before credits, and what a commitment covers or a credit takes off stands in `credits`:
the sum of all costs and credits is the invoice's total. Credits of the invoice are a row without
use of their own.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from fractions import Fraction
from typing import Any

from podyard.base.money import Amount, round_half_up
from podyard.domain.usage import GIB, BilledKind, PriceUnit
from podyard.pricing.export import (
    DECIMALS,
    ExportRow,
    ExportSource,
    ResourceFacts,
    RowKind,
    in_currency,
    project_of,
)
from podyard.pricing.export_table import Exported, Number, json_lines, moment, number

_COST_TYPES: Mapping[RowKind, str] = {
    RowKind.TAX: "tax",
    RowKind.ADJUSTMENT: "adjustment",
    RowKind.ROUNDING: "rounding_error",
}
Fields = dict[str, Any]


def as_bigquery(months: Iterable[Exported]) -> Iterator[bytes]:
    return json_lines(entry(source, row) for source, rows in months for row in rows)


def entry(source: ExportSource, row: ExportRow) -> Fields:
    """One row of the table."""
    said = source.statement
    cost, credits = _money(source, row)
    project = project_of(said, row)
    found: Fields = {
        "billing_account_id": said.project,
        "service": _service(row),
        "sku": _sku(row),
        "usage_start_time": moment(row.start),
        "usage_end_time": moment(row.stop),
        "project": {"id": project, "name": project, "labels": [], "ancestry_numbers": None},
        "labels": [],
        "system_labels": [],
        "location": _location(source, row),
        "resource": {"name": None, "global_name": None},
        "export_time": source.exported_at.rfc3339(),
        "cost": cost,
        "currency": said.currency,
        "currency_conversion_rate": _rate(said.exchange),
        "usage": _usage(row),
        "credits": credits,
        "invoice": {"month": said.month.replace("-", "")},
        "cost_type": _COST_TYPES.get(row.kind, "regular"),
    }
    if row.resource is not None:
        found |= _of_resource(row, row.resource)
    return found


_HOSTS = {BilledKind.DISK: "compute", BilledKind.BUCKET: "storage", BilledKind.OPERATION: "storage"}


def _rate(exchange: Fraction) -> Number:
    return number(round_half_up(exchange.numerator * 10**DECIMALS, exchange.denominator))


def _of_resource(row: ExportRow, resource: ResourceFacts) -> Fields:
    kind = resource.node.kind
    host = f"{_HOSTS.get(kind, 'tpu')}.googleapis.com"
    system = {"podyard.type" if kind.is_storage else "podyard.accelerator_type": resource.type}
    system["podyard.usage"] = str(resource.usage)
    if resource.node.created_by:
        system["podyard.created_by"] = resource.node.created_by
    if row.job:
        system["podyard.job"] = row.job
    return {
        "labels": _pairs(row.labels),
        "system_labels": _pairs(system),
        "resource": {
            "name": resource.name,
            "global_name": f"//{host}/{resource.name}",
        },
    }


def _pairs(labels: Mapping[str, str]) -> list[dict[str, str]]:
    return [{"key": key, "value": value} for key, value in sorted(labels.items())]


def _service(row: ExportRow) -> Fields:
    if row.resource is not None:
        return {"id": row.resource.listed.service_id, "description": row.resource.listed.service}
    return {
        "id": None,
        "description": "Invoice" if row.kind is not RowKind.COMMITMENT else "Commitments",
    }


def _sku(row: ExportRow) -> Fields:
    own = row.sku_id or str(row.kind)
    return {
        "id": own if row.resource is None else row.resource.listed.sku_id,
        "description": row.text,
    }


def _location(source: ExportSource, row: ExportRow) -> Fields:
    if row.resource is not None:
        region, zone = row.resource.region, row.resource.availability_zone
    elif row.commitment:
        region, zone = source.commitments[row.commitment].region, None
    else:
        return {"location": None, "country": None, "region": None, "zone": None}
    return {"location": zone or region, "country": None, "region": region, "zone": zone}


def _usage(row: ExportRow) -> Fields:
    if row.unit is None:
        return {"amount": None, "unit": None, "amount_in_pricing_units": None, "pricing_unit": None}
    amount, unit, pricing_unit = row.unit_seconds, "seconds", "hour"
    if row.unit is PriceUnit.GIB_MONTH:
        amount, unit, pricing_unit = row.unit_seconds * GIB, "byte-seconds", "gibibyte month"
    elif row.unit is PriceUnit.OPERATION:
        unit, pricing_unit = "requests", "count"
    return {
        "amount": amount,
        "unit": unit,
        "amount_in_pricing_units": number(row.unit.quantity(row.unit_seconds, DECIMALS)),
        "pricing_unit": pricing_unit,
    }


def _money(source: ExportSource, row: ExportRow) -> tuple[Number, list[Fields]]:
    """(cost before credits, credits): they sum to what the row shows."""
    if row.kind is RowKind.CREDIT:
        credit = {"name": row.text, "full_name": row.text, "id": row.credit, "type": "PROMOTION"}
        return number(0), [{**credit, "amount": number(row.shown)}]
    if not row.covered or row.price is None:
        return number(row.shown), []
    credits, sum_of_credits = [], 0
    for commitment, units in row.covered:
        amount = -in_currency(
            Amount.of_hourly(row.price.nanos, units).parts, source.statement.exchange
        )
        sum_of_credits += amount
        credits.append(
            {
                "name": f"Commitment {commitment}",
                "full_name": f"Commitment {commitment}",
                "id": commitment,
                "type": "COMMITTED_USAGE_DISCOUNT",
                "amount": number(amount),
            }
        )
    return number(row.shown - sum_of_credits), credits
