"""`mount`, `umount`, `lsblk`, `blkid` and `df` in a box, and mke2fs without root: the name by which
it is called decides. It asks the host server, since programs of a box mount nothing themselves, and
see the size of the machine's disk instead of theirs. Standard library only."""

import itertools
import json
import os
import shutil
import socket
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import NamedTuple

SERVER = ("169.254.169.254", 3130)
SECONDS_MAX = 60.0  # a mount takes a second; unmounting waits for what is written
FAILED, USAGE = 32, 1  # as mount(8)
_TAGS = ("UUID", "LABEL")
_OWNER = "root_owner=1000:1000"
# Options of mount(8) that take a value in the next word.
_WITH_VALUE = ("-o", "-t", "-O", "-L", "-U", "--options", "--types", "--source", "--target")


_MEMORY = ("/dev/shm", "/run")  # what else a machine shows
_HEADS = {
    "source": "Filesystem", "fstype": "Type", "size": "Size", "used": "Used", "avail": "Avail",
    "pcent": "Use%", "itotal": "Inodes", "iused": "IUsed", "iavail": "IFree", "ipcent": "IUse%",
    "target": "Mounted on",
}  # fmt: skip
_POWERS = ("", "K", "M", "G", "T")
_LONG_OPTIONS = {
    "--human-readable": "h", "--si": "H", "--print-type": "T", "--inodes": "i", "--local": "l",
    "--portability": "P", "--all": "a",
}  # fmt: skip


class FileSystem(NamedTuple):
    """A row of df(1); sizes in bytes."""

    source: str
    kind: str
    target: str
    size: int
    used: int
    free: int
    files: int
    files_free: int

    def covers(self, path: str) -> bool:
        return path == self.target or path.startswith(f"{self.target.rstrip('/')}/")

    def show(self, field: str, unit: str, suffix: str) -> str:
        counts = {"size": self.size, "used": self.used, "avail": self.free}
        if field in counts:
            return size_text(counts[field], unit) + suffix
        files_used = self.files - self.files_free
        texts = {
            "source": self.source, "fstype": self.kind, "target": self.target,
            "pcent": _share(self.used, self.used + self.free), "itotal": str(self.files),
            "iused": str(files_used), "iavail": str(self.files_free),
            "ipcent": _share(files_used, self.files),
        }  # fmt: skip
        return texts[field]


def _share(part: int, whole: int) -> str:
    return f"{-(-100 * part // whole)}%" if whole else "-"


def ask(**request: object) -> SimpleNamespace:
    with socket.create_connection(SERVER, SECONDS_MAX) as connection:
        connection.sendall(json.dumps(request).encode() + b"\n")
        with connection.makefile("rb") as answers:
            line = answers.readline() or b'{"error": "no answer"}'
    answer: SimpleNamespace = json.loads(line, object_hook=lambda fields: SimpleNamespace(**fields))
    return answer


def list_disks() -> "list[SimpleNamespace]":
    """With device, path, names, sizeGb and readOnly."""
    disks: list[SimpleNamespace] = ask(action="list").disks
    return disks


def fail(program: str, text: str, code: int = FAILED) -> int:
    print(f"{program}: {text}", file=sys.stderr)
    return code


def mounts() -> "list[list[str]]":
    """Device, folder, type and options of each."""
    lines = Path("/proc/self/mounts").read_text().splitlines()
    return [[word.replace("\\040", " ") for word in line.split()[:4]] for line in lines]


def folders_of(device: str) -> "list[str]":
    return [folder for source, folder, *_ in mounts() if source == f"/dev/{device}"]


