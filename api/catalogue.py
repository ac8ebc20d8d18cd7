"""Google's Cloud Billing catalogue over the rate card: `GET /v1/services` and `GET
/v1/services/{id}/skus`.

Fields and rules are those of Google's discovery document cloudbilling v1. As there, it is the same
for every caller: prices are no project's own.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Literal, TypeVar
from zoneinfo import ZoneInfo

from fastapi import APIRouter, Request
from starlette.routing import Match
from starlette.types import Scope
from typing_extensions import TypedDict, override

from podyard.api import deps
from podyard.api.deps import Timestamp
from podyard.api.wire.reader import SHARED_PARAMETERS
from podyard.base.clock import NANOS_PER_SECOND, PlatformTime
from podyard.base.errors import invalid
from podyard.base.money import NANOS_PER_UNIT
from podyard.control.billing.catalogue import (
    SERVICES,
    ListedService,
    ListedSku,
    Timeline,
    service_of,
    skus_of,
)
from podyard.http import google
from podyard.pricing.current_card import default_rate_card

T = TypeVar("T")

PAGE_SIZE_MAX = 5000  # Google's default too: readers such as gpuhunt look at the first page only
PROVIDER = "Google"  # what readers expect of a service's own SKUs
BUSINESS = "businessEntities/GCP"
LATEST_SECONDS = 12 * 3600  # "the latest pricing will be returned (up to 12 hours old at most)"
MONTHS_OF = ZoneInfo("America/Los_Angeles")  # a time range is within one calendar month there

CURRENCY: deps.Query = {
    "name": "currencyCode",
    "description": "USD, which it is without it too.",
    "schema": {"type": "string", "enum": ["USD", ""]},
}
TIMES: tuple[deps.Query, ...] = (
    {
        "name": "startTime",
        "description": "Prices from this time on; goes with endTime.",
        "schema": {"type": "string", "format": "date-time"},
    },
    {
        "name": "endTime",
        "description": (
            "Prices before this time, which has been, in the calendar month of "
            "startTime in "
            "Los Angeles."
        ),
        "schema": {"type": "string", "format": "date-time"},
    },
)

_PAGING = frozenset({"pageSize", "pageToken", "page_size", "page_token"})
_TIMES = {"startTime": "start_time", "endTime": "end_time"}
_OF_SKUS = _PAGING | {"currencyCode", "currency_code", *_TIMES, *_TIMES.values()}


class _Route(deps.Route):
    """Takes what is asked by another verb too, and refuses it: else the routes of Cloud TPU's v1,
    which has all else below /v1, would say that it is not there."""

    @override
    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        found, child = super().matches(scope)
        return (Match.FULL if found is Match.PARTIAL else found), child


router = APIRouter(prefix=google.CATALOGUE_PATH, route_class=_Route)


class Service(TypedDict):
    """One of Google's services; `name` is services/SERVICE_ID."""

    name: str
    serviceId: str
    displayName: str
    businessEntityName: str


class ServiceList(TypedDict):
    services: list[Service]
    nextPageToken: str


class Category(TypedDict):
    serviceDisplayName: str
    resourceFamily: str
    resourceGroup: str
    usageType: str


class Money(TypedDict):
    """`units` whole ones and `nanos` of 1e-9, of one sign."""

    currencyCode: str
    units: str
    nanos: int


class TierRate(TypedDict):
    startUsageAmount: float
    unitPrice: Money


class PricingExpression(TypedDict):
    """The price of one `usageUnit`, which has `baseUnitConversionFactor` of the `baseUnit`."""

    usageUnit: str
    usageUnitDescription: str
    baseUnit: str
    baseUnitDescription: str
    baseUnitConversionFactor: float
    displayQuantity: float
    tieredRates: list[TierRate]


class PricingInfo(TypedDict):
    effectiveTime: Timestamp
    summary: str
    pricingExpression: PricingExpression
    currencyConversionRate: float


class GeoTaxonomy(TypedDict):
    type: Literal["REGIONAL"]
    regions: list[str]


class ListedSkuAnswer(TypedDict):
    """A unit that is sold in one region in one way. `pricingInfo` ascends by time."""

    name: str
    skuId: str
    description: str
    category: Category
    serviceRegions: list[str]
    pricingInfo: list[PricingInfo]
    serviceProviderName: str
    geoTaxonomy: GeoTaxonomy


class SkuList(TypedDict):
    skus: list[ListedSkuAnswer]
    nextPageToken: str


@router.get("", openapi_extra=deps.asks(*deps.PAGING))
def services(request: Request) -> ServiceList:
    """The services that sell what the rate card has, as Google's Cloud Billing catalogue lists
    them."""
    _check_parameters(request, _PAGING)
    page, token = _page(request, SERVICES, [service.service_id for service in SERVICES])
    return {"services": [_to_service(service) for service in page], "nextPageToken": token}


@router.get("/{service}/skus", openapi_extra=deps.asks(CURRENCY, *TIMES, *deps.PAGING))
def skus(request: Request, service: str) -> SkuList:
    """Return what a service sells, with the price of now, or with those of a time."""
    found = service_of(service)
    _check_parameters(request, _OF_SKUS)
    currency = _currency(request)
    now: PlatformTime = deps.read(request, lambda uow: uow.now)
    between = _range(request, now)
    priced = [(sku, prices) for sku in _skus(found) if (prices := _prices(sku, between, now))]
    page, token = _page(request, priced, [sku.sku_id for sku, _ in priced])
    return {
        "skus": [_to_sku(sku, prices, currency) for sku, prices in page],
        "nextPageToken": token,
    }


