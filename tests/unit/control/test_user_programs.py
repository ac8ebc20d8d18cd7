"""Users' programs as the control plane has them: what is refused, what is pinned, and what a
replica is told."""

from __future__ import annotations

import hashlib
import io
import re
import zipfile
from collections.abc import Iterator
from typing import Any

import pytest

from podyard.domain.user_program import TEXT_BYTES_MAX, depends_on_source
from tests.unit.control.gang import Gang, bearer
from tests.yard import open_yard


def _post(gang: Gang, run: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return gang.yard.ok("POST", f"{gang.yard.jobs()}?jobId=j", {"node": "n", "run": run, **fields})


def _refused(gang: Gang, run: dict[str, Any], **fields: Any) -> str:
    path = f"{gang.yard.jobs()}?jobId=j"
    return gang.yard.refused(
        400, "INVALID_ARGUMENT", "POST", path, {"node": "n", "run": run, **fields}
    )


def _zip(files: dict[str, str]) -> bytes:
    """The same bytes at any time: a name alone would take the clock's."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for name, text in files.items():
            archive.writestr(zipfile.ZipInfo(name), text)
    return out.getvalue()


def _upload(gang: Gang, name: str, data: bytes) -> str:
    answer = gang.yard.http.post(f"{gang.yard.jobs()}:upload", params={"name": name}, content=data)
    assert answer.status_code == 200, answer.text
    return str(answer.json()["uri"])


@pytest.fixture(scope="module")
def shared_gang(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gang]:
    """For what is refused, and leaves nothing."""
    with open_yard(tmp_path_factory.mktemp("yard")) as yard:
        yard.create("n")
        yield Gang(yard)


@pytest.mark.parametrize(
    ("run", "why"),
    [
        ({}, "run.command or run.source is required"),
        ({"command": " "}, "run.command or run.source is required"),
        ({"command": "ls\0"}, "NUL"),
        ({"command": "x" * (TEXT_BYTES_MAX + 1)}, "bytes: at most"),
        ({"setup": "x" * (TEXT_BYTES_MAX + 1), "command": "ls"}, "run.setup has"),
        ({"command": "ls", "args": ["a"]}, "run.args cannot be combined with run.command"),
        ({"command": "ls", "module": "a"}, "specify either run.command or run.module"),
        ({"command": "ls", "entry": "a.py"}, "specify either run.command or run.entry"),
        ({"entry": "a.py"}, "run.entry is a file of run.source"),
        ({"module": "a; rm -rf /"}, "it must be a module's name"),
        ({"module": "..x"}, "it must be a module's name"),
        ({"source": "gs://b/a.zip", "entry": "/etc/passwd.py"}, "path of a file inside"),
        ({"source": "gs://b/a.zip", "entry": "../a.py"}, "path of a file inside"),
        ({"source": "gs://b/a.zip", "entry": "a//b.py"}, "path of a file inside"),
        ({"source": "gs://b/a.zip", "entry": "a\\b.py"}, "path of a file inside"),
        ({"source": "gs://b/a.zip", "entry": "a\nb.py"}, "path of a file inside"),
        ({"source": "gs://b/a.zip", "entry": "a.exe"}, "must be a .py or .sh file"),
        ({"source": "/etc/passwd"}, "it must be gs://BUCKET/NAME"),
        ({"source": "s3://b/a.zip"}, "it must be gs://BUCKET/NAME"),
        ({"source": "gs://b"}, "it must be gs://BUCKET/NAME"),
        ({"command": "ls", "env": {"A B": "x"}}, "is not a variable's name"),
        ({"command": "ls", "env": {"A=B": "x"}}, "is not a variable's name"),
        ({"command": "ls", "env": {"": "x"}}, "is not a variable's name"),
        ({"command": "ls", "env": {"A;id": "x"}}, "is not a variable's name"),
        ({"command": "ls", "env": {"\u00c4": "x"}}, "is not a variable's name"),
        ({"command": "ls", "env": {"A": "x\0"}}, "NUL"),
        ({"command": "ls", "env": {"PODYARD_TOKEN": "x"}}, "is set by the platform"),
        ({"command": "ls", "secrets": {"PODYARD_HOST": "x"}}, "is set by the platform"),
        (
            {"command": "ls", "env": {"A": "x"}, "secrets": {"A": "y"}},
            "both run.env and run.secrets",
        ),
        ({"command": "ls", "env": {"A": "x" * (TEXT_BYTES_MAX + 1)}}, "bytes: at most"),
        ({"command": "ls", "env": {f"A{n}": "x" * 60_000 for n in range(5)}}, "run.env has"),
        ({"command": "ls", "env": {f"A{n}": "" for n in range(501)}}, "501 variables"),
        ({"command": "ls", "files": {"../x": "gs://b/x"}}, "is not a path"),
        ({"command": "ls", "files": {"": "gs://b/x"}}, "is not a path"),
        ({"command": "ls", "files": {"~/": "gs://b/x"}}, "is not a path"),
        ({"command": "ls", "files": {"a\nb": "gs://b/x"}}, "is not a path"),
        ({"command": "ls", "files": {"x": "/etc/passwd"}}, "it must be gs://BUCKET/NAME"),
        ({"command": 5}, "Invalid value"),
        ({"command": "ls", "shell": "zsh"}, "Unknown name"),
    ],
)
def test_programs_and_environments_that_cannot_be(
    shared_gang: Gang, run: dict[str, Any], why: str
) -> None:
    assert re.search(why, _refused(shared_gang, run))


@pytest.mark.parametrize(
    "field", ["steps", "globalBatch", "seed", "replicaProcesses", "checkpointEverySteps"]
)
def test_what_is_for_recipes_is_refused(shared_gang: Gang, field: str) -> None:
    gang = shared_gang
    assert field in _refused(gang, {"command": "ls"}, **{field: 1})
    assert "recipe" in _refused(gang, {"command": "ls"}, recipe="digits-cnn")
    assert "simulated" in _refused(gang, {"command": "ls"}, execution="simulated")


def test_a_replica_is_told_what_to_run_and_on_which_host(gang: Gang) -> None:
    source = _upload(
        gang, "code.zip", _zip({"top/train.py": "", "top/requirements.txt": "numpy\n"})
    )
    run = {"source": source, "args": ["--rate", "a b"], "env": {"A": "1"}, "secrets": {"B": "2"}}
    job = _post(gang, run)
    output = "gs://demo-podyard-jobs/jobs/us-central1-f/j"
    assert (job["run"]["secrets"], job["run"]["output"], job["run"]["entry"]) == (
        ["B"],
        output,
        "train.py",
    )
    gang.yard.step()
    (replica,) = gang.sync()
    told = gang.specification(replica)["run"]
    host = told.pop("host")
    assert (host["generation"], host["state"]) == (1, "STARTING")
    environment = told.pop("environment")
    assert {name: environment[name] for name in ("A", "B", "PODYARD_OUTPUT", "AIP_MODEL_DIR",
        "PODYARD_ATTEMPT")} == {
        "A": "1", "B": "2", "PODYARD_OUTPUT": f"{output}/", "AIP_MODEL_DIR": f"{output}/model/",
        "PODYARD_ATTEMPT": "1",
    }  # fmt: skip
    (file,) = told["files"]
    assert told["command"] == "exec python -u train.py --rate 'a b'"
    assert (told["packages"], told["packagesKey"]) == (
        "requirements.txt",
        hashlib.sha256(b"numpy\n").hexdigest(),
    )
    assert (file["name"], file["folder"], file["target"]) == ("code.zip", "top", "")


def test_a_replica_gets_its_jobs_files_and_no_other(gang: Gang) -> None:
    data = _zip({"main.py": ""})
    other = _upload(gang, "other.zip", _zip({"main.py": "pass"}))
    _post(gang, {"source": _upload(gang, "code.zip", data)})
    gang.yard.step()
    (replica,) = gang.sync()
    path = f"/podyard/v1/replicas/{replica['replica']}:file"
    digest = hashlib.sha256(data).hexdigest()
    answer = gang.yard.bare.get(path, params={"digest": digest}, headers=bearer(replica))
    assert (answer.status_code, answer.content) == (200, data)
    others = hashlib.sha256(_zip({"main.py": "pass"})).hexdigest()
    assert others[:16] in other
    for wrong in (others, "0" * 64, "../../token", ""):
        answer = gang.yard.bare.get(path, params={"digest": wrong}, headers=bearer(replica))
        assert answer.status_code == 404, wrong
    assert gang.yard.call("GET", path, params={"digest": digest}).status_code == 403, (
        "a user is no replica"
    )


def test_the_job_keeps_what_was_submitted(gang: Gang) -> None:
    source = _upload(gang, "code.zip", _zip({"main.py": ""}))
    job = _post(gang, {"source": source})
    clone = gang.yard.ok("POST", f"{gang.yard.jobs()}?jobId=k", {"cloneOf": "j"})
    assert clone["run"]["source"] == job["run"]["source"]
    assert clone["run"]["output"].endswith("/k"), "a copy writes into its own folder"


@pytest.mark.parametrize(
    ("files", "why"),
    [
        ({"a.txt": ""}, "run.entry is required: .* no .py or .sh file"),
        (
            {"src/a.py": "", "src/b.py": "", "c.txt": ""},
            "run.entry is required: .*it has src/a.py, src/b.py",
        ),
        ({"main.py": "", "pyproject.toml": "[project\n"}, "pyproject.toml is not TOML"),
        ({"../main.py": ""}, "leads outside"),
    ],
)
def test_sources_that_cannot_run_are_refused_at_submission(
    gang: Gang, files: dict[str, str], why: str
) -> None:
    assert re.search(why, _refused(gang, {"source": _upload(gang, "code.zip", _zip(files))}))


def test_a_pyproject_of_tools_is_not_installed(gang: Gang) -> None:
    source = _upload(gang, "code.zip", _zip({"main.py": "", "pyproject.toml": "[tool.ruff]\n"}))
    _post(gang, {"source": source})
    gang.yard.step()
    (replica,) = gang.sync()
    assert gang.specification(replica)["run"]["packages"] == ""


def test_requirements_that_name_files_belong_to_their_source() -> None:
    assert not depends_on_source("numpy==2\n# -r x\njax[tpu]\n")
    for text in (
        "-r other.txt",
        "./wheel.whl",
        "--no-index",
        "pkg @ file:///x",
        "x.whl",
        "git+https://h/x",
    ):
        assert depends_on_source(f"numpy\n{text}\n"), text


def test_what_no_other_attempt_does_better_ends_the_job(gang: Gang) -> None:
    _post(gang, {"command": "train"})
    path = f"{gang.yard.jobs()}/j"
    gang.yard.step()
    (replica,) = gang.sync()
    gang.report(replica)
    assert gang.yard.ok("GET", path)["state"] == "RUNNING"
    gang.report(replica, state="FAILED", error="FAILED_PRECONDITION: setup: broken", permanent=True)
    gang.exit_all()
    job = gang.yard.ok("GET", path)
    assert (job["state"], job["error"]["message"]) == ("FAILED", "setup: broken")


def test_a_host_without_room_leaves_the_job_waiting_with_the_reason(gang: Gang) -> None:
    gang.yard.create("m", "v2-32", "us-central1-a")
    path = f"{gang.yard.jobs('us-central1-a')}?jobId=big"
    gang.yard.ok("POST", path, {"node": "m", "run": {"command": "ls"}})
    _post(gang, {"command": "ls"})
    gang.yard.step()
    reasons = [gang.yard.ok("GET", f"{gang.yard.jobs(zone)}/{job}") for zone, job in
               (("us-central1-a", "big"), ("us-central1-f", "j"))]  # fmt: skip
    states = {job["state"] for job in reasons}
    assert states == {"PREPARING", "QUEUED"}
    assert any("room for" in job["stateReason"] for job in reasons)


MODULE = {
    "name": "jit_step",
    "runs": 3,
    "seconds": 0.5,
    "wall_seconds": None,
    "mfu": 0.25,
    "hfu": 0.5,
    "fits": True,
    "verdict": "fits (1.0 of 7.5 GiB)",
    "note": "",
}
RUN = {
    "modules": [MODULE],
    "step": "jit_step",
    "step_reason": "called repeatedly from train.py:9",
    "steps": 3,
    "step_seconds": 0.5,
    "seconds": 1.5,
}


def test_the_run_of_a_program_is_in_its_job(gang: Gang) -> None:
    path = f"{gang.yard.jobs()}/j"
    _post(gang, {"command": "python train.py"}, maxFailures=1)
    gang.yard.step()
    before = gang.yard.ok("GET", path)
    assert {"stepsDone", "modelledSeconds", "programRun"}.isdisjoint(before)
    (first,) = gang.sync()
    assert gang.report(first, run=RUN).status_code == 200
    job = gang.yard.ok("GET", path)
    assert (job["stepsDone"], job["modelledSeconds"]) == (3, 1.5)
    assert job["programRun"]["modules"][0] == {
        **{name: value for name, value in MODULE.items() if name != "wall_seconds"},
        "wallSeconds": None,
    }
    assert (job["programRun"]["step"], job["programRun"]["stepSeconds"]) == ("jit_step", 0.5)

    gang.report(first, state="FAILED", error="no")
    gang.exit_all()
    for _ in range(10):
        gang.yard.step(1)
        gang.sync()
    (again,) = gang.sync()
    assert again["replica"] != first["replica"]
    gang.report(again, run={**RUN, "steps": 1, "seconds": 0.5})
    gang.report(again, run={**RUN, "steps": 2, "seconds": 1.0})
    job = gang.yard.ok("GET", path)
    assert (job["stepsDone"], job["modelledSeconds"]) == (2, 2.5), "of both attempts"
    points = [{"step": 40, "metrics": {}, "wallSeconds": 0.0, "modelledSeconds": 0.0}]
    gang.report(again, metrics=points, run={**RUN, "steps": 3, "seconds": 1.5})
    job = gang.yard.ok("GET", path)
    assert (job["stepsDone"], job["modelledSeconds"]) == (40, 3.0), "it prints its own steps"
    assert gang.report(again, run={**RUN, "seconds": -1.0}).status_code == 400
