"""Services of boxes: their unit files, and what follows their ends."""

from __future__ import annotations

import signal

import pytest

from podyard.workers.box.units import decide, journalctl, supervisor, systemctl, unit_file
from podyard.workers.box.units.decide import ServiceEnd
from podyard.workers.box.units.unit_file import LoadError, Restart, ServiceKind, Unit, UnitCommand


def _unit(*lines: str, name: str = "x.service") -> Unit:
    return unit_file.read_unit(name, ["\n".join(("[Service]", *lines))], "host")


def test_a_unit_file_is_read_as_systemd_reads_it() -> None:
    text = """
# a comment
[Unit]
Description=A thing on %H
; another one
[Service]
Type=forking
Environment="A=one two" B=3
Environment=C=%i
EnvironmentFile=-/etc/default/%p
ExecStartPre=-/bin/false
ExecStart=@/usr/bin/thing thing-%i \\
  # not a part of it
  --flag "a b" 100%%
User=ann
Restart=on-failure
RestartSec=1min 500ms
TimeoutSec=5
KillSignal=INT
SuccessExitStatus=3 SIGUSR1
PIDFile=thing.pid
[Install]
WantedBy=multi-user.target graphical.target
"""
    unit = unit_file.read_unit("thing@7.service", [text], "box")
    assert unit == Unit(
        name="thing@7.service",
        description="A thing on box",
        kind=ServiceKind.FORKING,
        start=(UnitCommand(("/usr/bin/thing", "--flag", "a b", "100%"), name="thing-7"),),
        start_pre=(UnitCommand(("/bin/false",), may_fail=True),),
        environment={"A": "one two", "B": "3", "C": "7"},
        environment_files=("-/etc/default/thing",),
        user="ann",
        pid_file="thing.pid",
        restart=Restart.ON_FAILURE,
        restart_seconds=60.5,
        start_seconds=5,
        stop_seconds=5,
        kill_signal=signal.SIGINT,
        success=frozenset({"3", "SIGUSR1"}),
        wanted_by=("multi-user.target", "graphical.target"),
    )


def test_a_drop_in_changes_what_it_names() -> None:
    first = "[Service]\nExecStart=/bin/one\nUser=ann"
    unit = unit_file.read_unit(
        "x.service", [first, "[Service]\nExecStart=\nExecStart=/bin/two"], "host"
    )
    assert (unit.start, unit.user) == ((UnitCommand(("/bin/two",)),), "ann")


@pytest.mark.parametrize(
    ("lines", "why"),
    [
        (("User=x",), "x.service: Service has no ExecStart= setting. Refusing."),
        (("ExecStart=/bin/a", "ExecStart=/bin/b"), "only allowed for Type=oneshot"),
        (("ExecStart=/bin/a", "Type=dbus"), "Type=dbus is not supported: use simple, exec"),
        (("ExecStart=/bin/a", "Type=oneshot", "Restart=always"), "isn't allowed for Type=oneshot"),
        (("ExecStart=/bin/a 'b",), "unbalanced quotes"),
        (("ExecStart=/bin/a", "RestartSec=soon"), "'soon' is not a span of time"),
        (("ExecStart=/bin/a", "KillSignal=SIGNONE"), "KillSignal=SIGNONE is not a signal"),
    ],
)
def test_a_unit_that_cannot_run_says_why(lines: tuple[str, ...], why: str) -> None:
    with pytest.raises(LoadError) as raised:
        _unit(*lines)
    assert why in str(raised.value)


def test_names_of_units() -> None:
    assert unit_file.unit_name("docker") == "docker.service"
    for name in ("x.timer", "a/b.service", ".service", "a b"):
        with pytest.raises(LoadError):
            unit_file.unit_name(name)


