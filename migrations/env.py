"""Alembic's entry: runs the revisions on the connection that `podyard.migrations.migrate` hands over."""

from alembic import context
from sqlalchemy import text

from podyard.db import (
    tables,
    tables_access,
    tables_billing,
    tables_compute,
    tables_exports,
    tables_faults,
    tables_jobs,
    tables_queue,
)

# Importing the modules fills the metadata.
assert tables_access and tables_billing and tables_compute and tables_exports
assert tables_faults and tables_jobs and tables_queue

connection = context.config.attributes["connection"]
postgresql = connection.dialect.name == "postgresql"
context.configure(
    connection=connection,
    target_metadata=tables.metadata,
    render_as_batch=True,
    transaction_per_migration=False,
    transactional_ddl=True,
)
if postgresql:
    with context.begin_transaction():
        # Two starting servers take turns; the number is only a name for this lock.
        connection.execute(text("SELECT pg_advisory_xact_lock(8700)"))
        context.run_migrations()
    connection.commit()
else:
    # The engine is in AUTOCOMMIT mode: we begin ourselves, and the driver ends what is still open.
    driver = connection.connection.driver_connection
    connection.execute(text("BEGIN IMMEDIATE"))
    try:
        context.run_migrations()
        driver.commit()
    except BaseException:
        driver.rollback()
        raise
