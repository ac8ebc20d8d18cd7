"""People in a box: `python -I -S box/login.py add NAME...` makes their accounts, and `... enter
NAME COMMAND...` becomes a command of NAME's, which begins in NAME's home. As the box's root.

The accounts are those that Compute Engine's guest agent makes: a home, bash, the groups of people
who use a machine, and `google-sudoers`. A box without root has one user id only. There a command of
NAME's runs in a user namespace in which that id has NAME's number. Standard library only.
"""

import contextlib
import fcntl
import os
import re
import sys
from pathlib import Path

TYPE_CHECKING = False  # importing `typing` would cost every login some milliseconds
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

ROOT = "root"
REFUSED = 1  # the exit code of a login that is refused
_NAME = re.compile(r"(?!\d+$)[A-Za-z0-9_][A-Za-z0-9_.-]{0,31}")  # as Debian's useradd takes them
_FIRST_ID, _LAST_ID, _NOBODY = 1000, 60000, 65534  # of people: UID_MIN and UID_MAX of login.defs
_SUDOERS = "google-sudoers"
_GROUPS = (_SUDOERS, "adm", "dip", "docker", "lxd", "plugdev", "video")  # where they are there
_ETC = Path("/etc")
# What pip installs for one person lies here, and goes before the packages that all have.
_OWN = ".local"
_PARENT = "podyard_parent.pth"
_PIP = "#!{}\nimport sys\nfrom pip._internal.cli.main import main\nsys.exit(main())\n"


def why_refused(name: str, passwd: str) -> str:
    """Return the sentence for a name that nobody logs in with; empty for others. `passwd`: the
    text of /etc/passwd."""
    if not _NAME.fullmatch(name):
        return (
            f"{name!r} is not a user name of Linux: use at most 32 letters, digits, _, - and ., "
            "not beginning with - or ., and not digits alone"
        )
    row = _row(passwd, name)
    if row is not None and not _FIRST_ID <= int(row[2]) < _NOBODY:
        return f"{name!r} is a user of the system: log in with another name"
    return ""


def with_account(passwd: str, group: str, shadow: str, name: str) -> "tuple[str, str, str]":
    """The texts of the three files with an account more. Its user and group have the same number,
    the first that neither has."""
    taken = {row[2] for text in (passwd, group) for row in _rows(text)}
    number = next(str(one) for one in range(_FIRST_ID, _LAST_ID) if str(one) not in taken)
    groups = _rows(group)
    if all(row[0] != _SUDOERS for row in groups):
        last = next(str(one) for one in range(_FIRST_ID - 1, 0, -1) if str(one) not in taken)
        groups.append([_SUDOERS, "x", last, ""])
    for row in groups:
        if row[0] in _GROUPS:
            row[3] = ",".join(filter(None, (*row[3].split(","), name)))
    groups.append([name, "x", number, ""])
    return (
        _line(passwd, f"{name}:x:{number}:{number}::/home/{name}:/bin/bash"),
        "".join(f"{':'.join(row)}\n" for row in groups),
        _line(shadow, f"{name}:*:19000:0:99999:7:::"),
    )


def add(name: str) -> str:
    """The home of an account, which is made if it is not there. Raises SystemExit for a name that
    is refused."""
    paths = [Path(_ETC, one) for one in ("passwd", "group", "shadow")]
    with _lock():
        passwd, group, shadow = (path.read_text() for path in paths)
        if why := why_refused(name, passwd):
            print(f"podyard: {why}", file=sys.stderr)
            raise SystemExit(REFUSED)
        row = _row(passwd, name)
        if row is None:
            texts = with_account(passwd, group, shadow, name)
            for path, text in zip(paths, texts, strict=True):
                _replace(path, text)
            row = _row(texts[0], name)
            assert row is not None
            _make_home(Path(row[5]), int(row[2]), int(row[3]))
    return row[5]


def enter(name: str, *command: str) -> None:
    """Become a command of an account's."""
    home = add(name)
    environ = os.environ
    environ.update(HOME=home, USER=name, LOGNAME=name, SHELL="/bin/bash")
    words = become(name, "", command)
    with contextlib.suppress(OSError):
        os.chdir(home)
        _make_environment(Path(home, _OWN))
    os.execvp(words[0], words)


