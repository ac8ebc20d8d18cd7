"""Rows of operations to records."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sqlalchemy import select

from podyard.db.tables_compute import operations
from podyard.db.unit_of_work import UnitOfWork
from podyard.domain.operation import Operation


def row_of(uow: UnitOfWork, project: str, zone: str, operation_id: str) -> Mapping[str, Any] | None:
    return uow.first(
        select(operations).where(
            operations.c.operation_id == operation_id,
            operations.c.project == project,
            operations.c.zone == zone,
        )
    )


def to_operation(row: Mapping[str, Any]) -> Operation:
    made = ("error_details", "api_version", "status_detail")
    return Operation(
        **{name: row[name] for name in Operation.__dataclass_fields__ if name not in made},
        api_version=row["api_version"] or "",
        status_detail=row["status_detail"] or "",
        error_details=tuple(row["error_details"]),
    )