def tags_of(path: str) -> "dict[str, str]":
    """UUID, LABEL and TYPE of what mkfs has written, read from the super block (ext4(5), at byte
    1024: number at 56, UUID at 104, label at 120)."""
    with Path(path).open("rb") as file:
        file.seek(1024)
        block = file.read(1024)
    if block[56:58] != b"\x53\xef":
        return {}
    digits = block[104:120].hex()
    ends = (0, 8, 12, 16, 20, 32)
    uuid = "-".join(digits[a:b] for a, b in itertools.pairwise(ends))
    features = int.from_bytes(block[96:100], "little")
    has_journal = int.from_bytes(block[92:96], "little") & 4
    kind = "ext4" if features & 64 else "ext3" if has_journal else "ext2"
    label = block[120:136].rstrip(b"\0").decode(errors="replace")
    return {"UUID": uuid, **({"LABEL": label} if label else {}), "TYPE": kind}


def file_of(source: str, disks: "list[SimpleNamespace]") -> "str | None":
    """The file of the disk that a device, a link to it, or UUID=... means."""
    tag, sign, value = source.partition("=")
    if sign and tag in _TAGS:
        value = value.strip('"')
        return next((disk.path for disk in disks if tags_of(disk.path).get(tag) == value), None)
    path = os.path.realpath(source)
    return path if any(disk.path == path for disk in disks) else None


def table() -> "list[list[str]]":
    """/etc/fstab: source, folder, type, options."""
    try:
        text = Path("/etc/fstab").read_text(encoding="utf-8")
    except OSError:
        return []
    rows = [line.split("#")[0].split() for line in text.splitlines()]
    return [[*row, "auto", "defaults"][:4] for row in rows if len(row) >= 2]


def mount_one(source: str, target: str, options: "list[str]") -> int:
    disks = list_disks()
    path = file_of(source, disks)
    if path is None:
        return fail("mount", f"{source} is not a disk of this host: a box mounts its disks only")
    if not Path(target).is_dir():
        return fail("mount", f"{target}: mount point does not exist.")
    if not tags_of(path):
        text = f"{target}: wrong fs type, bad superblock on {source}: make one with mkfs.ext4"
        return fail("mount", text)
    folder = os.path.realpath(target)
    answer = ask(action="mount", device=path, target=folder, readOnly="ro" in options)
    if answer.error:
        return fail("mount", answer.error)
    if answer.note:
        print(f"podyard: {answer.note}", file=sys.stderr)
    return 0


def mount(words: "list[str]") -> int:
    options: list[str] = []
    named: list[str] = []
    every = False
    rest = iter(words)
    for word in rest:
        if word in _WITH_VALUE:
            value = next(rest, "")
            if word in ("-o", "--options"):
                options += value.split(",")
            elif word in ("-U", "-L"):
                named.append(f"{'UUID' if word == '-U' else 'LABEL'}={value}")
            elif word in ("--source", "--target"):
                named.append(value)
        elif word.startswith("-o"):
            options += word[2:].split(",")
        elif word in ("-a", "--all"):
            every = True
        elif word in ("-r", "--read-only"):
            options.append("ro")
        elif not word.startswith("-"):
            named.append(word)
    if every:
        there = {folder for _, folder, *_ in mounts()}
        rows = [row for row in table() if row[1] not in there and "noauto" not in row[3].split(",")]
        failed = [
            mount_one(row[0], row[1], row[3].split(","))
            for row in rows
            if row[0].startswith(("/dev/", "UUID=", "LABEL="))
        ]
        return max(failed, default=0)
    if not named:
        for source, folder, kind, how in mounts():
            print(f"{source} on {folder} type {kind} ({how})")
        return 0
    if len(named) == 1:
        row = next((row for row in table() if named[0] in row[:2]), None)
        if row is None:
            return fail("mount", f"{named[0]}: can't find in /etc/fstab.", USAGE)
        return mount_one(row[0], row[1], options + row[3].split(","))
    return mount_one(named[0], named[1], options)


