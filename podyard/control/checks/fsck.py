"""Checks that a database keeps the invariants of the platform, and what is wrong where.

The rules look at rows only, and go by the tables of states, the geometry of pods and the rate card,
never by the code that wrote the rows: what they recompute, they recompute in another way.
`docs/internals/simulation.md` lists them.
I8 (processes of machines), I12 (what a caller can infer) and I18 (bits of a training run) show in a
database only in part; the tests of machines, of the wire and of the engine have the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from podyard.control.checks.fsck_bill import check_bill
from podyard.control.checks.fsck_chips import check_chips
from podyard.control.checks.fsck_history import check_history
from podyard.control.checks.fsck_jobs import check_jobs
from podyard.control.checks.fsck_requests import check_requests
from podyard.control.checks.fsck_violation import Violation
from podyard.db.store.unit_of_work import UnitOfWork
from podyard.db.views.fsck import Records, load
from podyard.domain.fleet import Fleet
from podyard.pricing.sku import RateCard

__all__ = ["VIOLATIONS_MAX", "Violation", "check"]

VIOLATIONS_MAX = 1000  # a person reads the first ones; a broken database has as many as it has rows
_RULES: tuple[Callable[[Records, Fleet], Iterator[Violation]], ...] = (
    check_chips,
    check_history,
    check_jobs,
    check_requests,
)


def check(uow: UnitOfWork, fleet: Fleet, card: RateCard, after_seq: int = 0) -> list[Violation]:
    """Return what is wrong, by invariant and time; empty when nothing is. Reads only.

    `after_seq`: of what has a history, looks only at what lives or has changed after this event; 0:
    at everything.
    """
    records = load(uow, after_seq)
    found = [violation for rule in _RULES for violation in rule(records, fleet)]
    found += check_bill(uow, records, card)
    return sorted(found, key=lambda v: (int(v.invariant[1:]), v.at, v.resource, v.detail))[
        :VIOLATIONS_MAX
    ]
