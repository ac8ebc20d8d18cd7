"""Removes what nobody needs any more: contents that no row names, and uploads that were given
up."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from itertools import islice

from podyard.base.clock import NANOS_PER_SECOND, RealClock
from podyard.base.contents import SWEEP_AGE_SECONDS, Contents
from podyard.db.storage import storage
from podyard.db.store.unit_of_work import Database
from podyard.db.views import contents as content_rows
from podyard.domain.stored import UPLOAD_SECONDS_MAX

_BATCH = 500  # digests of one statement


def sweep(database: Database, contents: Contents, clock: RealClock) -> int:
    """Returns how many contents it has removed. Contents and parts that are younger than an hour
    stay: a unit of work may be about to name them."""
    now = clock.now()
    database.run(lambda uow: storage.remove_old_uploads(uow, now.plus_seconds(-UPLOAD_SECONDS_MAX)))
    before_seconds = now.nanos / NANOS_PER_SECOND - SWEEP_AGE_SECONDS
    removed = 0
    for digests in _batches(contents.old_digests(before_seconds)):
        named = database.read(partial(content_rows.digests_in_use, digests=digests))
        removed += sum(
            contents.remove(digest, before_seconds) for digest in digests if digest not in named
        )
    for names in _batches(contents.old_partials(before_seconds)):
        # A part is named after its upload: ID.NUMBER.
        ids = sorted({name.partition(".")[0] for name in names})
        going_on = database.read(partial(storage.present_uploads, upload_ids=ids))
        for name in names:
            if name.partition(".")[0] not in going_on:
                contents.discard_partial(name)
    return removed


def _batches(names: Iterable[str]) -> Iterator[list[str]]:
    rest = iter(names)
    while batch := list(islice(rest, _BATCH)):
        yield batch
