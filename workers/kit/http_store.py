"""A job's objects on a machine that does not have the platform's folder: over HTTP, with
digests."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlencode

from podyard.base.clock import RealClock
from podyard.base.errors import Code, PodyardError
from podyard.workers.kit.http_client import JsonClient

T = TypeVar("T")

PIECE_BYTES = 1 << 20  # as large as a request's body may be
RETRY_SECONDS = 0.2
TRIES_MAX = 3  # of an object whose bytes were changed on the way


class HttpStore:
    """The engine's CheckpointStore. `of`: which folder, as the API names it. What is not answered
    is asked again for `patience_seconds`: as long as a replica's lease."""

    def __init__(
        self,
        api: JsonClient,
        replica_id: str,
        clock: RealClock,
        patience_seconds: float,
        of: str = "objects",
    ) -> None:
        self._api = api
        self._path = f"/podyard/v1/replicas/{replica_id}"
        self._clock = clock
        self._patience_seconds = patience_seconds
        self._of = of

    def put(self, name: str, data: bytes) -> None:
        """In pieces; the name has the old bytes until all of the new ones are there. Raises
        DATA_LOSS when they are not taken with their digest."""
        query = {"name": name, "bytes": len(data), "digest": hashlib.sha256(data).hexdigest()}
        for tries_left in reversed(range(TRIES_MAX)):
            try:
                for offset in range(0, len(data), PIECE_BYTES) or (0,):
                    piece = data[offset : offset + PIECE_BYTES]
                    self._send("object", {**query, "offset": offset}, piece)
            except PodyardError as error:
                # The API may have lost the pieces before this one: it was restored, or its disk was
                # cleared.
                if error.code not in (Code.DATA_LOSS, Code.FAILED_PRECONDITION) or not tries_left:
                    raise
                continue
            return

    def append(self, name: str, offset: int, data: bytes) -> None:
        """Of an event file: from `offset` on."""
        for start in range(0, len(data), PIECE_BYTES):
            piece = data[start : start + PIECE_BYTES]
            self._send("append", {"name": name, "offset": offset + start}, piece)

    def get(self, name: str) -> bytes:
        """Raises NOT_FOUND, and DATA_LOSS for bytes without their digest."""
        for _ in range(TRIES_MAX):
            digest = self.digest(name)
            data = self._ask_patiently(
                lambda: b"".join(
                    self._api.content(self._url("object", {"of": self._of, "name": name}))
                )
            )
            if hashlib.sha256(data).hexdigest() == digest:
                return data
        raise _without_digest(name)

    def fetch(self, name: str, path: Path) -> None:
        """Writes a file that is too large for memory. Raises as `get` does."""
        unfinished = path.with_name(f".{path.name}.{os.getpid()}")
        url = self._url("object", {"of": self._of, "name": name})

        def receive() -> str:
            hashed = hashlib.sha256()
            with unfinished.open("wb") as file:
                for piece in self._api.content(url):
                    hashed.update(piece)
                    file.write(piece)
            return hashed.hexdigest()

        try:
            for _ in range(TRIES_MAX):
                digest = self.digest(name)
                if self._ask_patiently(receive) == digest:
                    unfinished.replace(path)
                    return
        finally:
            unfinished.unlink(missing_ok=True)
        raise _without_digest(name)

    def digest(self, name: str) -> str:
        url = self._url("objectDigest", {"of": self._of, "name": name})
        return str(self._ask_patiently(lambda: self._api.call("GET", url))["digest"])

    def list(self, prefix: str) -> list[str]:
        """All names that begin with `prefix`, sorted."""
        return sorted(self.sizes(prefix))

    def sizes(self, prefix: str) -> dict[str, int]:
        url = self._url("objects", {"of": self._of, "prefix": prefix})
        found = self._ask_patiently(lambda: self._api.call("GET", url))["objects"]
        return {str(item["name"]): int(item["bytes"]) for item in found}

    def delete(self, name: str) -> None:
        """A name that is not there stays not there."""
        url = self._url("object", {"name": name})
        self._ask_patiently(lambda: self._api.call("DELETE", url))

    def _send(self, verb: str, query: Mapping[str, Any], piece: bytes) -> None:
        url = self._url(verb, query)
        self._ask_patiently(lambda: self._api.send("POST", url, piece))

    def _url(self, verb: str, query: Mapping[str, Any]) -> str:
        return f"{self._path}:{verb}?{urlencode(query)}"

    def _ask_patiently(self, ask: Callable[[], T]) -> T:
        deadline = self._clock.monotonic_seconds() + self._patience_seconds
        while True:
            try:
                return ask()
            except PodyardError as error:
                if error.code is not Code.UNAVAILABLE or self._clock.monotonic_seconds() > deadline:
                    raise
            self._clock.sleep(RETRY_SECONDS)


def _without_digest(name: str) -> PodyardError:
    return PodyardError(Code.DATA_LOSS, f"object {name} came {TRIES_MAX} times without its digest")
