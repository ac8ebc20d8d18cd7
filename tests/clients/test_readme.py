"""README, then the quickstart, as a newcomer follows them: a fresh clone, an empty home, each
command as it is printed, all on one yard."""

from __future__ import annotations

from pathlib import Path

from tests.conftest import require
from tests.distributed.documents import pages
from tests.distributed.documents.reader import PageReader

CLONE_SECONDS_MAX = 900  # with an empty package cache most of it is the download of JAX


def test_readme_and_quickstart_work_as_typed_one_after_the_other(tmp_path: Path) -> None:
    table = pages.read()
    reader = PageReader(tmp_path, CLONE_SECONDS_MAX)
    try:
        reader.read(table["README.md"])
        reader.stop()
        reader.read(table["docs/quickstart.md"])
    finally:
        reader.close()
    assert not reader.failures, "\n".join(map(str, reader.failures))
    require(None if reader.skipped else "all", "; ".join(reader.skipped))
