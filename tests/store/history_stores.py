"""Buckets and disks of drawn histories: made, filled, resized, relabelled and deleted by the use
cases."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from random import Random
from typing import Any, TypeVar

from podyard.base.contents import Content
from podyard.control.compute import persistent_disks
from podyard.control.compute.persistent_disks import DiskRequest
from podyard.control.storage import buckets, objects
from podyard.db.compute import disks as disk_rows
from podyard.db.storage import storage
from podyard.db.store.unit_of_work import Database
from podyard.domain.fleet import Fleet
from podyard.domain.principal import PLATFORM
from podyard.domain.stored import OperationClass, Preconditions
from tests.builders import ZONE
from tests.store.history_cards import STORES

T = TypeVar("T")


class Stores:
    """Up to three of them, by name, each of a kind."""

    def __init__(
        self,
        chance: Random,
        database: Database,
        fleet: Fleet,
        projects: list[str],
        count: Callable[[str], None],
    ) -> None:
        self._chance, self._database, self._fleet, self._count = chance, database, fleet, count
        kinds = chance.choices(sorted(STORES), k=chance.choice([0, 1, 2, 3]))
        self.kinds = {f"s{index}": kind for index, kind in enumerate(kinds)}
        self._project_of = {name: chance.choice(projects) for name in self.kinds}

    def actions(self, moment: Callable[[], int]) -> Iterator[tuple[int, Callable[[], None]]]:
        """(when, what)."""
        for name in self.kinds:
            for _ in range(self._chance.randrange(2, 12)):
                at, act = moment(), functools.partial(self.change, name)
                yield at, act
                if self._chance.random() < 0.4:  # again within the second, or the day
                    yield (
                        at
                        + self._chance.randrange(
                            self._chance.choice([1, 300_000_000, 86_400 * 10**9])
                        ),
                        act,
                    )

    def change(self, name: str) -> None:
        """A bucket or disk is made, changed or deleted; labels, sizes and classes change."""
        place, _, kind = self.kinds[name].partition("/")
        if kind:
            self._change_bucket(
                f"{name}-{self._project_of[name]}", self._project_of[name], place, kind
            )
        else:
            self._change_disk(name, self._project_of[name], place)

    def _change_bucket(self, name: str, project: str, place: str, kind: str) -> None:
        bucket = self._read(storage.find_bucket, name)
        if bucket is None:
            self._count("bucket")
            self._run(buckets.create, PLATFORM, project, name, place, kind, self._labels())
            return
        found = self._read(storage.list_objects, name, "", None, 10)
        what = self._chance.choice(
            ["put"] * 6 + ["ask"] * 4 + ["remove"] * 2 + ["relabel", "class", "delete"]
        )
        self._count(f"bucket {what}")
        if what == "put":
            size = self._chance.choice([1, 2**20, 2**30 - 1, 2**30, self._chance.randrange(2**36)])
            content = Content(digest=f"{size:064x}", size=size, crc32c=0, md5="x")
            self._run(objects.put, PLATFORM, name, self._chance.choice("abc"), content)
        elif what == "ask":
            of_class, number = (
                self._chance.choice(list(OperationClass)),
                self._chance.choice([1, 7, 100_000]),
            )
            self._run(
                storage.count_operations,
                name,
                of_class,
                number,
                f"event-{self._chance.getrandbits(96):x}",
            )
        elif what == "remove" and found:
            self._run(
                objects.delete, PLATFORM, name, self._chance.choice(found).name, Preconditions()
            )
        elif what in ("relabel", "class"):
            other = {"storage_class": self._chance.choice(["STANDARD", "NEARLINE"])}
            changes = {"labels": self._labels()} if what == "relabel" else other
            self._run(buckets.patch, PLATFORM, name, changes, Preconditions())
        elif what == "delete":
            for one in found:
                self._run(objects.delete, PLATFORM, name, one.name, Preconditions())
            self._run(buckets.delete, PLATFORM, name, Preconditions())

    def _change_disk(self, name: str, project: str, kind: str) -> None:
        disk = self._read(disk_rows.find, project, ZONE, name)
        of = {"principal": PLATFORM, "project": project, "zone": ZONE}
        if disk is None:
            self._count("disk")
            request = DiskRequest(
                name, kind, self._chance.randrange(10, 500), labels=self._labels()
            )
            self._run(persistent_disks.create, self._fleet, request=request, **of)
            return
        what = self._chance.choice(["resize"] * 3 + ["relabel", "delete"])
        self._count(f"disk {what}")
        if what == "resize":
            size = disk.size_gb + self._chance.randrange(1, 500)
            self._run(persistent_disks.resize, name=name, size_gb=size, **of)
        elif what == "relabel":
            labels = {"labels": self._labels(), "fingerprint": disk.label_fingerprint}
            self._run(persistent_disks.set_labels, name=name, **labels, **of)
        else:
            self._run(persistent_disks.delete, name=name, **of)

    def _labels(self) -> dict[str, str]:
        return {"team": self._chance.choice("abc")} if self._chance.random() < 0.8 else {}

    def _run(self, use_case: Callable[..., T], *arguments: Any, **options: Any) -> T:
        return self._database.run(lambda uow: use_case(uow, *arguments, **options))

    def _read(self, use_case: Callable[..., T], *arguments: Any, **options: Any) -> T:
        return self._database.read(lambda uow: use_case(uow, *arguments, **options))
