"""More wrong variants: those that reviewers have planted, and those that a named test notices,
since a simulation has neither callers without rights nor training."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from podyard.base.clock import RealTime
from podyard.control.billing import bill_lines, invoices
from podyard.control.compute import quota
from podyard.control.jobs import reconcile
from podyard.control.platform import idempotency
from podyard.db.access import credentials
from podyard.db.compute import slices
from podyard.db.store import ledger
from podyard.db.store.unit_of_work import UnitOfWork
from podyard.db.tables.billing import usage_events
from podyard.domain.principal import Principal
from podyard.engine.training.order import DataOrder
from podyard.pricing import corrections, meter
from podyard.scheduler import attempts as rules
from tests.simulation.mutant import A_MINUTE, BROKEN_CHIPS, FORTY_NINE, ignoring, mutant, no_timer


@mutant("I1", 0, 1, 2)
def chips_are_released_twice(patch: pytest.MonkeyPatch) -> None:
    """The second release takes the chips of somebody else in the pod."""
    release = slices.release

    def changed(uow: UnitOfWork, node_key: str) -> None:
        pods = {item.pod_id for item in slices.list_all(uow) if item.node_key == node_key}
        release(uow, node_key)
        for item in slices.list_all(uow)[:1]:
            if item.pod_id in pods:
                release(uow, item.node_key)

    patch.setattr(slices, "release", changed)


@mutant("I3", 0, 2, 6)
def a_gap_of_the_loop_is_held_against_those_who_could_not_report(patch: pytest.MonkeyPatch) -> None:
    lose = reconcile.lose_silent_replicas
    patch.setattr(reconcile, "lose_silent_replicas", lambda uow, _: lose(uow, RealTime(0)))


@mutant("I8", 0, 1, 2)
def an_attempt_ends_while_a_replica_lives(patch: pytest.MonkeyPatch) -> None:
    settle = rules.settle

    def changed(*args: Any) -> Any:
        found = settle(*args)
        return dataclasses.replace(found, is_over=found.is_over or found.outcome is not None)

    patch.setattr(rules, "settle", changed)


@mutant("I6", 0, events=BROKEN_CHIPS)
def the_meter_does_not_hear_of_a_restart(patch: pytest.MonkeyPatch) -> None:
    insert = UnitOfWork.insert
    wrong = ignoring(
        insert, lambda uow, table, row, **_: table is usage_events and row["state"] == "RESTARTING"
    )
    patch.setattr(UnitOfWork, "insert", wrong)


@mutant("I13", 0, events=BROKEN_CHIPS)
def the_end_of_a_restart_is_lost(patch: pytest.MonkeyPatch) -> None:
    no_timer(patch, "node.restarted")


@mutant("I6", 0, events=A_MINUTE)
def a_minute_is_free_and_its_last_instant_too(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(meter, "PREEMPT_FREE_SECONDS", meter.PREEMPT_FREE_SECONDS + 1)


@mutant("I6", 0, 1, 2)
def a_second_too_many_is_counted(patch: pytest.MonkeyPatch) -> None:
    union = meter.union_of_seconds
    patch.setattr(
        meter,
        "union_of_seconds",
        lambda ranges: [range(item.start, item.stop + 1) for item in union(ranges)],
    )


@mutant("I9", 0, events=FORTY_NINE)
def a_quota_lets_one_more_in(patch: pytest.MonkeyPatch) -> None:
    limit = quota._limit
    patch.setattr(quota, "_limit", lambda *args: limit(*args) + 1)


@mutant("I11", 0, 1, 2)
def a_request_id_ignores_the_body(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(idempotency, "_digest", lambda *_: "0" * 64)


@mutant("I6", test="tests/store/test_billing.py::test_a_month_is_closed_once_and_books_once")
def one_side_of_a_transaction_is_not_booked(patch: pytest.MonkeyPatch) -> None:
    book = ledger.book

    def changed(
        uow: UnitOfWork, project: str, source_id: str, month: str, postings: Any, text: str
    ) -> Any:
        return book(uow, project, source_id, month, postings[:-1], text)

    patch.setattr(ledger, "book", changed)


def _history(seed: int) -> str:
    return (
        "tests/store/"
        f"test_billing_histories.py::test_all_surfaces_say_the_same_of_a_history[{seed}]"
    )


@mutant("I6", test=_history(4))
def an_explanation_has_one_price_version_of_its_line(patch: pytest.MonkeyPatch) -> None:
    explain = bill_lines.explain

    def changed(*args: Any, **how: Any) -> bill_lines.Explained:
        found = explain(*args, **how)
        return dataclasses.replace(
            found, parts=[part for part in found.parts if part.price == found.price]
        )

    patch.setattr(bill_lines, "explain", changed)


@mutant("I6", test=_history(1))
def an_item_of_a_correction_has_no_seconds(patch: pytest.MonkeyPatch) -> None:
    items = corrections.items
    patch.setattr(
        invoices,
        "items",
        lambda *args: tuple(dataclasses.replace(one, seconds=0) for one in items(*args)),
    )


@mutant("I6", test=_history(14))
def a_correction_states_earlier_items_again(patch: pytest.MonkeyPatch) -> None:
    items = corrections.items
    patch.setattr(invoices, "items", lambda now, issued, _: items(now, issued, ()))


@mutant("I12", test="tests/contract/test_roles_matrix.py::test_a_squatted_email_opens_nothing")
def a_role_opens_every_project(patch: pytest.MonkeyPatch) -> None:
    may = Principal.may
    patch.setattr(
        Principal,
        "may",
        lambda self, permission, _: any(may(self, permission, of) for of in self.roles),
    )


@mutant(
    "I12", test="tests/contract/test_roles_matrix.py::test_revoked_and_expired_tokens_open_nothing"
)
def a_revoked_token_still_opens(patch: pytest.MonkeyPatch) -> None:
    bearer = credentials.bearer

    def changed(uow: UnitOfWork, token_hash: str) -> Any:
        found = bearer(uow, token_hash)
        return None if found is None else dataclasses.replace(found, revoked=None)

    patch.setattr(credentials, "bearer", changed)


@mutant(
    "I18",
    test=(
        "tests/unit/engine/"
        "test_training.py::test_cifar_trains_augmented_and_resumes_in_the_same_bits"
    ),
)
def a_run_that_goes_on_begins_the_data_again(patch: pytest.MonkeyPatch) -> None:
    init = DataOrder.__init__

    def changed(
        self: DataOrder, seed: int, count: int, batch: int, before: int = 0, start: Any = None
    ) -> None:
        init(self, seed, count, batch, before)

    patch.setattr(DataOrder, "__init__", changed)
