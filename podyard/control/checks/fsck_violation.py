"""The report of a broken invariant."""

from __future__ import annotations

import dataclasses

from podyard.base.clock import PlatformTime

# Platform seconds in which something that has just changed may still be on its way: a creation that
# the next look of the loop will place, a job whose node has just gone.
GRACE_SECONDS = 5.0


@dataclasses.dataclass(frozen=True, slots=True, order=True)
class Violation:
    """`invariant`: I1 to I18. `at`: when it came to be, or when it was seen. `resource`: a name, or
    a row's key."""

    invariant: str
    at: PlatformTime
    resource: str
    detail: str

    def as_json(self) -> dict[str, str]:
        return {
            "invariant": self.invariant,
            "at": self.at.rfc3339(),
            "resource": self.resource,
            "detail": self.detail,
        }
