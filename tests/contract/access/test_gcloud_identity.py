"""gcloud's commands on projects, service accounts, services and logs, as a user types them after
`eval "$(podyard env)"`."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.gcloud import Terminal

ACCOUNT = "trainer@demo.iam.gserviceaccount.com"
MEMBER = f"--member serviceAccount:{ACCOUNT}"
pytestmark = [
    pytest.mark.real,
    pytest.mark.slow,
    pytest.mark.xdist_group("contract"),
    pytest.mark.skipif(shutil.which("gcloud") is None, reason="gcloud is not installed"),
]


def _json(terminal: Terminal, command: str) -> Any:
    done = terminal.run(f"gcloud {command} --format json --quiet")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout) if done.stdout.strip() else None


def test_an_account_gets_a_role_and_a_key_and_goes(terminal: Terminal, tmp_path: Path) -> None:
    _json(terminal, "iam service-accounts create trainer --display-name Trainer")
    listed = _json(terminal, "iam service-accounts list")
    assert ACCOUNT in {item["email"] for item in listed}
    policy = _json(
        terminal, f"projects add-iam-policy-binding demo {MEMBER} --role roles/tpu.admin"
    )
    bound = {"role": "roles/tpu.admin", "members": [f"serviceAccount:{ACCOUNT}"]}
    assert bound in policy["bindings"]
    assert bound in _json(terminal, "projects get-iam-policy demo")["bindings"]
    key = tmp_path / "key.json"
    _json(terminal, f"iam service-accounts keys create {key} --iam-account {ACCOUNT}")
    assert json.loads(key.read_text())["client_email"] == ACCOUNT
    account = f"iam service-accounts add-iam-policy-binding {ACCOUNT}"
    role = "--role roles/iam.serviceAccountUser"
    policy = _json(terminal, f"{account} --member user:ann@corp.example {role}")
    assert policy["bindings"][0]["members"] == ["user:ann@corp.example"]
    policy = _json(
        terminal, f"projects remove-iam-policy-binding demo {MEMBER} --role roles/tpu.admin"
    )
    assert bound not in policy.get("bindings", [])
    _json(terminal, f"iam service-accounts delete {ACCOUNT}")
    listed = _json(terminal, "iam service-accounts list")
    assert ACCOUNT not in {item["email"] for item in listed}


def test_projects_services_roles_and_accounts_are_there(terminal: Terminal) -> None:
    made = _json(terminal, "projects create typed-by-hand")
    assert made["projectId"] == "typed-by-hand"
    services = _json(terminal, "services list")
    assert "tpu.googleapis.com" in {item["config"]["name"] for item in services}
    _json(terminal, "services enable tpu.googleapis.com compute.googleapis.com")
    refused = terminal.run("gcloud services enable container.googleapis.com --quiet")
    assert refused.returncode == 1
    assert "Podyard does not serve them" in refused.stderr
    role = _json(terminal, "iam roles describe roles/tpu.viewer")
    assert "tpu.nodes.get" in role["includedPermissions"]
    info = _json(terminal, "billing projects describe demo")
    accounts = _json(terminal, "billing accounts list")
    assert info["billingAccountName"] in {item["name"] for item in accounts}


def test_what_is_written_is_read(terminal: Terminal) -> None:
    done = terminal.run('gcloud logging write typed "from gcloud" --severity WARNING')
    assert done.returncode == 0, done.stderr
    (entry,) = _json(terminal, "logging read 'log_id(\"typed\") severity>=NOTICE'")
    assert (entry["textPayload"], entry["severity"]) == ("from gcloud", "WARNING")
    assert "projects/demo/logs/typed" in [
        item if isinstance(item, str) else item["logName"]
        for item in _json(terminal, "logging logs list")
    ]
