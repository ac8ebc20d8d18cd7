"""What users bring with their jobs: files, folders, archives, wheels and job files, from the
command line on."""

from __future__ import annotations

import http.client
import json
import re
import subprocess
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.stack import PODYARD, Stack, open_stack, until
from tests.unit.test_job_file import TASKS
from tests.waiting import patient

ZONE = "europe-west4-a"
HOSTS = 4
TRAIN = """
import os, sys
import tinypkg
from model import layers
print("trained", *sys.argv[1:], layers.COUNT, tinypkg.VALUE, os.environ["PODYARD_OUTPUT"])
"""
pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("stack")]


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory, boxes: str) -> Iterator[Stack]:
    with open_stack(
        tmp_path_factory.mktemp("sources"), {"PODYARD_BOXES": boxes, "PODYARD_RUNTIMES": "off"}
    ) as found:
        found.create_node("slice", "v3-32", ZONE)
        yield found


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A folder with a program, a package of its own, and a wheel that it needs."""
    folder = tmp_path / "source"
    (folder / "model").mkdir(parents=True)
    (folder / "train.py").write_text(TRAIN)
    (folder / "model" / "layers.py").write_text("COUNT = 5\n")
    (folder / "requirements.txt").write_text("--no-index\n./wheels/tinypkg-1.0-py3-none-any.whl\n")
    (folder / "wheels").mkdir()
    _wheel(folder / "wheels" / "tinypkg-1.0-py3-none-any.whl")
    return folder


def _wheel(path: Path) -> None:
    said = {
        "METADATA": "Metadata-Version: 2.1\nName: tinypkg\nVersion: 1.0\n",
        "WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        "RECORD": "",
    }
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(
            "tinypkg.py", "VALUE = 7\nif __name__ == '__main__':\n    print('from the wheel')\n"
        )
        for name, text in said.items():
            archive.writestr(f"tinypkg-1.0.dist-info/{name}", text)


def _job(
    stack: Stack, *arguments: str, cwd: Path | None = None
) -> subprocess.CompletedProcess[str]:
    command, *rest = arguments
    argv = [
        *PODYARD,
        "job",
        command,
        "--data",
        str(stack.data),
        "--node",
        "slice",
        "--zone",
        ZONE,
        "--wait",
        *rest,
    ]
    return subprocess.run(argv, capture_output=True, text=True, timeout=patient(180), cwd=cwd)


def _submit(stack: Stack, *arguments: str) -> subprocess.CompletedProcess[str]:
    return _job(stack, "submit", *arguments)


def _path(job: str) -> str:
    return f"/podyard/v1/projects/demo/locations/{ZONE}/jobs/{job}"


def _counts(stack: Stack, job: str, text: str) -> int:
    return sum(text in line for line in stack.log_lines(_path(job)))


def test_a_folder_with_its_packages_runs_on_all_hosts_and_is_installed_once(
    stack: Stack, source: Path
) -> None:
    done = _submit(stack, "folder", "--run", str(source), "--", "--epochs", "3")
    assert done.returncode == 0, done.stderr
    output = f"gs://demo-podyard-jobs/jobs/{ZONE}/folder/"
    assert _counts(stack, "folder", f"trained --epochs 3 5 7 {output}") == HOSTS
    assert _counts(stack, "folder", "requirements.txt: installing packages") == 1
    run: dict[str, Any] = stack.call("GET", _path("folder"))["run"]
    assert (run["entry"], run["args"], len(run["source"]["sha256"])) == (
        "train.py",
        ["--epochs", "3"],
        64,
    )
    assert _submit(stack, "again", "--run", str(source)).returncode == 0
    assert _counts(stack, "again", "installing packages") == 0


@pytest.mark.parametrize("kind", ["file", "zip", "wheel", "gs"])
def test_other_sources(stack: Stack, source: Path, kind: str) -> None:
    if kind == "wheel":
        arguments = [
            "--run",
            str(source / "wheels" / "tinypkg-1.0-py3-none-any.whl"),
            "-m",
            "tinypkg",
        ]
    elif kind == "file":
        (source / "one.py").write_text("print('from the wheel')")
        arguments = ["--run", str(source / "one.py")]
    else:
        with zipfile.ZipFile(source / "packed.zip", "w") as archive:
            archive.writestr("top/deep/run.sh", "echo from the wheel")
        arguments = ["--run", str(source / "packed.zip"), "--entry", "deep/run.sh"]
        if kind == "gs":
            sent = stack.http.post(
                f"{_path('').removesuffix('/')}:upload?name=packed.zip",
                content=(source / "packed.zip").read_bytes(),
            )
            arguments[1] = sent.json()["uri"]
    done = _submit(stack, f"from-{kind}", *arguments)
    assert done.returncode == 0, done.stderr
    assert _counts(stack, f"from-{kind}", "from the wheel") == HOSTS


def test_what_cannot_be_installed_ends_the_job_with_the_reason_and_no_second_attempt(
    stack: Stack, source: Path
) -> None:
    (source / "requirements.txt").write_text("--no-index\nno-such-package==9\n")
    done = _submit(stack, "uninstallable", "--run", str(source))
    assert done.returncode == 1
    job = stack.call("GET", _path("uninstallable"))
    assert (job["state"], job["attempt"]) == ("FAILED", 1), job
    assert "No matching distribution found for no-such-package==9" in job["error"]["message"]


def test_wheels_in_a_folder_are_installed_by_name(stack: Stack, source: Path, boxes: str) -> None:
    if boxes == "off":
        pytest.skip("without boxes pip asks the index, too")
    (source / "requirements.txt").write_text("tinypkg\n")
    (source / "main.py").write_text("import tinypkg\nprint('value', tinypkg.VALUE)\n")
    for name in ("optparse", "queue"):  # which pip would import
        (source / f"{name}.py").write_text("raise ImportError('the user's own')\n")
    done = _submit(stack, "by-name", "--run", str(source), "--entry", "main.py")
    assert done.returncode == 0, done.stderr
    assert _counts(stack, "by-name", "value 7") == HOSTS


def test_without_a_network_the_reason_names_the_setting(
    stack: Stack, source: Path, boxes: str
) -> None:
    if boxes == "off":
        pytest.skip("without boxes hosts have the network of the machine")
    (source / "wheels" / "tinypkg-1.0-py3-none-any.whl").unlink()
    (source / "requirements.txt").write_text("tinypkg\n")
    done = _submit(stack, "no-network", "--run", str(source))
    assert done.returncode == 1
    message = stack.call("GET", _path("no-network"))["error"]["message"]
    assert "No matching distribution found for tinypkg" in message
    assert "set PODYARD_BOX_NETWORK=public, or put the wheels" in message


def test_setup_that_fails_is_not_tried_again(stack: Stack) -> None:
    done = _submit(
        stack, "bad-setup", "--command", "echo never", "--setup", "echo broken >&2; exit 4"
    )
    assert done.returncode == 1
    job = stack.call("GET", _path("bad-setup"))
    assert job["attempt"] == 1
    assert "setup: the program ended with exit code 4: broken" in job["error"]["message"]


def test_bad_sources_are_refused_and_leave_no_job(
    stack: Stack, source: Path, tmp_path: Path
) -> None:
    link = tmp_path / "linked"
    link.mkdir()
    (link / "secret").symlink_to("/etc/passwd")
    for arguments, why in (
        (
            ["--run", str(source), "--entry", "nope.py"],
            "run.entry 'nope.py' is not in run.source; it has train.py",
        ),
        (
            ["--run", str(source / "missing")],
            "does not exist: name a file, a folder or a gs:// object",
        ),
        (["--run", str(link)], "is a link that leads out of"),
        (["--run", "gs://demo-podyard-jobs/none.zip"], "No such object"),
        (["--run", "gs://somebody-elses/x.zip"], "The specified bucket does not exist"),
        (["--run", str(source / "requirements.txt")], "is not an archive or a program"),
        (
            ["--run", str(source), "--command", "ls", "-m", "x"],
            "specify either run.command or run.module",
        ),
        (["--command", "ls", "--env", "PODYARD_URL=x"], "is set by the platform"),
        (["--command", "ls", "--env", "A-B=x"], "is not a variable's name"),
        (["--command", "ls", "--steps", "5"], "steps cannot be used with run"),
        (["--command", "ls", "--", "--x"], "run.args cannot be combined with run.command"),
    ):
        done = _submit(stack, "refused", *arguments)
        assert done.returncode != 0, arguments
        assert why in done.stderr, done.stderr
    assert stack.http.get(_path("refused")).status_code == 404


def test_a_job_file_runs_as_sky_users_know_it(stack: Stack, source: Path, tmp_path: Path) -> None:
    (source / "requirements.txt").unlink()
    (tmp_path / "note.txt").write_text("from this machine")
    task = tmp_path / "task.yaml"
    task.write_text(
        """
