"""Service accounts of projects (discovery document iam v1)."""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import re

from podyard.base.clock import RealTime
from podyard.base.errors import invalid

ACCOUNTS_PER_PROJECT_MAX = 100  # Google's limit
DISPLAY_NAME_BYTES_MAX = 100  # Google's limits
DESCRIPTION_BYTES_MAX = 256
UNIQUE_ID_DIGITS = 21  # as Google's
DEFAULT_NAME = "Compute Engine default service account"
_ACCOUNT_ID = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")


@dataclasses.dataclass(frozen=True, slots=True)
class AccountRecord:
    """`unique_id`: 21 digits, which no later account of the same email gets again."""

    email: str
    project: str
    unique_id: str
    display_name: str
    description: str
    created: RealTime

    @property
    def name(self) -> str:
        return f"projects/{self.project}/serviceAccounts/{self.email}"

    @property
    def etag(self) -> str:
        text = f"{self.unique_id}\n{self.display_name}\n{self.description}"
        return base64.b64encode(hashlib.sha256(text.encode()).digest()[:8]).decode()


def unique_id_of(email: str) -> str:
    """The digits of an account that nobody has made: always the same ones."""
    digest = int.from_bytes(hashlib.sha256(email.encode()).digest(), "big")
    return f"1{digest % 10 ** (UNIQUE_ID_DIGITS - 1):0{UNIQUE_ID_DIGITS - 1}d}"


def check_account_id(account_id: str) -> None:
    if not 6 <= len(account_id) <= 30 or _ACCOUNT_ID.fullmatch(account_id) is None:
        raise invalid(
            f"accountId {account_id[:40]!r} is not valid: 6 to 30 lowercase letters, digits and "
            "dashes, starting with a letter and not ending with a dash",
            "accountId",
        )


def check_texts(display_name: str, description: str) -> None:
    for field, text, most in (
        ("displayName", display_name, DISPLAY_NAME_BYTES_MAX),
        ("description", description, DESCRIPTION_BYTES_MAX),
    ):
        if len(text.encode("utf-8", "replace")) > most:
            raise invalid(f"{field} is longer than {most} bytes", f"serviceAccount.{field}")
