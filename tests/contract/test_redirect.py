"""`podyard run`: clients that nobody has changed, with Google's hosts written into their code."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from podyard.base.clock import OsClock
from podyard.cli.kit.client import Target
from podyard.cli.redirect import redirect
from podyard.cli.redirect import tls as redirect_tls
from tests.conftest import require
from tests.waiting import patient
from tests.yard import ZONE, Yard, open_yard

pytestmark = pytest.mark.real

PODYARD = [sys.executable, "-c", "from podyard.main import cli; cli()"]
PROXY_VARIABLES = ("HTTPS_PROXY", "HTTP_PROXY", "https_proxy", "http_proxy")


@pytest.fixture
def yard(tmp_path: Path) -> Iterator[Yard]:
    (tmp_path / "yard").mkdir()
    with open_yard(tmp_path / "yard") as found:
        yield found


@pytest.fixture
def temporary(tmp_path: Path) -> Path:
    """Return where commands put their temporary files."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    return folder


def _environment(yard: Yard, temporary: Path, **changes: str) -> dict[str, str]:
    dropped = (*PROXY_VARIABLES, "NO_PROXY", "no_proxy", *redirect_tls.BUNDLE_VARIABLES)
    kept = {
        k: v
        for k, v in os.environ.items()
        if not k.startswith(("PODYARD_", "GOOGLE_", "CLOUDSDK_", "GCE_"))
    }
    kept = {k: v for k, v in kept.items() if k not in dropped}
    own = {
        "PODYARD_URL": yard.url,
        "PODYARD_TOKEN": yard.token,
        "PODYARD_DATA": str(temporary / "data"),
    }
    return {**kept, **own, "TMPDIR": str(temporary), **changes}


def _run(
    yard: Yard, temporary: Path, command: list[str], status: int = 0, **changes: str
) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [*PODYARD, "run", "--", *command],
        env=_environment(yard, temporary, **changes),
        capture_output=True,
        text=True,
        timeout=patient(60),
    )
    assert done.returncode == status, done.stdout + done.stderr
    assert list(temporary.iterdir()) == []  # nothing is left behind
    return done


def _python(yard: Yard, temporary: Path, script: str, **changes: str) -> Any:
    """Return what the script prints, as JSON."""
    return json.loads(
        _run(
            yard,
            temporary,
            [sys.executable, "-W", "ignore", "-c", textwrap.dedent(script)],
            **changes,
        ).stdout
    )


@pytest.mark.slow
def test_google_s_python_client_creates_a_node_without_any_change(
    yard: Yard, temporary: Path
) -> None:
    found = _python(
        yard,
        temporary,
        f"""
        import json
        from googleapiclient.discovery import build
        from googleapiclient.errors import HttpError

        nodes = build("tpu", "v2").projects().locations().nodes()
        parent = "projects/demo/locations/{ZONE}"
        body = {{"acceleratorType": "v2-8", "runtimeVersion": "tpu-vm-base"}}
        operation = nodes.create(parent=parent, nodeId="hard-wired", body=body).execute()
        listed = nodes.list(parent=parent).execute()
        try:
            nodes.get(name=parent + "/nodes/none").execute()
        except HttpError as error:
            status = error.resp.status
        print(json.dumps([operation["metadata"]["target"], [n["name"] for n in listed["nodes"]], status]))
        """,  # noqa: E501
    )
    name = f"projects/demo/locations/{ZONE}/nodes/hard-wired"
    assert found == [name, [name], 404]
    assert yard.ok("GET", f"/v2/{name}")["name"] == name


@pytest.mark.slow
def test_credentials_project_and_zone_come_from_the_metadata_server(
    yard: Yard, temporary: Path
) -> None:
    key = temporary.parent / "foreign.json"
    key.write_text(
        json.dumps({"type": "service_account", "token_uri": "https://oauth2.googleapis.com/token"})
    )
    found = _python(
        yard,
        temporary,
        """
        import json, urllib.request
        import google.auth, requests
        from google.auth.transport.requests import Request
        from google.auth.compute_engine import Credentials

        credentials, project = google.auth.default()
        assert isinstance(credentials, Credentials)
        credentials.refresh(Request())
        hard_wired = []
        for host in ("metadata.google.internal", "169.254.169.254"):
            url = f"http://{host}/computeMetadata/v1/instance/zone"
            request = urllib.request.Request(url, headers={"Metadata-Flavor": "Google"})
            hard_wired.append(urllib.request.urlopen(request).read().decode())
            hard_wired.append(requests.get(url, headers={"Metadata-Flavor": "Google"}).text)
            hard_wired.append(requests.get(url).status_code)
        email = credentials.service_account_email
        print(json.dumps([project, credentials.token, email, credentials.universe_domain, hard_wired]))
        """,  # noqa: E501
        GOOGLE_APPLICATION_CREDENTIALS=str(key),
    )
    number = yard.ok("GET", "/podyard/v1/projects")["projects"][0]["projectNumber"]
    zone = f"projects/{number}/zones/{ZONE}"
    assert found == [
        "demo",
        yard.token,
        "owner@podyard.local",
        "googleapis.com",
        [zone, zone, 403] * 2,
    ]


