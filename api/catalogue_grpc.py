"""`google.cloud.billing.v1.CloudCatalog` on the gRPC front: gpuhunt and google-cloud-billing ask
for prices by it.

Its messages are made from the table below: names, numbers and types of fields as
google-cloud-billing 1.21.0 has them. An RPC becomes the HTTP request that google.api.http says,
like those of Cloud TPU.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import quote

from google.protobuf import descriptor_pb2, message_factory, timestamp_pb2
from google.protobuf.descriptor_pool import DescriptorPool
from google.type import money_pb2

SERVICE = "google.cloud.billing.v1.CloudCatalog"
# RPC -> (request, response)
METHODS: Mapping[str, tuple[str, str]] = {
    "ListServices": ("ListServicesRequest", "ListServicesResponse"),
    "ListSkus": ("ListSkusRequest", "ListSkusResponse"),
}
_PACKAGE = "google.cloud.billing.v1"
_F = descriptor_pb2.FieldDescriptorProto
_SCALARS = {"string": _F.TYPE_STRING, "int32": _F.TYPE_INT32, "double": _F.TYPE_DOUBLE}
_SHARED = {"timestamp": ".google.protobuf.Timestamp", "Money": ".google.type.Money"}
# Message -> its fields in the order of their numbers, from 1 on, as `name type`; * is a list.
# Messages stand before those that have them, and a type with a point is within another.
_MESSAGES: Mapping[str, tuple[str, ...]] = {
    "Service": ("name string", "service_id string", "display_name string",
        "business_entity_name string"),
    "Category": ("service_display_name string", "resource_family string", "resource_group string",
        "usage_type string"),
    "TierRate": ("start_usage_amount double", "unit_price Money"),
    "PricingExpression": (
        "usage_unit string", "display_quantity double", "tiered_rates TierRate*",
        "usage_unit_description string",
        "base_unit string", "base_unit_description string", "base_unit_conversion_factor double",
    ),
    "AggregationInfo": ("aggregation_level int32", "aggregation_interval int32",
        "aggregation_count int32"),
    "PricingInfo": (
        "effective_time timestamp", "summary string", "pricing_expression PricingExpression",
        "aggregation_info AggregationInfo", "currency_conversion_rate double",
    ),
    "GeoTaxonomy": ("type Type", "regions string*"),
    "Sku": (
        "name string", "sku_id string", "description string", "category Category",
        "service_regions string*",
        "pricing_info PricingInfo*", "service_provider_name string", "geo_taxonomy GeoTaxonomy",
    ),
    "ListServicesRequest": ("page_size int32", "page_token string"),
    "ListServicesResponse": ("services Service*", "next_page_token string"),
    "ListSkusRequest": (
        "parent string", "start_time timestamp", "end_time timestamp", "currency_code string",
        "page_size int32",
        "page_token string",
    ),
    "ListSkusResponse": ("skus Sku*", "next_page_token string"),
}  # fmt: skip
_ENUMS: Mapping[str, tuple[str, ...]] = {
    "Type": ("TYPE_UNSPECIFIED", "GLOBAL", "REGIONAL", "MULTI_REGIONAL")
}


def path_of(rpc: str, fields: dict[str, Any]) -> str:
    """The path of the HTTP request; takes the field that it says out of `fields`."""
    return (
        "/v1/services" if rpc == "ListServices" else f"/v1/{quote(fields.pop('parent', ''))}/skus"
    )


@functools.cache
def pool() -> DescriptorPool:
    found = DescriptorPool()
    for module in (timestamp_pb2, money_pb2):
        found.AddSerializedFile(module.DESCRIPTOR.serialized_pb)
    file = descriptor_pb2.FileDescriptorProto(
        name="podyard/google/cloud/billing/v1.proto",
        package=_PACKAGE,
        syntax="proto3",
        dependency=[timestamp_pb2.DESCRIPTOR.name, money_pb2.DESCRIPTOR.name],
    )
    for name, labels in _ENUMS.items():
        enum = file.enum_type.add(name=name)
        for number, label in enumerate(labels):
            enum.value.add(name=label, number=number)
    for name, fields in _MESSAGES.items():
        file.message_type.add(name=name).field.extend(_fields(fields))
    found.AddSerializedFile(file.SerializeToString())
    return found


@functools.cache
def message_class(name: str) -> Any:
    return message_factory.GetMessageClass(pool().FindMessageTypeByName(f"{_PACKAGE}.{name}"))


def _fields(texts: tuple[str, ...]) -> Iterator[descriptor_pb2.FieldDescriptorProto]:
    for number, text in enumerate(texts, 1):
        name, _, kind = text.partition(" ")
        label = _F.LABEL_REPEATED if kind.endswith("*") else _F.LABEL_OPTIONAL
        kind = kind.removesuffix("*")
        field = _F(name=name, number=number, label=label)
        if kind in _SCALARS:
            field.type = _SCALARS[kind]
        else:
            field.type = _F.TYPE_ENUM if kind in _ENUMS else _F.TYPE_MESSAGE
            field.type_name = _SHARED.get(kind) or f".{_PACKAGE}.{kind}"
        yield field
