"""Billing accounts: how what a project uses is invoiced, and which account pays for it.

Each project has an account, which pays for that project. Another project's account may pay for it
instead, from a second on: so every second that a project uses is paid for by one account.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterable, Iterator, Mapping
from fractions import Fraction

from podyard.base.clock import NANOS_PER_SECOND, PlatformTime
from podyard.domain import months
from podyard.domain.invoice import BillingPolicy

BILLING_ACCOUNT = "billingAccount"  # of a project: projects/P/billingAccount
BILLING_INFO = "billingInfo"  # which account pays for a project: projects/P/billingInfo

ALWAYS = range(1 << 62)  # all POSIX seconds; a span that has no end stops where it does


@dataclasses.dataclass(frozen=True, slots=True)
class BillingLink:
    """From this POSIX second on, the account of project `account` pays for `project`; until its
    next link."""

    project: str
    from_second: int
    account: str


@dataclasses.dataclass(frozen=True, slots=True)
class PaidProject:
    """A project, and the POSIX seconds of it that an account pays for, in order."""

    project: str
    spans: tuple[range, ...]

    @property
    def is_paid_now(self) -> bool:
        return self.spans[-1].stop == ALWAYS.stop


def paid_projects(account: str, links: Iterable[BillingLink]) -> tuple[PaidProject, ...]:
    """Return what the account of project `account` pays for, by the names of the projects;
    `account` comes first. `links`: all those of it, and of each project that has ever been linked
    to it, in order of project and second."""
    spans: dict[str, list[range]] = {account: [ALWAYS]}
    for project, of_project in itertools.groupby(links, lambda link: link.project):
        found, payer, since = list[range](), project, 0
        for link in of_project:
            if link.account == payer:
                continue
            if payer == account and since < link.from_second:
                found.append(range(since, link.from_second))
            payer, since = link.account, link.from_second
        if payer == account:
            found.append(range(since, ALWAYS.stop))
        spans[project] = found
    return tuple(PaidProject(project, tuple(found)) for project, found in spans.items() if found)


@dataclasses.dataclass(frozen=True, slots=True)
class Account:
    """An account, as invoices need it. `next_month`: the first that is not closed; `held_because`:
    why the loop could not close it, or nothing. `rates`: the account's currency per US dollar, by
    month. `projects`: those that it pays or has paid for."""

    project: str
    time_zone: str
    currency: str
    decimals: int
    tax: str
    grace_hours: int
    first_month: str
    next_month: str
    held_because: str
    rates: Mapping[str, str]
    projects: tuple[PaidProject, ...]

    @property
    def is_alone(self) -> bool:
        """Return whether it pays for the whole of its project, and for nothing else."""
        return self.projects == (PaidProject(self.project, (ALWAYS,)),)

    @property
    def names(self) -> list[str]:
        """Of the projects that it pays or has paid for."""
        return [one.project for one in self.projects]

    def spans_of(self, project: str) -> tuple[range, ...] | None:
        """The POSIX seconds of one of its projects that it pays for; None: all of them."""
        spans = next(one.spans for one in self.projects if one.project == project)
        return None if spans == (ALWAYS,) else spans

    @property
    def pays_itself(self) -> bool:
        """Return whether it pays for its own project now."""
        return any(one.project == self.project and one.is_paid_now for one in self.projects)

    @property
    def policy(self) -> BillingPolicy:
        return BillingPolicy(
            time_zone=self.time_zone,
            currency=self.currency,
            decimals=self.decimals,
            tax=Fraction(self.tax),
            exchange={month: Fraction(rate) for month, rate in self.rates.items()},
        )

    def closes_at(self, month: str) -> PlatformTime:
        """When the month may be closed: its end in the account's zone, and the grace."""
        end = months.seconds_of(month, self.time_zone).stop
        return PlatformTime(end * NANOS_PER_SECOND).plus_seconds(self.grace_hours * 3600)

    def month_of(self, moment: PlatformTime) -> str:
        return months.month_of(moment.nanos // NANOS_PER_SECOND, self.time_zone)

    def closed_months(self, until: str) -> Iterator[str]:
        """The months from the first one on, without `until` and those after it."""
        month = self.first_month
        while month < until:
            yield month
            month = months.following(month)
