"""Doubts of an estimate: they make figures lower bounds, and every report says so (DESIGN, 9.9).
No JAX."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Literal

DoubtKind = Literal["sharding", "devices", "collective", "loop", "operation"]


@dataclasses.dataclass(frozen=True, slots=True)
class Doubt:
    """One part of a program that is not modelled, or only in part.

    `subject` is what the doubt is about (an operation, a loop, a mesh). `reason` says what is
    missing and how it is counted instead. `count`: how many places of the program have it.
    `about_memory`: whether the memory is a lower bound, too; the time always is.
    """

    kind: DoubtKind
    subject: str
    reason: str
    about_memory: bool = True
    count: int = 1

    @property
    def text(self) -> str:
        return self.reason if self.count == 1 else f"{self.reason} ({self.count} times)"


def merge(doubts: Iterable[Doubt]) -> tuple[Doubt, ...]:
    """One doubt per kind and subject, in the order they were found, with their counts added up."""
    by_subject: dict[tuple[str, str], Doubt] = {}
    for doubt in doubts:
        first = by_subject.get((doubt.kind, doubt.subject))
        by_subject[doubt.kind, doubt.subject] = (
            doubt if first is None else dataclasses.replace(first, count=first.count + doubt.count)
        )
    return tuple(by_subject.values())


def unknown_turns(where: str) -> Doubt:
    return Doubt(
        "loop",
        where,
        f"unknown number of turns of the loop at {where}: counted as one turn",
        about_memory=False,
    )


def own_kernel(where: str) -> Doubt:
    reason = (
        f"attention at {where} is a kernel of the compiler's own, to which it "
        "gives no cycles: "
        "its products count"
    )
    return Doubt("operation", "attention", reason, about_memory=False)


def cut_images(where: str) -> Doubt:
    reason = (
        f"the convolution at {where} has few examples: copies that make parts of "
        "images examples "
        "are a rough guess"
    )
    return Doubt("operation", "convolution of few examples", reason)


def turned_cache(where: str) -> Doubt:
    reason = (
        f"the cache at {where} has heads narrower than a tile: copies in each turn are not modelled"
    )
    return Doubt("operation", "cache of narrow heads", reason, about_memory=False)


def in_groups(where: str) -> Doubt:
    reason = (
        f"the convolution at {where} has groups of few features: copies and padding "
        "around it are "
        "a rough guess"
    )
    return Doubt("operation", "convolution in groups", reason)


def convolution_in_ring(where: str) -> Doubt:
    reason = (
        f"the convolution at {where} has parts on several devices: it may go around "
        "a ring, and "
        "is counted as one"
    )
    return Doubt("collective", "convolution in a ring", reason, about_memory=False)


def kernel_doubt(name: str, reason: str) -> Doubt:
    return Doubt("operation", f"{name}: {reason}", reason, about_memory=False)


def unknown_body(where: str) -> Doubt:
    reason = (
        f"kernel body unknown (custom_call @tpu_custom_call at {where}): priced by its bytes only"
    )
    return Doubt("operation", "tpu_custom_call", reason, about_memory=False)


def host_call(name: str, where: str) -> Doubt:
    reason = f"{name} ({where}), run on the host: transfers are counted, the time there is not"
    return Doubt("operation", f"host: {name}", reason, about_memory=False)


def bytes_only(name: str, where: str) -> Doubt:
    place = f" ({where})" if where and where != name else ""
    return Doubt(
        "operation", name, f"operation {name}{place} is not modelled: priced by its bytes only"
    )
