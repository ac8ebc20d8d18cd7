"""Hosts that are made real: scripts, the metadata server as JAX and google-auth ask it, ssh, scp,
and kills."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from tests.conftest import require
from tests.stack import PODYARD, Stack, kill, open_stack, until

ZONE = "us-central1-a"
HEADER = {"Metadata-Flavor": "Google"}
pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("stack")]


_host_ids: dict[str, set[str]] = {}  # of all hosts that these tests have seen, by their node


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory, boxes: str) -> Iterator[Stack]:
    with open_stack(tmp_path_factory.mktemp("hosts"), {"PODYARD_BOXES": boxes}) as found:
        yield found


@pytest.fixture(scope="module")
def pod(stack: Stack) -> Iterator[str]:
    """A node with four hosts that nothing runs on yet."""
    stack.create_node("pod", "v2-32", ZONE)
    _hosts(stack, "pod")
    yield "pod"
    stack.delete_node("pod", ZONE)
    assert _on_hosts(stack, "pod") == []


def _hosts(stack: Stack, node: str) -> list[dict[str, Any]]:
    path = f"/podyard/v1/projects/demo/locations/{ZONE}/nodes/{node}/hosts"
    found: list[dict[str, Any]] = stack.call("GET", path)["hosts"]
    _host_ids.setdefault(node, set()).update(host["host"] for host in found)
    return found


def _settled(
    stack: Stack, node: str, script: str = "startup-script", generation: int = 1
) -> list[dict[str, Any]]:
    """The hosts once each has run the script in this life."""

    def ask() -> list[dict[str, Any]] | None:
        found = _hosts(stack, node)
        done = [host["scripts"].get(script, {}).get("state") == "DONE" for host in found]
        return (
            found if all(done) and all(host["generation"] == generation for host in found) else None
        )

    return list(until(ask, 30, f"{script} of {node}"))


def _home(stack: Stack, host: dict[str, Any]) -> Path:
    return stack.data / "agents" / "local" / "hosts" / host["host"] / "home"


def _tpu(
    stack: Stack, *arguments: str, input: str | None = None
) -> subprocess.CompletedProcess[str]:
    env = {name: value for name, value in os.environ.items() if not name.startswith("PODYARD_")}
    command = [
        *PODYARD,
        "tpu",
        arguments[0],
        "--data",
        str(stack.data),
        "--zone",
        ZONE,
        *arguments[1:],
    ]
    return subprocess.run(
        command, env=env, capture_output=True, text=True, timeout=60, input=input or ""
    )


def _environment(stack: Stack, node: str, worker: int) -> dict[str, str]:
    done = _tpu(stack, "env", node, "--worker", str(worker), "--address", "-o", "json")
    assert done.returncode == 0, done.stderr
    return {str(name): str(value) for name, value in json.loads(done.stdout).items()}


def _on_hosts(stack: Stack, node: str) -> list[psutil.Process]:
    """Living processes that belong to a host of the node, and the first ones of its boxes."""
    found = []
    for path in stack.data.glob("agents/*/hosts/*/box/box.json"):
        if path.parts[-3] not in _host_ids[node]:
            continue
        record = json.loads(path.read_text())
        with contextlib.suppress(psutil.Error):
            process = psutil.Process(record["pid"])
            if (
                abs(process.create_time() - record["started"]) < 1
                and process.status() != psutil.STATUS_ZOMBIE
            ):
                found.append(process)
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if process.environ().get("PODYARD_HOST") in _host_ids[node]:
                found.append(process)
    return found


def _server(stack: Stack) -> psutil.Process:
    def ask() -> psutil.Process | None:
        for process in stack.processes():
            with contextlib.suppress(psutil.Error):
                if "podyard.workers.host.server" in process.cmdline():
                    return process
        return None

    found: psutil.Process = until(ask, 20, "a host server")
    return found


def _python(code: str, env: dict[str, str]) -> str:
    kept = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    done = subprocess.run(
        [sys.executable, "-c", code], env=kept | env, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_node_is_ready_without_any_host(stack: Stack, pod: str) -> None:
    assert {host["state"] for host in _hosts(stack, pod)} == {"VIRTUAL"}
    assert {host["address"] for host in _hosts(stack, pod)} == {""}
    done = _tpu(stack, "env", pod, "--worker", "3")
    assert "export TPU_WORKER_ID=3" in done.stdout
    assert "GCE_METADATA_HOST" not in done.stdout
    assert {host["state"] for host in _hosts(stack, pod)} == {"VIRTUAL"}


def test_jax_reads_its_cluster_from_the_metadata_server(stack: Stack, pod: str) -> None:
    env = _environment(stack, pod, 2)
    code = (
        "from jax._src.clusters.cloud_tpu_cluster import GceTpuCluster as C\n"
        "print(C.get_coordinator_address(5, None), C.get_process_count(), C.get_process_id())"
    )
    first = env["TPU_WORKER_HOSTNAMES"].split(",")[0]
    assert _python(code, env).split() == [f"{first}:8482", "4", "2"]


def test_google_auth_gets_a_token_that_the_api_takes(stack: Stack, pod: str) -> None:
    env = _environment(stack, pod, 0)
    account = httpx.get(
        f"http://{env['GCE_METADATA_HOST']}/computeMetadata/v1/instance/service-accounts/"
        "default/email",
        headers=HEADER,
    ).text
    code = (
        "import google.auth, google.auth.transport.requests as t\n"
        "credentials, project = google.auth.default()\n"
        "credentials.refresh(t.Request())\n"
        "print(project, credentials.service_account_email, credentials.token)"
    )
    project, email, token = _python(code, env).split()
    assert (project, email) == ("demo", account)
    path = f"{stack.url}/v2/projects/demo/locations/{ZONE}/nodes/{pod}"
    bearer = {"Authorization": f"Bearer {token}"}
    assert httpx.get(path, headers=bearer).status_code == 403
    stack.call(
        "POST", "/podyard/v1/tokens", {"email": account, "project": "demo", "roles": ["tpu.viewer"]}
    )

    def allowed() -> bool | None:
        return httpx.get(path, headers=bearer).status_code == 200 or None

    assert until(allowed, 5, "the role")
    assert httpx.delete(path, headers=bearer).status_code == 403


def test_a_program_on_a_host_finds_its_node_as_tensorflow_s_resolver_does(
    stack: Stack, pod: str
) -> None:
    """By the variables and addresses of tensorflow/python/tpu/client/client.py, in the environment
    of the host."""
    account = f"{_project_number(stack)}-compute@developer.gserviceaccount.com"
    stack.call(
        "POST", "/podyard/v1/tokens", {"email": account, "project": "demo", "roles": ["tpu.viewer"]}
    )
    code = """
