"""Downloads of published data sets, from a Python with the hook and no internet."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
from click.testing import CliRunner

from podyard.cli.kit.commands import root
from podyard.programs import hook_environment
from podyard.programs.datasets import checks
from podyard.programs.datasets.published import FOLDER_VARIABLE, SETS, file_of
from tests.unit.programs.datasets.published_sets import write_cifar10, write_mnist

KERAS = "https://storage.googleapis.com/tensorflow/tf-keras-datasets/"
# Port 9 of this machine answers nobody.
NO_INTERNET = dict.fromkeys(("http_proxy", "https_proxy"), "http://127.0.0.1:9")


def _fetch(folder: Path, url: str) -> subprocess.CompletedProcess[str]:
    """Run a program that downloads as Keras does."""
    program = (
        "import sys\nfrom urllib.request import urlretrieve\n"
        "path, answer = urlretrieve(sys.argv[1], sys.argv[2])\nprint(answer['Content-Length'])\n"
    )
    outside = {n: v for n, v in os.environ.items() if "proxy" not in n.lower()}
    return subprocess.run(
        [sys.executable, "-c", program, url, str(folder / "fetched")],
        env={**outside, **hook_environment({}), **NO_INTERNET, FOLDER_VARIABLE: str(folder)},
        capture_output=True,
        text=True,
        timeout=60,
    )


def test_a_file_that_was_added_is_what_a_download_gives(tmp_path: Path) -> None:
    (tmp_path / "mnist").mkdir()
    archive, *_ = write_mnist(tmp_path / "mnist")
    done = _fetch(tmp_path, f"{KERAS}mnist.npz")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "fetched").read_bytes() == archive.read_bytes()
    assert int(done.stdout) == archive.stat().st_size


@pytest.mark.parametrize(
    ("url", "command"),
    [
        (f"{KERAS}mnist.npz", "podyard dataset add mnist mnist.npz"),
        (
            f"{KERAS}t10k-labels-idx1-ubyte.gz",
            "podyard dataset add fashion_mnist t10k-labels-idx1-ubyte.gz",
        ),
        (
            "https://www.cs.toronto.edu/~kriz/cifar-10-python.tar.gz",
            "podyard dataset add cifar10 cifar-10-python.tar.gz",
        ),
    ],
)
def test_a_file_that_is_missing_is_named_with_the_command_that_adds_it(
    tmp_path: Path, url: str, command: str
) -> None:
    done = _fetch(tmp_path, url)
    assert done.returncode == 1
    last = done.stderr.strip().splitlines()[-1]
    assert "Connection refused" in last and last.endswith(f"{command}>")


def test_other_addresses_are_none_of_a_set() -> None:
    assert file_of(f"{KERAS}imdb.npz") is None
    assert file_of("https://example.com/mnist.npz") is None
    mnist = file_of("https://ossci-datasets.s3.amazonaws.com/mnist/t10k-images-idx3-ubyte.gz")
    assert mnist == ("mnist", "t10k-images-idx3-ubyte.gz")


def test_a_check_of_a_digest_accepts_what_was_added_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = ModuleType("utils")
    module.check_integrity = lambda path, md5=None: md5 is None and bool(path)  # type: ignore[attr-defined]
    checks.apply(module)
    folder, elsewhere = tmp_path / "folder", tmp_path / "elsewhere"
    (folder / "cifar10").mkdir(parents=True)
    elsewhere.mkdir()
    archive = write_cifar10(folder / "cifar10")
    copy, unpacked = elsewhere / archive.name, elsewhere / "test_batch"
    copy.write_bytes(archive.read_bytes())
    subprocess.run(
        ["tar", "-xzf", str(archive), "--strip-components=1", "-C", str(elsewhere)], check=True
    )
    monkeypatch.setenv(FOLDER_VARIABLE, str(folder))
    assert module.check_integrity(copy, "0") and module.check_integrity(unpacked, "0")
    unpacked.write_bytes(unpacked.read_bytes()[:-1] + b"!")
    assert not module.check_integrity(unpacked, "0")
    assert not module.check_integrity(elsewhere / "missing", "0")
    monkeypatch.delenv(FOLDER_VARIABLE)
    assert not module.check_integrity(copy, "0")


def _podyard(*words: str) -> tuple[int, str]:
    done = CliRunner().invoke(root, words)
    return done.exit_code, done.output or str(done.exception)


def test_files_are_added_by_their_published_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PODYARD_DATA", str(tmp_path / "data"))
    archive, *_ = write_mnist(tmp_path)
    mask = os.umask(0o077)  # as the platform has it
    try:
        code, text = _podyard("dataset", "add", "mnist", str(archive))
    finally:
        os.umask(mask)
    added = tmp_path / "data" / "datasets" / "mirror" / "mnist"
    modes = [path.stat().st_mode & 0o777 for path in (added.parent, added, added / "mnist.npz")]
    assert modes == [0o755, 0o755, 0o644]  # programs on nodes run as other users
    assert code == 0 and text.rstrip().endswith("mnist.npz: other content"), text
    _, text = _podyard("dataset", "list", "-o", "json")
    rows = {(row["dataset"], row["file"]): row for row in json.loads(text)}
    assert len(rows) == sum(len(item.files) for item in SETS)
    assert rows["mnist", "mnist.npz"]["bytes"] == archive.stat().st_size
    assert {row["state"] for row in rows.values()} == {"other content", "missing"}
    code, text = _podyard("dataset", "add", "cifar10", str(archive))
    assert code != 0 and "mnist.npz is not a file of cifar10: use cifar-10-python.tar.gz" in text
