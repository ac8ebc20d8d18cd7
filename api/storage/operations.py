"""Requests that Cloud Storage charges as operations, counted for each bucket.

Classes: cloud.google.com/storage/pricing#operations-by-class. Errors are free, as there.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence

from anyio import to_thread
from starlette.requests import Request

from podyard.api.storage.answers import segments
from podyard.base.operation_counts import OperationCounts
from podyard.control.storage import operations
from podyard.db.store.condition import DATABASE_ERRORS
from podyard.db.store.unit_of_work import Database
from podyard.domain.stored import OperationClass

logger = logging.getLogger(__name__)

_LISTS = frozenset({"o", "folders", "managedFolders"})
_COPIES = frozenset({"copyTo", "rewriteTo"})
Operation = tuple[str, OperationClass]  # of the bucket with this name


class OperationMeter:
    """Counts the operations of this process, which are written to the database now and then."""

    def __init__(self, database: Database, counts: OperationCounts) -> None:
        self._database, self._counts = database, counts

    def count(self, request: Request, is_json: bool) -> None:
        """An answer to the request is under way."""
        found = (json_operation if is_json else xml_operation)(
            request.method, segments(request), request.query_params
        )
        if found is None:
            return
        try:
            self._counts.count(*found)
        except OSError as error:  # reads are answered on a full disk, too
            logger.warning("an operation on bucket %s is not counted: %s", found[0], error)

    async def write(self) -> None:
        """What cannot be written now stays counted."""
        try:
            if files := self._counts.close():
                await to_thread.run_sync(operations.write_counts, self._database, files)
        except (OSError, *DATABASE_ERRORS) as error:
            logger.warning("operations are counted, and will be written later: %s", error)


def json_operation(method: str, parts: Sequence[str], query: Mapping[str, str]) -> Operation | None:
    """Return what a call of the JSON API is charged as; None: nothing. An upload in parts is one
    operation: its beginning. A copy is one of the bucket that it goes to."""
    match parts:
        case ["resumable", *rest]:
            return json_operation(method, rest, query)
        case ["upload", "storage", "v1", "b", bucket, "o"]:
            return None if "upload_id" in query else (bucket, OperationClass.A)
        case ["download", "storage", "v1", "b", bucket, "o", *_]:
            return bucket, OperationClass.B
        case ["storage", "v1", "b", _, "o", _, copies, "b", bucket, "o", *_] if copies in _COPIES:
            return bucket, OperationClass.A
        case ["storage", "v1", "b", bucket, *rest]:
            if method in ("GET", "HEAD"):
                is_list = len(rest) == 1 and rest[0] in _LISTS
                return bucket, OperationClass.A if is_list else OperationClass.B
            return None if method == "DELETE" else (bucket, OperationClass.A)
    return None


def xml_operation(method: str, parts: Sequence[str], query: Mapping[str, str]) -> Operation | None:
    """The same of the XML API, where each part of a multipart upload is an operation."""
    bucket, *name = parts
    is_object = any(name)
    if (
        not bucket
        or method == "DELETE"
        or "upload_id" in query
        or (method == "PUT" and not is_object)
    ):
        return None
    reads = method == "HEAD" or (method == "GET" and is_object)
    return bucket, OperationClass.B if reads else OperationClass.A
