"""The files of deploy/: what can be checked without a container engine, and the image's steps on a
Debian base.

`make image` runs the latter: it downloads a base and takes minutes.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from podyard.cli.tools.stack import up
from podyard.settings import ROLES, from_environment, roles_of
from podyard.stack.roles import check
from tests.conftest import require

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
COMPOSE = yaml.safe_load((DEPLOY / "compose.yaml").read_text(encoding="utf-8"))
IMAGE_SECONDS_MAX = 1800
SETTINGS = (ROOT / "podyard" / "settings.py").read_text(encoding="utf-8")


def test_compose_runs_all_roles_and_every_command_is_one_of_podyard() -> None:
    roles: list[str] = []
    for name, service in COMPOSE["services"].items():
        command = service.get("command", [])
        if command[:1] != ["up"]:
            continue
        given = up.make_context("up", command[1:]).params
        env = dict.fromkeys(service["environment"], "postgresql://db/x")
        settings = from_environment({**env, "PODYARD_ROLES": given["roles"]})
        check(settings)
        roles += settings.roles
        assert f"{name}:/data" in service["volumes"] or "data:/data" in service["volumes"]
    assert sorted(roles) == ["api", "loop", "loop", "storage"]
    assert {"agent-1", "agent-2", "postgres", "redis"} <= COMPOSE["services"].keys()
    services = COMPOSE["services"].values()
    named = {volume.split(":")[0] for service in services for volume in service.get("volumes", [])}
    assert named == COMPOSE["volumes"].keys()


def test_every_variable_of_deployments_is_a_setting() -> None:
    texts = [path.read_text(encoding="utf-8") for path in DEPLOY.rglob("*") if path.is_file()]
    named = set(re.findall(r"PODYARD_[A-Z_]+", "\n".join(texts)))
    assert {"PODYARD_DATA", "PODYARD_DATABASE_URL", "PODYARD_ROLES"} <= named
    assert {name for name in named if name not in SETTINGS} == {"PODYARD_UID"}  # of build.sh alone
    assert roles_of("api,loop,storage") == ("api", "loop", "storage")
    assert len(ROLES) == 5


@pytest.mark.parametrize("unit", ["podyard.service", "podyard-agent.service"])
def test_systemd_takes_the_units(unit: str, tmp_path: Path) -> None:
    analyze = require(shutil.which("systemd-analyze"), "systemd")
    text = (DEPLOY / "systemd" / unit).read_text(encoding="utf-8")
    assert text.count("/usr/local/bin/podyard ") == 1
    copy = tmp_path / unit
    copy.write_text(text.replace("/usr/local/bin/podyard ", f"{sys.executable} "))
    done = subprocess.run([analyze, "verify", str(copy)], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    bad = tmp_path / "bad.service"
    bad.write_text(copy.read_text().replace("ExecStart=", "ExecBegin="))
    assert subprocess.run([analyze, "verify", str(bad)], capture_output=True).returncode != 0


def test_the_dockerfile_has_no_step_of_its_own() -> None:
    lines = (DEPLOY / "image" / "Dockerfile").read_text(encoding="utf-8").splitlines()
    assert [line for line in lines if line.startswith("RUN ")] == [
        "RUN sh /tmp/source/deploy/image/build.sh /tmp/source && rm -rf /tmp/source"
    ]
    assert subprocess.run(["sh", "-n", DEPLOY / "image" / "build.sh"]).returncode == 0


@pytest.fixture
def base(tmp_path: Path) -> Iterator[Path]:
    """A Debian base, as the image's: PODYARD_TEST_IMAGE names one, or `new` makes one."""
    wanted = os.environ.get("PODYARD_TEST_IMAGE")
    if not wanted:
        pytest.skip("PODYARD_TEST_IMAGE is not set: `make image` runs this")
    if os.geteuid() != 0:
        pytest.skip("a base needs root")
    folder = tmp_path / "base"
    if wanted == "new":
        debootstrap = require(shutil.which("debootstrap"), "debootstrap")
        command = [
            debootstrap,
            "--variant=minbase",
            "--include=ca-certificates",
            "bookworm",
            str(folder),
        ]
        subprocess.run(command, check=True, capture_output=True, timeout=IMAGE_SECONDS_MAX)
    else:
        subprocess.run(["cp", "--archive", wanted, str(folder)], check=True)
    yield folder
    shutil.rmtree(folder)


@pytest.mark.slow
def test_the_steps_of_the_image_run_on_a_debian_base(base: Path, tmp_path: Path) -> None:
    wheels = base / "tmp" / "wheels"
    wheels.mkdir()
    # Debian 12 has Python 3.11.2, with which redis needs one package more than with this one.
    wanted = [f"{ROOT}[postgres]", "async-timeout"]
    pip = [sys.executable, "-m", "pip", "wheel", "--quiet", "--wheel-dir", str(wheels), *wanted]
    subprocess.run(pip, check=True, timeout=IMAGE_SECONDS_MAX)
    (wheel,) = wheels.glob("podyard-*.whl")
    shutil.copy(DEPLOY / "image" / "build.sh", base / "tmp" / "build.sh")
    shutil.copy("/etc/resolv.conf", base / "etc" / "resolv.conf")
    inside = f"/tmp/wheels/{wheel.name}"
    env = {
        "PATH": "/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        "WHEELS": "/tmp/wheels",
        "EXTRAS": "postgres",
        "HOME": "/root",
    }
    # In namespaces of its own: nothing that it mounts or leaves running outlives it.
    jail = [
        "unshare",
        "--mount",
        "--pid",
        "--fork",
        "--kill-child",
        "--mount-proc",
        f"--root={base}",
    ]
    done = subprocess.run(
        [*jail, "sh", "/tmp/build.sh", inside],
        env=env,
        capture_output=True,
        text=True,
        timeout=IMAGE_SECONDS_MAX,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    assert done.stdout.splitlines()[-1].startswith("podyard, version ")
    script = (
        "podyard up --data /data --port 0 --grpc-port 0 --storage-port 0 --detach && "
        "podyard doctor --data /data; podyard down --data /data && id -un && ls -ld /data"
    )
    run = [*jail, "runuser", "-u", "podyard", "--", "sh", "-c", script]
    done = subprocess.run(run, env=env, capture_output=True, text=True, timeout=IMAGE_SECONDS_MAX)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    assert "Podyard is ready" in done.stderr
    assert re.search(r"^loop +ok", done.stdout, re.MULTILINE), done.stdout
    assert "drwx------ " in done.stdout
