"""A plugin for pytest: `--reports FILE` writes the tests of a run, and how each ended, one JSON
object a line.

A run that is ended leaves the lines of the tests that were done. `tests/real` reads them.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--reports", type=Path, help="write the tests, or with a run their reports, to this file"
    )


def pytest_configure(config: pytest.Config) -> None:
    path: Path | None = config.getoption("--reports")
    if path is not None and not hasattr(config, "workerinput"):
        config.pluginmanager.register(_Writer(path), "podyard-reports")


class _Writer:
    def __init__(self, path: Path) -> None:
        self._path = path

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        if session.config.option.collectonly:
            for item in session.items:
                marker = item.get_closest_marker("xdist_group")
                self._write(
                    file=item.location[0], group="" if marker is None else str(marker.args[0])
                )

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        file, outcome = report.nodeid.split("::")[0], report.outcome
        self._write(
            file=file,
            test=report.nodeid,
            when=report.when,
            outcome=outcome,
            seconds=report.duration,
        )

    def _write(self, **fields: object) -> None:
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(fields) + "\n")
