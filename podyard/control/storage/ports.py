"""The port through which storage asks billing, which jobs may not import, and they import storage.
`podyard/control/__init__.py` wires it."""

from __future__ import annotations

from collections.abc import Callable

from podyard.db.store.unit_of_work import UnitOfWork

# (project): gives it a billing account, unless it has one.
open_account: Callable[[UnitOfWork, str], None]
# (project): a bucket of it has other labels from now on.
on_relabel: Callable[[UnitOfWork, str], None]
