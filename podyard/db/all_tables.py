"""The metadata with all tables: importing their modules fills it."""

from __future__ import annotations

from podyard.db import (
    tables,
    tables_access,
    tables_billing,
    tables_compute,
    tables_exports,
    tables_faults,
    tables_jobs,
    tables_queue,
    tables_storage,
)

assert tables_access and tables_billing and tables_compute and tables_exports
assert tables_faults and tables_jobs and tables_queue and tables_storage

metadata = tables.metadata
