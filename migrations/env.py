"""Alembic's entry: runs the revisions on the connection that `podyard.migrations.migrate` hands
over."""

from alembic import context
from sqlalchemy import text

from podyard.db.tables.all_tables import metadata
from podyard.migrations import LOCK

connection = context.config.attributes["connection"]
postgresql = connection.dialect.name == "postgresql"
context.configure(
    connection=connection,
    target_metadata=metadata,
    render_as_batch=True,
    transaction_per_migration=False,
    transactional_ddl=True,
)
if postgresql:
    with context.begin_transaction():
        connection.execute(LOCK)
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
