"""The metadata with all tables: importing their modules fills it."""

from __future__ import annotations

from podyard.db.tables import access as tables_access
from podyard.db.tables import base as tables
from podyard.db.tables import billing as tables_billing
from podyard.db.tables import compute as tables_compute
from podyard.db.tables import exports as tables_exports
from podyard.db.tables import faults as tables_faults
from podyard.db.tables import jobs as tables_jobs
from podyard.db.tables import queue as tables_queue
from podyard.db.tables import storage as tables_storage

assert tables_access and tables_billing and tables_compute and tables_exports
assert tables_faults and tables_jobs and tables_queue and tables_storage

metadata = tables.metadata
