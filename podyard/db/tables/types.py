"""Column types: times as integers of nanoseconds (never a float, never a naive datetime), exact
amounts as text."""

from __future__ import annotations

import json
from typing import Any

from sqlalchemy import JSON, BigInteger, Dialect, Integer
from sqlalchemy.types import TypeDecorator, TypeEngine
from typing_extensions import override

from podyard.base.clock import PlatformTime, RealTime

# SQLite makes a BIGINT primary key no rowid alias, so counters are INTEGER there.
Counter: TypeEngine[int] = BigInteger().with_variant(Integer(), "sqlite")
Json: TypeEngine[Any] = JSON()


# `json.loads` without its search for white space around the value
_DECODE = json.JSONDecoder().raw_decode


def read_json(text: str) -> Any:
    """Reads what `json.dumps` has written; other JSON may begin with white space, which this
    refuses."""
    return _DECODE(text)[0]


def read_platform_time(nanos: int | None) -> PlatformTime | None:
    return None if nanos is None else PlatformTime(nanos)


def read_real_time(nanos: int | None) -> RealTime | None:
    return None if nanos is None else RealTime(nanos)


class PlatformTimeColumn(TypeDecorator[PlatformTime]):
    impl = BigInteger
    cache_ok = True

    @override
    def process_bind_param(self, value: PlatformTime | None, dialect: Dialect) -> int | None:
        if value is None:
            return None
        if not isinstance(value, PlatformTime):
            raise TypeError(f"{value!r} is not a platform time")
        return value.nanos

    @override
    def process_result_value(self, value: int | None, dialect: Dialect) -> PlatformTime | None:
        return read_platform_time(value)


class RealTimeColumn(TypeDecorator[RealTime]):
    impl = BigInteger
    cache_ok = True

    @override
    def process_bind_param(self, value: RealTime | None, dialect: Dialect) -> int | None:
        if value is None:
            return None
        if not isinstance(value, RealTime):
            raise TypeError(f"{value!r} is not a real time")
        return value.nanos

    @override
    def process_result_value(self, value: int | None, dialect: Dialect) -> RealTime | None:
        return read_real_time(value)
