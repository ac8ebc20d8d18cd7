"""A file of tests before it runs, and its result."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Collection, Iterable, Sequence

CLIENTS = "tests/clients/"


@dataclasses.dataclass(frozen=True)
class RealFile:
    """`tests`: how many of its tests are of the tier; `group`: files of one group take turns ("":
    of none); `environments`: the client environments that its tests need."""

    name: str
    tests: int
    group: str = ""
    environments: tuple[str, ...] = ()

    @property
    def is_client(self) -> bool:
        return self.name.startswith(CLIENTS)


@dataclasses.dataclass(frozen=True)
class FileResult:
    """`done`: tests that have ended, of which `failed` failed and `skipped` were skipped; `seconds`
    of one worker."""

    name: str
    tests: int
    done: int = 0
    failed: int = 0
    skipped: int = 0
    seconds: float = 0.0

    @property
    def is_whole(self) -> bool:
        return self.done >= self.tests

    @property
    def has_passed(self) -> bool:
        return self.is_whole and not self.failed


def read_collected(lines: Iterable[str]) -> list[RealFile]:
    """Return the files of a collection that `--reports` has written, in their order."""
    counts: dict[str, int] = {}
    groups: dict[str, str] = {}
    for line in lines:
        item = json.loads(line)
        counts[item["file"]] = counts.get(item["file"], 0) + 1
        groups[item["file"]] = groups.get(item["file"]) or item["group"]
    return [RealFile(name, count, groups[name]) for name, count in counts.items()]


def read_results(files: Sequence[RealFile], lines: Iterable[str]) -> list[FileResult]:
    """Return the results of files from the reports of a run that `--reports` has written, whole or
    cut off.

    A test has ended with the report of its teardown. A crashed worker is a failed report without
    one."""
    reports = [json.loads(line) for line in lines]
    results = []
    for file in files:
        own = [report for report in reports if report["file"] == file.name]
        results.append(
            FileResult(
                file.name,
                file.tests,
                done=_tests(own, when="teardown"),
                failed=_tests(own, outcome="failed"),
                skipped=_tests(own, outcome="skipped"),
                seconds=sum(report["seconds"] for report in own),
            )
        )
    return results


def _tests(reports: Collection[dict[str, object]], **fields: str) -> int:
    """Count the tests that have a report with these fields."""
    return len({report["test"] for report in reports if fields.items() <= report.items()})
