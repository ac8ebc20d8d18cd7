"""gcsfs as its documentation shows it. Prints one line of JSON: what each case has come to."""

import hashlib
import json
import sys
import tempfile
import traceback
from pathlib import Path

import gcsfs

DATA = hashlib.sha256(b"gcsfs").digest() * 60_000


def whole(fs, root):
    fs.pipe(f"{root}/a/b", b"hello")
    assert fs.cat(f"{root}/a/b") == b"hello"
    assert fs.ls(f"{root}/a") == [f"{root}/a/b"]
    assert fs.info(f"{root}/a/b")["size"] == 5
    assert fs.isdir(f"{root}/a") and fs.isfile(f"{root}/a/b") and not fs.exists(f"{root}/c")
    fs.pipe({f"{root}/many/{number}": str(number).encode() for number in range(50)})
    assert fs.cat(fs.find(f"{root}/many"))[f"{root}/many/7"] == b"7"
    assert fs.cat_file(f"{root}/a/b", start=1, end=3) == b"el"
    assert fs.cat_ranges([f"{root}/a/b"] * 2, [0, 2], [2, 4]) == [b"he", b"ll"]


def streams(fs, root):
    with fs.open(f"{root}/large", "wb", block_size=2**18) as file:
        for at in range(0, len(DATA), 70_001):
            file.write(DATA[at : at + 70_001])
    with fs.open(f"{root}/large", "rb", block_size=2**18) as file:
        file.seek(123_456)
        assert file.read(100) == DATA[123_456:123_556]
        file.seek(0)
        assert hashlib.md5(file.read()).digest() == hashlib.md5(DATA).digest()
    with fs.open(f"{root}/small", "w") as file:
        file.write("é")
    assert fs.cat(f"{root}/small") == "é".encode()
    with fs.open(f"{root}/empty", "wb"):
        pass
    assert fs.cat(f"{root}/empty") == b""


def trees(fs, root):
    with tempfile.TemporaryDirectory() as folder:
        for name in ("x", "d/y", "d/e/z"):
            path = Path(folder) / "src" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(name)
        fs.put(f"{folder}/src", f"{root}/tree", recursive=True)
        assert sorted(fs.find(f"{root}/tree")) == [
            f"{root}/tree/{name}" for name in ("d/e/z", "d/y", "x")
        ]
        fs.get(f"{root}/tree", f"{folder}/back", recursive=True)
        assert (Path(folder) / "back" / "d" / "e" / "z").read_text() == "d/e/z"
    assert [name for name, _, _ in fs.walk(f"{root}/tree")] == [
        f"{root}/tree",
        f"{root}/tree/d",
        f"{root}/tree/d/e",
    ]
    assert sorted(fs.glob(f"{root}/tree/**/z")) == [f"{root}/tree/d/e/z"]
    fs.cp(f"{root}/tree", f"{root}/copy", recursive=True)
    fs.mv(f"{root}/copy/x", f"{root}/moved")
    assert fs.cat(f"{root}/moved") == b"x" and not fs.exists(f"{root}/copy/x")
    assert fs.du(f"{root}/tree") == 9
    fs.rm(f"{root}/tree", recursive=True)
    assert not fs.exists(f"{root}/tree")
    fs.rm([f"{root}/copy/d/y", f"{root}/copy/d/e/z"])


def metadata(fs, root):
    fs.pipe(f"{root}/m", b"1")
    fs.setxattrs(f"{root}/m", content_type="a/b", key="value")
    assert fs.getxattr(f"{root}/m", "key") == "value"
    assert fs.info(f"{root}/m")["contentType"] == "a/b"
    assert fs.checksum(f"{root}/m") and fs.created(f"{root}/m") and fs.modified(f"{root}/m")


def joined(fs, root):
    fs.pipe({f"{root}/1": b"one", f"{root}/2": b"two"})
    fs.merge(f"{root}/both", [f"{root}/1", f"{root}/2"])
    assert fs.cat(f"{root}/both") == b"onetwo"
    with fs.transaction, fs.open(f"{root}/later", "wb") as file:
        file.write(b"1")
    assert fs.cat(f"{root}/later") == b"1"
    fs.touch(f"{root}/touched")
    assert fs.size(f"{root}/touched") == 0


def missing(fs, root):
    for call in (
        lambda: fs.cat(f"{root}/no"),
        lambda: fs.info(f"{root}/no"),
        lambda: fs.rm(f"{root}/no"),
    ):
        try:
            call()
        except FileNotFoundError:
            continue
        raise AssertionError("FileNotFoundError was expected")


CASES = (whole, streams, trees, metadata, joined, missing)


def main():
    fs = gcsfs.GCSFileSystem(project="demo", use_listings_cache=False)
    results = {}
    for case in CASES:
        root = f"gcsfs-{sys.argv[1]}-{case.__name__}"
        fs.mkdir(root)
        try:
            case(fs, root)
            fs.rm(root, recursive=True)
            results[case.__name__] = "ok"
        except Exception as error:
            traceback.print_exc(file=sys.stderr)
            results[case.__name__] = f"{type(error).__name__}: {error}"
    print(json.dumps(results))


main()
