"""Every method of Compute Engine, asked by people of each role and by a stranger."""

from __future__ import annotations

import pytest

from podyard.api.compute.schema import ComputeMethod, methods
from tests.yard import ZONE, Yard

REGION = ZONE.rpartition("-")[0]
READS = ("wait", "listManagedInstances")  # which Google asks for by POST
NAMES = {"project": "demo", "zone": ZONE, "region": REGION}


def _status(yard: Yard, method: ComputeMethod, token: str) -> int:
    path = method.path.format(**{name: NAMES.get(name, "x") for name in method.placeholders})
    # With a body that nothing takes: a caller who may not ask is refused before it is read.
    body = {"nonsense": 1} if method.body else None
    headers = {"Authorization": f"Bearer {token}"}
    url = f"/compute/v1/{path}"
    return yard.bare.request(method.verb, url, headers=headers, json=body).status_code


def _token(yard: Yard, project: str, role: str) -> str:
    asked = {"email": f"{role}@corp.example", "project": project, "roles": [role]}
    token: str = yard.ok("POST", "/podyard/v1/tokens", asked)["token"]
    return token


@pytest.mark.parametrize(
    ("role", "reads", "changes"),
    [
        ("tpu.viewer", True, False),
        ("jobs.runner", True, False),
        ("tpu.admin", True, True),
        ("billing.viewer", False, False),
        ("owner", True, True),
    ],
)
def test_a_role_may_read_or_change_all_methods_or_none(
    yard: Yard, role: str, reads: bool, changes: bool
) -> None:
    token = _token(yard, "demo", role)
    wrong = []
    for method in methods():
        is_read = method.verb == "GET" or method.name in READS
        # it shows what scripts have written
        is_read = is_read and method.id != "instances.getSerialPortOutput"
        allowed = reads if is_read else changes
        if (_status(yard, method, token) != 403) is not allowed:
            wrong.append(method.id)
    assert wrong == []


def test_a_stranger_learns_nothing(yard: Yard) -> None:
    yard.ok("POST", "/podyard/v1/projects", {"projectId": "second"})
    token = _token(yard, "second", "owner")
    assert [one.id for one in methods() if _status(yard, one, token) != 403] == []
    assert [one.id for one in methods() if _status(yard, one, "nothing") != 401] == []
