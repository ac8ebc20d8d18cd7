"""Archives of users: what is refused, with what to do, and that nothing is written outside."""

from __future__ import annotations

import bz2
import gzip
import io
import os
import stat
import struct
import subprocess
import sys
import tarfile
import warnings
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from podyard.base import archives
from podyard.base.archives import ArchiveError, list_files, read_file, top_folder, unpack

Make = Callable[[Path], object]


def _zip(*names: str, mode: int = stat.S_IFREG | 0o644, data: bytes = b"x") -> Make:
    def make(path: Path) -> None:
        with zipfile.ZipFile(path, "w") as archive, warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of a name that is there twice
            for name in names:
                info = zipfile.ZipInfo("placeholder")
                info.filename, info.external_attr = name, mode << 16
                archive.writestr(info, b"" if name.endswith("/") else data)

    return make


def _raw_zip(
    name: bytes, *, flags: int = 0, extra: bytes = b"", size: int | None = None, method: int = 0
) -> Make:
    """A zip of one entry whose bytes are chosen."""

    def make(path: Path) -> None:
        data = b"x"
        said = len(data) if size is None else size
        head = struct.pack(
            "<HHHHHIIIHH",
            20,
            flags,
            method,
            0,
            33,
            0x8CDC1683,
            len(data),
            said,
            len(name),
            len(extra),
        )
        local = b"PK\x03\x04" + head + name + extra + data
        central = (
            b"PK\x01\x02"
            + struct.pack("<H", 20)
            + head
            + struct.pack("<HHHII", 0, 0, 0, 0, 0)
            + name
            + extra
        )
        end = b"PK\x05\x06" + struct.pack("<HHHHIIH", 0, 0, 1, 1, len(central), len(local), 0)
        path.write_bytes(local + central + end)

    return make


def _tar(*names: str, kind: bytes = tarfile.REGTYPE, link: str = "", mode: str = "w:gz") -> Make:
    def make(path: Path) -> None:
        with tarfile.open(path, mode) as archive:  # type: ignore[call-overload]
            for name in names:
                info = tarfile.TarInfo(name)
                info.type, info.linkname, info.size = (
                    kind,
                    link,
                    1 if kind == tarfile.REGTYPE else 0,
                )
                archive.addfile(info, io.BytesIO(b"x"))

    return make


def _cut(make: Make, share: float) -> Make:
    def cut(path: Path) -> None:
        make(path)
        data = path.read_bytes()
        path.write_bytes(data[: int(len(data) * share)])

    return cut


def _flip(make: Make, at: int) -> Make:
    def flip(path: Path) -> None:
        make(path)
        data = bytearray(path.read_bytes())
        data[at] ^= 0xFF
        path.write_bytes(data)

    return flip


def _zeros_zip(path: Path) -> None:
    with (
        zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive,
        archive.open("zeros", "w") as out,
    ):
        for _ in range(40):
            out.write(bytes(1 << 20))


def _zeros_tar(path: Path) -> None:
    with gzip.open(path, "wb", compresslevel=9) as out:
        info = tarfile.TarInfo("zeros")
        info.size = 40 << 20
        out.write(info.tobuf())
        for _ in range(40):
            out.write(bytes(1 << 20))


def _overlapping(path: Path) -> None:
    """Many entries of the directory that stand for one piece of data, as in zip bombs that nest
    nothing."""
    data = b"a" * (1 << 20)
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("0", data)
        (first,) = archive.infolist()
        for number in range(1, 100):
            info = zipfile.ZipInfo(f"{number}")
            for name in (
                "header_offset",
                "CRC",
                "compress_size",
                "file_size",
                "compress_type",
                "flag_bits",
            ):
                setattr(info, name, getattr(first, name))
            archive.filelist.append(info)
            archive.NameToInfo[info.filename] = info
    path.write_bytes(buffer.getvalue())


def _claims_huge_header(path: Path) -> None:
    """A header of names that says it has a gigabyte."""
    info = tarfile.TarInfo("././@LongLink")
    info.type, info.size = tarfile.GNUTYPE_LONGNAME, 1 << 30
    with gzip.open(path, "wb") as out:
        out.write(info.tobuf(tarfile.GNU_FORMAT))
        out.write(bytes(1 << 22))