@pytest.mark.slow
def test_every_usual_library_trusts_the_redirection(yard: Yard, temporary: Path) -> None:
    url = f"https://tpu.googleapis.com/v2/projects/demo/locations/{ZONE}/nodes"
    found = _python(
        yard,
        temporary,
        f"""
        import json, os, urllib.error, urllib.request
        import httplib2, httpx, requests

        url, headers = {url!r}, {{"Authorization": "Bearer " + os.environ["PODYARD_TOKEN"]}}
        def with_urllib(**options):
            try:
                return urllib.request.urlopen(urllib.request.Request(url, **options)).status
            except urllib.error.HTTPError as error:
                return error.code
        with requests.Session() as session:
            kept = [session.get(url, headers=headers).status_code for _ in range(3)]
        chunked = requests.post(url + "?nodeId=9", headers=headers, data=iter([b'{{"accelerator', b'Type": "v2-8"}}']))
        form = {{"grant_type": "password"}}
        token = requests.post("https://oauth2.googleapis.com/token", data=form)
        print(json.dumps([
            kept, requests.get(url).status_code, with_urllib(headers=headers), with_urllib(),
            httpx.get(url, headers=headers).status_code, httplib2.Http().request(url, headers=headers)[0].status,
            chunked.status_code, chunked.json()["error"]["status"], token.status_code, token.json()["error"],
        ]))
        """,  # noqa: E501
    )
    expected = [
        [200] * 3,
        401,
        200,
        401,
        200,
        200,
        400,
        "INVALID_ARGUMENT",
        400,
        "unsupported_grant_type",
    ]
    assert found == expected
    curl = require(shutil.which("curl"), "curl")
    header = f"Authorization: Bearer {yard.token}"
    done = _run(
        yard, temporary, [curl, "-s", "-S", "-w", "%{http_version} %{http_code}", "-H", header, url]
    )
    assert done.stdout.endswith("1.1 200")


@pytest.mark.slow
def test_a_key_of_ours_goes_on_being_used(yard: Yard, temporary: Path) -> None:
    path = temporary.parent / "key.json"
    made = yard.ok(
        "POST",
        "/podyard/v1/projects/demo/serviceAccounts/robot@demo.iam.gserviceaccount.com/keys",
        {},
    )
    path.write_text(json.dumps(made))
    # google.auth reads the machine's clock
    yard.clock.advance(OsClock().now().seconds_since(yard.clock.now()))
    found = _python(
        yard,
        temporary,
        """
        import json
        from googleapiclient.discovery import build
        listed = build("tpu", "v2").projects().locations().nodes().list(parent="projects/demo/locations/-").execute()
        print(json.dumps(listed))
        """,  # noqa: E501
        GOOGLE_APPLICATION_CREDENTIALS=str(path),
    )
    assert "error" not in found


