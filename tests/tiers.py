"""The tier of each test: `make test` runs one, `make real` the other.

`make test` is run whole before each change lands, so it has 15 minutes on two quiet cores. Its
tests run in the processes of the test run, but for the smoke tests: ten that start real processes,
and one pass of the browser. Tests marked `long` are of a tier, too, and left out of both: `make
long` runs them.
"""

from __future__ import annotations

import enum
from collections.abc import Collection, Mapping

SMOKE_MARKER = "smoke"
REAL_MARKER = "real"
# The folders whose tests start real processes: stacks, machines, a browser, clients with their
# environments.
REAL_FOLDERS = ("tests/browser/", "tests/clients/", "tests/distributed/")
# Code that asks which database it is on, or reads into JSON, and the files of tests that show it on
# PostgreSQL in `make test`. Elsewhere both databases are sent the same statements: there PostgreSQL
# is for `make real`.
SQL_DIFFERS: Mapping[str, tuple[str, ...]] = {
    "podyard/db/views/copies.py": ("tests/store/test_copies.py", "tests/store/test_backup.py"),
    "podyard/db/access/credentials.py": ("tests/store/test_retention.py",),
    "podyard/db/store/documents.py": (),  # it is asked on SQLite alone
    "podyard/db/engines/driver.py": ("tests/store/test_idempotency.py",),
    "podyard/db/store/inline.py": (),  # a database in the memory of a process: SQLite alone
    "podyard/db/compute/instances.py": ("tests/store/instances/test_lists.py",),
    "podyard/db/jobs/jobs.py": ("tests/store/test_job_slices.py",),
    "podyard/db/views/lists.py": ("tests/store/test_lists.py", "tests/store/test_labels.py"),
    "podyard/db/views/list_queries.py": ("tests/store/test_lists.py", "tests/store/test_labels.py"),
    "podyard/db/views/instance_lists.py": ("tests/store/instances/test_lists.py",),
    "podyard/db/store/row_queries.py": ("tests/store/test_lists.py",),
    "podyard/db/store/request_ids.py": ("tests/store/test_idempotency.py",),
    "podyard/db/views/retention.py": ("tests/store/test_retention.py",),
    "podyard/db/engines/server_time.py": ("tests/store/test_server_time.py",),
    "podyard/db/store/unit_of_work.py": ("tests/store/test_units_of_work.py",),
    "podyard/db/store/unserved.py": (
        "tests/store/test_idempotency.py",
    ),  # by the statement that driver.py makes
    "podyard/db/billing/usage_events.py": ("tests/store/test_billing_closing.py",),
    "podyard/db/store/yard.py": ("tests/store/test_units_of_work.py",),
    "migrations/__init__.py": ("tests/store/test_tables_of_control.py",),
    "migrations/env.py": (
        "tests/store/test_tables_of_control.py",
        "tests/store/test_older_data.py",
    ),
}
_ON_BOTH = frozenset(file for files in SQL_DIFFERS.values() for file in files)


class Tier(enum.StrEnum):
    TEST = "test"
    REAL = "real"


def tier_of(file: str, markers: Collection[str], *, on_postgresql: bool) -> Tier:
    """Return the tier of a test in `file` (from the root of the repository, with slashes).

    `on_postgresql`: it runs on a PostgreSQL server in the process of the test run."""
    if SMOKE_MARKER in markers:
        return Tier.TEST
    if REAL_MARKER in markers or file.startswith(REAL_FOLDERS):
        return Tier.REAL
    return Tier.REAL if on_postgresql and file not in _ON_BOTH else Tier.TEST
