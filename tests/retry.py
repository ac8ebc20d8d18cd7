"""`python -m tests.retry`: run the tests that have just failed once more, alone.

For `.ci/run` on a machine that stands still at times: a test that fails twice fails the run; one
that passes the second time is printed as `FLAKY name`, and is to be mended. Anything but failed
tests (no tests, an internal error, a usage error) is not tried again.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.parts import PART_VARIABLE

CACHE = Path(".pytest_cache/v")
EXIT_STATUS = "podyard/exit-status"  # how the last run ended; null while one runs
FAILED_MAX = 20  # more than these are no accident, and would take too long one at a time


def pytest_configure(config: pytest.Config) -> None:
    _write(config, None)


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    _write(session.config, int(exitstatus))


def _write(config: pytest.Config, status: int | None) -> None:
    cache = getattr(config, "cache", None)  # None with `-p no:cacheprovider`
    if cache is not None and not hasattr(config, "workerinput"):
        cache.set(EXIT_STATUS, status)


def main() -> int:
    status = _read(CACHE / EXIT_STATUS)
    last_failed = CACHE / "cache/lastfailed"
    entries = _read(last_failed)
    # pytest-xdist appends the test's group to its id: `test_x@stack`.
    failed = (
        sorted(re.sub(r"@[^\]@]+$", "", name) for name in entries)
        if isinstance(entries, dict)
        else []
    )
    if status != int(pytest.ExitCode.TESTS_FAILED) or not failed:
        print(
            f"retry: the test run ended with status {status}, not with failed tests: nothing "
            "is tried again"
        )
        return 1
    if len(failed) > FAILED_MAX:
        print(f"retry: {len(failed)} tests failed, at most {FAILED_MAX} are tried again")
        return 1
    print("retry: these failed, and run once more, one at a time:", *failed, sep="\n  ", flush=True)
    last_failed.unlink()
    # each runs, whatever its part
    env = {name: value for name, value in os.environ.items() if name != PART_VARIABLE}
    if (
        subprocess.run([sys.executable, "-m", "pytest", "-n", "0", *failed], env=env).returncode
        != 0
    ):
        return 1
    for name in failed:
        print(f"FLAKY {name}")
    return 0


def _read(path: Path) -> object:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None


if __name__ == "__main__":
    raise SystemExit(main())
