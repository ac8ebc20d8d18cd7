"""Mounts a disk of a host in its box: `python -I -S box/disk.py`, with a request of `mounts.py` as
JSON on stdin.

fuse2fs reads the file system, in the user namespace of the box: an image that a tenant has made
never meets the file systems of the machine's kernel. fuse2fs is the machine's and not the box's. It
runs without network, with no process but itself, in a root that has the system's programs, the
image and nothing else. What it has mounted there is moved into the box; it ends with that mount.

It answers with the pid of fuse2fs, or with what went wrong. Standard library only.
"""

import contextlib
import ctypes
import json
import os
import select
import signal
import struct
import sys
from pathlib import Path
from types import SimpleNamespace

TYPE_CHECKING = False  # importing `typing` would cost every mount some milliseconds
if TYPE_CHECKING:
    from podyard.workers.box import init
else:
    sys.path.insert(0, str(Path(__file__).parent))
    import init

MOUNT_SECONDS_MAX = 20.0  # until fuse2fs has read a super block; what it refuses it refuses at once
POLL_SECONDS = 0.01
_RDONLY, _NOSUID, _NODEV, _REMOUNT, _BIND, _REC, _PRIVATE = 1, 2, 4, 32, 4096, 16384, 1 << 18
_DETACH, _NO_FOLLOW = 2, 8
_OPEN_TREE, _MOVE_MOUNT, _MOUNT_SETATTR, _HERE = 428, 429, 442, -100
_FROM_EMPTY_PATH, _EMPTY_PATH, _ATTR_RDONLY, _ATTR_IDMAP = 4, 0x1000, 1, 0x100000
_CLONE_TREE = 1 | os.O_CLOEXEC
_AMBIENT, _RAISE, _SYS_ADMIN = 47, 2, 21
_CAPSET, _VERSION = {"x86_64": 126, "aarch64": 91}, 0x20080522  # linux/capability.h
# fuse2fs looks for its libraries, and for nothing else, there
_SYSTEM = ("usr", "bin", "sbin", "lib", "lib32", "lib64", "etc/ld.so.cache")


def _namespace(pid: int, kind: str) -> int:
    return os.open(f"/proc/{pid}/ns/{kind}", os.O_RDONLY | os.O_CLOEXEC)


def _enter(descriptor: int) -> None:
    init.call("setns", "enter the box", descriptor, 0)


def _become_owner(request: "SimpleNamespace") -> None:
    """Become the box's root, or without root its only user, with the rights of its namespace."""
    descriptor = _namespace(request.pid, "user")
    _enter(descriptor)
    os.close(descriptor)
    if request.user == 0:
        os.setgroups([])
        os.setresgid(0, 0, 0)
        os.setresuid(0, 0, 0)


def _tree(path: str) -> int:
    """A mount of `path` that is nowhere yet. Folders above it may be closed to a box."""
    return init.call(_OPEN_TREE, f"open {path}", _HERE, path.encode(), ctypes.c_uint(_CLONE_TREE))


def _put(tree: int, target: str) -> None:
    init.call(
        _MOVE_MOUNT, f"mount on {target}", tree, b"", _HERE, target.encode(),
        ctypes.c_uint(_FROM_EMPTY_PATH),
    )  # fmt: skip


def _build(image: int, device: str, *, read_only: bool) -> None:
    """The root that fuse2fs has. `device`: its name for the image, which users see in `df`."""
    init.mount("podyard", "/tmp", "tmpfs", _NODEV | _NOSUID, "mode=755,size=1m")
    os.chdir("/tmp")
    for name in ("etc", "dev", "mnt", "proc"):
        Path(name).mkdir()
    for name in _SYSTEM:
        there = Path("/", name)
        if there.is_symlink():
            Path(name).symlink_to(there.readlink())
        elif there.is_dir():
            Path(name).mkdir()
            init.mount(str(there), name, "", _BIND | _REC)
        elif there.is_file():
            Path(name).touch()
            init.mount(str(there), name, "", _BIND)
    for name in ("dev/fuse", "dev/null"):
        Path(name).touch()
        init.mount(f"/{name}", name, "", _BIND)
    Path(device).touch()
    _put(image, device)
    if read_only:
        init.mount("", device, "", _BIND | _REMOUNT | _RDONLY)
    old = os.open("/", os.O_RDONLY)
    init.pivot_root()
    os.fchdir(old)
    init.call("umount2", "let go of the machine's root", b".", _DETACH)
    os.chdir("/")
    os.close(old)


