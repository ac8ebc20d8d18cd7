"""The limits on texts that users give to resources; the API and the console refuse the same."""

from __future__ import annotations

import re
from collections.abc import Mapping

from podyard.base.errors import invalid

DESCRIPTION_CHARACTERS_MAX = 512  # discovery document, Node.description
LABELS_MAX = 64  # Google's limit on labels of a resource
_LABEL_KEY = re.compile(r"[a-z][a-z0-9_-]{0,62}")
_LABEL_VALUE = re.compile(r"[a-z0-9_-]{0,63}")


def check_description(description: str) -> None:
    if len(description) > DESCRIPTION_CHARACTERS_MAX:
        raise invalid(f"description is longer than {DESCRIPTION_CHARACTERS_MAX} characters", "description")


def check_labels(labels: Mapping[str, str]) -> None:
    if len(labels) > LABELS_MAX:
        raise invalid(f"{len(labels)} labels are more than {LABELS_MAX}", "labels")
    for key, value in labels.items():
        if not _LABEL_KEY.fullmatch(key) or not _LABEL_VALUE.fullmatch(value):
            raise invalid(
                f"label {key!r}={value!r}: keys begin with a lowercase letter, both hold at most 63 lowercase "
                "letters, digits, dashes and underscores",
                "labels",
            )