import os, threading, urllib.request
import google.auth
from googleapiclient import discovery

def metadata(path):
    url = f"http://{os.environ['GCE_METADATA_IP']}/computeMetadata/v1/{path}"
    asked = urllib.request.Request(url, headers={"Metadata-Flavor": "Google"})
    return urllib.request.urlopen(asked).read().decode()

credentials, _ = google.auth.default(scopes=["https://www.googleapis.com/auth/cloud-platform"])
service = discovery.build(
    "tpu", "v1", credentials=credentials, cache_discovery=False,
    discoveryServiceUrl=os.environ["TPU_API_DISCOVERY_URL"],
)
project, zone = metadata("project/project-id"), metadata("instance/zone").split("/")[-1]
name = f"projects/{project}/locations/{zone}/nodes/{os.environ['TPU_NAME']}"
node = service.projects().locations().nodes().get(name=name).execute()
print(node["state"], len(node["networkEndpoints"]))
for thread in threading.enumerate()[1:]:
    thread.join()  # google-auth looks up its region over TLS in a thread; OpenSSL crashes if Python ends meanwhile
"""  # noqa: E501
    done = _tpu(stack, "exec", pod, "--worker", "1", "--", "python -W ignore -", input=code)
    assert (done.returncode, done.stdout) == (0, "READY 4\n"), done.stderr


def _project_number(stack: Stack) -> str:
    found = {
        item["projectId"]: item["projectNumber"]
        for item in stack.call("GET", "/podyard/v1/projects")["projects"]
    }
    return str(found["demo"])


@pytest.mark.smoke
def test_commands_run_on_workers_and_give_their_exit_code(
    stack: Stack, pod: str, boxes: str
) -> None:
    done = _tpu(stack, "exec", pod, "--worker", "all", "--", "echo worker $TPU_WORKER_ID")
    assert (done.returncode, done.stdout) == (0, "worker 0\nworker 1\nworker 2\nworker 3\n"), (
        done.stderr
    )
    done = _tpu(
        stack, "exec", pod, "--worker", "3", "--", "cat; pwd; echo no >&2; exit 7", input="said\n"
    )
    home = "/home/podyard" if boxes == "on" else _home(stack, _hosts(stack, pod)[3])
    assert (done.returncode, done.stdout, done.stderr) == (7, f"said\n{home}\n", "no\n")
    done = _tpu(
        stack, "ssh", pod, "--worker", "1", input="echo $TPU_NAME\nkill -TERM $$; sleep 5\n"
    )
    assert (done.returncode, done.stdout) == (128 + 15, "pod\n"), done.stderr


def test_files_go_to_workers_and_come_back(stack: Stack, pod: str, tmp_path: Path) -> None:
    there, back = tmp_path / "there", tmp_path / "back"
    there.write_bytes(bytes(range(256)) * 4096)
    done = _tpu(stack, "scp", str(there), f"{pod}:copied", "--worker", "all")
    assert done.returncode == 0, done.stderr
    for host in _hosts(stack, pod):
        assert (_home(stack, host) / "copied").read_bytes() == there.read_bytes()
    done = _tpu(stack, "scp", f"{pod}:~/copied", str(back), "--worker", "2")
    assert done.returncode == 0, done.stderr
    assert back.read_bytes() == there.read_bytes()


@pytest.mark.smoke
def test_openssh_logs_in_by_the_printed_configuration(
    stack: Stack, pod: str, tmp_path: Path
) -> None:
    require(shutil.which("ssh"), "the ssh client")
    done = _tpu(stack, "ssh-config", pod)
    config = tmp_path / "config"
    config.write_text(done.stdout)

    def run(*command: str) -> subprocess.CompletedProcess[str]:
        argv = [command[0], "-F", str(config), *command[1:]]
        return subprocess.run(
            argv, capture_output=True, text=True, timeout=30, stdin=subprocess.DEVNULL
        )

    done = run("ssh", "pod-w-3", "echo $CLOUD_TPU_TASK_ID; exit 4")
    assert (done.returncode, done.stdout) == (4, "3\n"), done.stderr
    done = run("ssh", "-tt", "pod-w-3", "test -t 0 && echo terminal")
    assert done.stdout.strip() == "terminal", done.stderr
    (tmp_path / "f").write_text("content")
    assert run("scp", str(tmp_path / "f"), "pod-w-3:g").returncode == 0
    assert run("scp", "pod-w-3:g", str(tmp_path / "h")).returncode == 0
    assert (tmp_path / "h").read_text() == "content"
    # Another key than those of the node's metadata gets nowhere.
    subprocess.run(
        ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(tmp_path / "other")], check=True
    )
    config.write_text(
        config.read_text().replace(
            str(stack.data / "ssh" / "podyard_ed25519"), str(tmp_path / "other")
        )
    )
    done = run("ssh", "-o", "BatchMode=yes", "pod-w-3", "true")
    assert done.returncode == 255
    assert "Permission denied" in done.stderr


def test_the_port_of_tensorflow_says_that_nothing_is_emulated(stack: Stack, pod: str) -> None:
    grpc = pytest.importorskip("grpc")
    _environment(stack, pod, 0)
    host = _hosts(stack, pod)[0]
    with grpc.insecure_channel(f"{host['address']}:{host['ports']['tensorflow']}") as channel:
        call = channel.unary_unary("/tensorflow.MasterService/CreateSession")
        for _ in range(2):
            with pytest.raises(grpc.RpcError) as caught:
                call(b"request", timeout=10)
            assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED
            assert "no TensorFlow runtime" in caught.value.details()


def test_scripts_run_at_each_start_and_at_the_end(stack: Stack, tmp_path: Path) -> None:
    metadata = {
        "startup-script": "#!/bin/sh\necho start $TPU_WORKER_ID >> $HOME/log\nsleep 1000 &\n",
        "shutdown-script": "echo end $TPU_WORKER_ID >> $HOME/log",
    }
    stack.create_node("one", "v2-8", ZONE, metadata=metadata)
    log = tmp_path / "log"
    # the host's folder goes with its node
    log.hardlink_to(_home(stack, _settled(stack, "one")[0]) / "log")
    path = f"/v2/projects/demo/locations/{ZONE}/nodes/one"
    (_home(stack, _hosts(stack, "one")[0]) / "kept").write_text("disk")
    for verb, state in (("stop", "STOPPED"), ("start", "READY")):
        stack.call("POST", f"{path}:{verb}", {})
        until(lambda s=state: stack.call("GET", path)["state"] == s or None, 30, state)
        if verb == "stop":
            assert log.read_text().split("\n")[:2] == ["start 0", "end 0"]
            assert _on_hosts(stack, "one") == []  # the one in the background as well
    host = _settled(stack, "one", generation=2)[0]
    assert (_home(stack, host) / "kept").read_text() == "disk"
    stack.delete_node("one", ZONE)
    assert log.read_text().split("\n") == ["start 0", "end 0", "start 0", "end 0", ""]
    until(
        lambda: not _home(stack, host).exists() or None,
        10,
        "the folder of a deleted host to be gone",
    )


def test_every_host_of_a_slice_runs_the_script_and_a_preempted_one_its_last(stack: Stack) -> None:
    metadata = {
        "startup-script": "echo $TPU_WORKER_ID > started",
        "shutdown-script": (
            "url=http://$GCE_METADATA_HOST/computeMetadata/v1/instance/preempted\n"
            'curl -sH "Metadata-Flavor: Google" $url >> $HOME/log'
        ),
    }
    held = _chips_held(stack)
    stack.create_node("four", "v2-32", ZONE, metadata=metadata, schedulingConfig={"spot": True})
    found = _settled(stack, "four")
    assert [(_home(stack, host) / "started").read_text() for host in found] == [
        "0\n",
        "1\n",
        "2\n",
        "3\n",
    ]
    assert {host["scripts"]["startup-script"]["exitCode"] for host in found} == {0}
    stack.call("POST", f"/podyard/v1/projects/demo/locations/{ZONE}/nodes/four:preempt", {})
    until(
        lambda: {h["state"] for h in _hosts(stack, "four")} == {"VIRTUAL"} or None,
        20,
        "the end of the hosts",
    )
    assert [(_home(stack, host) / "log").read_text() for host in found] == ["TRUE"] * 4

    # Less than before where the node of the test before this one was still held then.
    until(lambda: _chips_held(stack) <= held or None, 20, "the chips to be given back")
    stack.delete_node("four", ZONE)


def test_programs_of_a_slice_that_is_taken_back_save_at_one_step(stack: Stack) -> None:
    pytest.importorskip("jax", reason="the program imports JAX")
    program = Path(__file__).parents[1] / "programs" / "preempted.py"
    stack.create_node("reclaimed", "v2-32", ZONE, schedulingConfig={"spot": True})
    assert (
        _tpu(stack, "scp", str(program), "reclaimed:program.py", "--worker", "all").returncode == 0
    )
    start = "nohup python program.py > log 2>&1 &"
    assert _tpu(stack, "exec", "reclaimed", "--worker", "all", "--", start).returncode == 0
    homes = [_home(stack, host) for host in _hosts(stack, "reclaimed")]
    until(lambda: all((home / "trains").exists() for home in homes) or None, 60, "the third step")
    stack.call("POST", f"/podyard/v1/projects/demo/locations/{ZONE}/nodes/reclaimed:preempt", {})
    until(
        lambda: {h["state"] for h in _hosts(stack, "reclaimed")} == {"VIRTUAL"} or None,
        40,
        "the end of the hosts",
    )
    saved = {(home / "saved").read_text() for home in homes}
    assert len(saved) == 1, saved
    done, _, step = saved.pop().split()
    assert done == step and int(step) >= 3
    stack.delete_node("reclaimed", ZONE)


def _chips_held(stack: Stack) -> int:
    pods = stack.call("GET", "/podyard/v1/projects/demo/pods")["pods"]
    return sum(int(pod["chipsHeld"]) for pod in pods)


def test_a_killed_host_server_and_a_killed_agent_leave_the_script_running(stack: Stack) -> None:
    script = (
        "cd; echo begun >> log; while test ! -e go; do sleep 0.05; done; echo ended >> log; exit 3"
    )
    stack.create_node("hardy", "v2-8", ZONE, metadata={"startup-script": script})
    home = _home(stack, _hosts(stack, "hardy")[0])
    until(lambda: (home / "log").exists() or None, 20, "the start of the script")
    # The script may be seen before the host server has said where the host is.
    until(lambda: _hosts(stack, "hardy")[0]["address"] or None, 20, "the address of the host")
    host = _hosts(stack, "hardy")[0]
    before = _server(stack).pid
    kill(before)
    until(lambda: _server(stack).pid != before or None, 20, "another host server")
    kill(stack.pid("agent"))
    # A third of a second after its start the server listens; until then nobody answers.
    until(
        lambda: _tpu(stack, "exec", "hardy", "--", "true").returncode == 0 or None, 20, "an answer"
    )
    done = _tpu(stack, "exec", "hardy", "--", "echo back")
    assert (done.returncode, done.stdout) == (0, "back\n"), done.stderr
    (home / "go").touch()
    after = _settled(stack, "hardy")[0]
    assert after["scripts"]["startup-script"] == {"state": "DONE", "exitCode": 3}
    assert (after["address"], after["ports"]) == (host["address"], host["ports"])
    assert (home / "log").read_text() == "begun\nended\n"
    stack.delete_node("hardy", ZONE)


def test_processes_that_hide_end_with_their_host(stack: Stack) -> None:
    stack.create_node("hidden", "v2-8", ZONE)
    hiding = "; ".join(
        (
            "nohup sleep 7001 >/dev/null 2>&1 &",
            "setsid sleep 7002 >/dev/null 2>&1 &",
            "env -i sleep 7003 >/dev/null 2>&1 &",
            "(trap '' TERM; exec sleep 7004) >/dev/null 2>&1 &",
        )
    ).replace("&;", "&")
    done = _tpu(stack, "exec", "hidden", "--", f"{hiding} sleep 0.2; echo ok")
    assert done.stdout == "ok\n", done.stderr
    assert len(_sleeping()) == 4
    kill(_server(stack).pid)
    stack.delete_node("hidden", ZONE)
    assert _sleeping() == []


def _sleeping() -> list[list[str]]:
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if process.cmdline()[:1] == ["sleep"] and process.cmdline()[1].startswith("700"):
                found.append(process.cmdline())
    return found


def test_a_stack_that_goes_down_takes_its_hosts_along(tmp_path: Path, boxes: str) -> None:
    script = "sleep 1000 & echo $$ > pid; wait"
    with open_stack(tmp_path, {"PODYARD_BOXES": boxes}) as stack:
        stack.create_node("one", "v2-8", ZONE, metadata={"startup-script": script})
        until(lambda: _hosts(stack, "one")[0]["state"] == "RUNNING" or None, 20, "the host")
        stack.down()
        assert _on_hosts(stack, "one") == []
        stack.up()

        def again() -> bool | None:
            host = _hosts(stack, "one")[0]
            return (host["state"] == "RUNNING" and host["generation"] == 2) or None

        assert until(again, 30, "the host after a restart")


def test_a_program_on_a_host_sees_its_devices_and_is_priced(stack: Stack) -> None:
    pytest.importorskip("jax", reason="the program imports JAX")
    stack.create_node("priced", "v2-8", ZONE)
    program = Path(__file__).parents[1] / "programs" / "data_parallel.py"
    assert _tpu(stack, "scp", str(program), "priced:program.py").returncode == 0
    done = _tpu(stack, "exec", "priced", "--", "python program.py 20")
    assert done.stdout.split()[:5] == ["0", "1", "8", "8", "TPU_0(process=0,(0,0,0,0))"], (
        done.stderr
    )

    def priced() -> dict[str, Any] | None:
        found = {module["name"]: module for module in _hosts(stack, "priced")[0]["programs"]}
        step: dict[str, Any] | None = found.get("jit_train_step")
        return step if step is not None and step["seconds"] is not None else None

    step = until(priced, 60, "the step's time")
    assert (step["runs"], step["fits"]) == (20, True)
    assert step["verdict"].startswith("fits (")
    page = httpx.get(
        f"{stack.url}/console/demo/nodes/{ZONE}/priced", cookies={"podyard_session": stack.token}
    )
    assert "Programs on this node" in page.text and "jit_train_step" in page.text
    # What programs write there is theirs: links out of it lead nowhere, and nothing ends the host.
    trick = (
        "cd $PODYARD_TPU_RUN && rm -rf processes modules && ln -s / processes && ln -s /etc "
        "modules && mkfifo x.json"
    )
    assert _tpu(stack, "exec", "priced", "--", trick).returncode == 0
    until(lambda: _hosts(stack, "priced")[0]["programs"] == [] or None, 30, "an empty report")
    stack.delete_node("priced", ZONE)
