"""The CLI's client of the API: finds the running Podyard, sends the token, turns error envelopes
into PodyardError."""

from __future__ import annotations

import contextlib
import dataclasses
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any
from urllib.parse import quote

from podyard.base import error_details
from podyard.base.clock import OsClock, RealClock
from podyard.base.errors import Code, PodyardError
from podyard.base.files import read_json
from podyard.cli.kit.output import say
from podyard.domain.credential import EXPIRES_HEADER
from podyard.settings import Settings, from_environment

if TYPE_CHECKING:
    import ssl

    import httpx

REQUEST_SECONDS_MAX = 40.0  # the server answers within 30 s or says that it is busy
POLL_SECONDS = 0.2
_ERROR_STATUS_MIN = 400
CHUNK_BYTES = 256 * 1024  # of a file that are in memory at a time
PROJECT_DEFAULT = "demo"
LOCATION_DEFAULT = "us-central1-f"


@dataclasses.dataclass(frozen=True, slots=True)
class Target:
    """Whom the CLI talks to, and for which project and location. An empty token: no credential is
    sent."""

    url: str
    token: str
    project: str
    location: str
    is_zone_set: bool = False  # by an option or the environment; else it is the usual one
    is_zone_named: bool = False  # by an option


def settings_of(data: str | None, **changes: Any) -> Settings:
    """The settings of the environment, with what the command line says instead."""
    env = dict(os.environ)
    if data is not None:
        env["PODYARD_DATA"] = data
        env.pop("PODYARD_URL", None)
    found = from_environment(env)
    if not env.get("PODYARD_DATABASE_URL"):
        with contextlib.suppress(OSError):
            url = found.database_record_path.read_text(encoding="utf-8").strip()
            found = dataclasses.replace(found, database_url=url or found.database_url)
    return dataclasses.replace(
        found, **{name: value for name, value in changes.items() if value is not None}
    )


def find(settings: Settings, project: str | None = None, location: str | None = None) -> Target:
    """The Podyard of the environment (PODYARD_URL), else the one that runs on the data folder.
    Raises UNAVAILABLE."""
    env = os.environ
    url = url_of(settings)
    zone = location or env.get("PODYARD_LOCATION") or env.get("CLOUDSDK_COMPUTE_ZONE")
    return Target(
        url,
        env.get("PODYARD_TOKEN") or read_token(settings.token_path),
        project
        or env.get("PODYARD_PROJECT")
        or env.get("CLOUDSDK_CORE_PROJECT")
        or PROJECT_DEFAULT,
        zone or LOCATION_DEFAULT,
        is_zone_set=bool(zone),
        is_zone_named=bool(location),
    )


def url_of(settings: Settings) -> str:
    """Return where the Podyard answers that `find` finds. Raises UNAVAILABLE."""
    url = os.environ.get("PODYARD_URL") or str(read_json(settings.state_path).get("url", ""))
    if not url:
        text = (
            f"no Podyard runs on {settings.data}: start one with `podyard up`, or set PODYARD_URL"
        )
        raise PodyardError(Code.UNAVAILABLE, text)
    return url.rstrip("/")


def read_token(path: Path) -> str:
    try:
        token = path.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError):
        raise PodyardError(
            Code.UNAUTHENTICATED, f"no token: set PODYARD_TOKEN, or make {path} readable"
        ) from None
    if not token:
        raise PodyardError(
            Code.UNAUTHENTICATED, f"no token: {path} is empty; restore it, or set PODYARD_TOKEN"
        )
    return token


