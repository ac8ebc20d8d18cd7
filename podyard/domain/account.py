"""A project's billing account: how it is invoiced."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from fractions import Fraction

from podyard.base.clock import NANOS_PER_SECOND, PlatformTime
from podyard.domain import months
from podyard.domain.invoice import BillingPolicy

BILLING_ACCOUNT = "billingAccount"  # of a project: projects/P/billingAccount


@dataclasses.dataclass(frozen=True, slots=True)
class Account:
    """How a project is invoiced. `next_month`: the first that is not closed; `held_because`: why the loop could not
    close it, or nothing. `rates`: the account's currency per US dollar, by month."""

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
