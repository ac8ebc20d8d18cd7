"""A yard with the console, and hands for its pages of instances."""

from __future__ import annotations

import re
from collections.abc import Iterator
from html import unescape
from pathlib import Path
from typing import Any

import httpx
import pytest

from podyard.http.guard import CSRF_FIELD, csrf_token
from podyard.web.front import pages
from tests.yard import Yard, open_yard

ZONE = "us-central1-b"
COMPUTE = "/compute/v1/projects/demo"
HERE = f"{COMPUTE}/zones/{ZONE}"
TPU, CPU = "ct6e-standard-4t", "n2-standard-4"


class ConsoleUser:
    """The console of a yard, as somebody with a token sees it."""

    def __init__(self, yard: Yard, token: str = "") -> None:
        self.yard = yard
        self.token = token or yard.token

    def get(self, path: str, project: str = "demo") -> httpx.Response:
        return self.ask("GET", f"/console/{project}/{path}")

    def page(self, path: str) -> str:
        answer = self.get(path)
        assert answer.status_code == 200, answer.text
        return answer.text

    def post(self, path: str, project: str = "demo", **fields: Any) -> httpx.Response:
        form = {CSRF_FIELD: csrf_token(self.token), **fields}
        return self.ask("POST", f"/console/{project}/{path}", data=form)

    def ask(self, method: str, url: str, **options: Any) -> httpx.Response:
        headers = {"Authorization": f"Bearer {self.token}"}
        return self.yard.bare.request(method, url, headers=headers, **options)

    def as_role(self, role: str, project: str = "demo") -> ConsoleUser:
        asked = {"email": f"{role}@corp.example", "project": project, "roles": [role]}
        return ConsoleUser(self.yard, self.yard.ok("POST", "/podyard/v1/tokens", asked)["token"])

    def create(self, name: str, machine: str = CPU, **fields: str) -> None:
        form = {"machine_type": machine, "zone": ZONE, "model": "STANDARD", **fields}
        answer = self.post("instances/new", name=name, **form)
        assert answer.status_code == 303, words(answer.text)
        self.yard.step()

    def make_slice(self, name: str, size: int = 2) -> None:
        """A managed group whose instances are one slice of a template `NAME-t`."""
        template = {"name": f"{name}-t", "properties": {"machineType": TPU}}
        self.yard.ok("POST", f"{COMPUTE}/global/instanceTemplates", template)
        workload = {"type": "HIGH_THROUGHPUT", "acceleratorTopology": "2x4"}
        policies = f"{COMPUTE}/regions/us-central1/resourcePolicies"
        self.yard.ok("POST", policies, {"name": f"{name}-p", "workloadPolicy": workload})
        group = {
            "name": name,
            "instanceTemplate": f"{COMPUTE}/global/instanceTemplates/{name}-t",
            "targetSize": size,
            "targetSizePolicy": {"mode": "BULK"},
            "resourcePolicies": {"workloadPolicy": f"{policies}/{name}-p"},
        }
        self.yard.ok("POST", f"{HERE}/instanceGroupManagers", group)
        self.yard.step()


def words(html: str) -> str:
    """The text of a page."""
    text = unescape(re.sub(r"<[^>]+>", " ", html.partition("<main")[2]))
    return " ".join(text.split())


def rows(html: str) -> list[str]:
    """The first cell of each row that leads somewhere."""
    return re.findall(r'<th scope="row"><a href="[^"]+">([^<]+)</a>', html)


def verbs(html: str) -> list[str]:
    """The actions whose buttons a page has."""
    return re.findall(r'data-dialog="confirm-([a-z]+)"', html)


@pytest.fixture
def console(tmp_path: Path) -> Iterator[ConsoleUser]:
    with open_yard(tmp_path, routers=(pages.router,)) as yard:
        yield ConsoleUser(yard)