class Client:
    """Calls of the API. Every failure is a PodyardError; UNAVAILABLE when nobody answers."""

    def __init__(
        self,
        target: Target,
        clock: RealClock | None = None,
        timeout_seconds: float = REQUEST_SECONDS_MAX,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        """`tls`: what it trusts where the URL is https, if not what the environment says."""
        self.target = target
        self._clock = clock or OsClock()
        # Not at the top: `podyard up` must not pay for a client that it does not use.
        import httpx

        self._warned = False
        self._transport_error = httpx.TransportError
        self._http = httpx.Client(
            base_url=target.url,
            headers={"Authorization": f"Bearer {target.token}"} if target.token else {},
            timeout=timeout_seconds,
            trust_env=False,  # a proxy of the environment must not see the token
            verify=tls or _trust(target.url),
        )

    def close(self) -> None:
        self._http.close()

    def call(self, method: str, path: str, body: Any = None, **query: Any) -> dict[str, Any]:
        found: dict[str, Any] = self._ask(method, path, body, query).json()
        return found

    def post(
        self, path: str, body: Any, headers: Mapping[str, str], **query: str
    ) -> dict[str, Any]:
        response = self._send("POST", path, headers=headers, json=body, params=query)
        answer: dict[str, Any] = response.json()
        return answer

    def content(self, path: str, **query: Any) -> bytes:
        """An answer that is not JSON."""
        return self._ask("GET", path, None, query).content

    def send(self, path: str, file: IO[bytes], **query: Any) -> dict[str, Any]:
        """The answer to a file, which is sent as it is read."""
        try:
            response = self._http.post(
                path,
                content=iter(lambda: file.read(CHUNK_BYTES), b""),
                params=_without_none(query),
                headers={"Content-Type": "application/octet-stream"},
            )
        except self._transport_error as error:
            raise PodyardError(
                Code.UNAVAILABLE, f"{self.target.url} does not answer: {error}"
            ) from None
        if not response.is_success:
            raise _error(response)
        found: dict[str, Any] = response.json()
        return found

    def delete(self, path: str) -> None:
        """Of what answers nothing to it."""
        self._ask("DELETE", path, None, {})

    def wait(self, seconds: float) -> None:
        self._clock.sleep(seconds)

    def begin_upload(self, path: str, body: Any, size: int) -> str:
        """The address of an upload in parts."""
        response = self._send(
            "POST",
            f"{path}?uploadType=resumable",
            json=body,
            headers={"X-Upload-Content-Length": size},
        )
        return str(response.headers["location"])

    def continue_upload(
        self, session: str, pieces: Iterator[bytes], first: int, size: int
    ) -> dict[str, Any]:
        """Sends all from byte `first` on."""
        headers = {
            "Content-Range": f"bytes {first}-{size - 1}/{size}",
            "Content-Length": str(size - first),
        }
        found: dict[str, Any] = self._send("PUT", session, content=pieces, headers=headers).json()
        return found

    def uploaded_bytes(self, session: str) -> int:
        """Return how much of an upload in parts has come."""
        response = self._send("PUT", session, headers={"Content-Range": "bytes */*"})
        last = response.headers.get("range", "").rpartition("-")[2]
        return int(last) + 1 if last else 0

    def _send(
        self, method: str, url: str, *, headers: Mapping[str, Any], **what: Any
    ) -> httpx.Response:
        try:
            response = self._http.request(
                method, url, headers={k: str(v) for k, v in headers.items()}, **what
            )
        except self._transport_error as error:
            raise PodyardError(
                Code.UNAVAILABLE, f"{self.target.url} does not answer: {error}"
            ) from None
        if response.status_code >= _ERROR_STATUS_MIN:
            raise _error(response)
        return response

    @contextmanager
    def stream(self, path: str, **query: Any) -> Iterator[Iterator[bytes]]:
        """An answer in chunks. One that ends too early raises UNAVAILABLE."""
        try:
            with self._http.stream("GET", path, params=_without_none(query)) as response:
                if not response.is_success:
                    response.read()
                    raise _error(response)
                yield response.iter_bytes(CHUNK_BYTES)
        except self._transport_error as error:
            raise PodyardError(
                Code.UNAVAILABLE, f"{self.target.url} does not answer: {error}"
            ) from None

    def _ask(self, method: str, path: str, body: Any, query: Mapping[str, Any]) -> httpx.Response:
        try:
            response = self._http.request(method, path, json=body, params=_without_none(query))
        except self._transport_error as error:
            raise PodyardError(
                Code.UNAVAILABLE, f"{self.target.url} does not answer: {error}"
            ) from None
        self._warn_of_expiry(response)
        if response.is_success:
            return response
        raise _error(response)

    def _warn_of_expiry(self, response: httpx.Response) -> None:
        """Once for each client: a command may ask many times."""
        expires = response.headers.get(EXPIRES_HEADER)
        if expires is not None and not self._warned:
            self._warned = True
            say(
                f"warning: your token expires at {expires}; `podyard auth token renew` makes "
                "you a new one"
            )

    def pages(self, path: str, collection: str, **query: Any) -> Iterator[dict[str, Any]]:
        token: str | None = None
        while True:
            page = self.call("GET", path, pageToken=token, **query)
            yield from page.get(collection, ())
            token = page.get("nextPageToken")
            if not token:
                return

    def wait_operation(
        self, operation: Mapping[str, Any], timeout_seconds: float
    ) -> dict[str, Any]:
        """The finished operation; raises its error, or DEADLINE_EXCEEDED."""
        current = self.poll(
            lambda: self.call("GET", f"/{operation['metadata']['apiVersion']}/{operation['name']}"),
            lambda found: bool(found["done"]),
            timeout_seconds,
            str(operation["name"]),
        )
        if "error" in current:
            raise PodyardError(Code(current["error"]["code"]), current["error"]["message"])
        return current

    def poll(
        self,
        ask: Callable[[], dict[str, Any]],
        done: Callable[[dict[str, Any]], bool],
        timeout_seconds: float,
        what: str,
    ) -> dict[str, Any]:
        deadline = self._clock.monotonic_seconds() + timeout_seconds
        while True:
            found = ask()
            if done(found):
                return found
            if self._clock.monotonic_seconds() > deadline:
                raise PodyardError(
                    Code.DEADLINE_EXCEEDED, f"{what} did not end within {timeout_seconds:g} s"
                )
            self._clock.sleep(POLL_SECONDS)

    def zone_path(self, location: str | None = None, version: str = "v2") -> str:
        return (
            f"/{version}/projects/{quote(self.target.project)}/locations/"
            f"{quote(location or self.target.location)}"
        )

    def own_path(self, location: str | None = None) -> str:
        place = quote(location or self.target.location)
        return f"/podyard/v1/projects/{quote(self.target.project)}/locations/{place}"

    def project_path(self) -> str:
        return f"/podyard/v1/projects/{quote(self.target.project)}"


def _trust(url: str) -> ssl.SSLContext | bool:
    if not url.startswith("https:"):
        return False  # else 25 ms of every command would go to certificates unused
    from podyard.http.trust import context_of_environment

    return context_of_environment(url)


def _without_none(query: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in query.items() if value is not None}


def _error(response: httpx.Response) -> PodyardError:
    try:
        error = response.json()["error"]
        return PodyardError(
            Code[error["status"]],
            error["message"],
            tuple(error_details.of_json(error.get("details", ()))),
        )
    except (ValueError, KeyError, TypeError):
        text = f"{response.request.url.host} answered {response.status_code} without saying why"
        return PodyardError(Code.UNKNOWN, text)
