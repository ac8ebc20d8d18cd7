"""fsspec's own suite for file systems, on gcsfs. Prints one line of JSON: what each test has come
to.

The suite comes with fsspec: copies, downloads, uploads and opened files, with slashes and patterns
of all kinds.
"""

import contextlib
import json
import sys

import gcsfs
import pytest
from fsspec.tests.abstract import (
    AbstractCopyTests,
    AbstractFixtures,
    AbstractGetTests,
    AbstractOpenTests,
    AbstractPipeTests,
    AbstractPutTests,
)

BUCKET = "storage-fsspec"


class OnStorage(AbstractFixtures):
    @pytest.fixture(scope="class")
    def fs(self):
        return gcsfs.GCSFileSystem(project="demo", use_listings_cache=False)

    @pytest.fixture
    def fs_path(self):
        return BUCKET

    @pytest.fixture
    def fs_join(self):
        return lambda *parts: "/".join(parts)

    @pytest.fixture
    def supports_empty_directories(self):
        return False  # a folder is the beginning of names


class TestCopy(AbstractCopyTests, OnStorage):
    pass


class TestGet(AbstractGetTests, OnStorage):
    pass


class TestPut(AbstractPutTests, OnStorage):
    pass


class TestPipe(AbstractPipeTests, OnStorage):
    pass


class TestOpen(AbstractOpenTests, OnStorage):
    def test_open_exclusive(self, fs, fs_target):
        """gcsfs asks when the file is written, and not yet when it is opened."""
        fs.pipe(fs_target, b"data")
        with pytest.raises(FileExistsError), fs.open(fs_target, "xb") as file:
            file.write(b"other")
        assert fs.cat(fs_target) == b"data"


class Results:
    """Of each test; the first thing that is not right counts."""

    def __init__(self):
        self.found = {}

    def pytest_runtest_logreport(self, report):
        name = report.nodeid.partition("::")[2]
        if report.outcome == "passed":
            self.found.setdefault(name, "ok")
        elif self.found.get(name, "ok") == "ok":
            self.found[name] = report.outcome


def main():
    results = Results()
    options = (
        "-q",
        "-p",
        "no:cacheprovider",
        "-c",
        "/dev/null",
        "--rootdir",
        ".",
        "--tb=short",
        "--noconftest",
    )
    with contextlib.redirect_stdout(sys.stderr):
        pytest.main([__file__, *options], plugins=[results])
    print(json.dumps(results.found))


if __name__ == "__main__":
    main()
