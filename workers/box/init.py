"""Makes one box and becomes its first process: `python -I -S box/init.py`, with a `BoxPlan` as JSON
on stdin. `box/init.py enter FILTER NUMBER CGROUPS COMMAND...` runs a command that enters one.

It answers with the pid of that process, or with what went wrong. Standard library only, and few of
it: this is most of what a box costs. Every mount is made in private mount namespaces, so that
nothing is left when the box is gone.
"""

import contextlib
import ctypes
import json
import os
import signal
import struct
import sys
from pathlib import Path

TYPE_CHECKING = False  # importing `typing` would cost every box some milliseconds
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

NEWNS, NEWCGROUP, NEWUTS, NEWIPC, NEWUSER, NEWPID, NEWNET = (
    0x20000, 0x2000000, 0x4000000, 0x8000000, 0x10000000, 0x20000000, 0x40000000,
)  # fmt: skip
_RDONLY, _NOSUID, _NODEV, _BIND, _REC, _PRIVATE = 1, 2, 4, 4096, 16384, 1 << 18
_OPEN_TREE, _MOVE_MOUNT, _MOUNT_SETATTR, _PIVOT_ROOT = 428, 429, 442, {"x86_64": 155, "aarch64": 41}
_ATTR_RDONLY, _ATTR_IDMAP = 1, 0x100000
_CLONE_TREE, _CLOEXEC, _EMPTY_PATH, _FROM_EMPTY_PATH, _HERE = 1, os.O_CLOEXEC, 0x1000, 4, -100
_DETACH = 2
_SECUREBITS, _NO_SETUID_FIXUP = 28, 4
_SET_FILTER, _ALL_THREADS = 1, 1  # linux/seccomp.h
_DEVICES = ("null", "zero", "full", "random", "urandom", "tty")
_LINKS = {
    "ptmx": "pts/ptmx",
    "fd": "/proc/self/fd",
    "stdin": "fd/0",
    "stdout": "fd/1",
    "stderr": "fd/2",
}

_libc = ctypes.CDLL(None, use_errno=True)


def call(name: str | int, what: str, *arguments: object) -> int:
    """A function of libc, or a system call by number. Raises OSError that says `what`."""
    if isinstance(name, int):
        result = int(_libc.syscall(ctypes.c_long(name), *arguments))
    else:
        result = getattr(_libc, name)(*arguments)
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")
    return result


def refuse_calls(text: bytes, number: int) -> None:
    """Set a filter of system calls for this process and all that it starts. `text`: the program,
    `number`: of the call seccomp. Raises OSError."""
    filter_ = ctypes.create_string_buffer(text, len(text))
    program = struct.pack("HxxxxxxP", len(text) // 8, ctypes.addressof(filter_))
    call(number, "system calls cannot be kept from boxes", _SET_FILTER, _ALL_THREADS, program)


def unshare(flags: int) -> None:
    call("unshare", "unshare", flags)


def pivot_root() -> None:
    """Make this folder the root, with the old one above it."""
    call(_PIVOT_ROOT[os.uname().machine], "pivot_root", b".", b".")


def mount(source: str, target: str, kind: str, flags: int = 0, options: str = "") -> None:
    arguments = (
        source.encode(),
        target.encode(),
        kind.encode(),
        ctypes.c_ulong(flags),
        options.encode(),
    )
    call("mount", f"mount {kind or source} on {target}", *arguments)


def bind(source: str, target: str, userns: int = -1, *, read_only: bool = False) -> None:
    """`source` at `target`, with its owners translated by a user namespace."""
    tree = call(
        _OPEN_TREE, f"open {source}", _HERE, source.encode(), ctypes.c_uint(_CLONE_TREE | _CLOEXEC)
    )
    try:
        flags = (_ATTR_RDONLY if read_only else 0) | (_ATTR_IDMAP if userns >= 0 else 0)
        if flags:
            attributes = struct.pack("QQQQ", flags, 0, 0, max(userns, 0))
            what = (
                f"translate the owners of {source}" if userns >= 0 else f"make {source} read-only"
            )
            call(
                _MOUNT_SETATTR,
                what,
                tree,
                b"",
                ctypes.c_uint(_EMPTY_PATH),
                attributes,
                ctypes.c_size_t(32),
            )
        call(
            _MOVE_MOUNT,
            f"mount {target}",
            tree,
            b"",
            _HERE,
            target.encode(),
            ctypes.c_uint(_FROM_EMPTY_PATH),
        )
    finally:
        os.close(tree)


def _user_namespace(maps: str) -> tuple[int, int, int]:
    """(pid, descriptor of its user namespace, pipe that lets it go on) of a child that waits."""
    ready, said = os.pipe()
    go, let = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(let)
        os.close(ready)
        unshare(NEWUSER)
        os.write(said, b"1")
        if os.read(go, 1) != b"1":
            os._exit(0)
        return 0, -1, -1
    os.close(go)
    os.close(said)
    try:
        if os.read(ready, 1) != b"1":
            raise OSError("a user namespace cannot be made")
        for name in ("uid_map", "gid_map"):
            Path(f"/proc/{child}/{name}").write_text(maps)
        return child, os.open(f"/proc/{child}/ns/user", os.O_RDONLY | os.O_CLOEXEC), let
    finally:
        os.close(ready)


def _make_folder(root: str, path: str) -> None:
    """`path` below `root`, folder by folder. What the box's own root has put there instead, a link
    to somewhere else above all, goes."""
    here = Path(root)
    for part in Path(path.lstrip("/")).parts:
        here = here / part
        if here.is_symlink() or (here.exists() and not here.is_dir()):
            here.unlink()
        here.mkdir(mode=0o755, exist_ok=True)


def _make_target(source: str, root: str, path: str) -> None:
    """The folder or file on which something is mounted."""
    if Path(source).is_dir():
        return _make_folder(root, path)
    target = Path(root + path)
    _make_folder(root, str(Path(path).parent))
    if target.is_symlink() or target.is_dir():
        target.rename(f"{target}.{os.getpid()}")
    return os.close(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o644))


