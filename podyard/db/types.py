"""Column types: times as integers of nanoseconds (never a float, never a naive datetime), exact amounts as text."""

from __future__ import annotations

from typing import Any

from sqlalchemy import JSON, BigInteger, Dialect, Integer
from sqlalchemy.types import TypeDecorator, TypeEngine
from typing_extensions import override

from podyard.base.clock import PlatformTime, RealTime

# SQLite makes a BIGINT primary key no rowid alias, so counters are INTEGER there.
Counter: TypeEngine[int] = BigInteger().with_variant(Integer(), "sqlite")
Json: TypeEngine[Any] = JSON()


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
        return None if value is None else PlatformTime(value)


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
        return None if value is None else RealTime(value)
