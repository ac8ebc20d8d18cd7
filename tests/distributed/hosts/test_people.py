"""People on hosts: accounts by the keys of metadata, in boxes of root and without root."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from podyard.base.boxes import why_not
from tests.conftest import require
from tests.distributed.boxes import ZONE, hosts, run_on
from tests.distributed.hosts.people import KeyHolder
from tests.ordinary_user import UserStack, make_user
from tests.stack import Stack, open_stack, until

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("stack")]
NODE = f"/v2/projects/demo/locations/{ZONE}/nodes/one"


@pytest.fixture(scope="module", params=["root", "user"])
def stack(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Stack]:
    require(shutil.which("ssh"), "the ssh client")
    if request.param == "user":
        with make_user() as (name, home):
            yard = UserStack(home / "data", name, {"PODYARD_BOXES": "on"})
            try:
                yard.up()
                yard.create_node("one", "v3-8", ZONE)
                yield yard
            finally:
                yard.down()
                yard.http.close()
        return
    needs = why_not("on") if os.geteuid() == 0 else "root"
    require(None if needs else "boxes", f"root, and what boxes need ({needs})")
    with open_stack(tmp_path_factory.mktemp("people"), {"PODYARD_BOXES": "on"}) as yard:
        yard.create_node("one", "v3-8", ZONE)
        yield yard


@pytest.fixture
def person(stack: Stack, tmp_path: Path) -> KeyHolder:
    assert run_on(stack, "one", "true").returncode == 0  # adds the key of `podyard tpu`
    host = hosts(stack, "one")[0]
    return KeyHolder(tmp_path, (host["address"], host["ports"]["ssh"]))


def _set_keys(stack: Stack, **metadata: str) -> None:
    named = {name.replace("_", "-"): text for name, text in metadata.items()}
    stack.call("PATCH", f"{NODE}?updateMask=metadata", {"metadata": named})


def _is_root(stack: Stack) -> bool:
    return not isinstance(stack, UserStack)


def test_somebody_with_a_key_is_a_user_of_the_host(
    stack: Stack, person: KeyHolder, tmp_path: Path
) -> None:
    _set_keys(stack, ssh_keys="\n".join(f"{name}:{person.public}" for name in ("user1", "ann.b")))
    who = "whoami; pwd; echo ~ $HOME $USER $LOGNAME; sudo -n whoami; sudo -n -u user1 whoami"
    done = person.ssh(
        "user1", f"{who}; id -un; id -gn; touch x; stat -c %U:%G x; cat .profile | wc -l"
    )
    home = "/home/user1"
    lines = done.stdout.splitlines()
    assert lines[:3] == ["user1", home, f"{home} {home} user1 user1"], done.stderr
    assert lines[3:8] == ["root", "user1", "user1", "user1", "user1:user1"], done.stderr
    # The same home the next time, another one for another name, and a copy into it.
    copied = tmp_path / "file"
    copied.write_text("copied\n")
    assert person.scp(copied, "user1", "there").returncode == 0
    assert person.scp(copied, "user1", "~/here").returncode == 0
    done = person.ssh("user1", "cat there here; stat -c %U there; ls x")
    assert done.stdout.split() == ["copied", "copied", "user1", "x"], done.stderr
    done = person.ssh("ann.b", "pwd; ls ~; cat /home/user1/there; echo >> /home/user1/there")
    assert done.stdout == "/home/ann.b\ncopied\n", done.stderr
    assert (done.returncode != 0) is _is_root(stack)
    done = person.ssh("user1", "tty && stat -c %U $(tty) && whoami", options=("-tt",))
    assert done.stdout.split()[1:] == ["user1", "user1"], (done.stdout, done.stderr)
    done = person.ssh("user1", "id; getent group google-sudoers")
    mine, group = done.stdout.splitlines()
    assert ("(google-sudoers)" in mine) is _is_root(stack)
    assert sorted(group.rpartition(":")[2].split(",")) == ["ann.b", "user1"]
    # The first user is there as before, and knows the others.
    done = run_on(stack, "one", "id -un; id -Gn user1; pwd")
    assert done.stdout.split()[:2] == ["podyard", "user1"] and "/home/podyard" in done.stdout


def test_what_somebody_installs_is_theirs(stack: Stack, person: KeyHolder) -> None:
    _set_keys(stack, ssh_keys=f"user1:{person.public}")
    has_pip = "python -c 'import sys, setuptools, pip; assert pip.__file__.startswith(sys.prefix)'"
    if run_on(stack, "one", has_pip).returncode:
        pytest.skip("this environment has no pip or setuptools")
    setup = 'from setuptools import setup; setup(name="own", version="1", py_modules=["own_thing"])'
    make = f"mkdir -p own && cd own && touch own_thing.py && echo '{setup}' > setup.py"
    install = "pip install -q --no-build-isolation --no-index --no-deps . && cd"
    show = "python -c 'import own_thing, asyncssh; print(own_thing.__file__)'"
    done = person.ssh("user1", f"{make} && {install} && {show}")
    assert done.stdout.startswith("/home/user1/.local/lib/python3"), done.stderr
    assert run_on(stack, "one", "python -c 'import own_thing'").returncode == 1


def test_programs_of_several_people_are_reported(stack: Stack, person: KeyHolder) -> None:
    _set_keys(stack, ssh_keys=f"user1:{person.public}")
    program = "import jax; print(float(jax.jit(lambda x: x * {})(2.0)), jax.device_count())"
    for number, run in (
        (2, lambda c: run_on(stack, "one", c)),
        (3, lambda c: person.ssh("user1", c)),
    ):
        done = run(f'python -c "{program.format(number)}"')
        assert done.stdout == f"{2.0 * number} 8\n", done.stderr
    owners = run_on(stack, "one", "stat -c %U /podyard/programs/processes/* | sort -u").stdout
    assert owners.split() == (["podyard", "user1"] if _is_root(stack) else ["podyard"])


def test_names_that_are_not_people_are_refused_in_a_sentence(
    stack: Stack, person: KeyHolder
) -> None:
    names = ("root", "daemon", "-x", "1234")
    _set_keys(stack, ssh_keys="\n".join(f"{name}:{person.public}" for name in names))
    for name, why in (
        ("daemon", "'daemon' is a user of the system"),
        ("1234", "'1234' is not a user name of Linux"),
    ):
        done = person.ssh(name, "echo in")
        assert (done.returncode, done.stdout) == (1, "") and why in done.stderr, done
    # as gcloud names who runs it as root
    assert person.ssh("root", "whoami; pwd").stdout == "podyard\n/home/podyard\n"


def test_a_key_opens_as_long_as_metadata_has_it(stack: Stack, person: KeyHolder) -> None:
    def opens(name: str = "user1") -> bool:
        done = person.ssh(name, "whoami")
        assert (done.returncode, done.stdout) in ((0, f"{name}\n"), (255, "")), done.stderr
        return done.returncode == 0

    def closes(name: str = "user1") -> bool | None:
        return not opens(name) or None

    def give_project(text: str) -> None:
        project = stack.call("GET", "/compute/v1/projects/demo")["commonInstanceMetadata"]
        items = [{"key": "ssh-keys", "value": text}] if text else []
        body = {"fingerprint": project["fingerprint"], "items": items}
        stack.call("POST", "/compute/v1/projects/demo/setCommonInstanceMetadata", body)

    _set_keys(stack, ssh_keys=f"user1:{person.public}")
    assert opens() and not opens("user2")
    expiring = 'google-ssh {{"userName":"a@example.com","expireOn":"{}-01-01T00:00:00+0000"}}'
    _set_keys(stack, ssh_keys=f"user1:{person.public} {expiring.format(2020)}")
    assert until(closes, 20, "the end of an expired key")
    _set_keys(stack, ssh_keys=f"user1:{person.public} {expiring.format(2090)}")
    assert opens()
    _set_keys(stack)
    assert until(closes, 20, "the end of a key that was removed")
    give_project(f"user2:{person.public}")
    assert opens("user2")
    _set_keys(stack, block_project_ssh_keys="TRUE")
    assert until(lambda: closes("user2"), 20, "the end of a key that is blocked")
    give_project("")


def test_scripts_find_the_accounts_before_anybody_has_logged_in(
    stack: Stack, person: KeyHolder
) -> None:
    keys = f"early:{person.public}"
    script = (
        "#!/bin/sh\ncd; (id -un early; sudo -n -u early sh -c 'cd; touch x; ls -d $PWD/x') >said"
    )
    stack.create_node("two", "v3-8", ZONE, metadata={"ssh-keys": keys, "startup-script": script})

    def is_done() -> bool | None:
        state = hosts(stack, "two")[0]["scripts"].get("startup-script", {}).get("state")
        return state == "DONE" or None

    until(is_done, 60, "the script")
    assert run_on(stack, "two", "cat said").stdout == "early\n/home/early/x\n"


def test_df_and_lsblk_show_the_disks_of_the_host_and_nothing_of_the_machine(stack: Stack) -> None:
    def rows(command: str) -> list[list[str]]:
        done = run_on(stack, "one", command)
        assert done.returncode == 0, done.stderr
        return [line.split() for line in done.stdout.splitlines()]

    head, boot, *others = rows("df -hT")
    assert head[:7] == ["Filesystem", "Type", "Size", "Used", "Avail", "Use%", "Mounted"]
    assert (boot[:3], boot[6]) == (["/dev/sda", "ext4", "100G"], "/")
    assert {row[0] for row in others} == {"tmpfs"}
    assert {row[6] for row in others} == {"/run", "/dev/shm"}
    assert rows("lsblk -n")[0] == ["sda", "100G", "0", "disk", "/"]
    for path in ("/", ".", "/usr/bin", "/tmp"):
        (_, row) = rows(f"df -k {path}")
        assert row[:2] == ["/dev/sda", str(100 << 20)] and row[5] == "/"
    free = int(rows("df --output=avail -BG / | tail -1")[0][0].removesuffix("G"))
    assert 0 < free <= 100
    used = int(rows("df -m --output=used /")[1][0])
    assert rows("head -c 64M /dev/urandom > filled && df -m --output=used /")[1] == [str(used + 64)]
    done = run_on(stack, "one", "df /nowhere; df --sync")
    assert "df: /nowhere: No such file or directory" in done.stderr
    assert "df: --sync is not supported: use -h" in done.stderr
