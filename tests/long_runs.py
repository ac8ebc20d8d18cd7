"""How often a test repeats what it does: a few times in `make test`, in `make long` as often as
docs/internals says.

What a repetition finds that the first ones do not is rare: it is looked for by hand, not in each
test run.
"""

from __future__ import annotations

import os

IS_LONG = os.environ.get("PODYARD_TEST_LONG") == "1"


def times(usual: int, long: int) -> int:
    return long if IS_LONG else usual