def test_variables_of_a_command() -> None:
    environment = {"A": "one two", "B": "3"}
    words = ("/bin/x", "$A", "${A}", "b=${B}$B", "$$A", "$NONE", "-${NONE}")
    assert unit_file.expand(words, environment) == [
        "/bin/x", "one", "two", "one two", "b=3$B", "$A", "-",
    ]  # fmt: skip
    text = "A=one\n#B=2\nC=\"two words\"\nD='x'y\nE=it's\nnothing\n"
    assert unit_file.environment_of(text) == {"A": "one", "C": "two words", "D": "xy", "E": "it's"}


_FINE, _EXIT, _KILLED = ServiceEnd(), ServiceEnd(1), ServiceEnd(signal=signal.SIGKILL)
_LATE, _ASKED = ServiceEnd(timed_out=True), ServiceEnd(signal=signal.SIGTERM)


@pytest.mark.parametrize(
    ("restart", "again"),
    [
        ("no", ()),
        ("always", (_FINE, _EXIT, _KILLED, _LATE, _ASKED)),
        ("on-success", (_FINE, _ASKED)),
        ("on-failure", (_EXIT, _KILLED, _LATE)),
        ("on-abnormal", (_KILLED, _LATE)),
        ("on-abort", (_KILLED,)),
    ],
)
def test_a_service_is_started_again_by_how_it_ended(
    restart: str, again: tuple[ServiceEnd, ...]
) -> None:
    unit = _unit("ExecStart=/bin/x", f"Restart={restart}")
    ends = (_FINE, _EXIT, _KILLED, _LATE, _ASKED)
    assert tuple(end for end in ends if decide.is_started_again(unit, end)) == again


def test_ends_that_a_unit_calls_a_success() -> None:
    unit = _unit("ExecStart=/bin/x", "SuccessExitStatus=3 KILL", "Restart=on-failure")
    ends = (ServiceEnd(3), ServiceEnd(4), _KILLED)
    assert [decide.is_started_again(unit, end) for end in ends] == [False, True, False]


def test_starts_are_limited() -> None:
    unit = _unit("ExecStart=/bin/x", "StartLimitBurst=2", "StartLimitIntervalSec=10")
    assert decide.may_start(unit, [1.0], 2.0)
    assert not decide.may_start(unit, [1.0, 2.0], 10.9)
    assert decide.may_start(unit, [1.0, 2.0], 11.0)
    assert decide.may_start(_unit("ExecStart=/bin/x", "StartLimitIntervalSec=0"), [1.0] * 9, 1.0)


def test_a_service_has_the_environment_of_its_host() -> None:
    session = {
        "HOME": "/root", "SUDO_USER": "ann", "SSH_TTY": "x", "TPU_NAME": "n", "TERM": "dumb",
        "PATH": "/home/ann/.local/bin:/srv/bin:/usr/bin",
    }  # fmt: skip
    assert supervisor.host_environment(session) == {"TPU_NAME": "n", "PATH": "/srv/bin:/usr/bin"}


def test_command_lines() -> None:
    call = systemctl.read_call(
        ["--no-pager", "enable", "--now", "a", "b", "-n", "5", "-pMainPID,Id", "--value"]
    )
    assert (call.verb, call.names) == ("enable", ("a", "b"))
    assert call.flags == {"--no-pager", "--now", "--value"}
    assert call.properties == ("MainPID", "Id")
    assert systemctl.read_call([]).verb == "list-units"
    query = journalctl.JournalQuery(
        ("a.service",), 10, follows=True, is_reversed=False, form="short"
    )
    for line in ("-fu a", "-f --unit=a", "-u a -n 10 -f --no-pager", "-xfua -n10", "--follow -ua"):
        assert journalctl.read_query(line.split()) == query, line
    query = journalctl.read_query(["-u", "a", "-u", "b.service", "-o", "cat", "-r", "--lines=all"])
    assert query == journalctl.JournalQuery(("a.service", "b.service"), None, False, True, "cat")
    assert journalctl.read_query(["-xeu", "a"]).line_count == 1000
    for line in ("--since today", "-o json", "-n few", "-k"):
        with pytest.raises(LoadError):
            journalctl.read_query(line.split())