@functools.cache
def _skus(service: ListedService) -> tuple[ListedSku, ...]:
    return skus_of(default_rate_card(), service)


def _prices(
    sku: ListedSku, between: tuple[PlatformTime, PlatformTime] | None, now: PlatformTime
) -> Timeline:
    """The prices of a range; without one, the one price in force now, from a moment within
    `LATEST_SECONDS`."""
    if between is not None:
        return sku.prices_between(*between)
    moment = PlatformTime(now.nanos - now.nanos % (LATEST_SECONDS * NANOS_PER_SECOND))
    return sku.prices_between(moment, now.plus_nanos(1))[-1:]


def _to_service(service: ListedService) -> Service:
    return {
        "name": f"services/{service.service_id}",
        "serviceId": service.service_id,
        "displayName": service.display_name,
        "businessEntityName": BUSINESS,
    }


def _to_sku(sku: ListedSku, prices: Timeline, currency: str) -> ListedSkuAnswer:
    return {
        "name": f"services/{sku.service.service_id}/skus/{sku.sku_id}",
        "skuId": sku.sku_id,
        "description": sku.description,
        "category": {
            "serviceDisplayName": sku.service.display_name,
            "resourceFamily": sku.family,
            "resourceGroup": sku.group,
            "usageType": sku.usage_type,
        },
        "serviceRegions": [sku.region],
        "pricingInfo": [_to_pricing(sku, moment, nanos, currency) for moment, nanos in prices],
        "serviceProviderName": PROVIDER,
        "geoTaxonomy": {"type": "REGIONAL", "regions": [sku.region]},
    }


def _to_pricing(sku: ListedSku, moment: PlatformTime, nanos: int, currency: str) -> PricingInfo:
    # Both have the sign of the amount, since no price is negative.
    units, rest = divmod(nanos, NANOS_PER_UNIT)
    return {
        "effectiveTime": moment.rfc3339(),
        "summary": "",
        "pricingExpression": {
            "usageUnit": sku.unit.usage,
            "usageUnitDescription": sku.unit.usage_words,
            "baseUnit": sku.unit.base,
            "baseUnitDescription": sku.unit.base_words,
            "baseUnitConversionFactor": sku.unit.base_factor,
            "displayQuantity": 1,
            "tieredRates": [
                {
                    "startUsageAmount": 0,
                    "unitPrice": {"currencyCode": currency, "units": str(units), "nanos": rest},
                }
            ],
        },
        "currencyConversionRate": 1,
    }


def _currency(request: Request) -> str:
    own = default_rate_card().currency
    asked = _either_parameter(request, "currencyCode", "currency_code") or own
    if asked != own:
        raise invalid(
            f"currencyCode {asked[:10]!r}: this catalogue has only prices in {own}", "currencyCode"
        )
    return own


def _range(request: Request, now: PlatformTime) -> tuple[PlatformTime, PlatformTime] | None:
    """(start, end) of the request; None when it names neither. Raises INVALID_ARGUMENT for what
    Google refuses."""
    texts = {name: _either_parameter(request, name, other) for name, other in _TIMES.items()}
    start, end = (deps.moment(text or None, name) for name, text in texts.items())
    if start is None and end is None:
        return None
    if start is None or end is None:
        raise invalid(
            "startTime and endTime must be set together", "startTime" if end else "endTime"
        )
    if start >= end:
        raise invalid(
            f"startTime {start.rfc3339()} must be before endTime {end.rfc3339()}", "startTime"
        )
    if end > now:
        raise invalid(
            f"endTime {end.rfc3339()} is in the future: the time is now {now.rfc3339()}", "endTime"
        )
    if _month(start) != _month(end.plus_nanos(-1)):
        raise invalid(
            f"startTime and endTime must be within one calendar month of {MONTHS_OF.key}", "endTime"
        )
    return start, end


def _month(moment: PlatformTime) -> tuple[int, int]:
    there = datetime.fromtimestamp(moment.nanos // NANOS_PER_SECOND, UTC).astimezone(MONTHS_OF)
    return there.year, there.month


def _either_parameter(request: Request, name: str, other: str) -> str:
    return request.query_params.get(name) or request.query_params.get(other) or ""


def _check_parameters(request: Request, known: frozenset[str] | set[str]) -> None:
    for name in request.query_params:
        if name not in known and name not in SHARED_PARAMETERS:
            text = (
                f"Cannot bind query parameter. Field '{name}' could not be found in "
                "request message."
            )
            raise invalid(f'Invalid JSON payload received. Unknown name "{name}": {text}', name)


def _page(request: Request, items: Sequence[T], ids: Sequence[str]) -> tuple[Sequence[T], str]:
    """One page, and the token of the next: always there, empty behind the last page, because
    readers index it."""
    size = min(deps.number(request, "pageSize", 0, "page_size") or PAGE_SIZE_MAX, PAGE_SIZE_MAX)
    params = request.query_params
    others = _PAGING | SHARED_PARAMETERS
    listing = [
        request.url.path,
        *(f"{name}={value}" for name, value in sorted(params.items()) if name not in others),
    ]
    after = deps.read_page_token_of(
        request, listing, params.get("pageToken") or params.get("page_token")
    )
    if after is not None and after not in ids:
        raise invalid(
            "pageToken points to a price that is gone; list again from the start", "pageToken"
        )
    start = 0 if after is None else ids.index(after) + 1
    more = start + size < len(items)
    return items[start : start + size], deps.page_token_of(
        request, listing, ids[start + size - 1]
    ) if more else ""
