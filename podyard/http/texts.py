"""The limits on texts that users give to resources; the API and the console refuse the same."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from podyard.base.errors import invalid

DESCRIPTION_CHARACTERS_MAX = 512  # discovery document, Node.description
LABELS_MAX = 64  # Google's limit on labels of a resource
# Limits of Compute Engine, which the hosts' metadata and tags belong to.
METADATA_KEY_CHARACTERS_MAX = 128
METADATA_VALUE_BYTES_MAX = 256 * 1024
METADATA_BYTES_MAX = 512 * 1024
TAGS_MAX = 64
_METADATA_KEY = re.compile(rf"[A-Za-z0-9_-]{{1,{METADATA_KEY_CHARACTERS_MAX}}}")
_TAG = re.compile(r"[a-z]([a-z0-9-]{0,61}[a-z0-9])?")
_LABEL_KEY = re.compile(r"[a-z][a-z0-9_-]{0,62}")
_LABEL_VALUE = re.compile(r"[a-z0-9_-]{0,63}")


def check_description(description: str) -> None:
    if len(description) > DESCRIPTION_CHARACTERS_MAX:
        raise invalid(
            f"description is longer than {DESCRIPTION_CHARACTERS_MAX} characters", "description"
        )


def check_labels(labels: Mapping[str, str]) -> None:
    if len(labels) > LABELS_MAX:
        raise invalid(
            f"a resource can have at most {LABELS_MAX} labels, got {len(labels)}", "labels"
        )
    for key, value in labels.items():
        if not _LABEL_KEY.fullmatch(key) or not _LABEL_VALUE.fullmatch(value):
            raise invalid(
                f"label {key!r}={value!r}: keys begin with a lowercase letter, both hold at most "
                "63 lowercase "
                "letters, digits, dashes and underscores",
                "labels",
            )


def check_metadata(metadata: Mapping[str, str]) -> None:
    for key, value in metadata.items():
        if not _METADATA_KEY.fullmatch(key):
            raise invalid(
                f"metadata key {key!r}: at most {METADATA_KEY_CHARACTERS_MAX} letters, digits, "
                "dashes, underscores",
                "metadata",
            )
        if len(value.encode()) > METADATA_VALUE_BYTES_MAX:
            raise invalid(
                f"metadata {key!r} is larger than {METADATA_VALUE_BYTES_MAX} bytes", "metadata"
            )
    if sum(len(key) + len(value.encode()) for key, value in metadata.items()) > METADATA_BYTES_MAX:
        raise invalid(f"metadata is larger than {METADATA_BYTES_MAX} bytes in all", "metadata")


def check_tags(tags: Sequence[str]) -> None:
    if len(tags) > TAGS_MAX:
        raise invalid(f"a node can have at most {TAGS_MAX} tags, got {len(tags)}", "tags")
    for tag in tags:
        if not _TAG.fullmatch(tag):
            raise invalid(
                f"tag {tag!r}: a lowercase letter first, then at most 62 lowercase letters, "
                "digits and dashes, no dash "
                "at the end",
                "tags",
            )