@contextlib.contextmanager
def _as_owner(ids: "str | None") -> "Iterator[None]":
    """New files are as the disk's root: it is as this user that Linux keeps the changes of an
    overlay. Without `ids` there is one user only."""
    if ids is None:
        yield
        return
    first = next(int(line.split()[1]) for line in ids.splitlines() if line.startswith("0 "))
    call("prctl", "keep the rights", _SECUREBITS, _NO_SETUID_FIXUP, 0, 0, 0)
    try:
        _libc.setfsgid(first)
        _libc.setfsuid(first)
        yield
    finally:
        _libc.setfsuid(0)
        _libc.setfsgid(0)
        call("prctl", "drop the rights", _SECUREBITS, 0, 0, 0, 0)


def _build(plan: "dict[str, Any]", spaces: dict[str, int]) -> None:
    """The box's file systems below plan["stage"], as the machine's root sees them. `spaces`: the
    user namespaces that translate owners, none without root."""
    stage, layers = plan["stage"], plan["layers"]
    os.umask(0o022)
    for path in (stage, layers, plan["root"]):
        Path(path).mkdir(parents=True, exist_ok=True)
    for name in (
        "proc",
        "sys",
        "dev",
        "run",
        *(path for path in plan["folders"] if path.startswith("/var")),
    ):
        _make_folder(plan["root"], name)
    mount("podyard", stage, "tmpfs", _NODEV, "mode=755")
    for name in ("root", "user"):
        Path(f"{stage}/{name}").mkdir()
        bind(layers, f"{stage}/{name}", spaces.get(name, -1))
    root = f"{stage}/box"
    Path(root).mkdir()
    bind(plan["root"], root, spaces.get("root", -1))
    for number, item in enumerate(plan["mounts"]):
        target = root + item["target"]
        over = [
            other
            for other in plan["mounts"][:number]
            if item["target"].startswith(f"{other['target']}/")
        ]
        if not over:
            # On the disk, where the machine's root may write.
            _make_target(item["source"], plan["root"], item["target"])
        elif over[-1]["kind"] == "bind" and not over[-1]["read_only"]:
            # In what is the host's own, such as its /tmp. Below the machine's folders it is there
            # already.
            _make_target(
                item["source"], over[-1]["source"], item["target"][len(over[-1]["target"]) :]
            )
        if item["kind"] == "bind":
            bind(
                item["source"], target, spaces.get(item["owners"], -1), read_only=item["read_only"]
            )
        elif item["kind"] == "empty":
            mount("podyard", target, "tmpfs", _NODEV | _RDONLY, "mode=755,size=0k")
        else:
            owners, layer = item["owners"], f"{layers}/{item['layer']}"
            is_new = not Path(layer, "upper").exists()
            for part in ("upper", "work"):
                Path(layer, part).mkdir(parents=True, exist_ok=True)
            for path in (
                path
                for pattern in item["changed"]
                for path in sorted(Path(item["source"]).glob(pattern))
            ):
                if is_new and path.is_dir() and not path.is_symlink():
                    _make_folder(f"{layer}/upper", str(path.relative_to(item["source"])))
            Path(f"{stage}/lower{number}").mkdir()
            bind(item["source"], f"{stage}/lower{number}", spaces.get(owners, -1))
            # Relative names: paths may contain what separates options.
            os.chdir(stage)
            own = f"{owners}/{item['layer']}"
            options = f"lowerdir=lower{number},upperdir={own}/upper,workdir={own}/work"
            options += "" if spaces else ",userxattr"
            with _as_owner(plan["maps"].get(owners)):
                mount("podyard", target, "overlay", _NODEV, options)