def _claims_terabytes(path: Path) -> None:
    info = tarfile.TarInfo("big")
    info.size = 1 << 40
    path.write_bytes(info.tobuf(tarfile.GNU_FORMAT) + bytes(1024))


def _sparse(path: Path) -> None:
    info = tarfile.TarInfo("sparse")
    info.type = tarfile.GNUTYPE_SPARSE
    header = bytearray(info.tobuf(tarfile.GNU_FORMAT))
    header[386:398], header[398:410] = b"00000000000\0", b"00000000000\0"
    header[483:495] = b"77777777777\0"
    header[148:156] = b"        "
    header[148:156] = f"{sum(header):06o}\0 ".encode()
    path.write_bytes(bytes(header) + bytes(1024))


def _encrypted(path: Path) -> None:
    _raw_zip(b"a.py", flags=1)(path)


def _many(count: int) -> Make:
    def make(path: Path) -> None:
        with zipfile.ZipFile(path, "w") as archive:
            for number in range(count):
                archive.writestr(f"{number}", b"")

    return make


def _bytes(data: bytes) -> Make:
    return lambda path: path.write_bytes(data)


UNICODE_PATH = struct.pack("<HH", 0x7075, 5 + 8) + b"\1" + bytes(4) + b"other.py"
HOSTILE: list[tuple[str, str, Make, str]] = [
    ("absolute", "a.zip", _zip("/etc/passwd"), "absolute path"),
    ("absolute-tar", "a.tgz", _tar("/etc/passwd"), "absolute path"),
    ("absolute-two-slashes", "a.zip", _zip("//etc/passwd"), "absolute path"),
    ("drive", "a.zip", _zip("C:/x.py"), "absolute path"),
    ("drive-relative", "a.zip", _zip("c:x.py"), "absolute path"),
    ("drive-tar", "a.tar", _tar("D:x", mode="w"), "absolute path"),
    ("backslashes", "a.zip", _zip("..\\..\\x.py"), "backslash"),
    ("backslash-tar", "a.tgz", _tar("a\\b"), "backslash"),
    ("unc", "a.zip", _zip("\\\\server\\share"), "backslash"),
    ("up", "a.zip", _zip("../x.py"), r"leads outside"),
    ("up-inside", "a.zip", _zip("a/../../x.py"), r"leads outside"),
    ("up-and-back", "a.zip", _zip("a/../b.py"), r"leads outside"),
    ("up-at-end", "a.zip", _zip("a/.."), r"leads outside"),
    ("up-tar", "a.tgz", _tar("../../x"), r"leads outside"),
    ("up-after-dot", "a.tgz", _tar("./../x"), r"leads outside"),
    ("up-tar-xz", "a.tar.xz", _tar("../x", mode="w:xz"), r"leads outside"),
    ("up-tar-bz2", "a.tar.bz2", _tar("../x", mode="w:bz2"), r"leads outside"),
    ("link-zip", "a.zip", _zip("link", mode=stat.S_IFLNK | 0o777, data=b"/etc/passwd"),
        "link or a device"),
    ("pipe-zip", "a.zip", _zip("pipe", mode=stat.S_IFIFO | 0o644), "link or a device"),
    ("device-zip", "a.zip", _zip("sda", mode=stat.S_IFBLK | 0o644), "link or a device"),
    ("socket-zip", "a.zip", _zip("socket", mode=stat.S_IFSOCK | 0o644), "link or a device"),
    ("link-tar", "a.tgz", _tar("link", kind=tarfile.SYMTYPE, link="/etc"), "is a link"),
    ("link-relative", "a.tgz", _tar("link", kind=tarfile.SYMTYPE, link="a.py"), "is a link"),
    ("hard-link", "a.tgz", _tar("link", kind=tarfile.LNKTYPE, link="/etc/passwd"), "is a link"),
    ("character-device", "a.tar", _tar("null", kind=tarfile.CHRTYPE, mode="w"), "not a plain file"),
    ("block-device", "a.tar", _tar("sda", kind=tarfile.BLKTYPE, mode="w"), "not a plain file"),
    ("pipe-tar", "a.tar", _tar("pipe", kind=tarfile.FIFOTYPE, mode="w"), "not a plain file"),
    ("sparse", "a.tar", _sparse, "not a plain file|damaged|more than"),
    ("bomb-zip", "a.zip", _zeros_zip, "times its size"),
    ("bomb-tar", "a.tgz", _zeros_tar, "times its size"),
    ("bomb-overlapping", "a.zip", _overlapping, "times its size|damaged"),
    ("bomb-header", "a.tgz", _claims_huge_header, "header is longer|times its size"),
    ("terabytes", "a.tar", _claims_terabytes, "more than 4 GiB|damaged"),
    ("too-many", "a.zip", _many(archives.ENTRIES_MAX + 1), "more than 20000 entries"),
    ("case", "a.zip", _zip("Train.py", "train.py"), "same name on some systems"),
    ("case-folder", "a.zip", _zip("Data/a", "data/b"), "same name on some systems"),
    ("case-tar", "a.tgz", _tar("README", "readme"), "same name on some systems"),
    ("composed", "a.zip", _zip("caf\u00e9.py", "cafe\u0301.py"), "same name on some systems"),
    ("ligature", "a.zip", _zip("\ufb01le.py", "file.py"), "same name on some systems"),
    ("sharp-s", "a.zip", _zip("stra\u00dfe", "STRASSE"), "same name on some systems"),
    ("wide", "a.zip", _zip("\uff54rain.py", "train.py"), "same name on some systems"),
    ("twice", "a.zip", _zip("a.py", "a.py"), "there twice"),
    ("twice-dotted", "a.tgz", _tar("a.py", "./a.py"), "there twice"),
    ("file-and-folder", "a.zip", _zip("a", "a/b"), "both a file and a folder"),
    ("folder-and-file", "a.zip", _zip("a/b", "a"), "both a file and a folder"),
    ("newline", "a.zip", _zip("a\nb.py"), "cannot be shown"),
    ("escape", "a.zip", _zip("a\x1b[2J.py"), "cannot be shown"),
    ("backwards", "a.zip", _zip("yp.\u202ecod.py"), "cannot be shown"),
    ("zero-width", "a.zip", _zip("tra\u200bin.py"), "cannot be shown"),
    ("nul", "a.zip", _raw_zip(b"a.py\0.txt"), "cannot be shown"),
    ("surrogate-tar", "a.tar", _tar("a\udcff.py", mode="w"), "cannot be shown"),
    ("newline-tar", "a.tgz", _tar("a\nb"), "cannot be shown"),
    ("second-name", "a.zip", _raw_zip(b"train.py", extra=UNICODE_PATH), "second name"),
    ("long-name", "a.zip", _zip("a" * 300), "longer than 255"),
    ("long-path", "a.zip",
        _zip("/".join(["abcdefghij"] * 39) + "/" + "b" * 250 + "/" + "c" * 250 + "/" + "d" * 250),
     "too long"),
    ("deep", "a.zip", _zip("/".join("a" * 50)), "too long"),
    ("password", "a.zip", _encrypted, "has a password"),
    ("method", "a.zip", _raw_zip(b"a.py", method=97), "cannot be unpacked|damaged"),
    ("lies-about-size", "a.zip", _raw_zip(b"a.py", size=5), "damaged|says 5 bytes"),
    ("empty-zip", "a.zip", _zip(), "no files"),
    ("folders-only", "a.zip", _zip("a/", "a/b/"), "no files"),
    ("empty-tar", "a.tgz", _tar(), "no files"),
    ("empty-file", "a.zip", _bytes(b""), "damaged"),
    ("empty-tgz", "a.tgz", _bytes(b""), "damaged"),
    ("text-as-zip", "a.zip", _bytes(b"print('hello')\n"), "damaged"),
    ("zip-as-tgz", "a.tgz", _zip("a.py"), "damaged"),
    ("tgz-as-zip", "a.zip", _tar("a.py"), "damaged"),
    ("gzip-of-text", "a.tgz", _bytes(gzip.compress(b"hello" * 1000)), "damaged"),
    ("bz2-of-text", "a.tar.bz2", _bytes(bz2.compress(b"hello" * 1000)), "damaged"),
    ("cut-zip", "a.zip", _cut(_zip("a.py", "b.py", data=b"x" * 1000), 0.5), "damaged"),
    ("cut-tgz", "a.tgz", _cut(_tar("a.py", "b.py"), 0.6), "damaged"),
    ("cut-tar", "a.tar", _cut(_tar("a.py", "b.py", mode="w"), 0.05), "damaged"),
    ("flipped-zip", "a.zip", _flip(_zip("a.py", data=b"x" * 100), 45), "damaged"),
    ("rar", "a.rar", _bytes(b"Rar!\x1a\x07"), "not an archive or a program"),
    ("no-suffix", "train", _bytes(b"x"), "not an archive or a program"),
    ("notebook", "a.ipynb", _bytes(b"{}"), "not an archive or a program"),
]  # fmt: skip


