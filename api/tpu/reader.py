"""The reader of messages with the vocabulary of a version of the Cloud TPU API, and messages of one
version out of records."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

from podyard.api.tpu.schema import messages, vocabulary
from podyard.api.wire import reader


def read(version: str, message: str, data: object, path: str = "") -> dict[str, Any]:
    return reader.read(vocabulary(version), message, data, path)


def shape(
    version: str, message: str, data: Mapping[str, Any], *, proto: bool = False
) -> dict[str, Any]:
    """`data` with the fields that `message` has in this version only. With `proto`: only those that
    the released client library has, since it refuses others inside operations."""
    found: dict[str, Any] = {}
    for name, (kind, repeated) in _shapes(version, message, proto).items():
        value = data.get(name)
        if value is None:
            continue
        if kind:
            value = (
                [shape(version, kind, item, proto=proto) for item in value]
                if repeated
                else shape(version, kind, value, proto=proto)
            )
        found[name] = value
    return found


@functools.cache
def _shapes(version: str, message: str, proto: bool) -> Mapping[str, tuple[str, bool]]:
    """(message that it holds or "", whether it is a list) of each field that is answered."""
    known = messages(version)
    strict = proto and version in ("v1", "v2", "v2alpha1")
    shared = all(field.number is None for field in known[message].fields.values())
    return {
        field.name: (field.type if field.type in known else "", field.repeated)
        for field in known[message].fields.values()
        if not field.hidden and (shared or not strict or field.number is not None)
    }
