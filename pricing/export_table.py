"""Rows of an export as CSV (RFC 4180) and as JSON; and how cells and JSON values are written, for
all formats.

A text that begins like a formula is marked as text in CSV, since spreadsheets would run it; numbers
of ours are not.
"""

from __future__ import annotations

import csv
import io
import itertools
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from podyard.base.clock import NANOS_PER_SECOND, PlatformTime
from podyard.base.money import Amount, minor_text
from podyard.pricing.export import DECIMALS, ExportRow, ExportSource, project_of

ROWS_AT_ONCE = 500  # that are put together before they are handed on: a few hundred kB
_FORMULA = ("=", "+", "-", "@", "\t", "\r")


class Number(str):
    """A decimal number that was written here: no spreadsheet takes it for a formula, and JSON has
    it as a number."""

    __slots__ = ()


Cell = str | int | bool | None
Exported = tuple[ExportSource, Iterable[ExportRow]]


def number(value: int, decimals: int = DECIMALS) -> Number:
    """An integer of 10 ** -decimals: `number(-1234, 2)` is `-12.34`."""
    return Number(minor_text(value, decimals))


def moment(second: int) -> str:
    return PlatformTime(second * NANOS_PER_SECOND).rfc3339()


def cell(value: Cell) -> str:
    """A cell of a CSV file."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    return f"'{value}" if not isinstance(value, Number) and value.startswith(_FORMULA) else value


def csv_lines(header: Sequence[str], lines: Iterable[Sequence[Cell]]) -> Iterator[bytes]:
    """A CSV file: UTF-8, a header, CRLF at the end of each line."""
    for several in _together(
        itertools.chain([list(header)], ([cell(value) for value in line] for line in lines))
    ):
        text = io.StringIO()
        csv.writer(text, lineterminator="\r\n").writerows(several)
        yield text.getvalue().encode()


def json_text(value: Any) -> str:
    """Compact JSON, in which a `Number` is a number with all of its digits."""
    if isinstance(value, Number):
        return str(value)
    if isinstance(value, Mapping):
        return (
            "{"
            + ",".join(f"{json_text(key)}:{json_text(item)}" for key, item in value.items())
            + "}"
        )
    if isinstance(value, list | tuple):
        return "[" + ",".join(json_text(item) for item in value) + "]"
    return json.dumps(value, ensure_ascii=False)


def json_lines(values: Iterable[Mapping[str, Any]]) -> Iterator[bytes]:
    """One JSON object a line."""
    for several in _together(values):
        yield "".join(json_text(value) + "\n" for value in several).encode()


def _together(items: Iterable[Any]) -> Iterator[list[Any]]:
    rest = iter(items)
    while several := list(itertools.islice(rest, ROWS_AT_ONCE)):
        yield several


def labels_text(labels: Mapping[str, str]) -> str:
    return json.dumps(dict(sorted(labels.items())), separators=(",", ":"), ensure_ascii=False)


COLUMNS = (
    *("invoice", "month", "kind", "start", "end", "project"),
    *(
        "resource",
        "resource_key",
        "location",
        "region",
        "accelerator_type",
        "usage",
        "labels",
        "created_by",
        "job",
    ),
    *(
        "service",
        "sku",
        "sku_id",
        "description",
        "unit",
        "unit_price_usd",
        "price_version",
        "price_verified",
    ),
    *("seconds", "unit_seconds", "covered_unit_seconds", "unused_unit_seconds", "estimated"),
    *("commitment", "credit", "corrects_month", "corrects_line", "cost_usd", "amount", "currency"),
)


def record(source: ExportSource, row: ExportRow) -> dict[str, Cell]:
    """The row by column; a column that says nothing of it is left out."""
    said = source.statement
    found: dict[str, Cell] = {
        "invoice": said.number,
        "month": said.month,
        "kind": str(row.kind),
        "start": moment(row.start),
        "end": moment(row.stop),
        "project": project_of(said, row),
        "description": row.text,
        "amount": number(row.shown),
        "currency": said.currency,
        **_of_resource(row),
        **_of_price(row),
    }
    if row.commitment:
        found |= {"commitment": row.commitment, "region": source.commitments[row.commitment].region}
        found["unused_unit_seconds"] = row.unused
    if row.parts is not None:
        found["cost_usd"] = Number(Amount(row.parts).text(DECIMALS))
    named = {
        "sku": row.sku_id,
        "job": row.job,
        "credit": row.credit,
        "corrects_month": row.corrects,
    }
    named["corrects_line"] = row.corrects_line
    return found | {name: text for name, text in named.items() if text}


def _of_resource(row: ExportRow) -> dict[str, Cell]:
    if row.resource is None:
        return {}
    return {
        "resource": row.resource.name,
        "resource_key": row.resource.node.key,
        "location": row.resource.zone,
        "region": row.resource.region,
        "accelerator_type": row.resource.type,
        "usage": str(row.resource.usage),
        "labels": labels_text(row.labels),
        "created_by": row.resource.node.created_by,
        "service": row.resource.listed.service,
        "sku_id": row.resource.listed.sku_id,
        "covered_unit_seconds": row.covered_unit_seconds,
    }


def _of_price(row: ExportRow) -> dict[str, Cell]:
    if row.unit is None:
        return {}
    used: dict[str, Cell] = {
        "unit": str(row.unit),
        "seconds": row.seconds,
        "unit_seconds": row.unit_seconds,
    }
    if row.price is None:
        return used
    return used | {
        "unit_price_usd": number(row.price.nanos, 9),
        "price_version": row.price.version_id,
        "price_verified": row.price.verified,
        "estimated": row.estimated,
    }


def as_csv(months: Iterable[Exported]) -> Iterator[bytes]:
    found = (record(source, row) for source, rows in months for row in rows)
    return csv_lines(COLUMNS, ([one.get(column) for column in COLUMNS] for one in found))


def as_json(months: Iterable[Exported]) -> Iterator[bytes]:
    """`{"months": [{"month": ..., "total": ..., "rows": [...]}]}`; amounts are decimal text, as in
    the API."""
    before = '{"months":['
    for source, rows in months:
        said = source.statement
        head = {
            "month": said.month,
            "invoice": said.number,
            "state": "ISSUED" if said.issued else "DRAFT",
            "asOf": said.as_of.rfc3339(),
            "timeZone": said.time_zone,
            "currency": said.currency,
            "exchangeRate": str(said.exchange),
            "total": minor_text(said.total, said.decimals),
        }
        yield f'{before}{json_text(head)[:-1]},"rows":['.encode()
        between = "\n"
        for several in _together(rows):
            texts = [json_text(_plain(source, row)) for row in several]
            yield (between + ",\n".join(texts)).encode()
            between = ",\n"
        yield b"\n]}"
        before = ","
    yield b"]}\n" if before == "," else f"{before}]}}\n".encode()


def _plain(source: ExportSource, row: ExportRow) -> dict[str, Cell]:
    return {name: str(v) if isinstance(v, Number) else v for name, v in record(source, row).items()}
