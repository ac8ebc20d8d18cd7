"""Rows of an export as FOCUS 1.2 (focus.finops.org, "FinOps Open Cost and Usage Specification"),
all 57 columns.

Usage that a commitment covers is a separate row, billed at 0, with the amortised price of the
commitment as its effective cost; so are unused units; the fee is a purchase. List and contracted
cost are the exact product of the unit price and the quantity in the same row. There are no
negotiated prices, so contracted is list.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Iterator, Mapping
from fractions import Fraction

from podyard.base.money import NANOS_PER_UNIT, Amount, minor_text, round_half_up
from podyard.domain.node import UsageClass
from podyard.domain.usage import BilledKind, PriceUnit
from podyard.pricing.commitments import is_payment
from podyard.pricing.export import (
    DECIMALS,
    Committed,
    ExportRow,
    ExportSource,
    ResourceFacts,
    RowKind,
    Statement,
    in_currency,
    project_of,
)
from podyard.pricing.export_table import Cell, Exported, Number, csv_lines, moment, number

COLUMNS = (
    *(
        "AvailabilityZone",
        "BilledCost",
        "BillingAccountId",
        "BillingAccountName",
        "BillingAccountType",
    ),
    *("BillingCurrency", "BillingPeriodEnd", "BillingPeriodStart", "CapacityReservationId"),
    *(
        "CapacityReservationStatus",
        "ChargeCategory",
        "ChargeClass",
        "ChargeDescription",
        "ChargeFrequency",
    ),
    *("ChargePeriodEnd", "ChargePeriodStart", "CommitmentDiscountCategory", "CommitmentDiscountId"),
    *(
        "CommitmentDiscountName",
        "CommitmentDiscountQuantity",
        "CommitmentDiscountStatus",
        "CommitmentDiscountType",
    ),
    *(
        "CommitmentDiscountUnit",
        "ConsumedQuantity",
        "ConsumedUnit",
        "ContractedCost",
        "ContractedUnitPrice",
    ),
    *(
        "EffectiveCost",
        "InvoiceId",
        "InvoiceIssuerName",
        "ListCost",
        "ListUnitPrice",
        "PricingCategory",
    ),
    *("PricingCurrency", "PricingCurrencyContractedUnitPrice", "PricingCurrencyEffectiveCost"),
    *(
        "PricingCurrencyListUnitPrice",
        "PricingQuantity",
        "PricingUnit",
        "ProviderName",
        "PublisherName",
    ),
    *(
        "RegionId",
        "RegionName",
        "ResourceId",
        "ResourceName",
        "ResourceType",
        "ServiceCategory",
        "ServiceName",
    ),
    *(
        "ServiceSubcategory",
        "SkuId",
        "SkuMeter",
        "SkuPriceDetails",
        "SkuPriceId",
        "SubAccountId",
        "SubAccountName",
    ),
    *("SubAccountType", "Tags"),
)
EXACT_DECIMALS_MAX = 60  # a price of 9 times a rate of 29 and a quantity of 12 decimals ends before
_PROVIDER = "Podyard"
_CATEGORIES: Mapping[RowKind, str] = {
    RowKind.USAGE: "Usage",
    RowKind.COMMITMENT: "Purchase",
    RowKind.CREDIT: "Credit",
    RowKind.TAX: "Tax",
    RowKind.ADJUSTMENT: "Adjustment",
    RowKind.ROUNDING: "Adjustment",
}
_DYNAMIC = (str(UsageClass.SPOT), str(UsageClass.PREEMPTIBLE))
# Units as FOCUS writes them: a count, or a unit of measure and a time.
_UNITS: Mapping[PriceUnit, str] = {
    PriceUnit.CHIP_HOUR: "Chip-Hours",
    PriceUnit.VCPU_HOUR: "vCPU-Hours",
    PriceUnit.GIB_HOUR: "GiB-Hours",
    PriceUnit.GIB_MONTH: "GiB-Months",
    PriceUnit.OPERATION: "Operations",
}
_METERS = {
    PriceUnit.VM_HOUR: "VM time",
    PriceUnit.GIB_MONTH: "Storage volume",
    PriceUnit.OPERATION: "Operations",
}
# What a resource is, with FOCUS's category and subcategory of its service.
_KINDS: Mapping[BilledKind, tuple[str, str, str]] = {
    BilledKind.NODE: ("TPU node", "Compute", "Other (Compute)"),
    BilledKind.HOST: ("Host VM", "Compute", "Other (Compute)"),
    BilledKind.DISK: ("Disk", "Storage", "Block Storage"),
    BilledKind.BUCKET: ("Bucket", "Storage", "Object Storage"),
    BilledKind.OPERATION: ("Bucket", "Storage", "Object Storage"),
}
Fields = dict[str, Cell]


def as_focus(months: Iterable[Exported]) -> Iterator[bytes]:
    lines = (fields for source, rows in months for row in rows for fields in entries(source, row))
    return csv_lines(COLUMNS, ([fields.get(column) for column in COLUMNS] for fields in lines))


@dataclasses.dataclass(frozen=True, slots=True)
class _Charge:
    """The money of one line: quantity of the unit, its price in nanos of a US dollar (None: it has
    neither), and costs in 1e-12 of the billing currency."""

    billed: int
    effective: int
    unit_seconds: int = 0
    nanos: int | None = None


def entries(source: ExportSource, row: ExportRow) -> Iterator[Fields]:
    """The lines of one row: several where commitments cover some of it, or are not used up."""
    said = source.statement
    if row.kind is RowKind.USAGE and row.price is not None:
        open_units = row.unit_seconds - row.covered_unit_seconds
        if open_units or not row.covered:
            charge = _Charge(row.shown, row.shown, open_units, row.price.nanos)
            yield _line(said, row, charge) | _usage_row(row, charge, _category(row))
        for commitment, units in row.covered:
            found = source.commitments[commitment]
            charge = _Charge(0, _amortise(said, found, units), units, row.price.nanos)
            covered = _usage_row(row, charge, "Committed") | _discount(
                found, row.unit, units, "Used"
            )
            yield _line(said, row, charge) | covered
    elif row.kind is RowKind.COMMITMENT and row.price is not None:
        found = source.commitments[row.commitment]
        charge = _Charge(row.shown, 0, row.unit_seconds, row.price.nanos)
        yield _line(said, row, charge) | _purchase_row(row, found, "Standard", row.unit_seconds)
        if row.unused:
            charge = _Charge(0, _amortise(said, found, row.unused), row.unused, 0)
            unused = {"ChargeCategory": "Usage", "ChargeFrequency": "Usage-Based"}
            yield (
                _line(said, row, charge)
                | _purchase_row(row, found, "Committed", row.unused, "Unused")
                | unused
                | {"ChargeDescription": f"{row.text}, not used"}
            )
    else:
        line = _line(said, row, _Charge(row.shown, row.shown))
        yield line if row.resource is None else line | _where(row, row.resource)


def _amortise(said: Statement, found: Committed, unit_seconds: int) -> int:
    return in_currency(Amount.of_hourly(found.bought_nanos, unit_seconds).parts, said.exchange)


def _line(said: Statement, row: ExportRow, charge: _Charge) -> Fields:
    """Return what every line has."""
    priced = row.kind in (RowKind.USAGE, RowKind.COMMITMENT)
    project = project_of(said, row)
    return {
        "BilledCost": number(charge.billed),
        "BillingAccountId": f"billingAccounts/{said.project}",
        "BillingAccountName": said.project,
        "BillingAccountType": "Billing Account",
        "BillingCurrency": said.currency,
        "BillingPeriodStart": moment(said.seconds.start),
        "BillingPeriodEnd": moment(said.seconds.stop),
        "ChargeCategory": _CATEGORIES[row.kind],
        "ChargeClass": "Correction" if row.kind is RowKind.ADJUSTMENT else None,
        "ChargeDescription": row.text,
        "ChargeFrequency": "One-Time",
        "ChargePeriodStart": moment(row.start),
        "ChargePeriodEnd": moment(row.stop),
        "InvoiceId": said.number if said.issued else None,
        "InvoiceIssuerName": _PROVIDER,
        "ProviderName": _PROVIDER,
        "PublisherName": _PROVIDER,
        "ServiceCategory": "Compute" if priced else "Other",
        "ServiceSubcategory": "Other (Compute)" if priced else "Other (Other)",
        "ServiceName": "Cloud TPU" if priced else "Billing",
        "SubAccountId": f"projects/{project}",
        "SubAccountName": project,
        "SubAccountType": "Project",
        **_money(said, row, charge),
    }


def _money(said: Statement, row: ExportRow, charge: _Charge) -> Fields:
    effective = round_half_up(charge.effective * said.exchange.denominator, said.exchange.numerator)
    found: Fields = {
        "EffectiveCost": number(charge.effective),
        "PricingCurrency": "USD",
        "PricingCurrencyEffectiveCost": number(effective),
    }
    if charge.nanos is None:
        # Related to no price: every cost is what is billed.
        return found | {"ListCost": number(charge.billed), "ContractedCost": number(charge.billed)}
    assert row.unit is not None and row.price is not None
    quantity = _quantity(row.unit, charge.unit_seconds)
    usd = Fraction(charge.nanos, NANOS_PER_UNIT)
    price = exact(usd * said.exchange)
    cost = exact(Fraction(price) * Fraction(quantity))
    return found | {
        "ListUnitPrice": price,
        "ContractedUnitPrice": price,
        "PricingCurrencyListUnitPrice": exact(usd),
        "PricingCurrencyContractedUnitPrice": exact(usd),
        "PricingQuantity": quantity,
        "PricingUnit": _UNITS.get(row.unit, "Hours"),
        "ListCost": cost,
        "ContractedCost": cost,
        "SkuId": row.sku_id,
        "SkuMeter": _METERS.get(row.unit, "TPU time"),
        "SkuPriceId": row.price.version_id,
        "SkuPriceDetails": json.dumps({"x_Unit": str(row.unit), "x_Verified": row.price.verified}),
    }


def _quantity(unit: PriceUnit, unit_seconds: int) -> Number:
    return number(unit.quantity(unit_seconds, DECIMALS))


def exact(value: Fraction) -> Number:
    """A decimal number with all of its digits; one that does not end is rounded after so many."""
    decimals = 0
    while (value * 10**decimals).denominator != 1 and decimals < EXACT_DECIMALS_MAX:
        decimals += 1
    scaled = value * 10**decimals
    return Number(minor_text(round_half_up(scaled.numerator, scaled.denominator), decimals))


def _category(row: ExportRow) -> str:
    return "Dynamic" if row.resource is not None and row.resource.usage in _DYNAMIC else "Standard"


def _usage_row(row: ExportRow, charge: _Charge, category: str) -> Fields:
    resource = row.resource
    assert resource is not None and row.unit is not None
    return {
        **_where(row, resource),
        "ChargeFrequency": "Usage-Based",
        "ConsumedQuantity": _quantity(row.unit, charge.unit_seconds),
        "ConsumedUnit": _UNITS.get(row.unit, "Hours"),
        "PricingCategory": category,
    }


def _where(row: ExportRow, resource: ResourceFacts) -> Fields:
    """Return what a line says of its resource."""
    resource_type, category, subcategory = _KINDS[resource.node.kind]
    found: Fields = {
        "AvailabilityZone": resource.availability_zone,
        "ServiceCategory": category,
        "ServiceSubcategory": subcategory,
        "RegionId": resource.region,
        "RegionName": resource.region,
        "ResourceId": resource.name,
        "ResourceName": resource.name.rpartition("/")[2],
        "ResourceType": resource_type,
        "ServiceName": resource.listed.service,
        "Tags": _tags(row),
    }
    if resource.reservation is not None:
        found |= {
            "CapacityReservationId": resource.reservation,
            "CapacityReservationStatus": "Used",
        }
    return found


def _tags(row: ExportRow) -> str:
    creator = "" if row.resource is None else row.resource.node.created_by
    own = {
        name: text
        for name, text in (("podyard/created-by", creator), ("podyard/job", row.job))
        if text
    }
    return json.dumps(
        {**dict(sorted(row.labels.items())), **own}, separators=(",", ":"), ensure_ascii=False
    )


def _purchase_row(
    row: ExportRow, found: Committed, category: str, units: int, status: str | None = None
) -> Fields:
    assert row.price is not None
    return {
        "ChargeFrequency": "One-Time" if is_payment(row.sku_id) else "Recurring",
        "PricingCategory": category,
        "RegionId": found.region,
        "RegionName": found.region,
        # A commitment's price belongs to the commitment's SKU; versions are named after their SKUs.
        "SkuId": row.price.version_id.partition("@")[0],
        "SkuMeter": "TPU commitment",
        **_discount(found, row.unit, units, status),
    }


def _discount(found: Committed, unit: PriceUnit | None, units: int, status: str | None) -> Fields:
    assert unit is not None
    return {
        "CommitmentDiscountCategory": "Usage",
        "CommitmentDiscountId": found.billed.commitment_id,
        "CommitmentDiscountName": found.billed.commitment_id,
        "CommitmentDiscountQuantity": _quantity(unit, units),
        "CommitmentDiscountStatus": status,
        "CommitmentDiscountType": "Resource commitment",
        "CommitmentDiscountUnit": _UNITS.get(unit, "Hours"),
    }
