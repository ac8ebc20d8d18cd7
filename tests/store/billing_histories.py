"""Drawn rate cards and histories of one or two projects: two to four nodes, and up to three buckets
and disks, over two or three months, closed one by one; the account of one project may pay for the
other, for a time. All surfaces must say the same of every month.

Nodes are created, stopped, taken back and relabelled by the use cases, and their timers are fired;
only the search for chips is left out. What becomes known late is done by a clock that stands
earlier for a moment.
`python -m tests.store.billing_histories` runs many; `--seed N` runs one again.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import functools
import itertools
import multiprocessing
import sys
import time
import traceback
from collections.abc import Callable
from random import Random
from typing import Any, TypeVar

from podyard.base.clock import NANOS_PER_SECOND, ClockMode, RealTime
from podyard.base.rng import Streams
from podyard.control.access import identity
from podyard.control.billing import accounts, commitments, credit_notes, invoices, links
from podyard.control.billing.invoice_document import from_json
from podyard.control.compute import nodes
from podyard.db.access import accounts as account_rows
from podyard.db.billing import invoice_records
from podyard.db.billing import invoices as invoice_rows
from podyard.db.compute import nodes as node_rows
from podyard.db.platform import state_changes
from podyard.db.store import platform_clock, timers
from podyard.db.store.timers import Timer
from podyard.db.store.unit_of_work import Database, UnitOfWork
from podyard.domain import months
from podyard.domain.account import Account
from podyard.domain.node import NodeRecord, NodeState, UsageClass
from podyard.domain.plan import Place
from podyard.domain.principal import PLATFORM
from podyard.hardware.torus import box_mask
from podyard.http import several_units
from podyard.pricing.sku import RateCard, make_sku, make_version
from tests.builders import PROJECT, ZONE, node_spec
from tests.store.history_cards import (
    BEGIN,
    HOSTS_FROM,
    KINDS,
    OTHER,
    TIMINGS,
    ZONES,
    SettableClock,
    base_card,
    draw_account,
    fleet_of,
    memory_database,
    nanos_of,
    stored_skus,
    text_of,
    without_prices,
)
from tests.store.history_stores import Stores
from tests.surfaces import check_books, check_month, check_uses, exported

T = TypeVar("T")
SEEDS = 2_000
STARTS = (
    "2026-02-24T22:00:00Z",
    "2026-03-05T00:00:00Z",
    "2026-09-27T11:11:11Z",
    "2026-10-20T00:00:00Z",
)
CREATORS = ("owner@example.com", "=cmd|'x'!A1@example.com")
DAY = 86_400 * NANOS_PER_SECOND
REPLAY = "python -m tests.store.billing_histories --seed"


class History:
    """One seed's history on an empty database."""

    def __init__(self, database: Database, clock: SettableClock, seed: int) -> None:
        self.chance = Random(seed)
        self.database, self.clock = database, clock
        self.start = nanos_of(self.chance.choice(STARTS)) + self.chance.choice([0, 1, 500_000_000])
        self.fleet = fleet_of(self.chance.choice(TIMINGS))
        self.kept: dict[tuple[str, str], tuple[bytes, list[bytes], list[bytes]]] = {}
        self.bought: list[str] = []
        self.credits: list[str] = []
        self.counts: dict[str, int] = {}
        clock.set(self.start)
        database.run(lambda uow: platform_clock.set_up(uow, ClockMode.SYSTEM))
        database.run(lambda uow: identity.bootstrap(uow, "owner", "agent", "local"))
        self._draw_accounts()
        self._draw_nodes()
        self.stores = Stores(self.chance, database, self.fleet, self.accounts, self._count)
        self.card, self.later = self._draw_card()

    # What is drawn.

    def _draw_accounts(self) -> None:
        first = self.start // NANOS_PER_SECOND
        self.zone = self.chance.choice(ZONES)
        self.months = [months.month_of(first, self.zone)]
        for _ in range(self.chance.choice([1, 2, 2])):
            self.months.append(months.following(self.months[-1]))
        self.accounts = [PROJECT]
        if self.chance.random() < 0.5:
            self.accounts.append(OTHER)
            self.run(identity.create_project, PLATFORM, OTHER, {})
        for project in self.accounts:
            zone = (
                self.zone
                if project == PROJECT or self.chance.random() < 0.5
                else self.chance.choice(ZONES)
            )
            self.run(
                accounts.patch,
                PLATFORM,
                project,
                draw_account(self.chance, zone, first, self.months[-1]),
            )
        if self.chance.random() < 0.3:
            self._link()

    def _draw_nodes(self) -> None:
        self.nodes: dict[str, tuple[str, UsageClass, str]] = {}
        self.project_of = {f"n{index}": self.chance.choice(self.accounts) for index in range(4)}
        kinds = self.chance.sample(sorted(KINDS), self.chance.choice([1, 2, 2, 3]))
        for index in range(self.chance.randrange(2, 5)):
            kind = self.chance.choice(kinds)
            usage = self.chance.choice([UsageClass.ON_DEMAND, UsageClass.ON_DEMAND, *UsageClass])
            version = self.chance.choice(["V1", "V2"]) if kind.startswith("v2") else "V2"
            self.nodes[f"n{index}"] = (kind, usage, version)

    def _draw_card(self) -> tuple[RateCard, RateCard]:
        """The card of the beginning, and another that has the prices, too, that were missing."""
        base = base_card(*(self.chance.choice(HOSTS_FROM) for _ in range(4)))
        skus = dict(base.skus)
        wanted = sorted(
            {f"{KINDS[kind]}/us-central1/{usage}" for kind, usage, _ in self.nodes.values()}
        )
        wanted += stored_skus(self.stores.kinds.values())
        missing = set[str]()
        for sku_id in [name for name in wanted if name in skus]:
            old = skus[sku_id]
            begin = max(BEGIN, old.versions[0].effective_from.rfc3339())
            form = self.chance.choice(
                ["returns", "restated", "announced", "odd", "late", "missing", "as it is"]
            )
            self._count(f"price {form}")
            first, second = sorted(self._second() for _ in range(2))
            second = max(second, first + NANOS_PER_SECOND)
            rows = {
                "returns": [
                    (begin, "4.50", "a"),
                    (text_of(first), "9", "b"),
                    (text_of(second), "4.5", "c"),
                ],
                "restated": [(begin, "4.5", "a"), (text_of(first), "4.50", "another source")],
                "announced": [
                    (begin, "4.50", "a"),
                    (text_of(self._end() + DAY), "5.123456789", "b"),
                ],
                "odd": [
                    (begin, f"{self.chance.randrange(30)}.{self.chance.randrange(10**9):09d}", "a")
                ],
                "late": [(text_of(first), "0.444980001", "a"), (text_of(second), "0", "free")],
            }.get(form)
            missing |= {sku_id} if form == "missing" else set()
            if rows is not None:
                fields = {
                    name: getattr(old, name)
                    for name in ("generation", "accelerator_type", "region", "usage")
                }
                skus[sku_id] = make_sku(
                    sku_id, old.unit, [make_version(sku_id, *row) for row in rows], **fields
                )
        card = dataclasses.replace(base, skus=skus)
        return without_prices(card, missing), card

    def _end(self) -> int:
        return months.seconds_of(self.months[-1], self.zone).stop * NANOS_PER_SECOND

    def _moment(self) -> int:
        """Some moment; often one at which something changes, or next to it."""
        month = months.seconds_of(self.chance.choice(self.months), self.zone)
        edge = self.chance.choice([month.start, month.stop]) * NANOS_PER_SECOND
        near = self.chance.choice(
            [0, 0, 1, -1, 250_000_000, -NANOS_PER_SECOND, -45 * NANOS_PER_SECOND]
        )
        if self.chance.random() < 0.25:
            return edge + near
        at = self.start + self.chance.randrange(self._end() - self.start)
        return at if self.chance.random() < 0.7 else at // NANOS_PER_SECOND * NANOS_PER_SECOND

    def _second(self) -> int:
        """Some whole second after the beginning, for a price."""
        return (
            max(self._moment(), self.start) // NANOS_PER_SECOND * NANOS_PER_SECOND
            + NANOS_PER_SECOND
        )

    def _actions(self) -> list[tuple[int, int, Callable[[], None]]]:
        """(when, order, what)."""
        drawn: list[tuple[int, Callable[[], None]]] = []
        for name in self.nodes:
            drawn.append(
                (self.start + self.chance.randrange(3 * DAY), functools.partial(self._create, name))
            )
            # One that only changes late has room for corrections of corrections.
            changes = (
                0 if name == "n0" and self.chance.random() < 0.6 else self.chance.randrange(2, 7)
            )
            for _ in range(changes):
                at = self._moment()
                drawn.append((at, functools.partial(self._change, name)))
                if self.chance.random() < 0.4:  # again within the second, or the minute
                    more = self.chance.choice([1, 300_000_000, 20 * NANOS_PER_SECOND])
                    drawn.append(
                        (at + self.chance.randrange(more), functools.partial(self._change, name))
                    )
        drawn += self.stores.actions(self._moment)
        terms = [self._buy, self._end_commitment, self._add_credit, self._end_credit]
        for _ in range(self.chance.choice([0, 1, 2, 4, 7])):
            drawn.append((self._moment(), self.chance.choice(terms)))
        drawn.append((self._moment(), self._read))
        if self.card is not self.later:
            drawn.append((self._moment(), self._price))
        for _ in range(self.chance.choice([1, 2, 4]) if len(self.accounts) > 1 else 0):
            drawn.append((self._moment(), self._link))
        for account, month in itertools.product(self.accounts, self.months[:-1]):
            closes = self.account(account).closes_at(month).nanos
            put_off = self.chance.choice(
                [0, 0, 3600 * NANOS_PER_SECOND, self.chance.randrange(3 * DAY)]
            )
            drawn.append((closes + put_off, functools.partial(self._close, account, month)))
            if account != PROJECT:
                continue
            for _ in range(self.chance.choice([0, 2, 6])):
                late = closes + put_off + 1 + self.chance.randrange(65 * DAY)
                drawn.append((late, functools.partial(self._late, month)))
            if self.chance.random() < 0.3:
                drawn.append(
                    (closes + put_off + DAY, functools.partial(self._credit_invoice, month))
                )
        drawn = [one for one in drawn if self.start < one[0] <= self._end() + DAY]
        return sorted(
            ((at, index, act) for index, (at, act) in enumerate(drawn)), key=lambda one: one[:2]
        )

    # What happens.

    def play(self) -> None:
        """All of it, with checks; raises AssertionError for a difference."""
        for at, _, act in self._actions():
            self._go(at)
            act()
        self._go(self._end() + DAY + self.chance.randrange(3 * DAY))
        for name in self.accounts:
            while (account := self.account(name)).closes_at(
                account.next_month
            ).nanos <= self.clock.now().nanos:
                self._close(name, account.next_month)
        self.check()

    def check(self) -> None:
        check_uses(self.database, self.card, self.accounts)
        check_books(self.database, self.fleet, self.card)
        later = months.following(self.months[-1])
        still = [
            (name, month)
            for name in self.accounts
            for month in {self.account(name).next_month: 0, later: 0}
        ]
        for account, month in [*self.kept, *still]:
            check_month(
                self.database, self.card, account, month, by_hour=self.chance.random() < 0.1
            )
        for (account, month), before in self.kept.items():
            assert self._issued(account, month) == before, (
                f"{account} {month} has changed since it was issued"
            )
        for account in self.accounts:
            self._check_again(account)

    def _check_again(self, account: str) -> None:
        corrected: set[str] = set()
        for row in self.read(invoice_rows.of_project, account):
            assert self.read(invoices.is_reproduced, self.card, row), (account, row.month)
            for one in from_json(row.document).adjustments:
                self._count("corrected again" if one.corrects_month in corrected else "corrected")
                corrected.add(one.corrects_month)

    def _go(self, at: int) -> None:
        """The clock goes on; timers of nodes fire when they are due."""
        while (timer := self._due(at)) is not None:
            self.clock.set(max(timer.due.nanos, self.clock.now().nanos))
            self._fire(timer)
        self.clock.set(max(at, self.clock.now().nanos))

    def _due(self, until: int, key: str = "") -> Timer | None:
        found = [
            timer
            for timer in self.read(timers.list_all)
            if timer.owner == "node"
            and timer.due.nanos <= until
            and key in ("", timer.resource_key)
        ]
        return min(found, key=lambda timer: (timer.due, timer.timer_id), default=None)

    def _fire(self, timer: Timer) -> None:
        def body(uow: UnitOfWork) -> None:
            timers.drop_kind(uow, timer.kind, timer.resource_key)
            nodes.on_timer(uow, timer)

        self.database.run(body)

    def _create(self, name: str) -> None:
        if self.read(self._node, name) is not None:
            return
        kind, usage, version = self.nodes[name]
        runtime = {"runtime_version": "2.12.0"} if version == "V1" else {}
        spec = node_spec(
            kind, usage_class=usage, api_version=version, labels=self._labels(), **runtime
        )
        creator = self.chance.choice(CREATORS)
        self._count(f"{usage} {version}")
        self.run(
            nodes.create_all,
            self.fleet,
            PLATFORM,
            self.project_of[name],
            ZONE,
            [name],
            spec,
            created_by=creator,
        )
        self._place(name)

    def _place(self, name: str) -> None:
        slot = int(name[1:])
        origin = (4 * slot, 0)

        def body(uow: UnitOfWork) -> None:
            node = self._node(uow, name)
            assert node is not None
            pod = next(pod for pod in self.fleet.pods() if pod.generation is node.kind.generation)
            shape = node.kind.topology.shape
            chips = box_mask(pod.shape, origin, shape)
            action = Place(node.node_key, node.version, pod.pod_id, origin, shape, chips)
            nodes.place(uow, self.fleet, node, action)

        self.database.run(body)
        self._go(self.clock.now().nanos)

    def _node(self, uow: UnitOfWork, name: str) -> NodeRecord | None:
        return node_rows.find(uow, self.project_of[name], ZONE, name)

    def _labels(self) -> dict[str, str]:
        return {"team": self.chance.choice("abc")} if self.chance.random() < 0.8 else {}

    def _change(self, name: str, first: str = "") -> None:
        """Whatever the node's state allows; mostly `first`, or a start."""
        node = self.read(self._node, name)
        if node is None:
            if self.chance.random() < 0.5:
                self._create(name)
            return
        choices: list[str] = []
        if node.state is NodeState.READY:
            choices = ["relabel", "delete"] + (["stop"] * 4 if node.host_count == 1 else [])
            choices += ["preempt"] * 2 if node.usage_class in ("spot", "preemptible") else []
        elif node.state is NodeState.STOPPED:
            choices = ["start"] * 5 + ["relabel", "delete"]
        elif node.state in (NodeState.PREEMPTED, NodeState.TERMINATED):
            choices = ["delete"]
        if first and self.chance.random() < 0.8:
            choices = [one for one in choices if one in (first, "start")] or choices
        if choices:
            self._do(name, self.chance.choice(choices))

    def _do(self, name: str, what: str) -> None:
        asked = {
            "principal": PLATFORM,
            "project": self.project_of[name],
            "zone": ZONE,
            "node_id": name,
        }
        self._count(what)
        if what == "relabel":
            self.run(nodes.patch, changes={"labels": self._labels()}, **asked)
        elif what == "preempt":
            self.run(nodes.preempt, **asked)
        else:
            verbs = {"stop": nodes.stop, "start": nodes.start, "delete": nodes.delete}
            self.run(verbs[what], self.fleet, **asked)
        if what == "start":
            self._place(name)
        self._go(self.clock.now().nanos)

    def _late(self, month: str) -> None:
        """News of a closed month, or of the time since then; the platform's clock stands there."""
        if (PROJECT, month) not in self.kept:
            return
        now = self.clock.now().nanos
        begin = months.seconds_of(month, self.zone).start * NANOS_PER_SECOND
        found = []
        for node in [one for name in self.accounts for one in self.read(node_rows.live, name)]:
            (newest,) = self.read(state_changes.newest, node.node_key, 1)
            since = newest.at.nanos
            quiet = self._due(2**62, node.node_key) is None
            states = (NodeState.READY, NodeState.STOPPED)
            if quiet and node.state in states and max(since, begin) < now - DAY:
                found.append((node.node_id, max(since, begin)))
        if not found:
            return
        stop = months.seconds_of(month, self.zone).stop * NANOS_PER_SECOND
        name, first = self.chance.choice([one for one in found if one[1] < stop] or found)
        at = first + self.chance.randrange(now - DAY - first)
        if first < stop and self.chance.random() < 0.8:
            at = first + self.chance.randrange(min(stop, now - DAY) - first)
        self._count("late")
        self.clock.set(at)
        self._change(name, "stop")
        if self.stores.kinds and self.chance.random() < 0.5:
            self.stores.change(self.chance.choice(sorted(self.stores.kinds)))
        self._go_node(name, now)
        if self.chance.random() < 0.4:
            self.clock.set(
                min(now, self.clock.now().nanos + self.chance.randrange(3600 * NANOS_PER_SECOND))
            )
            self._change(name)
            self._go_node(name, now)
        self.clock.set(max(now, self.clock.now().nanos))

    def _go_node(self, name: str, until: int) -> None:
        node = self.read(self._node, name)
        while node is not None and (timer := self._due(until, node.node_key)) is not None:
            self.clock.set(max(timer.due.nanos, self.clock.now().nanos))
            self._fire(timer)

    def _price(self) -> None:
        """The prices that were missing."""
        self._count("price added")
        self.card = self.later

    def _buy(self) -> None:
        sku = self.chance.choice(
            [
                name
                for name in sorted(self.card.skus)
                if name.startswith("tpu-v2-32/us-central1/on-demand")
            ]
            or [""]
        )
        if not sku:
            return
        upfront, years = self.chance.random() < 0.4, self.chance.choice([1, 3])
        wanted = commitments.CommitmentRequest(
            self.chance.randrange(1, 3), years, upfront, sku_id=sku
        )
        self._count("commitment")
        self.bought.append(
            self.run(commitments.buy, self.card, PLATFORM, PROJECT, wanted).commitment.commitment_id
        )

    def _end_commitment(self) -> None:
        if self.bought:
            self._count("commitment ended")
            self.run(
                credit_notes.end_commitment, PLATFORM, PROJECT, self.bought.pop(), "moved away"
            )

    def _add_credit(self) -> None:
        amount = self.chance.choice(["12.345", "0.000000001", "4000", "100000"])
        until = self.chance.choice(
            [month for month in self.months if month >= self.account().next_month]
        )
        self._count("credit")
        self.credits.append(
            self.run(
                commitments.add_credit, PLATFORM, PROJECT, amount, None, until, "=a gift"
            ).credit_id
        )

    def _end_credit(self) -> None:
        if self.credits:
            found = {
                credit.credit_id: credit for credit in self.read(account_rows.credits_of, PROJECT)
            }
            credit_id = self.credits.pop()
            if found[credit_id].until_month >= months.month_of(
                self.clock.now().nanos // NANOS_PER_SECOND, self.zone
            ):
                self._count("credit ended")
                self.run(credit_notes.end_credit, PLATFORM, PROJECT, credit_id, "over")

    def _credit_invoice(self, month: str) -> None:
        issued = self.read(invoice_rows.find, PROJECT, month)
        if issued is not None and issued.total > 0:
            self._count("credit note")
            amount = (
                "1" if issued.total >= 10**issued.decimals else f"0.{'0' * (issued.decimals - 1)}1"
            )
            self.run(credit_notes.credit_invoice, PLATFORM, PROJECT, month, amount, "", "outage")

    def _link(self) -> None:
        """One of the projects is paid for by one of the accounts, from now on."""
        project, payer = self.chance.choice(self.accounts), self.chance.choice(self.accounts)
        self._count("link" if project != payer else "own account")
        self.run(links.link, PLATFORM, project, payer)

    def _read(self) -> None:
        """Pages are read in between: what processes keep must not change what is said later."""
        check_uses(self.database, self.card, self.accounts)
        now = months.month_of(self.clock.now().nanos // NANOS_PER_SECOND, self.zone)
        if now in self.months and now >= self.account().next_month:
            check_month(self.database, self.card, PROJECT, now, by_hour=False)

    def _close(self, account: str, month: str) -> None:
        if self.account(account).next_month != month:
            return
        check_month(self.database, self.card, account, month, by_hour=False)
        several_units.close(self.database, self.card, PLATFORM, account, month, hold_suspense=True)
        self._count("closed")
        if self.read(invoice_rows.find, account, month) is not None:
            self.kept[account, month] = self._issued(account, month)

    def _issued(self, account: str, month: str) -> tuple[bytes, list[bytes], list[bytes]]:
        row = self.read(invoice_rows.find, account, month)
        assert row is not None
        files = [
            data for _, data in exported(self.database, self.card, account, month, ("csv", "focus"))
        ]
        return row.document, self.read(invoice_records.chunks_of, account, month), files

    # Short words.

    def account(self, project: str = PROJECT) -> Account:
        found = self.read(account_rows.find, project)
        assert found is not None
        return found

    def run(self, use_case: Callable[..., T], *arguments: Any, **options: Any) -> T:
        return self.database.run(lambda uow: use_case(uow, *arguments, **options))

    def read(self, use_case: Callable[..., T], *arguments: Any, **options: Any) -> T:
        return self.database.read(lambda uow: use_case(uow, *arguments, **options))

    def _count(self, what: str) -> None:
        self.counts[what] = self.counts.get(what, 0) + 1


def check_history(seed: int, url: str | None = None) -> dict[str, int]:
    """Play one history, and count what happens. A failure names the seed, to run it again."""
    with contextlib.ExitStack() as stack:
        if url is None:
            url = stack.enter_context(memory_database())
        clock = SettableClock(RealTime(0))
        database = stack.enter_context(contextlib.closing(Database(url, clock, Streams(seed))))
        try:
            history = History(database, clock, seed)
            history.play()
        except Exception as error:
            raise AssertionError(
                f"history {seed}: {type(error).__name__}: {error}\nAgain: {REPLAY} {seed}"
            ) from error
        return history.counts


def _outcome(seed: int) -> tuple[int, dict[str, int], str]:
    try:
        return seed, check_history(seed), ""
    except AssertionError:
        return seed, {}, traceback.format_exc()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=SEEDS, help="how many histories")
    parser.add_argument("--seed", type=int, help="only this one")
    parser.add_argument("--processes", type=int, default=2)
    asked = parser.parse_args()
    seeds = range(asked.count) if asked.seed is None else [asked.seed]
    began, failed = time.monotonic(), 0
    totals: dict[str, int] = {}
    with multiprocessing.get_context("spawn").Pool(min(asked.processes, len(seeds))) as pool:
        for done, (seed, counts, error) in enumerate(pool.imap_unordered(_outcome, seeds), 1):
            if not done % 100:
                print(f"{done:,} of {len(seeds):,}, {time.monotonic() - began:.0f} s", flush=True)
            for name, count in counts.items():
                totals[name] = totals.get(name, 0) + count
            if error:
                failed += 1
                print(error, flush=True)
                print(f"history {seed} differs; again: {REPLAY} {seed}", flush=True)
    print(", ".join(f"{name} {count:,}" for name, count in sorted(totals.items())))
    print(f"{len(seeds):,} histories, {time.monotonic() - began:.0f} s, {failed} with differences")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