def umount(words: "list[str]") -> int:
    named = [word for word in words if not word.startswith("-")]
    if not named:
        return fail("umount", "bad usage: name a device or a folder", USAGE)
    code = 0
    for name in named:
        path = os.path.realpath(name)
        disks = list_disks()
        device = next((disk.device for disk in disks if disk.path == path), None)
        folders = [path] if device is None else folders_of(device)
        if not folders or folders[0] not in (folder for _, folder, *_ in mounts()):
            code = fail("umount", f"{name}: not mounted.")
            continue
        for folder in folders:
            answer = ask(action="umount", target=folder)
            if answer.error:
                code = fail("umount", answer.error)
    return code


def lsblk(words: "list[str]") -> int:
    rows = [("sda", f"{ask(action='boot').sizeGb}G", "0", "/")]
    for disk in list_disks():
        places = ",".join(folders_of(disk.device))
        rows.append((disk.device, f"{disk.sizeGb}G", "1" if disk.readOnly else "0", places))
    if not {"-n", "--noheadings"}.intersection(words):
        print(f"{'NAME':<6} {'SIZE':>6} RO TYPE MOUNTPOINTS")
    for name, size, read_only, place in rows:
        print(f"{name:<6} {size:>6} {read_only:>2} disk {place}".rstrip())
    return 0


def blkid(words: "list[str]") -> int:
    disks = list_disks()
    named = [word for word in words if word.startswith("/")]
    value, only = next(
        ((words[i + 1], True) for i, word in enumerate(words[:-1]) if word == "-s"), ("", False)
    )
    code = 2
    for disk in disks:
        if named and disk.path not in map(os.path.realpath, named):
            continue
        tags = tags_of(disk.path)
        tags = {name: text for name, text in tags.items() if not only or name == value}
        if not tags:
            continue
        code = 0
        if "value" in words:  # -o value
            print("\n".join(tags.values()))
        else:
            text = " ".join(f'{name}="{text}"' for name, text in tags.items())
            print(f"/dev/{disk.device}: {text}")
    return code


def usages() -> "list[FileSystem]":
    """The file systems that a machine with these disks would have."""
    boot = ask(action="boot")
    size, used = boot.sizeGb << 30, boot.usedBytes
    free = min(max(size - used, 0), shutil.disk_usage("/").free)
    counts = os.statvfs("/")
    systems = [
        FileSystem("/dev/sda", "ext4", "/", size, used, free, counts.f_files, counts.f_ffree)
    ]
    for source, folder, kind, _ in mounts():
        if not source.startswith("/dev/sd") and folder not in _MEMORY:
            continue
        one = os.statvfs(folder)
        size, free = one.f_frsize * one.f_blocks, one.f_frsize * one.f_bavail
        used = size - one.f_frsize * one.f_bfree
        name = source if source.startswith("/dev/") else "tmpfs"
        kind = kind if kind == "tmpfs" else "ext4"
        systems.append(FileSystem(name, kind, folder, size, used, free, one.f_files, one.f_ffree))
    return systems


