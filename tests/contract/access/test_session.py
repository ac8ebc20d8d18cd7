"""`podyard env --session`: Google's hosts lead to the Podyard for what outlives a command."""

from __future__ import annotations

import json
import shlex
import ssl
import subprocess
from pathlib import Path

import pytest
from cryptography import x509

from podyard.cli.redirect import session
from podyard.cli.redirect.google import DOMAINS
from tests.stack import Stack
from tests.waiting import patient

pytestmark = [pytest.mark.real, pytest.mark.slow, pytest.mark.xdist_group("contract")]
ASK = 'curl -s -H "Authorization: Bearer $PODYARD_TOKEN" https://{host}{path}'


def _shell(exports: str, command: str) -> str:
    """Return what a command prints in a shell that has the exports and nothing else of ours."""
    done = subprocess.run(
        ["env", "-i", "PATH=/usr/bin:/bin", "sh", "-c", f"{exports}\n{command}"],
        capture_output=True,
        text=True,
        timeout=patient(60),
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_session_outlives_its_command_and_ends_without_a_trace(stack: Stack) -> None:
    exports = stack.podyard("env", "--session").stdout
    folder = stack.data / session.FOLDER
    try:
        asked = ASK.format(host="iam.googleapis.com", path="/v1/roles/tpu.viewer")
        assert json.loads(_shell(exports, asked))["name"] == "roles/tpu.viewer"
        metadata = "curl -s -H 'Metadata-Flavor: Google' http://metadata.google.internal"
        path = "/computeMetadata/v1/project/project-id"
        assert _shell(exports, f"{metadata}{path}") == "demo"
        refused = ASK.format(host="pubsub.googleapis.com", path="/v1/projects/demo/topics")
        assert json.loads(_shell(exports, refused))["error"]["status"] == "UNIMPLEMENTED"
        # The same ones for the next command, and inside of a shell that has them.
        assert stack.podyard("env", "--session").stdout == exports
        _check_files(folder)
    finally:
        ended = stack.podyard("env", "--session", "--end")
    assert "the session has ended" in ended.stderr
    assert "unset HTTPS_PROXY" in ended.stdout
    assert not folder.exists()
    proxy = next(line for line in exports.splitlines() if line.startswith("export HTTPS_PROXY="))
    port = shlex.split(proxy)[1].rpartition(":")[2]
    done = subprocess.run(["curl", "-s", f"http://127.0.0.1:{port}/"], timeout=patient(30))
    assert done.returncode == 7, "nobody listens"


def _check_files(folder: Path) -> None:
    key = folder / "authority.key"
    assert key.stat().st_mode & 0o777 == 0o600
    assert folder.stat().st_mode & 0o777 == 0o700
    certificate = x509.load_pem_x509_certificate((folder / "authority.pem").read_bytes())
    extension = certificate.extensions.get_extension_for_class(x509.NameConstraints)
    assert extension.critical
    permitted = extension.value.permitted_subtrees
    assert permitted is not None
    assert {name.value for name in permitted} == set(DOMAINS)
    lasts = certificate.not_valid_after_utc - certificate.not_valid_before_utc
    assert lasts.days <= session.AUTHORITY_DAYS + 1
    system = ssl.get_default_verify_paths().cafile
    trusted = Path(system).read_text(errors="replace") if system else ""
    assert (folder / "authority.pem").read_text() not in trusted
    assert not (folder / "work.json").exists(), "it has the token"