@pytest.mark.slow
def test_the_exit_code_and_the_signal_of_the_command_are_ours(yard: Yard, temporary: Path) -> None:
    _run(yard, temporary, ["sh", "-c", "exit 37"], 37)
    _run(yard, temporary, ["sh", "-c", "kill -KILL $$"], -signal.SIGKILL)
    _run(yard, temporary, ["sh", "-c", "kill -TERM $$"], -signal.SIGTERM)
    assert "was not found" in _run(yard, temporary, ["podyard-no-such-command"], 127).stderr
    assert "cannot be run" in _run(yard, temporary, [str(temporary.parent)], 126).stderr


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGUSR1])
def test_a_signal_is_passed_on_and_nothing_is_left(
    yard: Yard, temporary: Path, number: signal.Signals
) -> None:
    script = f"""
        import os, signal, sys
        signal.signal({int(number)}, lambda *_: sys.exit(5))
        print(os.environ["HTTPS_PROXY"], flush=True)
        signal.pause()
        """
    command = [*PODYARD, "run", sys.executable, "-c", textwrap.dedent(script)]
    process = subprocess.Popen(
        command,
        env=_environment(yard, temporary),
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert process.stdout is not None
    with process, process.stdout, contextlib.ExitStack() as at_last:
        at_last.callback(process.kill)  # only when something below failed: it has ended otherwise
        host, port = process.stdout.readline().strip().removeprefix("http://").split(":")
        assert [path.stat().st_mode & 0o777 for path in temporary.iterdir()] == [0o700]
        process.send_signal(number)
        assert process.wait(20) == 5
    assert list(temporary.iterdir()) == []
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((host, int(port)), 5).close()


@pytest.mark.slow
def test_google_s_other_apis_are_answered_here_and_named_at_the_end(
    yard: Yard, temporary: Path
) -> None:
    script = f"""
        import json, os
        import google.auth.credentials, google.oauth2.credentials, requests
        from googleapiclient.discovery import build
        from googleapiclient.errors import HttpError

        credentials = google.oauth2.credentials.Credentials(os.environ["PODYARD_TOKEN"])
        def status_of(request):
            try:
                return request.execute()
            except HttpError as error:
                return [error.resp.status, error.reason]
        compute = build("compute", "v1", credentials=credentials)
        storage = build("storage", "v1", credentials=credentials)
        accounts = build("iam", "v1", credentials=credentials).projects().serviceAccounts()
        topics = build("pubsub", "v1", credentials=credentials).projects().topics()
        print(json.dumps([
            compute.instances().list(project="demo", zone={ZONE!r}).execute()["kind"],
            [item["name"] for item in compute.zones().list(project="demo").execute()["items"]],
            status_of(compute.instances().get(project="demo", zone={ZONE!r}, instance="one")),
            status_of(storage.buckets().list(project="demo")),
            len(accounts.list(name="projects/demo").execute()["accounts"]),
            status_of(topics.list(project="projects/demo"))[0],
            status_of(topics.list(project="projects/demo"))[0],
            requests.put("https://my-bucket.storage.googleapis.com/x", data=b"y" * 100_000).status_code,
            requests.get("https://www.googleapis.com/discovery/v1/apis/storage/v1/rest").status_code,
            requests.get("https://www.googleapis.com/discovery/v1/apis/tpu/v2/rest").json()["id"],
        ]))
        """  # noqa: E501
    done = _run(yard, temporary, [sys.executable, "-W", "ignore", "-c", textwrap.dedent(script)])
    kind, zones, instance, buckets, *others = json.loads(done.stdout)
    assert (kind, ZONE in zones) == ("compute#instanceList", True)
    assert instance == [
        404,
        f"The resource 'projects/demo/zones/{ZONE}/instances/one' was not found",
    ]
    text = (
        "GET https://storage.googleapis.com/storage/v1/b is not served by Podyard; nothing was "
        "sent to Google"
    )
    assert buckets == [501, text]
    assert others == [1, 501, 501, 501, 501, "tpu:v2"]
    (line,) = (line for line in done.stderr.splitlines() if line.startswith("podyard run:"))
    assert line == (
        "podyard run: not served, and nothing was sent to Google: pubsub.googleapis.com (2), "
        "storage.googleapis.com (1), "
        "my-bucket.storage.googleapis.com (1), www.googleapis.com (1)"
    )


@pytest.mark.parametrize(("pass_google", "status"), [(False, 200), (True, 502)])
def test_google_s_other_apis_can_be_passed_on(yard: Yard, pass_google: bool, status: int) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        # so that nothing goes out
        environ = {"https_proxy": f"127.0.0.1:{unused.getsockname()[1]}"}
        target = Target(yard.url, yard.token, "demo", ZONE)
        with redirect.redirect(target, environ, pass_google=pass_google) as environment:
            host, port = environment["https_proxy"].removeprefix("http://").split(":")
            found = []
            for google in ("storage.googleapis.com", "tpu.googleapis.com", "oauth2.googleapis.com"):
                with socket.create_connection((host, int(port)), 10) as connection:
                    connection.sendall(f"CONNECT {google}:443 HTTP/1.1\r\n\r\n".encode())
                    found.append(int(connection.recv(4096).split()[1]))
    assert found == [status, 200, 200]


@pytest.mark.slow
def test_the_command_line_says_whether_google_s_other_apis_are_passed_on(
    yard: Yard, temporary: Path
) -> None:
    curl = require(shutil.which("curl"), "curl")
    asked = [
        curl,
        "-s",
        "-o",
        os.devnull,
        "-w",
        "%{http_connect} %{http_code}",
        "https://storage.googleapis.com/x",
    ]
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        # so that nothing goes out
        nowhere = {"HTTPS_PROXY": f"127.0.0.1:{unused.getsockname()[1]}"}
        assert _run(yard, temporary, asked, **nowhere).stdout == "200 501"
        command = [*PODYARD, "run", "--pass-google", "--", *asked]
        environ = _environment(yard, temporary, **nowhere)
        done = subprocess.run(
            command, env=environ, capture_output=True, text=True, timeout=patient(60)
        )
    assert (done.stdout, done.stderr) == ("502 000", "")


@pytest.mark.slow
def test_a_python_that_would_go_past_the_proxy_is_warned_of(yard: Yard, temporary: Path) -> None:
    folder = temporary.parent / "bare"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    (packages,) = folder.glob("lib/python*/site-packages")
    python = [str(folder / "bin" / "python"), "-c", "print('started')"]
    assert _run(yard, temporary, python).stderr == ""
    (packages / "httplib2").mkdir()
    done = _run(yard, temporary, python)
    assert (done.stdout, f"WARNING: {packages} has httplib2 without PySocks" in done.stderr) == (
        "started\n",
        True,
    )
    (packages / "socks.py").touch()
    assert _run(yard, temporary, python).stderr == ""


@pytest.mark.slow
def test_a_stopped_podyard_is_said_before_the_command_starts(yard: Yard, temporary: Path) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
        done = _run(yard, temporary, ["echo", "started"], 1, PODYARD_URL=f"http://127.0.0.1:{port}")
    assert "started" not in done.stdout
    assert "does not answer" in done.stderr