def size_text(count: int, unit: str) -> str:
    """`count` bytes: in units of so many bytes, rounded up, or (`h`, `H`) as people read it."""
    if unit not in ("h", "H"):
        return str(-(-count // int(unit)))
    step = 1024 if unit == "h" else 1000
    size, letters = float(count), iter("KMGTPE" if unit == "h" else "kMGTPE")
    letter = ""
    while size >= step and (following := next(letters, "")):
        size, letter = size / step, following
    if letter and size < 10 and (tenths := -int(-size * 10 // 1)) < 100:
        return f"{tenths / 10:.1f}{letter}"
    return f"{-int(-size // 1)}{letter}"


class DiskFree:
    """A command line of df(1). Raises ValueError with the option that is not known."""

    def __init__(self, words: "list[str]") -> None:
        self.unit, self.suffix, self.kinds, self.without = "1024", "", [""], [""]
        self.fields = ["source", "size", "used", "avail", "pcent", "target"]
        self.paths: list[str] = []
        rest = iter(words)
        for word in rest:
            name, sign, value = word.partition("=")
            if word.startswith("-B") or name in ("--block-size", "--type", "--exclude-type"):
                value = (
                    value if sign else word[2:] if word[2:3] not in ("", "-") else next(rest, "")
                )
                self._take({"--type": "t", "--exclude-type": "x"}.get(name, "B"), value)
            elif name == "--output":
                self.fields = value.split(",") if sign else list(_HEADS)
            elif word.startswith("--"):
                self._take(_LONG_OPTIONS.get(word, word), "")
            elif word.startswith("-") and word != "-":
                for letter in word[1:]:
                    self._take(letter, next(rest, "") if letter in "tx" else "")
            else:
                self.paths.append(word)
        unknown = [field for field in self.fields if field not in _HEADS]
        if unknown:
            raise ValueError(f"--output={unknown[0]}")

    def _take(self, option: str, value: str) -> None:
        if option in ("h", "H", "k", "m"):
            self.unit = {"k": "1024", "m": str(1 << 20)}.get(option, option)
        elif option == "B":
            letter = value.lstrip("0123456789")[:1].upper()
            if letter not in _POWERS:
                raise ValueError(f"-B {value}")
            count = value[: len(value) - len(value.lstrip("0123456789"))]
            self.unit = str(int(count or 1) << 10 * _POWERS.index(letter))
            self.suffix = "" if count else letter
        elif option == "T" and "fstype" not in self.fields:
            self.fields.insert(1, "fstype")
        elif option == "i":
            self.fields = ["source", "itotal", "iused", "iavail", "ipcent", "target"]
        elif option in ("t", "x"):
            (self.kinds if option == "t" else self.without).append(value)
        elif option not in ("P", "l", "a", "T"):
            raise ValueError(option if option.startswith("-") else f"-{option}")

    def takes(self, system: "FileSystem") -> bool:
        """By its type."""
        return (
            len(self.kinds) == 1 or system.kind in self.kinds
        ) and system.kind not in self.without


def df(words: "list[str]") -> int:
    try:
        call = DiskFree(words)
    except ValueError as error:
        return fail(
            "df",
            f"{error} is not supported: use -h, -H, -k, -m, -B, -T, -t, -x, -i, --output",
            USAGE,
        )
    every, code = usages(), 0
    rows = [system for system in every if call.takes(system)]
    if call.paths:
        rows = []
        for path in call.paths:
            if not Path(path).exists():
                code = fail("df", f"{path}: No such file or directory", USAGE)
                continue
            real = os.path.realpath(path)
            rows.append(
                max((one for one in every if one.covers(real)), key=lambda one: len(one.target))
            )
    heads = {
        **_HEADS,
        "size": "Size" if call.unit in "hH" else f"{size_text(int(call.unit), 'h')}-blocks",
    }
    lines = [[heads[field] for field in call.fields]]
    lines += [[row.show(field, call.unit, call.suffix) for field in call.fields] for row in rows]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for line in lines if rows else ():
        cells = (
            text.ljust(width) if field in ("source", "fstype", "target") else text.rjust(width)
            for text, width, field in zip(line, widths, call.fields, strict=True)
        )
        print(" ".join(cells).rstrip())
    return code


def make(name: str, words: "list[str]") -> int:
    """Run mke2fs so that the box's only user owns the file system: without root a box has no other
    that could."""
    words = [*words]
    if "-E" in words[:-1]:
        words[words.index("-E") + 1] += f",{_OWNER}"
    else:
        words = ["-E", _OWNER, *words]
    os.execv(f"/usr/sbin/{name}", [name, *words])


def main() -> int:
    name, words = Path(sys.argv[0]).name, sys.argv[1:]
    if name.startswith("mk"):
        return make(name, words)
    try:
        return {"mount": mount, "umount": umount, "lsblk": lsblk, "blkid": blkid, "df": df}[name](
            words
        )
    except OSError as error:
        return fail(name, f"the host does not answer: {error}")


if __name__ == "__main__":
    sys.exit(main())
