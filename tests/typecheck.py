"""`python -m tests.typecheck [ARGUMENT ...]`: run mypy with these arguments, and name each file as
git does.

mypy finds a module by its folder, so it reads the six root folders through the links in `podyard/`.
Its messages would name `podyard/api/app.py`, a path that `git blame` does not know.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence

from mypy import api

from podyard import ROOT_FOLDERS

_PATH_THROUGH_LINK = re.compile(
    rf"^podyard[/\\](?=(?:{'|'.join(ROOT_FOLDERS)})[/\\])", re.MULTILINE
)


def main(arguments: Sequence[str]) -> int:
    """mypy's exit status: 0 without errors, 1 with errors, 2 when mypy itself fails."""
    output, errors, status = api.run(list(arguments))
    sys.stdout.write(_PATH_THROUGH_LINK.sub("", output))
    sys.stderr.write(_PATH_THROUGH_LINK.sub("", errors))
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
