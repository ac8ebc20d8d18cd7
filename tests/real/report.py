"""The last lines of a run of the real tier."""

from __future__ import annotations

from collections.abc import Sequence

from tests.real.files import RealFile
from tests.real.session import Session


def closing_lines(
    session: Session,
    flaky_before: Sequence[str],
    files: int,
    left_out: Sequence[RealFile],
    minutes: float,
) -> list[str]:
    """Return the failed and the flaky files, the counts of tests, and as the last line what ran and
    what did not.

    `flaky_before`: of the first tier; `files`: how many there are; `minutes`: how long the run
    took."""
    results = session.results.values()
    failed = sum(result.failed for result in results)
    passed = sum(result.done - result.skipped for result in results) - failed
    last = f"real: {files - len(left_out)} of {files} files ran in {minutes:.0f} min"
    if left_out:
        last += "; left out: " + ", ".join(file.name.removeprefix("tests/") for file in left_out)
    return [
        *(f"FAILED {name}" for name in session.failed),
        *(
            f"FLAKY {name}: enter it in tests/flaky.txt with its cause"
            for name in (*flaky_before, *session.flaky)
        ),
        f"{max(passed, 0)} passed, {failed} failed",
        last,
    ]