def test_there_are_sixty_at_least() -> None:
    assert len(HOSTILE) >= 60
    assert len({name for name, *_ in HOSTILE}) == len(HOSTILE)


@pytest.mark.parametrize(
    ("name", "make", "why"), [pytest.param(*row, id=key) for key, *row in HOSTILE]
)
def test_a_hostile_archive_is_refused_and_nothing_is_written(
    tmp_path: Path, name: str, make: Make, why: str
) -> None:
    path = tmp_path / "uploaded"
    make(path)
    with pytest.raises(ArchiveError, match=why):
        list_files(path, name)
    (tmp_path / "inside").mkdir()
    with pytest.raises(ArchiveError, match=why):
        unpack(path, name, tmp_path / "inside" / "target")
    left = [item for item in tmp_path.rglob("*") if item.is_file() and item != path]
    assert left == []


@pytest.mark.parametrize(
    ("name", "make"),
    [
        ("a.zip", _zip("src/train.py", "src/sub/b.py", "src/sub/")),
        ("a.zip", _zip("./src/train.py", "src//sub/b.py")),
        ("a.tgz", _tar("./src/train.py", "src/sub/b.py")),
        ("a.tar.gz", _tar("src/train.py", "src/sub/b.py")),
        ("A.TAR.XZ", _tar("src/train.py", "src/sub/b.py", mode="w:xz")),
        ("a.tar", _tar("src/train.py", "src/sub/b.py", mode="w")),
    ],
)
def test_what_is_plain_is_unpacked_without_its_top_folder(
    tmp_path: Path, name: str, make: Make
) -> None:
    path = tmp_path / "uploaded"
    make(path)
    files = list_files(path, name)
    assert files == ["src/train.py", "src/sub/b.py"]
    assert top_folder(files) == "src"
    assert read_file(path, name, "src/train.py") == b"x"
    target = tmp_path / "target"
    target.mkdir()
    (target / "train.py").symlink_to(tmp_path / "elsewhere")
    with path.open("rb") as source:
        command = [
            sys.executable,
            "-I",
            "-S",
            str(Path(archives.__file__).resolve()),
            name,
            str(target),
            "src",
        ]
        done = subprocess.run(command, stdin=source, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert sorted(p.relative_to(target).as_posix() for p in target.rglob("*") if p.is_file()) == [
        "sub/b.py",
        "train.py",
    ]
    assert not (tmp_path / "elsewhere").exists(), "a link that was there is replaced, not followed"


def test_a_file_keeps_the_right_to_be_run_and_no_other(tmp_path: Path) -> None:
    path = tmp_path / "uploaded"
    _zip("run.sh", mode=stat.S_IFREG | 0o6777)(path)
    unpack(path, "a.zip", tmp_path / "target")
    assert (
        stat.S_IMODE((tmp_path / "target" / "run.sh").stat().st_mode) & ~os_umask()
        == 0o755 & ~os_umask()
    )


def os_umask() -> int:
    found = os.umask(0)
    os.umask(found)
    return found


def test_a_single_program_is_put_under_its_name(tmp_path: Path) -> None:
    (tmp_path / "uploaded").write_bytes(b"print(1)")
    assert list_files(tmp_path / "uploaded", "train.py") == ["train.py"]
    unpack(tmp_path / "uploaded", "train.py", tmp_path / "target")
    assert (tmp_path / "target" / "train.py").read_bytes() == b"print(1)"


def test_a_package_keeps_its_folder() -> None:
    assert top_folder(["model/__init__.py", "model/train.py"]) == ""
    assert top_folder(["a/x.py", "b/y.py"]) == top_folder(["x.py"]) == ""
