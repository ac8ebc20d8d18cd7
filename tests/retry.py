"""`python -m tests.retry`: run each file of `make test` that has just failed once more, alone.

For `.ci/run` on a machine that stands still at times: a file that fails twice fails the run; one
that passes the second time is printed as `FLAKY file`, and goes into tests/flaky.txt with its
cause. Anything but failed tests (no tests, an internal error, a usage error) is not tried again,
nor is a file that is listed there.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests import flaky
from tests.tiers import Tier

CACHE = Path(".pytest_cache/v")
EXIT_STATUS = "podyard/exit-status"  # how the last run ended; null while one runs
FLAKY = "podyard/flaky"  # the files that passed the second time
FILES_MAX = 10  # more than these are no accident, and would take too long one at a time


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
    entries = _read(CACHE / "cache/lastfailed")
    failed = sorted({name.split("::")[0] for name in entries}) if isinstance(entries, dict) else []
    if status != int(pytest.ExitCode.TESTS_FAILED) or not failed:
        print(
            f"retry: the test run ended with status {status}, not with failed tests: nothing "
            "is tried again"
        )
        return 1
    known = flaky.known()
    for file in failed:
        if file in known:
            print(
                f"retry: {file} is listed in tests/flaky.txt ({known[file]}): nothing is repeated"
            )
            return 1
    if len(failed) > FILES_MAX:
        print(f"retry: {len(failed)} files failed, at most {FILES_MAX} are tried again")
        return 1
    print("retry: these failed, and run once more, one at a time:", *failed, sep="\n  ", flush=True)
    for file in failed:
        command = [
            sys.executable,
            "-m",
            "pytest",
            "-p",
            "no:cacheprovider",
            "--tier",
            Tier.TEST.value,
            "-n",
            "0",
            file,
        ]
        if subprocess.run(command).returncode != 0:
            return 1
    for file in failed:
        print(f"FLAKY {file}")
    (CACHE / FLAKY).write_text(json.dumps(failed), encoding="utf-8")
    return 0


def read_flaky() -> list[str]:
    """Return the files that passed the second time, since the cache was made."""
    files = _read(CACHE / FLAKY)
    return [str(file) for file in files] if isinstance(files, list) else []


def _read(path: Path) -> object:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None


if __name__ == "__main__":
    raise SystemExit(main())