def become(name: str, group: str, words: "Sequence[str]") -> "list[str]":
    """Become a user, by name or number. Returns what to run instead of `words`. Raises KeyError,
    OSError."""
    import grp
    import pwd

    account = pwd.getpwuid(int(name)) if name.isdigit() else pwd.getpwnam(name)
    number = account.pw_gid
    if group:
        number = int(group) if group.isdigit() else grp.getgrnam(group).gr_gid
    if has_one_user():
        return ["unshare", f"--map-user={account.pw_uid}", f"--map-group={number}", "--", *words]
    if os.isatty(0):
        os.fchown(0, account.pw_uid, -1)
    os.initgroups(account.pw_name, number)
    os.setgid(number)
    os.setuid(account.pw_uid)
    return list(words)


def has_one_user() -> bool:
    """Return whether the box is one without root."""
    return sum(int(line.split()[2]) for line in Path("/proc/self/uid_map").open()) == 1


def _make_environment(own: Path) -> None:
    """Give a user a virtual environment on top of the shared one, which belongs to the box's first
    user."""
    first, _, rest = os.environ.get("PATH", "").partition(os.pathsep)
    shared = Path(first).parent
    if not (shared / "pyvenv.cfg").is_file():
        return
    os.environ.update(PATH=os.pathsep.join((f"{own}/bin", first, rest)))
    if "VIRTUAL_ENV" in os.environ:
        os.environ.update(VIRTUAL_ENV=str(own))
    libraries = next(shared.glob("lib/python3*/site-packages"), shared)
    packages = own / libraries.relative_to(shared)
    text = f"import site; site.addsitedir({str(libraries)!r})\n"
    with contextlib.suppress(FileNotFoundError):
        if (packages / _PARENT).read_text() == text:
            return
    for folder in (packages, own / "bin"):
        folder.mkdir(parents=True, exist_ok=True)
    (own / "pyvenv.cfg").write_text((shared / "pyvenv.cfg").read_text())
    for python in (shared / "bin").glob("python*"):
        link = own / "bin" / python.name
        link.unlink(missing_ok=True)
        link.symlink_to(python)
    for pip in (shared / "bin").glob("pip*"):
        script = own / "bin" / pip.name
        script.write_text(_PIP.format(own / "bin" / "python"))
        script.chmod(0o755)
    (packages / _PARENT).write_text(text)


def _make_home(home: Path, user: int, group: int) -> None:
    import shutil

    home.mkdir(mode=0o755, parents=True, exist_ok=True)
    for path in Path(_ETC, "skel").glob("*"):
        target = home / path.name
        if path.is_file() and not target.is_symlink() and not target.exists():
            shutil.copyfile(path, target)
            _give(target, user, group)
    _give(home, user, group)


def _give(path: Path, user: int, group: int) -> None:
    if not has_one_user():
        os.chown(path, user, group, follow_symlinks=False)


@contextlib.contextmanager
def _lock() -> "Iterator[None]":
    """As useradd(8) and passwd(1) lock these files."""
    with Path(_ETC, ".pwd.lock").open("w") as lock:
        fcntl.lockf(lock, fcntl.LOCK_EX)
        yield


def _replace(path: Path, text: str) -> None:
    new = Path(f"{path}.podyard")
    new.write_text(text)
    new.chmod(path.stat().st_mode & 0o777)
    new.replace(path)


def _rows(text: str) -> "list[list[str]]":
    rows = (line.split(":") for line in text.splitlines())
    return [row for row in rows if len(row) > 3]


def _row(text: str, name: str) -> "list[str] | None":
    return next((row for row in _rows(text) if row[0] == name and row[2].isdigit()), None)


def _line(text: str, line: str) -> str:
    return f"{text.rstrip()}\n{line}\n"


def main(words: "Sequence[str]") -> None:
    """Make accounts, or become a command of one."""
    os.umask(0o022)
    action, *rest = words
    if action == "enter":
        return enter(*rest)
    for name in rest:
        with contextlib.suppress(SystemExit):
            add(name)
    return None


if __name__ == "__main__":
    main(sys.argv[1:])
