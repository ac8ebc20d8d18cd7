"""A budget's webhook, and a project's, through the whole platform: the loop's message, the worker,
the address, the record; with a broker and without one. An export is made as well."""

from __future__ import annotations

import hashlib
import hmac
import json
import subprocess
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest

from tests.listener import listening
from tests.stack import PODYARD, Stack, open_stack, until

HERE = "/podyard/v1/projects/demo"


def _month_of_event(stack: Stack) -> str:
    """The month that the threshold was reached in."""
    (event,) = stack.call("GET", f"{HERE}/budgetEvents")["events"]
    return str(event["period"])


def _digest(secret: str, body: bytes) -> str:
    return hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()


@pytest.mark.slow
@pytest.mark.xdist_group("stack")
@pytest.mark.parametrize(
    "broker", [{}, {"PODYARD_BROKER_URL": "memory://"}], ids=["broker", "no-broker"]
)
def test_a_threshold_of_a_virtual_month_reaches_its_address(
    tmp_path: Path, broker: dict[str, str]
) -> None:
    got: list[tuple[str, bytes]] = []
    told: list[tuple[str, bytes]] = []

    def answer(request: BaseHTTPRequestHandler, body: bytes) -> None:
        (got if request.path == "/hook" else told).append(
            (request.headers["Podyard-Signature"], body)
        )
        request.send_response(204)
        request.end_headers()

    with (
        listening(answer) as url,
        open_stack(tmp_path, {"PODYARD_CLOCK": "virtual", **broker}) as stack,
    ):
        hook = f"notify:{url}/hook"
        budget = stack.call("PUT", f"{HERE}/budgets/b", {"amount": "9", "actions": [hook]})
        endpoint = stack.call(
            "PUT", f"{HERE}/webhooks/h", {"url": f"{url}/events", "events": ["node.ready"]}
        )
        stack.create_node("n", "v2-8", "us-central1-f")
        stack.call("POST", "/podyard/v1/clock:advance", {"duration": "3h"})
        until(lambda: got or None, 40, "the webhook")
        ((signature, body),) = got
        assert signature == f"sha256={_digest(budget['secret'], body)}"

        def done() -> Any:
            (event,) = stack.call("GET", f"{HERE}/budgetEvents")["events"]
            (sent,) = event["webhooks"]
            return sent if sent["done"] else None

        assert until(done, 10, "the record")["outcome"] == "204"
        until(lambda: told or None, 10, "the event")
        ((signature, body),) = told
        assert signature == f"sha256={_digest(endpoint['secret'], body)}"
        message = json.loads(body)
        assert (message["event"], message["resource"].rpartition("/")[2]) == ("node.ready", "n")
        tested = subprocess.run(
            [*PODYARD, "webhook", "test", "h", "-o", "json", "--data", str(stack.data)],
            stdout=subprocess.PIPE,
        )
        assert (tested.returncode, json.loads(tested.stdout)["outcome"]) == (0, "204")

        begun = stack.call(
            "POST", f"{HERE}/exports", {"format": "csv", "month": _month_of_event(stack)}
        )
        path = f"/podyard/v1/{begun['name']}"
        until(lambda: stack.call("GET", path).get("response"), 30, "the export")
        assert stack.http.get(f"{path}:download").text.count("\r\n") > 1
