"""For tests of people who build on Podyard: `local()`, and the pytest plugin
(`podyard.testing.plugin`).

pytest imports this package at its start, whether a test wants a Podyard or not: nothing heavy is
imported here.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from podyard.testing.stack import Podyard

__all__ = ["local"]


@contextmanager
def local(**options: object) -> Iterator[Podyard]:
    """A Podyard in this process, for notebooks and scripts: `with local(rate=60) as podyard: ...`;
    gone afterwards.

    The options are those of `podyard.testing.options.Options`. Its clock is virtual and stands
    still unless `rate` says how many platform seconds a real second has. Raises INVALID_ARGUMENT
    for an option that is wrong.
    """
    import tempfile
    from pathlib import Path

    from podyard.testing.options import read_options
    from podyard.testing.stack import open_podyard

    with (
        tempfile.TemporaryDirectory(prefix="podyard-") as folder,
        open_podyard(Path(folder), read_options(options)) as it,
    ):
        yield it