name: sky_task
workdir: source
resources: {accelerators: tpu-v3-32, disk_size: 100}
envs: {MODEL: null, SIZE: 13}
secrets: {TOKEN: hidden}
file_mounts:
  ~/notes/note.txt: note.txt
  ~/code: source/model
setup: echo set up $SIZE
run: |
  cd ~/sky_workdir && ls train.py
  cat ~/notes/note.txt ~/code/layers.py
  echo rank $SKYPILOT_NODE_RANK of $SKYPILOT_NUM_NODES $MODEL ${#TOKEN}
"""
    )
    done = _job(stack, "launch", str(task), "--env", "MODEL=llama", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "resources.disk_size has no effect" in done.stderr
    lines = stack.log_lines(_path("sky-task"))
    ranks = sorted(line for line in lines if line.startswith("rank"))
    assert ranks == [f"rank {n} of 4 llama 6" for n in range(HOSTS)]
    assert lines.count("train.py") == lines.count("set up 13") == HOSTS
    assert sum("from this machineCOUNT = 5" in line for line in lines) == HOSTS
    assert "hidden" not in str(stack.call("GET", _path("sky-task")))
    task.write_text(task.read_text().replace("disk_size", "max_hourly_cost"))
    done = _job(stack, "launch", str(task), "--env", "MODEL=llama", cwd=tmp_path)
    assert "task.yaml: line 4: resources.max_hourly_cost is not supported" in done.stderr


def test_a_file_is_dropped_into_the_console_without_any_script(stack: Stack) -> None:
    form = "/console/demo/jobs/program"
    with httpx.Client(
        base_url=stack.url,
        headers={"Origin": stack.url},
        follow_redirects=True,
        timeout=patient(30),
        trust_env=False,
    ) as visitor:
        visitor.post("/login", data={"token": stack.token})
        shown = visitor.get(form, params={"command": "ls", "node": f"{ZONE}/slice"}).text
        assert "podyard job submit" in shown
        token = re.search(r'name="csrf_token" value="([0-9a-f]{64})"', shown)
        assert token is not None
        fields = {
            "csrf_token": token[1],
            "job_id": "dropped",
            "node": f"{ZONE}/slice",
            "args": "--name 'a b'",
        }
        files = {"file": ("train.py", b"import os, sys\nprint(sys.argv, os.environ['KEY'])\n")}
        refused = visitor.post(form, data={**fields, "env": "KEY"}, files=files)
        assert refused.status_code == 400 and "must be NAME=VALUE" in refused.text
        assert 'value="gs://demo-podyard-jobs/sources/' in refused.text, (
            "the file need not be sent again"
        )
        assert visitor.post(form, data={"job_id": "dropped"}, files=files).status_code == 403, (
            "no CSRF token"
        )
        hostile = {"file": ("train.zip", b"PK not a zip")}
        refused = visitor.post(form, data=fields, files=hostile)
        assert refused.status_code == 400 and "it is damaged" in refused.text
        taken = visitor.post(form, data={**fields, "env": "KEY=value"}, files=files)
        assert taken.url.path == f"/console/demo/jobs/{ZONE}/dropped", taken.text
    assert stack.wait_job(_path("dropped"))["state"] == "SUCCEEDED"
    assert _counts(stack, "dropped", "['train.py', '--name', 'a b'] value") == HOSTS


def test_uploads_are_checked_before_and_while_they_come(stack: Stack) -> None:
    path = f"{_path('').removesuffix('/')}:upload"
    for name, status in (("../x.py", 400), ("a/b.py", 400), ("", 400), ("x" * 201, 400)):
        assert stack.http.post(path, params={"name": name}, content=b"x").status_code == status
    connection = http.client.HTTPConnection(stack.url.removeprefix("http://"))
    connection.putrequest("POST", f"{path}?name=a.py")
    connection.putheader("Authorization", f"Bearer {stack.token}")
    connection.putheader("Content-Length", str(1 << 40))
    connection.endheaders()
    assert connection.getresponse().status == 413
    connection.close()
    with pytest.raises(RuntimeError, match="cut off"):
        stack.http.post(f"{path}?name=a.py", content=_cut_off())
    partial = stack.data / "contents" / "partial"
    until(lambda: None if list(partial.iterdir()) else True, 10, "the end of what was cut off")


def _cut_off() -> Iterator[bytes]:
    yield bytes(1 << 21)
    raise RuntimeError("cut off")


def test_places_are_tried_in_their_order_and_files_lie_where_the_task_says(
    stack: Stack, boxes: str, tmp_path: Path
) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "a.txt").write_text("from a folder\n")
    task = tmp_path / "task.yaml"
    task.write_text(
        """
resources:
  ordered:
    - {infra: gcp/us-west4, accelerators: tpu-v2-8}
    - {region: us-central1, accelerators: tpu-v2-8}
file_mounts: {/data/in: data, notes/b.txt: data/a.txt}
run: cat /data/in/a.txt notes/b.txt && touch mine && stat -c %U . /data/in
"""
    )
    argv = [
        *PODYARD,
        "job",
        "launch",
        str(task),
        "--name",
        "placed",
        "--data",
        str(stack.data),
        "--wait",
    ]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=patient(120), cwd=tmp_path)
    assert "v2-8 is not offered in region us-west4" in done.stderr
    job = stack.call("GET", _path("placed").replace(ZONE, "-"))
    if boxes == "off":
        assert done.returncode == 1
        assert "a host without a box shares the machine's files" in job["error"]["message"]
        return
    assert done.returncode == 0, done.stderr
    assert job["name"].split("/")[3].startswith("us-central1")
    lines = stack.log_lines(f"/podyard/v1/{job['name']}")
    assert lines == ["from a folder", "from a folder", "podyard", "root"]


def test_the_tasks_of_skypilots_documentation_run(stack: Stack, boxes: str, tmp_path: Path) -> None:
    # Some of its paths are absolute: hosts without boxes take none.
    tasks = {name: text for name, text in TASKS.items() if boxes == "on" or name != "file_mounts"}
    code = tmp_path / "examples" / "tpu" / "tpu_app_code"
    for folder in (code, tmp_path / "local" / "path", tmp_path / "tmp-workdir"):
        folder.mkdir(parents=True)
        (folder / "run.py").write_text("print('trained')")
        (folder / "requirements.txt").touch()
    (tmp_path / "run.py").write_text("print('trained')")
    uri = stack.http.post(
        f"{_path('').removesuffix('/')}:upload?name=data.csv", content=b"1,2"
    ).json()["uri"]
    bucket = uri.removeprefix("gs://").removesuffix("/data.csv")
    names = []
    for name, text in tasks.items():
        (tmp_path / "task.yaml").write_text(text)
        argv = [
            *PODYARD,
            "job",
            "launch",
            "task.yaml",
            "--data",
            str(stack.data),
            "--name",
            name.replace("_", "-"),
        ]
        argv += ["--secret", "HF_TOKEN=secret", "--env", f"MY_BUCKET={bucket}", "-o", "json"]
        done = subprocess.run(
            argv, capture_output=True, text=True, timeout=patient(60), cwd=tmp_path
        )
        assert done.returncode == 0, done.stderr
        names.append(json.loads(done.stdout)["name"])
    for name in names:
        job = stack.wait_job(f"/podyard/v1/{name}", 240)
        assert job["state"] == "SUCCEEDED", job
