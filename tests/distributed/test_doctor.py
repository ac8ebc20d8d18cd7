"""`podyard doctor` on a living stack whose parts are taken away one after the other."""

from __future__ import annotations

import datetime
import json
import os
import signal
import socket
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from podyard import migrations
from podyard.db.views import copies
from tests.stack import Stack, open_stack
from tests.waiting import until

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("stack")]


def _findings(stack: Stack) -> tuple[int, dict[str, dict[str, Any]]]:
    """(exit code, the worst finding of each area)."""
    done = stack.podyard("doctor", "-o", "json")
    assert done.returncode in (0, 1), done.stderr
    found: dict[str, dict[str, Any]] = {}
    order = ("BAD", "warning", "ok")
    for finding in json.loads(done.stdout)["findings"]:
        worst = found.get(finding["area"])
        if worst is None or order.index(finding["level"]) < order.index(worst["level"]):
            found[finding["area"]] = finding
    return done.returncode, found


def _expired_certificate(path: Path) -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "yard")])
    began = datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC)
    made = (
        x509.CertificateBuilder().issuer_name(name).subject_name(name).public_key(key.public_key())
    )
    made = made.serial_number(x509.random_serial_number()).not_valid_before(began)
    signed = made.not_valid_after(began + datetime.timedelta(days=30)).sign(key, hashes.SHA256())
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(signed.public_bytes(serialization.Encoding.PEM))


def test_what_is_wrong_is_named_with_what_to_do(tmp_path: Path) -> None:
    with open_stack(tmp_path / "data") as stack:
        until(lambda: stack.call("GET", "/podyard/v1/agents")["agents"] or None, 30, "an agent")
        code, found = _findings(stack)
        assert (code, {area for area, one in found.items() if one["level"] == "BAD"}) == (
            0,
            set(),
        ), found
        assert {
            "processes",
            "api",
            "disk",
            "database",
            "clock",
            "loop",
            "queues",
            "agents",
        } <= found.keys()
        assert found["agents"]["what"] == "1 READY"

        agent = stack.pid("agent")
        os.kill(agent, signal.SIGSTOP)
        until(
            lambda: _findings(stack)[1]["agents"]["what"] == "1 GONE" or None, 40, "a silent agent"
        )
        os.kill(agent, signal.SIGCONT)

        loop = stack.pid("loop")
        os.kill(loop, signal.SIGSTOP)
        until(
            lambda: _findings(stack)[1]["loop"]["level"] == "BAD" or None,
            20,
            "a loop that leads no more",
        )
        code, found = _findings(stack)
        assert (code, found["api"]["level"]) == (1, "BAD"), found
        assert "control loop" in found["api"]["what"]
        os.kill(loop, signal.SIGCONT)

        _expired_certificate(tmp_path / "data" / "tls" / "ca.pem")
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            closed = probe.getsockname()[1]
        stack.env["PODYARD_BROKER_URL"] = f"redis://:hidden@127.0.0.1:{closed}/0"
        code, found = _findings(stack)
        assert (code, found["certificates"]["level"], found["broker"]["level"]) == (
            1,
            "BAD",
            "warning",
        ), found
        assert "has expired" in found["certificates"]["what"]
        assert "hidden" not in json.dumps(found)
        del stack.env["PODYARD_BROKER_URL"]

        (tmp_path / "data" / "objects" / "yard.id").write_text("another\n")
        assert "belongs to another yard" in _findings(stack)[1]["folders"]["what"]
        stack.kill("supervisor")
        code, found = _findings(stack)
        assert (code, found["processes"]["what"]) == (
            1,
            "the supervisor was killed: nothing restarts the others",
        )
    code, found = _findings(stack)
    assert (code, found["processes"]["todo"]) == (1, f"podyard up --data {tmp_path / 'data'}")


def test_a_database_of_another_version_and_one_that_is_away_are_told(tmp_path: Path) -> None:
    stack = Stack(tmp_path)
    assert "there is no database" in _findings(stack)[1]["database"]["what"]
    with copies.open_engine(f"sqlite:///{tmp_path / 'podyard.db'}") as engine:
        migrations.migrate(engine, "0020")
    assert _findings(stack)[1]["database"]["todo"] == "podyard up migrates it"
    stack.env["PODYARD_DATABASE_URL"] = "postgresql://podyard:hidden@127.0.0.1:1/x"
    code, found = _findings(stack)
    assert (code, found["database"]["level"]) == (1, "BAD")
    assert "hidden" not in json.dumps(found)
    stack.http.close()