def _live(plan: "dict[str, Any]", root: str) -> None:
    """The first process, in all namespaces of the box: what belongs to them is mounted, and the
    machine goes away."""
    os.setsid()
    mount(root, root, "", _BIND | _REC)
    mount("proc", f"{root}/proc", "proc", _NOSUID | _NODEV)
    # Some machines cover parts of it, and then allow no other view.
    with contextlib.suppress(OSError):
        mount("sysfs", f"{root}/sys", "sysfs", _NOSUID | _NODEV | _RDONLY)
    mount("podyard", f"{root}/dev", "tmpfs", _NOSUID, "mode=755,size=1m")
    for name in _DEVICES:
        os.close(os.open(f"{root}/dev/{name}", os.O_WRONLY | os.O_CREAT, 0o666))
        mount(f"/dev/{name}", f"{root}/dev/{name}", "", _BIND)
    for name, target in _LINKS.items():
        Path(root, "dev", name).symlink_to(target)
    for name in ("pts", "shm"):
        Path(f"{root}/dev/{name}").mkdir()
    mount("devpts", f"{root}/dev/pts", "devpts", _NOSUID, "newinstance,ptmxmode=0666,mode=0620")
    mount("podyard", f"{root}/dev/shm", "tmpfs", _NOSUID | _NODEV, "mode=1777")
    mount("podyard", f"{root}/run", "tmpfs", _NODEV, "mode=755")
    for name in plan["devices"]:
        path = Path(root, "dev", name)
        path.parent.mkdir(exist_ok=True)
        path.parent.chmod(0o755)
        path.touch()
        path.chmod(0o666)
    Path(f"{root}/run/podyard").mkdir()
    for path, target in plan["copies"].items():
        Path(root + target).write_bytes(Path(path).read_bytes())
        Path(root + target).chmod(0o4755)
    call("sethostname", "sethostname", plan["name"].encode(), len(plan["name"].encode()))
    old = os.open("/", os.O_RDONLY)
    os.chdir(root)
    pivot_root()
    os.fchdir(old)
    call("umount2", "let go of the machine's root", b".", _DETACH)
    os.chdir("/")
    os.close(old)
    # Only now, where every link that an earlier life has left leads to something of the box.
    for path, mode in plan["folders"].items():
        with contextlib.suppress(OSError):
            Path(path).mkdir(parents=True, exist_ok=True)
            Path(path).chmod(mode)
    for path, target in plan["links"].items():
        link = Path(f"{path}.podyard")
        link.unlink(missing_ok=True)
        link.symlink_to(target)
        link.replace(path)
    for path, [mode, text] in plan["files"].items():
        file = Path(f"{path}.podyard")
        file.write_text(text)
        file.chmod(mode)
        file.replace(path)


def enter(text: str, number: str, cgroups: str, *command: str) -> None:
    """Become a command that enters a box: in these cgroups, with the box's filter of calls."""
    for path in cgroups.split():
        Path(path, "cgroup.procs").write_text("0")
    refuse_calls(bytes.fromhex(text), int(number))
    os.execv(command[0], command)


def main() -> int:
    if sys.argv[1:2] == ["enter"]:
        enter(*sys.argv[2:])
    plan = json.load(sys.stdin)
    for path in plan["cgroups"]:
        Path(path, "cgroup.procs").write_text("0")
    # What the machine itself ends first when its memory is used up.
    Path("/proc/self/oom_score_adj").write_text(str(plan["oom_score"]))
    unshare(NEWNS)
    mount("", "/", "", _REC | _PRIVATE)
    spaces = {}
    maps, is_root = plan["maps"], "own" not in plan["maps"]
    if is_root:
        child, spaces["user"], let = _user_namespace(maps["user"])
        if child == 0:
            return 0
        os.close(let)
        os.waitpid(child, 0)
    child, space, let = _user_namespace(maps["root" if is_root else "own"])
    if child != 0:
        _build(plan, {**spaces, "root": space} if is_root else {})
        os.write(let, b"1")
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    # By relative names from here on: the folders above are closed to the box's root.
    os.chdir(plan["stage"])
    if is_root:
        os.setgroups([])
        os.setresgid(0, 0, 0)
        os.setresuid(0, 0, 0)
    unshare(NEWNS | NEWPID | NEWNET | NEWIPC | NEWUTS | NEWCGROUP)
    ready, said = os.pipe()
    first = os.fork()
    if first:
        os.close(said)
        answer = os.read(ready, 4096).decode()
        if answer != "ready":
            print(answer or "the first process of the box ended", file=sys.stderr)
            return 1
        print(first, flush=True)
        return 0
    try:
        _live(plan, "box")
        if not is_root:
            # Nobody in the box has the right to open these ports.
            Path("/proc/sys/net/ipv4/ip_unprivileged_port_start").write_text("0")
        # It waits for nobody: what loses its parent here is cleared up by the system, and never
        # becomes a zombie.
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)
        os.set_inheritable(said, False)
        nothing = os.open("/dev/null", os.O_RDWR)
        for number in range(3):
            os.dup2(nothing, number)
        if (calls := plan.get("calls")) is not None:
            text, number = calls
            refuse_calls(bytes.fromhex(text), number)
        os.write(said, b"ready")
        os.execve("/bin/sleep", ["sleep", "infinity"], {"PATH": "/bin"})
    except Exception as error:
        os.write(said, str(error).encode())
        os._exit(1)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (OSError, AssertionError) as error:
        print(error, file=sys.stderr)
        sys.exit(1)
