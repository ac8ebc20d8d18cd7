"""Sends what budgets tell their owners. Called by a task; the fence is kept in control/webhooks.py."""

from __future__ import annotations

import http.client
import ssl
from urllib.parse import urlsplit

from podyard.control import webhooks
from podyard.control.webhooks import SIGNATURE_HEADER, Delivery
from podyard.db.unit_of_work import Database

SEND_SECONDS_MAX = 5.0  # well inside a claim; the worker that sends has agents to poke as well
ANSWER_BYTES_MAX = 200  # of what is answered, kept for people


def deliver(database: Database, webhook_id: str) -> bool:
    """One try of one request, if it is due; True when it was delivered. Called twice, it sends once."""
    claimed = database.run(lambda uow: webhooks.claim(uow, webhook_id), actor="webhook")
    if claimed is None:
        return False
    delivered, outcome = send(claimed)
    return database.run(lambda uow: webhooks.finish(uow, claimed, delivered, outcome), actor="webhook") and delivered


def send(delivery: Delivery) -> tuple[bool, str]:
    """(whether it was taken, what was answered or went wrong). Redirects are not followed."""
    parts = urlsplit(delivery.url)
    kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    headers = {
        "Content-Type": "application/json",
        "User-Agent": "podyard",
        "Podyard-Webhook": delivery.webhook_id,
        SIGNATURE_HEADER: delivery.signature,
    }
    try:
        connection = kind(parts.netloc, timeout=SEND_SECONDS_MAX)
        try:
            connection.request("POST", path, body=delivery.body, headers=headers)
            answer = connection.getresponse()
            text = answer.read(ANSWER_BYTES_MAX).decode("utf-8", "replace").replace("\x00", "")
            return 200 <= answer.status < 300, f"{answer.status} {text}".strip()
        finally:
            connection.close()
    except (OSError, ssl.SSLError, http.client.HTTPException, ValueError) as error:
        return False, f"{type(error).__name__}: {error}"
