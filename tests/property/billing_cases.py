"""Cases drawn by chance, in the format of the worked ones: five minutes around the end of a month,
so that the slow
bill can work each of them second by second.

They are drawn from one seed, not choice by choice: hypothesis favours what is small, and small
cases have no commitment that runs out, no free minute and no second that two jobs touch.
"""

from __future__ import annotations

from random import Random
from typing import Any

from hypothesis import strategies as st

from podyard.base.clock import PlatformTime

# A zone, the end of one of its months, and the months on both sides of that.
ENDS = (
    ("UTC", "2026-04-01T00:00:00Z", "2026-03", "2026-04"),
    ("America/Los_Angeles", "2026-04-01T07:00:00Z", "2026-03", "2026-04"),
    ("America/Los_Angeles", "2026-12-01T08:00:00Z", "2026-11", "2026-12"),
    ("Asia/Kolkata", "2026-03-31T18:30:00Z", "2026-03", "2026-04"),
)
AROUND_TENTHS = 1_500  # half of the window, in tenths of seconds
SKUS = (("a", "chip_hour"), ("b", "device_hour"), ("d", "GiB_month"), ("v", "vm_hour"))
STATES = {
    "tpu": ("READY", "READY", "CREATING", "STOPPED", "PREEMPTED"),
    "vm": ("RUNNING", "STOPPED"),
    "disk": ("EXISTS", "DELETED"),
}
SKUS_OF = {"tpu": "aaab", "vm": "v", "disk": "d"}
QUANTITIES = (0, 1, 3, 4, 8, 256)


class _Draw:
    """One case. Times are tenths of seconds after the month's end."""

    def __init__(self, seed: int) -> None:
        self.chance = Random(seed)
        self.zone, end, self.before, self.after = self.chance.choice(ENDS)
        self.middle = PlatformTime.from_rfc3339(end)

    def some(self, most: int) -> range:
        return range(self.chance.randint(0, most))

    def tenth(self) -> int:
        return self.chance.randint(-AROUND_TENTHS, AROUND_TENTHS)

    def at(self, tenth: int) -> str:
        return self.middle.plus_nanos(tenth * 10**8).rfc3339()

    def second(self, tenth: int) -> str:
        return self.at(tenth // 10 * 10)

    def price(self) -> str:
        return f"{self.chance.randint(0, 900)}.{self.chance.randrange(10**9):09d}"

    def dollars(self, most: int = 600) -> str:
        return f"{self.chance.randrange(most)}.{self.chance.randrange(1, 100):02d}"

    def policy(self) -> dict[str, Any]:
        pick = self.chance.choice
        return {
            "billable_states": {"tpu": ["READY"], "vm": ["RUNNING"], "disk": ["EXISTS"]},
            "preempt_free_s": pick([0, 20, 60]),
            "vm_min_s": pick([0, 30, 60]),
            "invoice_tz": self.zone,
            "rounding": "HALF_UP",
            **pick([{"currency": "USD", "minor": 2}, {"currency": "JPY", "minor": 0}]),
            "fx": pick(["1", "149.37", "0.5", {self.before: "0.91", self.after: "1.7"}]),
            "tax": pick(["0", "0.19", "0.075"]),
        }

    def card(self) -> list[dict[str, str]]:
        rows = {(sku, "2015-01-01T00:00:00Z"): (unit, self.price()) for sku, unit in SKUS}
        for _ in self.some(3):
            sku, unit = self.chance.choice(SKUS)
            rows[sku, self.second(self.tenth())] = (unit, self.price())
        return [
            {"sku": sku, "unit": unit, "usd": usd, "effective_from": since}
            for (sku, since), (unit, usd) in rows.items()
        ]

    def resource(self, name: str) -> tuple[dict[str, Any], list[dict[str, Any]]]:
        kind = self.chance.choice(["tpu", "tpu", "tpu", "vm", "disk"])
        row: dict[str, Any] = {"id": name, "kind": kind, "sku": self.chance.choice(SKUS_OF[kind])}
        row["quantity"] = self.chance.choice(QUANTITIES)
        if kind == "tpu":
            row["scheduling"] = self.chance.choice(["ON_DEMAND", "SPOT", "PREEMPTIBLE"])
        tenth, events = self.tenth() - AROUND_TENTHS // 2, []
        for seq in self.some(9):
            state = self.chance.choice(STATES[kind])
            events.append(
                {
                    "id": f"{name}-{seq}",
                    "resource": name,
                    "seq": seq,
                    "t": self.at(tenth),
                    "state": state,
                }
            )
            tenth += self.chance.choice([-3, 0, 4, 200, 590, self.chance.randint(1, 700)])
        return row, events

    def commitments(self) -> list[dict[str, Any]]:
        found = []
        for index in range(self.chance.randint(1, 3)):
            start, end = sorted((self.tenth(), self.tenth()))
            row = {
                "id": f"c{index}",
                "covers": self.chance.choice("aaabdv"),
                "quantity": self.chance.choice(QUANTITIES),
            }
            found.append(
                {**row, "usd": self.price(), "from": self.second(start), "until": self.second(end)}
            )
        return found

    def credits(self) -> list[dict[str, str]]:
        months = [
            *((self.before, self.before), (self.before, self.after)),
            *((self.after, self.after), ("2026-01", "2026-02")),
        ]
        found = []
        for index in self.some(4):
            first, last = self.chance.choice(months)
            found.append(
                {"id": f"k{index}", "usd": self.dollars(), "from_month": first, "until_month": last}
            )
        return found

    def jobs(self, resources: list[dict[str, Any]]) -> list[dict[str, Any]]:
        found = []
        for _ in self.some(6):
            start = self.tenth()
            end = self.chance.choice(
                [None, self.at(start), self.at(start + self.chance.randint(1, 900))]
            )
            resource = self.chance.choice(resources)["id"]
            found.append(
                {
                    "id": self.chance.choice("jkl"),
                    "resource": resource,
                    "start": self.at(start),
                    "end": end,
                }
            )
        return found

    def issued(self, minor: int) -> dict[str, str]:
        months = self.chance.sample([self.before, self.after, "2026-02"], self.chance.randint(0, 3))
        return {month: f"{self.chance.randrange(10**6) / 10**minor:.{minor}f}" for month in months}

    def case(self) -> dict[str, Any]:
        drawn = [self.resource(f"r{index}") for index in self.some(5)]
        as_of = self.chance.choice([AROUND_TENTHS, AROUND_TENTHS * 2, self.tenth()])
        case: dict[str, Any] = {
            "id": "drawn",
            "policy": self.policy(),
            "rate_card": self.card(),
            "resources": [row for row, _ in drawn],
            "events": [event for _, events in drawn for event in events],
            "as_of": self.at(as_of),
        }
        self.chance.shuffle(case["events"])
        if self.chance.random() < 0.6:
            case["commitments"] = self.commitments()
        if self.chance.random() < 0.6:
            case["credits"] = self.credits()
        if drawn and self.chance.random() < 0.6:
            case["jobs"] = self.jobs(case["resources"])
        if self.chance.random() < 0.6:
            case["budget"] = {"usd": self.dollars(self.chance.choice([5, 6_000]))}
        if self.chance.random() < 0.6:
            case["issued"], case["open_month"] = self.issued(case["policy"]["minor"]), "2027-01"
        return case


def drawn(seed: int) -> dict[str, Any]:
    return _Draw(seed).case()


def cases() -> st.SearchStrategy[dict[str, Any]]:
    return st.integers(0, 2**40).map(drawn)
