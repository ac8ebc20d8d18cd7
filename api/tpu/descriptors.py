"""Protobuf descriptors of the Cloud TPU API, made from the tables: the gRPC front needs no
generated code.

They live in a pool of their own, so that a process which also has Google's generated modules has no
two of a name.
"""

from __future__ import annotations

import functools
from typing import Any

from google.cloud.location import locations_pb2
from google.longrunning import operations_pb2
from google.protobuf import (
    descriptor_pb2,
    duration_pb2,
    empty_pb2,
    field_mask_pb2,
    message_factory,
    timestamp_pb2,
)
from google.protobuf.descriptor import FileDescriptor
from google.protobuf.descriptor_pool import DescriptorPool
from google.rpc import error_details_pb2, status_pb2
from google.type import interval_pb2

from podyard.api.tpu.schema import (
    PROTO_VERSIONS,
    Method,
    enums,
    messages,
    methods_of,
)
from podyard.api.wire.vocabulary import Field, MessageSchema

_FILES = (
    duration_pb2, empty_pb2, field_mask_pb2, timestamp_pb2, status_pb2, error_details_pb2,
    interval_pb2,
    operations_pb2, locations_pb2,
)  # fmt: skip
_F = descriptor_pb2.FieldDescriptorProto
_SCALARS = {
    "string": _F.TYPE_STRING,
    "bool": _F.TYPE_BOOL,
    "int32": _F.TYPE_INT32,
    "int64": _F.TYPE_INT64,
}
# Messages that Google's APIs share.
_SHARED = {
    "timestamp": "google.protobuf.Timestamp",
    "duration": "google.protobuf.Duration",
    "fieldmask": "google.protobuf.FieldMask",
    "Interval": "google.type.Interval",
    "Status": "google.rpc.Status",
    "Operation": "google.longrunning.Operation",
    "Empty": "google.protobuf.Empty",
}
OPERATIONS = "google.longrunning.Operations"
LOCATIONS = "google.cloud.location.Locations"


def package(version: str) -> str:
    return f"google.cloud.tpu.{version}"


@functools.cache
def pool() -> DescriptorPool:
    """All versions, and the shared messages that they use."""
    found = DescriptorPool()
    added: set[str] = set()
    for module in _FILES:
        _add(found, module.DESCRIPTOR, added)
    for version in PROTO_VERSIONS:
        found.AddSerializedFile(_file(version).SerializeToString())
    return found


@functools.cache
def message_class(name: str) -> Any:
    """The class of a message, by its full name."""
    return message_factory.GetMessageClass(pool().FindMessageTypeByName(name))


def tpu_methods(version: str) -> tuple[Method, ...]:
    """The methods of the Tpu service: those whose request is in protobuf. Operations and zones have
    services of their own."""
    return tuple(
        method for method in methods_of(version) if _in_proto(messages(version)[method.request])
    )


def request_name(version: str, method: Method) -> str:
    return f"{package(version)}.{method.request}"


def response_name(version: str, method: Method) -> str:
    return _SHARED.get(method.response) or f"{package(version)}.{method.response}"


def _add(found: DescriptorPool, file: FileDescriptor, added: set[str]) -> None:
    """Adds a file of Google's, after what it depends on."""
    if file.name in added:
        return
    added.add(file.name)
    for dependency in file.dependencies:
        _add(found, dependency, added)
    found.AddSerializedFile(file.serialized_pb)


def _in_proto(message: MessageSchema) -> bool:
    return any(field.number is not None for field in message.fields.values())


def _file(version: str) -> descriptor_pb2.FileDescriptorProto:
    file = descriptor_pb2.FileDescriptorProto(
        name=f"podyard/google/cloud/tpu/{version}.proto",
        package=package(version),
        syntax="proto3",
        dependency=[module.DESCRIPTOR.name for module in _FILES],
    )
    by_name: dict[str, descriptor_pb2.DescriptorProto] = {}
    for name, message in messages(version).items():
        if name in _SHARED or (message.fields and not _in_proto(message)):
            continue
        outer, _, short = name.rpartition(".")
        proto = by_name[outer].nested_type.add() if outer else file.message_type.add()
        proto.name = short
        by_name[name] = proto
        _add_fields(version, name, message, proto)
    used = {
        field.type
        for message in messages(version).values()
        for field in message.fields.values()
        if field.number
    }
    for name, values in enums(version).items():
        outer, _, short = name.rpartition(".")
        if outer in by_name and name in used:
            enum = by_name[outer].enum_type.add(name=short)
            for label, number in values.items():
                enum.value.add(name=label, number=number)
    service = file.service.add(name="Tpu")
    for method in tpu_methods(version):
        service.method.add(
            name=method.rpc,
            input_type=f".{request_name(version, method)}",
            output_type=f".{response_name(version, method)}",
        )
    return file


def _add_fields(
    version: str, name: str, message: MessageSchema, proto: descriptor_pb2.DescriptorProto
) -> None:
    one_ofs: dict[str, int] = {}
    for field in message.fields.values():
        if field.number is None:
            continue
        added = proto.field.add(name=field.snake, number=field.number, json_name=field.name)
        added.label = (
            _F.LABEL_REPEATED if field.repeated or field.type == "map" else _F.LABEL_OPTIONAL
        )
        _set_type(version, f"{package(version)}.{name}", field, added, proto)
        if field.one_of:
            if field.one_of not in one_ofs:
                one_ofs[field.one_of] = len(one_ofs)
                proto.oneof_decl.add(name=field.one_of)
            added.oneof_index = one_ofs[field.one_of]
    # Presence is a oneof of one field to protobuf; such oneofs come after the others.
    for added in proto.field:
        if message.by_any_name[added.name].optional:
            added.proto3_optional = True
            added.oneof_index = len(proto.oneof_decl)
            proto.oneof_decl.add(name=f"_{added.name}")


def _set_type(
    version: str,
    owner: str,
    field: Field,
    added: descriptor_pb2.FieldDescriptorProto,
    proto: descriptor_pb2.DescriptorProto,
) -> None:
    if field.type in _SCALARS:
        added.type = _SCALARS[field.type]
    elif field.type in enums(version):
        added.type = _F.TYPE_ENUM
        added.type_name = f".{package(version)}.{field.type}"
    elif field.type == "map":
        entry = proto.nested_type.add(name=f"{field.name[0].upper()}{field.name[1:]}Entry")
        entry.options.map_entry = True
        for number, name in ((1, "key"), (2, "value")):
            entry.field.add(name=name, number=number, type=_F.TYPE_STRING, label=_F.LABEL_OPTIONAL)
        added.type = _F.TYPE_MESSAGE
        added.type_name = f".{owner}.{entry.name}"
    else:
        added.type = _F.TYPE_MESSAGE
        added.type_name = "." + (_SHARED.get(field.type) or f"{package(version)}.{field.type}")
