"""Sends requests to webhooks. Called by a task; the fence is kept in
control/platform/webhooks.py."""

from __future__ import annotations

import contextlib
import http.client
import ipaddress
import socket
import ssl
import threading
from collections.abc import Iterator
from typing import Any
from urllib.parse import SplitResult

from podyard.base.errors import Code, PodyardError, invalid
from podyard.base.sealing import unseal
from podyard.control.access import identity
from podyard.control.platform import webhook_urls, webhooks
from podyard.control.platform.webhooks import SIGNATURE_HEADER, signature_of
from podyard.db.store.unit_of_work import Database
from podyard.domain.webhook import WebhookRequest

# All four together are well inside a claim; and the worker that sends has agents to poke as well.
RESOLVE_SECONDS_MAX = 4.0
CONNECT_SECONDS_MAX = 2.0  # to one address
ADDRESSES_MAX = 3  # of a name, one after the other until one can be connected to
ANSWER_SECONDS_MAX = 5.0  # for TLS, the request and the answer together
ANSWER_BYTES_MAX = 200  # of what is answered, kept for people

_Target = tuple[socket.AddressFamily, Any]  # numbers only: nothing is resolved again


def deliver(database: Database, webhook_id: str) -> bool:
    """One try of one request, if it is due; True when it was delivered. Called twice, it sends
    once."""
    claimed, tenants = database.run(
        lambda uow: (webhooks.claim(uow, webhook_id), identity.has_tenants(uow)), actor="webhook"
    )
    if claimed is None:
        return False
    delivered, outcome = send(claimed, public_only=tenants)
    return (
        database.run(lambda uow: webhooks.finish(uow, claimed, delivered, outcome), actor="webhook")
        and delivered
    )


def send(delivery: WebhookRequest, *, public_only: bool = False) -> tuple[bool, str]:
    """(whether it was taken, what was answered or went wrong). Redirects are not followed."""
    try:
        return _send(delivery, public_only)
    except PodyardError as error:
        return False, error.message
    except (OSError, http.client.HTTPException, ValueError) as error:
        return False, f"{type(error).__name__}: {error}"


def _send(delivery: WebhookRequest, public_only: bool) -> tuple[bool, str]:
    parts = webhook_urls.check(delivery.url, "url", public_only=public_only)
    host, port = parts.hostname or "", parts.port or webhook_urls.PORTS[parts.scheme]
    with contextlib.ExitStack() as stack:
        plain = stack.enter_context(_connect(_targets(host, port, public_only)))
        late = stack.enter_context(_limit(plain))
        try:
            connection = stack.enter_context(
                contextlib.closing(_speaking(parts, host, port, plain))
            )
            return _ask(connection, parts, delivery, late)
        except (OSError, http.client.HTTPException):
            if late.is_set():
                raise PodyardError(
                    Code.DEADLINE_EXCEEDED, f"no answer within {ANSWER_SECONDS_MAX:g} s"
                ) from None
            raise


def _targets(host: str, port: int, public_only: bool) -> list[_Target]:
    """Return what a name stands for now. One address that may not be notified is enough to refuse
    it: it is not for chance to say which one is taken."""
    answers: list[list[Any] | OSError | ValueError] = []

    def resolve() -> None:
        try:
            answers.append(socket.getaddrinfo(host, port, type=socket.SOCK_STREAM))
        except (OSError, ValueError) as error:
            answers.append(error)

    # The resolver knows no limit. A thread that it keeps ends when it answers.
    thread = threading.Thread(target=resolve, name="resolve", daemon=True)
    thread.start()
    thread.join(RESOLVE_SECONDS_MAX)
    if not answers:
        raise PodyardError(
            Code.DEADLINE_EXCEEDED, f"{host} was not resolved within {RESOLVE_SECONDS_MAX:g} s"
        )
    (answer,) = answers
    if not isinstance(answer, list):
        raise answer
    for _, _, _, _, address in answer:
        why = webhook_urls.why_not(ipaddress.ip_address(address[0]), public_only=public_only)
        if why is not None:
            raise invalid(f"url: {host} is {address[0]}, which is {why}", "url")
    return [(family, address) for family, _, _, _, address in answer[:ADDRESSES_MAX]]


def _connect(targets: list[_Target]) -> socket.socket:
    """A socket to the first of these addresses that takes one."""
    failed: OSError = ConnectionError("the name has no address")
    for family, address in targets:
        found = socket.socket(family, socket.SOCK_STREAM)
        found.settimeout(CONNECT_SECONDS_MAX)
        try:
            found.connect(address)
        except OSError as error:
            found.close()
            failed = error
        else:
            return found
    raise failed


@contextlib.contextmanager
def _limit(plain: socket.socket) -> Iterator[threading.Event]:
    """Cuts the connection when the time is over: a socket's own limit starts again with every byte.
    Gives whether it
    was cut."""
    late = threading.Event()
    with plain.dup() as other_handle:  # TLS takes over the socket itself

        def cut() -> None:
            late.set()
            with contextlib.suppress(OSError):
                other_handle.shutdown(socket.SHUT_RDWR)

        timer = threading.Timer(ANSWER_SECONDS_MAX, cut)
        timer.daemon = True
        timer.start()
        try:
            yield late
        finally:
            timer.cancel()
            timer.join()


def _speaking(
    parts: SplitResult, host: str, port: int, plain: socket.socket
) -> http.client.HTTPConnection:
    """HTTP over a socket that stands; a certificate has to be of the name."""
    plain.settimeout(ANSWER_SECONDS_MAX)
    if parts.scheme == "http":
        connection = http.client.HTTPConnection(host, port)
        connection.sock = plain
        return connection
    connection = http.client.HTTPSConnection(host, port)
    connection.sock = ssl.create_default_context().wrap_socket(plain, server_hostname=host)
    return connection


def _ask(
    connection: http.client.HTTPConnection,
    parts: SplitResult,
    delivery: WebhookRequest,
    late: threading.Event,
) -> tuple[bool, str]:
    body = delivery.body.encode()
    headers = {
        "Content-Type": "application/json",
        "User-Agent": "podyard",
        "Podyard-Webhook": delivery.webhook_id,
        SIGNATURE_HEADER: signature_of(unseal(delivery.secret), body),
    }
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    connection.request("POST", path, body=body, headers=headers)
    answer = connection.getresponse()
    if late.is_set():
        raise TimeoutError  # a head that was cut off looks like a whole one
    text = ""
    with contextlib.closing(answer), contextlib.suppress(OSError, http.client.HTTPException):
        # The status says whether it was taken; the rest is for people.
        text = answer.read(ANSWER_BYTES_MAX).decode("utf-8", "replace").replace("\x00", "")
    return 200 <= answer.status < 300, f"{answer.status} {text}".strip()