def _keep_rights() -> None:
    """Let the program that this process becomes mount, also where its user is not 0."""
    header = struct.pack("Ii", _VERSION, 0)
    both = 1 << _SYS_ADMIN
    data = struct.pack("6I", both, both, both, 0, 0, 0)
    init.call(
        _CAPSET[os.uname().machine], "keep the right to mount",
        ctypes.create_string_buffer(header, 8), ctypes.create_string_buffer(data, 24),
    )  # fmt: skip
    init.call("prctl", "keep the right to mount", _AMBIENT, _RAISE, _SYS_ADMIN, 0, 0)


def _serve(request: "SimpleNamespace", said: int) -> None:
    """Become fuse2fs."""
    os.setsid()
    _keep_rights()
    if request.calls is not None:
        text, number = request.calls
        init.refuse_calls(bytes.fromhex(text), number)
    os.dup2(os.open("/dev/null", os.O_RDWR), 0)
    os.dup2(said, 1)
    os.dup2(said, 2)
    # The kernel compares owners and modes, as for any file system.
    options = "allow_other,fakeroot,default_permissions" + (",ro" if request.read_only else "")
    words = ["fuse2fs", "-f", "-o", options, f"/dev/{request.device}", "/mnt"]
    os.execve(request.program, words, {"PATH": "/usr/bin"})


def _wait(said: int) -> None:
    """Until the file system is mounted. Raises OSError with what fuse2fs says when it ends."""
    before, text = Path("/").stat().st_dev, b""
    for _ in range(round(MOUNT_SECONDS_MAX / POLL_SECONDS)):
        if Path("/mnt").stat().st_dev != before:
            return
        if select.select([said], [], [], POLL_SECONDS)[0]:
            part = os.read(said, 4096)
            text += part
            if not part:
                line = text.decode(errors="replace").strip().rpartition("\n")[2]
                raise OSError(line or "fuse2fs has ended")
    raise OSError(f"fuse2fs has mounted nothing within {MOUNT_SECONDS_MAX:.0f} s")


def _mount(request: "SimpleNamespace") -> int:
    for path in request.cgroups:
        Path(path, "cgroup.procs").write_text("0")
    inside, image = _namespace(request.pid, "mnt"), _tree(request.image)
    os.chown(request.image, int(request.owner), int(request.owner))
    _become_owner(request)
    init.unshare(init.NEWNS)
    init.mount("", "/", "", _REC | _PRIVATE)
    _build(image, f"dev/{request.device}", read_only=request.read_only)
    init.unshare(init.NEWNET | init.NEWIPC | init.NEWPID)
    ours, said = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.close(ours)
            _serve(request, said)
        except OSError as error:
            os.write(said, str(error).encode())
        os._exit(1)
    os.close(said)
    try:
        _wait(ours)
        tree = _tree("/mnt")
        # The one in the box is the only one: fuse2fs ends with it.
        init.call("umount2", "let go of the mount", b"/mnt", _DETACH)
        _enter(inside)
        _put(tree, request.target)
    except OSError:
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)
        raise
    return child


def _mount_path(request: "SimpleNamespace") -> None:
    """A file, which the box's root owns from now on, or a folder, whose owners are translated."""
    inside, tree = _namespace(request.pid, "mnt"), _tree(request.image)
    flags, owners = _ATTR_RDONLY if request.read_only else 0, 0
    if request.action == "file":
        os.chown(request.image, int(request.owner), int(request.owner))
    elif request.user == 0:
        flags, owners = flags | _ATTR_IDMAP, _namespace(request.pid, "user")
    if flags:
        init.call(
            _MOUNT_SETATTR, f"prepare {request.image}", tree, b"", ctypes.c_uint(_EMPTY_PATH),
            struct.pack("QQQQ", flags, 0, 0, owners), ctypes.c_size_t(32),
        )  # fmt: skip
    _become_owner(request)
    _enter(inside)
    _put(tree, request.target)


def main() -> int:
    request = json.load(sys.stdin, object_hook=lambda fields: SimpleNamespace(**fields))
    if request.action == "mount":
        print(_mount(request))
    elif request.action in ("file", "folder"):
        _mount_path(request)
    else:
        inside = _namespace(request.pid, "mnt")
        _become_owner(request)
        _enter(inside)
        flags = _NO_FOLLOW | (_DETACH if request.lazy else 0)
        init.call("umount2", "unmount", request.target.encode(), flags)
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except OSError as error:
        print(error.strerror or error, file=sys.stderr)
        sys.exit(1)
