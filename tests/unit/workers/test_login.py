"""Accounts of people in a box."""

from __future__ import annotations

import pytest

from podyard.workers.box import login

PASSWD = """root:x:0:0:root:/root:/bin/bash
daemon:x:1:1:daemon:/usr/sbin:/usr/sbin/nologin
nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin
podyard:x:1000:1000:podyard:/home/podyard:/bin/bash
"""
GROUP = """root:x:0:
adm:x:4:syslog
video:x:44:
other:x:45:
podyard:x:1000:
taken:x:1001:
"""


@pytest.mark.parametrize("name", ["user1", "ann_example_com", "first.last", "Ann-B", "podyard"])
def test_people_may_log_in(name: str) -> None:
    assert login.why_refused(name, PASSWD) == ""


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("root", "'root' is a user of the system"),
        ("daemon", "'daemon' is a user of the system"),
        ("nobody", "'nobody' is a user of the system"),
        *((name, "is not a user name of Linux") for name in
          ("", "-x", ".", "..", "1000", "a b", "a:b", "a/b", "a\n", "ä", "x" * 33)),
    ],
)  # fmt: skip
def test_other_names_are_refused(name: str, why: str) -> None:
    assert why in login.why_refused(name, PASSWD)


def test_an_account_has_a_free_number_and_the_groups_of_people() -> None:
    passwd, group, shadow = login.with_account(PASSWD, GROUP, "root:*:19000:0:99999:7:::", "ann")
    assert passwd == f"{PASSWD}ann:x:1002:1002::/home/ann:/bin/bash\n"
    assert shadow.splitlines()[1:] == ["ann:*:19000:0:99999:7:::"]
    _, both, _ = login.with_account(passwd, group, shadow, "ben")
    groups = dict(line.split(":", 1) for line in both.splitlines())
    assert groups["ben"] == "x:1003:" and groups["ann"] == "x:1002:"
    assert groups["adm"] == "x:4:syslog,ann,ben" and groups["video"] == "x:44:ann,ben"
    assert groups["google-sudoers"] == "x:999:ann,ben" and groups["other"] == "x:45:"
